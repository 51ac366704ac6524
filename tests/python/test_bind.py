"""Bindings: runs in the caller's memory, without allocation."""

import gc
import threading
import time

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import (add_model, identity_model, make_model, negate_model,
                      slow_model)


def ones(*dims):
    return np.ones(dims, np.float32)


def test_a_run_reads_and_writes_the_bound_memory():
    model = limber.load(add_model())
    a, b, y = ones(2, 3), ones(2, 3), np.zeros((2, 3), np.float32)
    binding = model.bind({"a": a, "b": b}, {"twice": y})
    assert binding.outputs is None
    first = binding.run()
    assert first[0] is y and y[0, 0] == 4
    a[:] = 5
    assert binding.run() is first and y[1, 2] == 12
    assert binding.output_names == ["twice"]


def test_a_bound_run_allocates_nothing():
    model = limber.load(negate_model())
    binding = model.bind({"x": ones(5)}, {"y": np.empty(5, np.float32)})
    binding.run()
    gc.collect()
    import tracemalloc
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        binding.run()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 500


@pytest.mark.parametrize("rows", [0, 1, 3, 4])
def test_a_smaller_result_is_a_view_of_the_bound_array(rows):
    model = limber.load(add_model())
    y = np.full((4, 3), 7, np.float32)
    [got] = model.bind({"a": ones(rows, 3), "b": ones(rows, 3)},
                       {"sum": y}).run()
    assert got.shape == (rows, 3) and np.all(got == 2)
    assert rows == 0 or np.shares_memory(got, y)
    assert np.all(y.reshape(-1)[rows * 3:] == 7)


def test_a_larger_result_is_an_error_that_writes_nothing():
    model = limber.load(add_model())
    y = np.full((2, 3), 7, np.float32)
    binding = model.bind({"a": ones(5, 3), "b": ones(5, 3)}, {"sum": y})
    with pytest.raises(limber.InvalidArgument, match="sum"):
        binding.run()
    assert np.all(y == 7)
    binding.bind_inputs({"a": ones(2, 3), "b": ones(2, 3)})
    assert binding.run()[0] is y and y[0, 0] == 2


def test_inputs_can_be_bound_again_with_other_dims():
    model = limber.load(negate_model())
    y = np.empty(8, np.float32)
    binding = model.bind({"x": ones(2)}, {"y": y})
    for n in (2, 8, 5):
        binding.bind_inputs({"x": np.arange(n, dtype=np.float32)})
        assert binding.run()[0].tolist() == [-i for i in range(n)]


def test_results_that_limber_allocates_stay_valid_while_they_are_held():
    model = limber.load(negate_model())
    x = ones(6)
    binding = model.bind({"x": x})
    held = []
    for i in range(5):
        x[:] = i
        held.append(binding.run()[0])
    assert [y[0] for y in held] == [0, -1, -2, -3, -4]
    part = binding.run()[0][2:4]
    x[:] = 9
    binding.run()
    assert part.tolist() == [-4, -4]


def test_results_that_nobody_holds_are_overwritten():
    model = limber.load(negate_model())
    binding = model.bind({"x": ones(6)})
    address = binding.run()[0].__array_interface__["data"][0]
    for _ in range(3):
        assert binding.run()[0].__array_interface__["data"][0] == address
    binding.bind_inputs({"x": ones(1 << 16)})  # does not fit
    assert binding.run()[0].shape == (1 << 16,)
    binding.bind_inputs({"x": ones(0)})
    assert binding.run()[0].shape == (0,)


def test_results_grow_with_the_data():
    """The second result does not fit into the memory of the first."""
    nonzero = make_model([helper.make_node("NonZero", ["x"], ["y"])],
                         {"x": (TensorProto.FLOAT, ["n"])},
                         {"y": (TensorProto.INT64, [1, "m"])})
    x = np.zeros(9, np.float32)
    binding = limber.load(nonzero.SerializeToString()).bind({"x": x})
    for count in (1, 5, 9, 0, 2, 2, 9):
        x[:] = [i < count for i in range(9)]
        assert binding.run()[0].tolist() == [list(range(count))]


def test_some_outputs_bound_and_some_not():
    model = limber.load(add_model())
    y = np.empty((1, 3), np.float32)
    binding = model.bind({"a": ones(1, 3), "b": ones(1, 3)},
                         {"twice": None, "sum": y})
    twice, total = binding.run()
    assert total is y and twice[0, 0] == 4
    binding.clear_outputs()
    binding.bind_outputs({"sum": y})
    assert binding.run()[0] is y and len(binding.run()) == 1


def test_any_strides_of_inputs_are_read_in_place():
    x = np.arange(12, dtype=np.float32)
    y = np.empty(6, np.float32)
    binding = limber.load(negate_model()).bind({"x": x[::-2]}, {"y": y})
    binding.run()
    assert np.array_equal(y, -x[::-2])
    x += 1
    binding.run()
    assert np.array_equal(y, -x[::-2])


def test_bfloat16_results():
    model = limber.load(identity_model(TensorProto.BFLOAT16))
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert model.bind({"x": x}).run()[0].tolist() == [1.5, -2]
    y = np.zeros(2, ml_dtypes.bfloat16)
    assert model.bind({"x": x}, {"y": y}).run()[0] is y
    assert y.tolist() == [1.5, -2]


@pytest.mark.parametrize("array,text", [
    (np.empty((3, 2), np.float32).T, "not C-contiguous"),
    (np.empty((2, 3), np.float64), "is float32; the array is float64"),
    (np.empty((2, 3), ">f4"), "byte order"),
    (np.broadcast_to(np.float32(1), (1, 1)), "read-only"),
    (np.array(["a"]), "does not support")])
def test_arrays_that_cannot_take_a_result_are_rejected(array, text):
    with pytest.raises(ValueError, match=text):
        limber.load(add_model()).bind({}, {"sum": array})


def test_lists_cannot_be_bound():
    with pytest.raises(TypeError, match="memory can be shared"):
        limber.load(negate_model()).bind({"x": [1.0, 2.0]})


def test_unknown_names_are_errors_that_list_the_known():
    model = limber.load(add_model())
    with pytest.raises(limber.InvalidArgument, match="'a', 'b'"):
        model.bind({"c": ones(1, 3)})
    with pytest.raises(limber.InvalidArgument, match="'sum', 'twice'"):
        model.bind({}, ["product"])
    with pytest.raises(limber.InvalidArgument, match="missing input 'b'"):
        model.bind({"a": ones(1, 3)}).run()


def test_one_thread_at_a_time_runs_a_binding():
    model = limber.load(slow_model(40))
    binding = model.bind({"x": np.zeros((600, 600), np.float32)})
    cancel = limber.Cancel()
    errors = []

    def work():
        try:
            binding.run(cancel=cancel)
        except limber.Cancelled as error:
            errors.append(error)
    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 60
    seen = ""
    while thread.is_alive() and time.monotonic() < deadline and not seen:
        try:
            binding.clear_inputs()  # also an error while it runs
            binding.bind_inputs({"x": np.zeros((600, 600), np.float32)})
        except RuntimeError as error:
            seen = str(error)
    cancel.trigger()
    thread.join()
    assert "another thread" in seen and len(errors) == 1


def test_a_binding_keeps_its_model_and_arrays():
    binding = limber.load(negate_model()).bind(
        {"x": ones(1000)}, {"y": np.empty(1000, np.float32)})
    gc.collect()
    assert np.all(binding.run()[0] == -1)


def test_limits_apply_to_bound_runs():
    binding = limber.load(add_model()).bind({"a": ones(1, 3), "b": ones(1, 3)})
    with pytest.raises(limber.Cancelled):
        binding.run(timeout=0)
    assert binding.run(timeout=10)[0][0, 0] == 2

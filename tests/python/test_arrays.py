"""Arrays are passed in and out without copies, whatever their layout."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import (add_model, identity_model, make_model, negate_model,
                      sub_model)

DTYPES = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.INT8: np.int8, TensorProto.INT16: np.int16,
    TensorProto.INT32: np.int32, TensorProto.INT64: np.int64,
    TensorProto.UINT8: np.uint8, TensorProto.UINT16: np.uint16,
    TensorProto.UINT32: np.uint32, TensorProto.UINT64: np.uint64,
    TensorProto.BOOL: np.bool_,
}


@pytest.mark.parametrize("onnx_dtype", DTYPES, ids=lambda t: str(DTYPES[t]))
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 5)])
def test_every_dtype_and_shape_goes_through(onnx_dtype, shape):
    dims = [f"d{i}" for i in range(len(shape))]
    model = limber.load(identity_model(onnx_dtype, dims))
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = x.astype(DTYPES[onnx_dtype])
    y = model(x)
    assert y.dtype == x.dtype and y.shape == x.shape
    assert np.array_equal(y, x)


def test_an_output_wraps_memory_of_limber():
    y = limber.load(negate_model())(np.ones(4, np.float32))
    assert not y.flags.owndata and y.flags.writeable and y.flags.c_contiguous
    assert "limber._limber.Memory" in repr(y.base)
    assert y.ctypes.data % 64 == 0


def test_an_output_never_shares_memory_with_an_input():
    x = np.ones(4, np.float32)
    y = limber.load(identity_model())(x)
    assert not np.shares_memory(x, y)


def test_outputs_of_two_runs_do_not_share_memory():
    model = limber.load(negate_model())
    a = model(np.ones(4, np.float32))
    b = model(np.zeros(4, np.float32))
    assert not np.shares_memory(a, b)
    assert a.tolist() == [-1] * 4


@pytest.mark.parametrize("threads", [0, 2])
def test_an_output_outlives_its_session(threads):
    model = limber.load(negate_model(), threads=threads)
    gone = weakref.ref(model)
    y = model(np.arange(1000, dtype=np.float32))
    del model
    gc.collect()
    assert gone() is None
    assert np.array_equal(y, -np.arange(1000, dtype=np.float32))
    part = y[10:20]
    del y
    gc.collect()
    assert part[0] == -10


def test_memory_of_outputs_is_returned():
    model = limber.load(negate_model())
    x = np.zeros(1 << 20, np.float32)
    for _ in range(20):
        model(x)
    before = anonymous_kb()
    for _ in range(200):  # 800 MB if they were not freed
        model(x)
    assert anonymous_kb() - before < 50_000


def anonymous_kb():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1])


@pytest.mark.parametrize("make", [
    lambda x: x[::2], lambda x: x[::-1], lambda x: np.broadcast_to(x[0], 8),
    lambda x: x.astype(">f4"), lambda x: np.asfortranarray(x),
    lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view("f4"),
    lambda x: memoryview(x),
], ids=["step", "reverse", "broadcast", "swapped", "fortran", "unaligned",
        "buffer"])
def test_any_layout_is_read(make):
    x = make(np.arange(8, dtype=np.float32))
    y = limber.load(negate_model())(x)
    assert np.array_equal(y, -np.asarray(x, np.float32))


def test_matrices_in_fortran_order_are_read():
    x = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.array_equal(limber.load(negate_model(dims=["n", "m"]))(x), -x)


def test_read_only_arrays_are_read():
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    assert limber.load(negate_model())(x).tolist() == [-1] * 3


def test_lists_and_numbers_take_the_models_dtype():
    model = limber.load(negate_model())
    assert model([1, 2.5]).tolist() == [-1, -2.5]
    assert model([1, 2]).dtype == np.float32
    scalar = limber.load(negate_model(TensorProto.INT64, []))
    assert scalar(7) == -7 and scalar(7).shape == ()
    assert limber.load(identity_model(TensorProto.UINT8))([255])[0] == 255
    brain = limber.load(identity_model(TensorProto.BFLOAT16))([1.5, 2])
    assert brain.tolist() == [1.5, 2]


def test_numbers_that_do_not_fit_the_dtype_are_rejected():
    with pytest.raises(limber.InvalidArgument, match="expected int64"):
        limber.load(negate_model(TensorProto.INT64))([1.5])


def test_objects_that_can_become_arrays_are_read():
    class Wrapper:
        def __array__(self, dtype=None, copy=None):
            return np.array([1, 2], np.float32)
    assert limber.load(negate_model())(Wrapper()).tolist() == [-1, -2]


def test_bits_of_bfloat16_are_read():
    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    y = limber.load(identity_model(TensorProto.BFLOAT16))(x.view(np.uint16))
    assert y.dtype == x.dtype and np.array_equal(y, x)


@pytest.mark.parametrize("value", [
    np.ones(2, np.complex64), np.array(["a"]), np.array([object()]), None,
    np.zeros([1] * 13, np.float32)])
def test_unsupported_dtypes_are_rejected(value):
    with pytest.raises(limber.InvalidArgument, match="input 'x'"):
        limber.load(negate_model())(value)


def test_ragged_lists_are_rejected_with_the_inputs_name():
    with pytest.raises(ValueError, match="input 'x'"):
        limber.load(negate_model())([[1], [1, 2]])


def test_only_requested_outputs_are_returned():
    model = limber.load(add_model())
    feeds = {"a": np.ones((1, 3), "f"), "b": np.ones((1, 3), "f")}
    [twice] = model.run(["twice"], feeds)
    assert twice.tolist() == [[4] * 3]
    twice, total = model.run(["twice", "sum"], feeds)
    assert twice[0, 0] == 4 and total[0, 0] == 2


def test_numpy_scalars_are_read_before_they_are_freed():
    model = limber.load(sub_model())
    for i in range(8):
        assert model(np.float64(i), np.float64(100)) == i - 100


def test_feeds_that_grow_while_they_are_read_are_rejected():
    feeds = {}

    class Growing:
        def __array__(self, *_, **__):
            feeds.update({f"more{i}": 1.0 for i in range(100)})
            return np.ones(())
    feeds["a"] = Growing()
    with pytest.raises(RuntimeError, match="grew"):
        limber.load(sub_model()).run(None, feeds)


def contiguous_rows(x):
    """A window of a larger array: rows are contiguous, with gaps between."""
    larger = np.zeros([n + 3 for n in x.shape], x.dtype)
    window = larger[tuple(slice(2, 2 + n) for n in x.shape)]
    window[...] = x
    return window


def copies(model, x):
    return [step["op"] for step in model.profile(None, {"x": x})].count("Copy")


def test_windows_of_larger_arrays_are_read_in_place():
    model = limber.load(negate_model(dims=["n", "m", "k"]))
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    assert copies(model, x) == 0
    assert copies(model, contiguous_rows(x)) == 0
    assert copies(model, x[::-1, ::2]) == 0
    assert copies(model, x.T) == 1  # by the plan, which may use all threads


@pytest.mark.parametrize("seed", range(30))
def test_any_strides_give_the_bits_of_a_dense_array(seed):
    rng = np.random.default_rng(seed)
    dtype = [TensorProto.FLOAT, TensorProto.INT32, TensorProto.DOUBLE][seed % 3]
    model = limber.load(negate_model(dtype, ["n", "m", "k"]))
    x = rng.integers(-99, 99, rng.integers(1, 9, 3)).astype(DTYPES[dtype])
    x = contiguous_rows(x).transpose(rng.permutation(3))
    x = x[tuple(slice(None, None, rng.choice([-2, -1, 1, 2])) for _ in "nmk")]
    if seed % 5 == 0:
        x = np.broadcast_to(x[:1], (4, *x.shape[1:]))
    assert np.array_equal(model(x), -np.ascontiguousarray(x))


def test_strides_of_partial_elements_are_copied():
    pairs = np.zeros(5, dtype=[("pad", "u1"), ("x", "f4")])
    pairs["x"] = np.arange(5)
    x = pairs["x"]
    assert x.strides == (5,)
    assert np.array_equal(limber.load(negate_model())(x), -np.arange(5))
    aligned = np.lib.stride_tricks.as_strided(
        np.arange(6, dtype=np.int64).view("f8"), (2, 2), (20, 8))
    y = limber.load(negate_model(TensorProto.DOUBLE, ["n", "m"]))(aligned)
    assert np.array_equal(y, -aligned)


def test_inputs_that_decide_shapes_may_have_strides():
    reshape = make_model([helper.make_node("Reshape", ["x", "to"], ["y"])],
                         {"x": (TensorProto.FLOAT, ["n"]),
                          "to": (TensorProto.INT64, [2])},
                         {"y": (TensorProto.FLOAT, ["a", "b"])})
    model = limber.load(reshape.SerializeToString())
    x = np.arange(6, dtype=np.float32)
    sizes = np.array([2, 7, 3, 7, 3, 7, 2], np.int64)
    for to in (sizes[:4:2], sizes[4::2], sizes[2::-2], sizes[:4:2]):
        assert model(x, to).shape == tuple(to)

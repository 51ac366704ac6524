"""Outputs live as long as they are referenced: longer than their session, and
they keep the runtime that allocated them alive."""

import gc
import threading
import weakref

import limber
import numpy as np
import pytest
from conftest import add_model, identity_model
from onnx import TensorProto


class Listener:
    """Owned by a runtime, so it lives as long as the runtime."""

    def __call__(self, event):
        pass


def load(**options):
    """A model with its own runtime, and a weak reference to its listener."""
    listener = Listener()
    return limber.load(add_model(), event=listener, **options), \
        weakref.ref(listener)


def run(model, rows=5):
    a = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
    total, twice = model.run(["sum", "twice"], {"a": a, "b": a})
    return a, total, twice


def litter():
    """Overwrites memory that was freed."""
    return [np.full(n, -1, np.float32) for n in range(1, 200) for _ in range(4)]


def test_outputs_outlive_their_session_and_retain_its_runtime():
    model, runtime = load(threads=2)
    a, total, twice = run(model)
    del model
    gc.collect()
    assert runtime() is not None
    held = litter()
    np.testing.assert_array_equal(total, 2 * a)
    np.testing.assert_array_equal(twice, 4 * a)
    total += 1
    twice[:] = 7
    np.testing.assert_array_equal(total, 2 * a + 1)
    assert np.all(twice == 7)
    del total
    gc.collect()
    assert runtime() is not None, "one output is left"
    del twice, held
    gc.collect()
    assert runtime() is None, "nothing holds the runtime any more"


def test_a_view_of_an_output_retains_it():
    model, runtime = load()
    a, total, twice = run(model)
    row = total[3, 1:]
    del model, total, twice
    gc.collect()
    held = litter()
    assert runtime() is not None
    np.testing.assert_array_equal(row, 2 * a[3, 1:])
    row[:] = 0
    assert held and np.all(row == 0)
    del row
    gc.collect()
    assert runtime() is None


def test_a_session_outlives_its_outputs():
    model, runtime = load()
    for rows in (1, 7, 300):
        a, total, twice = run(model, rows)
        np.testing.assert_array_equal(twice, 4 * a)
        del total, twice
        gc.collect()
    assert runtime() is not None
    del model
    gc.collect()
    assert runtime() is None


def test_outputs_of_two_runs_do_not_share_memory():
    model, _ = load()
    a, first, _ = run(model)
    first_copy = first.copy()
    second = model.run(["sum"], {"a": a + 1, "b": a})[0]
    np.testing.assert_array_equal(first, first_copy)
    second[:] = 0
    np.testing.assert_array_equal(first, first_copy)


@pytest.mark.parametrize("kind", ["identity", "input kept"])
def test_an_output_is_never_an_input(kind):
    """An output that equals an input has its own memory."""
    model = limber.load(identity_model(TensorProto.FLOAT, ["n"]))
    x = np.arange(9, dtype=np.float32)
    y = model.run(None, {"x": x})[0]
    if kind == "identity":
        x[:] = -1
        del model
        gc.collect()
        np.testing.assert_array_equal(y, np.arange(9))
    else:
        y[:] = -1
        np.testing.assert_array_equal(x, np.arange(9))


def test_outputs_whose_last_reference_another_thread_drops():
    model, runtime = load(threads=3)
    a, total, twice = run(model, 1000)
    box = [total, twice]
    del model, total, twice

    def use():
        np.testing.assert_array_equal(box[1], 4 * a)
        box.clear()
        gc.collect()
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert not box
    gc.collect()
    assert runtime() is None

"""Runs that time out or are cancelled, and memory that is released."""

import ctypes
import re
import subprocess
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import ROOT, make_model, negate_model, slow_model

PROGRAM = ROOT / "build" / "limber"
SIZE = 256


def square(n=SIZE):
    return np.eye(n, dtype=np.float32)


@pytest.mark.parametrize("open_model", [limber.load, limber.InferenceSession])
def test_a_run_ends_at_its_timeout(open_model):
    model = open_model(slow_model(2000))
    with pytest.raises(limber.Cancelled, match="the run's deadline passed") as e:
        model.run(None, {"x": square()}, timeout=0.01)
    found = re.search(r"at MatMul.*, after (\d+) of 2000 steps",
                      str(e.value))
    assert found and int(found[1]) < 2000
    result, = model.run(None, {"x": square(8)}, timeout=3600)
    assert np.array_equal(result, square(8))


def test_another_thread_can_cancel_a_run():
    model = limber.load(slow_model(20000))
    cancel = limber.Cancel()
    assert not cancel.triggered
    timer = threading.Timer(0.02, cancel.trigger)
    timer.start()
    with pytest.raises(limber.Cancelled, match="the run was cancelled"):
        model.run(None, {"x": square()}, cancel=cancel)
    timer.join()
    assert cancel.triggered
    with pytest.raises(limber.Cancelled, match="after 0 of 20000 steps"):
        model.run(None, {"x": square()}, cancel=cancel)
    cancel.reset()
    model.run(None, {"x": square(2)}, cancel=cancel)


def test_run_options_terminate_as_in_onnx_runtime():
    session = limber.InferenceSession(negate_model())
    options = limber.RunOptions()
    feeds = {"x": np.ones(3, np.float32)}
    session.run(None, feeds, options)
    options.terminate = True
    with pytest.raises(limber.Cancelled):
        session.run(None, feeds, options)
    options.terminate = False
    session.run(None, feeds, options)
    session.run(None, feeds, object())


def test_wrong_limits_are_rejected():
    model = limber.load(negate_model())
    feeds = {"x": np.ones(3, np.float32)}
    with pytest.raises(TypeError, match="must be a limber.Cancel"):
        model.run(None, feeds, cancel=threading.Event())
    with pytest.raises(TypeError):
        model.run(None, feeds, timeout="soon")
    with pytest.raises(limber.InvalidArgument, match="not a number"):
        model.run(None, feeds, timeout=float("nan"))
    with pytest.raises(limber.Cancelled):
        model.run(None, feeds, timeout=0)
    with pytest.raises(limber.Cancelled):
        model.run(None, feeds, timeout=-5)


def test_the_command_has_a_timeout(tmp_path):
    path = tmp_path / "slow.onnx"
    path.write_bytes(slow_model(20000))
    done = subprocess.run(
        [PROGRAM, "run", path, "--input", f"x=random:f32[{SIZE},{SIZE}]",
         "--timeout", "0.01"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "of 20000 steps" in done.stderr
    done = subprocess.run([PROGRAM, "run", path, "--timeout", "0"],
                          capture_output=True, text=True)
    assert done.returncode == 2


def resident():
    """Bytes without pages of files, which the system may drop."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines
                    if line.startswith("RssAnon"))


def chain_model():
    """Matmuls with four buffers of x's size between them."""
    names = ["x", "a", "b", "c", "y"]
    return make_model(
        [helper.make_node("CumSum", [i, "axis"], [o], reverse=n % 2)
         for n, (i, o) in enumerate(zip(names, names[1:]))],
        {"x": (TensorProto.FLOAT, ["n"]), "axis": (TensorProto.INT64, [])},
        {"y": (TensorProto.FLOAT, ["n"])}).SerializeToString()


@pytest.mark.parametrize("size", [20_000_000, 5_000_000])
def test_memory_is_released_after_an_input_100_times_larger(size):
    model = limber.load(chain_model())

    def run(n):
        model.run(None, {"x": np.zeros(n, np.float32),
                         "axis": np.int64(0)})
    for _ in range(136):
        run(size // 100)
    small, before = model.stats().arena_bytes, resident()
    run(size)
    assert model.stats().arena_bytes > 4 * size
    for _ in range(127):
        run(size // 100)
    assert model.stats().arena_bytes > 4 * size
    for _ in range(2):
        run(size // 100)
    assert model.stats().arena_bytes == small
    ctypes.CDLL(None).malloc_trim(0)  # returns memory that numpy freed
    assert resident() < before + size // 2 + (2 << 20)


def test_trimming_releases_memory():
    model = limber.load(chain_model())
    x = np.zeros(1_000_000, np.float32)
    model(x, np.int64(0))
    held = model.stats().arena_bytes
    assert model.trim() >= held > 0
    assert model.stats().arena_bytes == 0 and model.trim() == 0
    assert model(x, np.int64(0)).shape == x.shape

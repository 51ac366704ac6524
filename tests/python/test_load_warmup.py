"""Loading warms up with a run, whose only visible effect are kernel
requests."""

import time

import limber
import numpy as np
import pytest
from conftest import MODELS, add_model, make_model
from onnx import TensorProto, helper


def matmul_model(inner=8):
    return make_model(
        [helper.make_node("RandomUniformLike", ["x"], ["r"]),
         helper.make_node("MatMul", ["x", "w"], ["p"]),
         helper.make_node("Softmax", ["p"], ["y"], axis=-1)],
        {"x": (TensorProto.FLOAT, ["n", "m", inner]),
         "w": (TensorProto.FLOAT, [inner, 5])},
        {"y": (TensorProto.FLOAT, ["n", "m", 5]),
         "r": (TensorProto.FLOAT, ["n", "m", inner])}).SerializeToString()


def feeds(n, m, inner=8):
    values = np.random.default_rng(n * 100 + m)
    return {"x": values.standard_normal((n, m, inner), np.float32),
            "w": values.standard_normal((inner, 5), np.float32)}


def events_of(load_warmup):
    heard = []
    model = limber.load(matmul_model(), threads=2, load_warmup=load_warmup,
                        event=lambda e: heard.append((e.name, e.reason)))
    # Reusable kernels are requested, and may be compiled already.
    model.flush_events()
    before = sum(not name.startswith(("worker_", "kernel_"))
                 for name, _ in heard)
    for n, m in ((1, 32), (3, 7), (1, 32)):
        model.run(None, feeds(n, m))
    del model
    return before, [e for e in heard if e[0] in ("plan_built", "run_ended")]


def test_it_emits_no_run_events():
    before, warmed = events_of(True)
    assert before == 0
    assert warmed == events_of(False)[1]


def test_it_is_not_counted():
    model = limber.load(matmul_model(), threads=2)
    stats = model.stats()
    assert stats.runs == stats.plans == stats.plans_built == 0
    assert stats.plan_bytes == 0
    assert stats.arena_bytes <= 4 << 20
    model.trim()
    assert model.stats().arena_bytes == 0


def test_reusable_kernels_are_requested():
    """The tile variants that a request's rows choose from are requested before
    the first request."""
    model = limber.load(matmul_model(inner=9), threads=2)
    stats = model.stats()
    assert stats.runs == 0
    assert stats.kernels_requested > 0
    for n, m in ((1, 32), (3, 7), (1, 1)):
        model.run(None, feeds(n, m, inner=9))
    assert model.stats().kernels_requested == stats.kernels_requested


def test_without_it_the_first_run_requests_them():
    model = limber.load(matmul_model(inner=11), threads=2, load_warmup=False)
    assert model.stats().kernels_requested == 0
    model.run(None, feeds(1, 32, inner=11))
    assert model.stats().kernels_requested > 0


def test_its_shapes_are_not_recorded(tmp_path):
    model = limber.load(matmul_model())
    path = tmp_path / "shapes.txt"
    model.record_shapes(str(path))
    model.run(None, feeds(2, 3))
    del model
    lines = [line for line in path.read_text().splitlines()
             if not line.startswith("#")]
    assert lines == ["1 x=float32[2,3,8] w=float32[8,5]"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_results_are_the_same_without_it(deterministic):
    found = []
    for load_warmup in (True, False):
        model = limber.load(matmul_model(), deterministic=deterministic,
                            load_warmup=load_warmup)
        found.append([model.run(None, feeds(n, 5)) for n in (1, 4, 1)])
    for ours, theirs in zip(*found):
        for a, b in zip(ours, theirs):  # random operators too
            np.testing.assert_array_equal(a, b)


def test_a_model_that_rejects_the_guessed_shapes_is_loaded():
    model = limber.load(make_model(
        [helper.make_node("MatMul", ["x", "y"], ["z"])],
        {"x": (TensorProto.FLOAT, ["n", "a"]),
         "y": (TensorProto.FLOAT, [7, "b"])},
        {"z": (TensorProto.FLOAT, ["n", "b"])}).SerializeToString())
    x, y = np.ones((2, 7), np.float32), np.ones((7, 3), np.float32)
    np.testing.assert_array_equal(model(x, y), np.full((2, 3), 7))


def test_a_memory_limit_applies_to_it():
    model = limber.load(matmul_model(), memory_limit=1 << 20)
    assert model.stats().arena_bytes == 0
    model.run(None, feeds(1, 2))


def test_it_can_be_disabled():
    options = limber.SessionOptions()
    options.load_warmup = False
    session = limber.InferenceSession(add_model(), options)
    assert session.stats().arena_bytes == 0
    ones = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(session.run(["sum"], {"a": ones, "b": ones}),
                                  [ones + ones])


@pytest.mark.parametrize("name", ["vad", "ocr-cls", "yolo"])
def test_it_is_short(name):
    """The best of several loads: a busy machine may delay any of them."""
    path = str(MODELS / f"{name}.onnx")
    took = {}
    for _ in range(5):
        for load_warmup in (True, False):
            start = time.perf_counter()
            limber.load(path, threads=1, load_warmup=load_warmup)
            took.setdefault(load_warmup, []).append(time.perf_counter() - start)
    assert min(took[True]) < 1.5 * min(took[False]) + 0.005

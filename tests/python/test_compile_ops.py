"""compile_ops="critical" compiles only convolutions, matmuls, attention and
softmax, and compile="settle" compiles nothing before settle is called. Both
hold for kernels that runs need and for kernels that are compiled ahead when
idle, also before the first run."""

import json
import os
import subprocess
import sys
import time

import limber
import numpy as np
import pytest
from conftest import ROOT, make_model
from onnx import TensorProto, helper, numpy_helper

WIDTH = 40
CRITICAL = ["matmul", "conv", "softmax"]
OTHERS = ["eltwise", "norm", "mean", "pool"]


def kind_of(kernel):
    """The kind of a kernel, from the text of its event:
    "reusable: row_reduce %0=input.float32.full ..."."""
    form, nodes = kernel.split(": ", 1)[1].split(" ", 1)
    if form == "row_reduce":
        if "=exp." in nodes and "=rsum." in nodes:
            return "softmax"
        return "norm" if "sqrt" in nodes else "mean"
    if form == "window":
        return "conv" if "=input.float32" in nodes.split(" ", 1)[1] else "pool"
    return form


def mixed_model():
    """Each of its outputs needs a kernel of another kind; only those of
    matmuls are fused."""
    def weight(name, *dims):
        values = np.random.default_rng(1).normal(size=dims)
        return numpy_helper.from_array(values.astype(np.float32), name)
    node = helper.make_node
    image = [TensorProto.FLOAT, ["n", 4, 6, 7]]
    model = make_model(
        [node("MatMul", ["x", "w"], ["matmul"]),
         node("Softmax", ["matmul"], ["softmax"]),
         node("Sin", ["x"], ["eltwise"]),
         node("LayerNormalization", ["x", "g"], ["norm"]),
         node("ReduceMean", ["x"], ["mean"], axes=[-1]),
         node("Conv", ["i", "k"], ["conv"]),
         node("MaxPool", ["i"], ["pool"], kernel_shape=[2, 3])],
        {"x": (TensorProto.FLOAT, ["n", WIDTH]), "i": tuple(image)},
        {name: (TensorProto.FLOAT, None) for name in CRITICAL + OTHERS})
    model.graph.initializer.extend([
        weight("w", WIDTH, 3 * WIDTH), weight("g", WIDTH),
        weight("k", 5, 4, 3, 3)])
    return model.SerializeToString()


def run(model, times=3):
    for rows in (3, 17):
        feeds = {"x": np.ones([rows, WIDTH], np.float32),
                 "i": np.ones([rows, 4, 6, 7], np.float32)}
        for _ in range(times):
            model.run(None, feeds)


class Kernels(list):
    """Kinds of the kernels that were published."""

    def __call__(self, event):
        if event.name == "kernel_published":
            self.append(kind_of(event.text))


def await_idle(kernels, seconds=30):
    """Waits until nothing has been compiled for the time of several kernels."""
    end = time.monotonic() + seconds
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 1.5 and time.monotonic() < end:
        if len(kernels) != before:
            before, since = len(kernels), time.monotonic()
        time.sleep(0.05)


def await_all(model, seconds=60):
    """Waits until no kernel that is compiled in the background is pending."""
    end = time.monotonic() + seconds
    while model.stats().kernels_pending and time.monotonic() < end:
        time.sleep(0.05)


def compile_here(settles=False, runs=True, **options):
    kernels = Kernels()
    model = limber.load(mixed_model(), event=kernels, **options)
    if runs:
        run(model)
    if settles:
        model.settle(60)
    elif runs or options.get("compile") == "settle":
        await_idle(kernels)
    else:
        await_all(model)
    model.flush_events()
    return sorted(set(kernels)), model.stats()


SCRIPT = """
import json, sys
import test_compile_ops
kernels, stats = test_compile_ops.compile_here(**json.loads(sys.argv[1]))
print(json.dumps([kernels, stats.kernels, stats.kernels_pending]))
"""


def compiled(settles=False, variable=None, **options):
    """Kinds of kernels, how many there are and how many are pending, in a new
    process: all sessions of a process share kernels."""
    path = [str(ROOT / "tests" / "python"), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    environment.pop("LIMBER_COMPILE_OPS", None)
    if variable:
        environment["LIMBER_COMPILE_OPS"] = variable
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps({"settles": settles,
                                                   **options})],
        env=environment, capture_output=True, text=True, check=True)
    kernels, made, pending = json.loads(done.stdout)
    return set(kernels), made, pending


def test_all_kinds_are_distinguished():
    kernels, _, pending = compiled(settles=True, compile_ops="all")
    assert kernels == set(CRITICAL + OTHERS)
    assert pending == 0


@pytest.mark.parametrize("settles", [False, True])
def test_critical_compiles_nothing_else(settles):
    kernels, _, pending = compiled(settles, compile_ops="critical")
    assert kernels == set(CRITICAL)
    assert pending == 0, "of the kinds that it compiles"


def test_nothing_is_compiled_before_settle():
    kernels, made, _ = compiled(compile="settle")
    assert kernels == set() and made == 0


def test_settle_compiles_what_the_session_allows():
    kernels, *_ = compiled(settles=True, compile="settle",
                           compile_ops="critical")
    assert kernels == set(CRITICAL)


@pytest.mark.parametrize("settles", [False, True])
@pytest.mark.parametrize("ops, expected", [
    ("all", CRITICAL + OTHERS), ("critical", CRITICAL)])
def test_a_model_that_was_loaded_needs_no_run(ops, expected, settles):
    """Its reusable kernels of the allowed kinds are compiled."""
    options = {"compile": "settle"} if settles else {}
    kernels, made, pending = compiled(settles, runs=False, compile_ops=ops,
                                      **options)
    assert kernels == set(expected)
    assert made > len(expected), "products have tiles for other rows"
    assert pending == 0


def test_loading_alone_compiles_nothing_before_settle():
    kernels, made, pending = compiled(runs=False, compile="settle")
    assert kernels == set() and made == 0
    assert pending > 0, "it is requested"


@pytest.mark.parametrize("variable, option, expected", [
    ("critical", None, "critical"), ("critical", "all", "all"),
    ("all", "critical", "critical")])
def test_the_option_overrides_the_environment(variable, option, expected):
    kernels, *_ = compiled(settles=True, variable=variable, compile="settle",
                           compile_ops=option)
    assert kernels == set(CRITICAL + (OTHERS if expected == "all" else []))

"""The package's types and the examples of its docstrings."""

import asyncio
import doctest
import importlib
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import limber
from conftest import ROOT, negate_model

PACKAGE = ROOT / "python" / "limber"
CACHE = ROOT / "build" / "mypy"

# A program that uses the types; each line marked "wrong" is an error.
PROGRAM = """
import asyncio
import numpy as np
import limber
import limber.compat as ort

with limber.load("model.onnx", threads=2) as model:
    results = model.run(["y"], {"x": np.ones(2)}, timeout=0.5)
    results[0].shape
    model.run("y", {"x": 1}, timeout="soon")  # wrong
    binding = model.bind({"x": np.ones(2)}, {"y": np.empty(2)})
    binding.run()[0].dtype
    binding.bind_inputs([1])  # wrong
    model.stats().plans + 1
    model.stats().plan_count  # wrong
    async def f() -> None:
        await model.run_async(None, {})
    asyncio.run(f())
softmax = limber.Primitive("softmax", [("float32", (None, 4))], axis=-1)
softmax.query().tier.upper()
options = ort.SessionOptions()
options.intra_op_num_threads = 2
options.intra_op_num_threads = "two"  # wrong
session = ort.InferenceSession(b"", options)
session.get_inputs()[0].shape
session.io_binding().bind_ortvalue_input("x", 3)  # wrong
ort.GraphOptimizationLevel.ORT_ENABLE_ALL
ort.get_available_providers().wonder  # wrong
"""


def mypy(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", CACHE,
         "--config-file", "/dev/null", *arguments],
        capture_output=True, text=True, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


def test_the_package_passes_strict_checks():
    code, text = mypy("--strict", PACKAGE)
    assert code == 0, text


def test_programs_are_checked_against_the_package(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    _, text = mypy("--strict", program)
    found = {int(line.split(":")[1]) for line in text.splitlines()
             if "error:" in line}
    wrong = {i for i, line in enumerate(PROGRAM.splitlines(), 1)
             if "# wrong" in line}
    assert found == wrong, text


def test_the_stub_is_that_of_the_extension(tmp_path):
    allowed = tmp_path / "allowed"  # types take any arguments before __init__
    allowed.write_text("limber._limber.Cancel.__init__\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "limber._limber",
         "--ignore-disjoint-bases", "--allowlist", allowed,
         "--mypy-config-file", "/dev/null"],
        capture_output=True, text=True, cwd=ROOT / "build")
    assert done.returncode == 0, done.stdout + done.stderr


def modules():
    names = ["limber._limber", "limber"]
    names += [m.name for m in pkgutil.walk_packages(limber.__path__, "limber.")
              if not m.name.endswith(("__main__", "_limber"))]
    return names


@pytest.mark.filterwarnings("ignore::limber.compat.CompatibilityWarning")
def test_examples_of_docstrings_are_right(same_onnxruntime):
    model_bytes = negate_model()
    tried, wrong = {}, 0
    for name in modules():
        module = importlib.import_module(name)
        known = {"limber": limber, "np": np, "asyncio": asyncio,
                 "model_bytes": model_bytes, "model": limber.load(model_bytes)}
        result = doctest.testmod(module, extraglobs=known)
        tried[name] = result.attempted
        wrong += result.failed
    assert wrong == 0
    for name in ("limber._limber", "limber._model", "limber._primitive",
                 "limber._binding", "limber.compat._session"):
        assert tried[name] > 2, tried

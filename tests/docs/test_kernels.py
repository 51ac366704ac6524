"""docs/kernels.md: its patch, applied to a copy of the tree, gives kernels that
agree with the host and with ONNX Runtime."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "kernels.md"

# Prints the kernels that a model of one LpNormalization wants and has.
COUNT = """
import sys
import numpy as np
import limber
from onnx import TensorProto, helper
node = helper.make_node("LpNormalization", ["x"], ["y"])
value = helper.make_tensor_value_info
graph = helper.make_graph([node], "one",
                          [value("x", TensorProto.FLOAT, ["m", "n"])],
                          [value("y", TensorProto.FLOAT, ["m", "n"])])
model = limber.load(helper.make_model(
    graph, opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8).SerializeToString())
model.run(None, {"x": np.ones((3, 40), np.float32)})
model.settle(600)
print(model.stats().kernels_wanted, model.stats().kernels)
"""


def call(*command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def patches():
    """The page's diffs, in order."""
    return re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with the patches applied, built."""
    tree = tmp_path_factory.mktemp("tree")
    names = call("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    for name in names.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    assert patches()
    for patch in patches():
        call("patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", cwd=tree,
             input=patch)
    call("cmake", "-S", tree, "-B", tree / "out", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Debug", "-DLIMBER_TESTS=OFF", "-DSKBUILD=ON",
         "-DLIMBER_COMPILE_KERNELS_FOR_ARCH=NONE",
         f"-DPython_EXECUTABLE={sys.executable}")
    call("ninja", "-C", tree / "out", "_limber", "limber-jit")
    package = tree / "package" / "limber"
    shutil.copytree(tree / "python" / "limber", package)
    shutil.copy(tree / "out" / "python" / "_limber.abi3.so", package)
    return tree


def environment(tree, isa):
    return {**os.environ, "PYTHONPATH": str(tree / "package"),
            "LIMBER_JIT": "process", "LIMBER_COMPILE": "settle",
            "LIMBER_ISA": isa,
            "LIMBER_JIT_PATH": str(tree / "out" / "limber-jit")}


def test_without_the_patch_the_host_computes_it():
    wanted, _ = map(int, call(sys.executable, "-c", COUNT).split())
    assert wanted == 0


@pytest.mark.parametrize("isa", ["native", "x86-64-v3"])
def test_with_it_there_are_kernels_and_they_are_right(tree, isa):
    wanted, had = map(int, call(sys.executable, "-c", COUNT,
                                env=environment(tree, isa)).split())
    assert wanted == had == 1
    call(sys.executable, tree / "tests" / "operators" / "repro.py",
         "LpNormalization", "0", "120", env=environment(tree, isa))

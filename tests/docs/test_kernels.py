"""docs/kernels.md: its patch, applied to a copy of the tree, gives kernels that
agree with the reference kernels and with ONNX Runtime."""

import os
import sys

import pytest

from conftest import call

# Prints how many kernels a model of one LpNormalization requests and has.
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
print(model.stats().kernels_requested, model.stats().kernels)
"""


def environment(tree, isa):
    return {**os.environ, "PYTHONPATH": str(tree / "package"),
            "LIMBER_JIT": "process", "LIMBER_COMPILE": "settle",
            "LIMBER_ISA": isa,
            "LIMBER_JIT_PATH": str(tree / "out" / "limber-jit")}


def test_without_the_patch_a_reference_kernel_computes_it():
    requested, _ = map(int, call(sys.executable, "-c", COUNT).split())
    assert requested == 0


@pytest.mark.parametrize("isa", ["native", "x86-64-v3"])
def test_with_the_patch_kernels_exist_and_are_correct(tree, isa):
    requested, had = map(int, call(sys.executable, "-c", COUNT,
                                env=environment(tree, isa)).split())
    assert requested == had == 1
    call(sys.executable, tree / "tests" / "operators" / "repro.py",
         "LpNormalization", "0", "120", env=environment(tree, isa))

"""docs/operators.md: its patch, which changes only the three files that
CONTRIBUTING.md names, adds an operator that models can use."""

import os
import re
import sys

import pytest

from conftest import ROOT, call, patches

PLACES = re.compile(
    r"src/graph/(ops\.def|rules_\w+\.c)|src/device/reference/\w+\.c")

# Runs a model with a CubeRoot between others, at two shapes and as a constant.
RUN = """
import numpy as np
import limber
from onnx import TensorProto, helper, numpy_helper
value, node = helper.make_tensor_value_info, helper.make_node
weights = np.array([1, 8, -27], np.float32)
graph = helper.make_graph(
    [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
     node("CubeRoot", ["t"], ["r"]),
     node("CubeRoot", ["w"], ["v"]),
     node("Mul", ["r", "v"], ["y"])], "one",
    [value("x", TensorProto.FLOAT, ["n", 3, "m"])],
    [value("y", TensorProto.FLOAT, ["n", "m", 3])],
    [numpy_helper.from_array(weights, "w")])
model = limber.load(helper.make_model(
    graph, opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8).SerializeToString())
for n, m in (2, 5), (1, 40):
    x = np.random.default_rng(n).standard_normal((n, 3, m)).astype(np.float32)
    y, = model.run(None, {"x": x})
    want = np.cbrt(x.transpose(0, 2, 1)) * np.cbrt(weights)
    np.testing.assert_allclose(y, want, rtol=1e-6)
print("right")
"""


def changed(patch):
    return re.search(r"^\+\+\+ b/(\S+)", patch, re.M)[1]


def test_the_patch_changes_only_three_files():
    files = [changed(p) for p in patches("operators.md")]
    assert len(files) == 3 and "src/graph/ops.def" in files
    assert all(PLACES.fullmatch(f) for f in files)
    for place in ("src/graph/ops.def", "src/graph", "src/device/reference"):
        assert f"`{place}`" in (ROOT / "CONTRIBUTING.md").read_text()


def test_without_the_patch_the_operator_is_unknown():
    with pytest.raises(AssertionError, match="CubeRoot"):
        call(sys.executable, "-c", RUN)


def test_with_the_patch_a_model_runs(tree):
    env = {**os.environ, "PYTHONPATH": str(tree / "package"),
           "LIMBER_JIT_PATH": str(tree / "out" / "limber-jit")}
    assert call(sys.executable, "-c", RUN, env=env) == "right\n"

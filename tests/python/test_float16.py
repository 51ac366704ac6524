"""Models of float16 and bfloat16: computed in float32, rounded at inputs and
outputs."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import limber
from conftest import make_model

HALVES = [(np.float16, TensorProto.FLOAT16, 2.0 ** -11),
          (ml_dtypes.bfloat16, TensorProto.BFLOAT16, 2.0 ** -8)]


def weights(name, array):
    return numpy_helper.from_array(array, name)


def perceptron(dtype, code, k, n):
    """y = Gelu(x @ w + b) @ v, with weights too large for constant folding"""
    rng = np.random.default_rng(1)
    w = (rng.standard_normal((k, n)) / k ** 0.5).astype(dtype)
    b = rng.standard_normal(n).astype(dtype)
    v = (rng.standard_normal((n, k)) / n ** 0.5).astype(dtype)
    root = np.array(2 ** 0.5, dtype)
    one, half = np.array(1, dtype), np.array(0.5, dtype)
    model = make_model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]),
         helper.make_node("Add", ["p", "b"], ["q"]),
         helper.make_node("Div", ["q", "root"], ["d"]),
         helper.make_node("Erf", ["d"], ["e"]),
         helper.make_node("Add", ["e", "one"], ["a"]),
         helper.make_node("Mul", ["q", "a"], ["m"]),
         helper.make_node("Mul", ["m", "half"], ["g"]),
         helper.make_node("MatMul", ["g", "v"], ["y"])],
        {"x": (code, ["m", k])}, {"y": (code, ["m", k])})
    for name, array in [("w", w), ("b", b), ("v", v), ("root", root),
                        ("one", one), ("half", half)]:
        model.graph.initializer.append(weights(name, array))

    def expected(x):
        erf = np.vectorize(math.erf)
        q = x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64)
        return q * (erf(q / 2 ** 0.5) + 1) / 2 @ v.astype(np.float64)
    return model, expected


@pytest.mark.parametrize("dtype, code, eps", HALVES)
def test_a_float16_matmul_is_as_exact_as_its_output(dtype, code, eps):
    made, expected = perceptron(dtype, code, 384, 1536)
    model = limber.load(made.SerializeToString())
    for rows in (1, 2, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 384))
        x = x.astype(dtype)
        want = expected(x)
        for _ in range(2):
            y = model.run(None, {"x": x})[0]
            assert y.dtype == dtype
            error = np.abs(y.astype(np.float64) - want)
            assert (error <= 2 * eps * (np.abs(want) + 0.01)).all()
            model.settle(600)


@pytest.mark.parametrize("dtype, code, eps", HALVES)
def test_no_step_runs_on_reference_kernels(dtype, code, eps):
    made, _ = perceptron(dtype, code, 64, 128)
    model = limber.load(made.SerializeToString())
    feeds = {"x": np.ones((5, 64), dtype)}
    model.run(None, feeds)
    model.settle(600)
    steps = model.profile(None, feeds)
    assert steps and all(step["tier"] != "reference" for step in steps), steps


def test_a_float16_table_stays_float16():
    table = np.arange(40000 * 64).reshape(40000, 64) % 97
    made = make_model(
        [helper.make_node("Gather", ["t", "i"], ["r"]),
         helper.make_node("Relu", ["r"], ["y"])],
        {"i": (TensorProto.INT64, ["n"])},
        {"y": (TensorProto.FLOAT16, ["n", 64])})
    made.graph.initializer.append(weights("t", table.astype(np.float16)))
    model = limber.load(made.SerializeToString())
    rows = np.array([3, 39999, 3], np.int64)
    assert (model.run(None, {"i": rows})[0] == table[rows]).all()
    assert "float16[40000,64]" in model.dump()


def test_float16_passes_through_loops_and_branches():
    half = TensorProto.FLOAT16
    body = helper.make_graph(
        [helper.make_node("Mul", ["s", "s"], ["t"]),
         helper.make_node("Identity", ["go"], ["on"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("s", half, ["n"])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("t", half, ["n"])])
    made = make_model(
        [helper.make_node("Sqrt", ["x"], ["r"]),
         helper.make_node("Loop", ["trips", "", "r"], ["z"], body=body),
         helper.make_node("Add", ["z", "x"], ["y"])],
        {"x": (half, ["n"]), "trips": (TensorProto.INT64, [])},
        {"y": (half, ["n"])})
    onnx.checker.check_model(made)
    model = limber.load(made.SerializeToString())
    x = np.array([0, 1, 4, 9], np.float16)
    y = model.run(None, {"x": x, "trips": np.array(2, np.int64)})[0]
    assert y.dtype == np.float16 and (y == x * x + x).all()

"""Quantised square weights with one scale, one per row or one per column,
against ONNX Runtime without graph optimisations: its optimised graph confuses a
scale per row with one per column. And batch normalisation after such
weights."""

import itertools

import limber
import numpy as np
import onnxruntime
import pytest
from conftest import GraphBuilder, make_model
from onnx import TensorProto, helper

SIDE = 16  # rows and columns; multiples of 4 (K4-interleaved) and others
ODD_SIDE = 17


class Builder(GraphBuilder):
    def __init__(self):
        super().__init__(seed=7)

    def scales(self, count):
        """Scales that differ much, so that a wrong order is detected."""
        dims = [] if count is None else [count]
        return self.const(np.exp(self.draw.uniform(-6, -3, dims))
                          .astype(np.float32))

    def zero_points(self, dtype, count, some):
        low, high = (-9, 10) if dtype == np.int8 else (100, 150)
        dims = [] if count is None else [count]
        return self.const(self.draw.integers(low, high, dims).astype(dtype)
                          if some else np.zeros(dims, dtype))

    def floats(self, low, high, *dims):
        return self.const(self.draw.uniform(low, high, dims)
                          .astype(np.float32))

    def weight(self, dims, axis, some_zero_points=False, dtype=np.int8):
        """Dequantised; axis None: one scale for all of them."""
        low, high = (-64, 65) if dtype == np.int8 else (64, 192)
        values = self.draw.integers(low, high, dims).astype(dtype)
        count = None if axis is None else dims[axis]
        return self.node(
            "DequantizeLinear", self.const(values), self.scales(count),
            self.zero_points(dtype, count, some_zero_points),
            **({} if axis in (None, 1) else {"axis": axis}))  # 1: by default

    def activation(self, x, kind, channels):
        if kind == "float":
            return x
        if kind == "per channel":
            how = [self.scales(channels)]  # of uint8 with zero point 0
            return self.node("DequantizeLinear",
                             self.node("QuantizeLinear", x, *how), *how)
        dtype = np.uint8 if kind == "uint8" else np.int8
        how = [self.const(np.float32(0.02)),
               self.zero_points(dtype, None, True)]
        return self.node("DequantizeLinear",
                         self.node("QuantizeLinear", x, *how), *how)

    def compare(self, y, dims, shapes, out=TensorProto.FLOAT):
        model = make_model(self.nodes, {"x": (TensorProto.FLOAT, dims)},
                           {y: (out, None)})
        model.graph.initializer.extend(self.weights)
        model = model.SerializeToString()
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        reference = onnxruntime.InferenceSession(model, options)
        ours = limber.load(model, compile="settle")
        for shape in shapes:
            feeds = {"x": self.draw.uniform(-2, 2, shape).astype(np.float32)}
            (want,), (got,) = reference.run(None, feeds), ours.run(None, feeds)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5,
                                       atol=1e-5 * np.abs(want).max())


KINDS = ("float", "uint8", "int8", "per channel")
MATMULS = list(itertools.product(
    KINDS, (None, 0, 1), ("MatMul", "Gemm", "Gemm transposed"), (False, True),
    (SIDE, ODD_SIDE)))


@pytest.mark.parametrize("kind, axis, op, some_zero_points, side", MATMULS)
def test_matmuls_of_square_weights(kind, axis, op, some_zero_points, side):
    b = Builder()
    x = b.activation("x", kind, side)
    w = b.weight([side, side], axis, some_zero_points)
    if op == "MatMul":
        y = b.node(op, x, w)
    else:
        y = b.node("Gemm", x, w, b.floats(-1, 1, side),
                   transB=int(op != "Gemm"))
    b.compare(y, ["n", side], [(1, side), (5, side), (side, side)])


@pytest.mark.parametrize("per", ["all", "row", "column", "row of x"])
@pytest.mark.parametrize("side", [SIDE, ODD_SIDE])
def test_scales_after_integer_matmuls(per, side):
    """As in dynamic quantisation: MatMulInteger, Cast, Mul. A scale per row of
    x must not be taken for one per column, even where both are equally many."""
    b = Builder()
    q, scale, zero = "q", "scale", "zero"
    b.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"],
                                    [q, scale, zero]))
    values = b.draw.integers(-64, 65, [side, side]).astype(np.int8)
    y = b.node("MatMulInteger", q, b.const(values), zero,
               b.zero_points(np.int8, side if per == "column" else None, True))
    y = b.node("Cast", y, to=TensorProto.FLOAT)
    dims = {"all": [], "row": [side, 1], "column": [side],
            "row of x": [side, side]}[per]
    factor = np.exp(b.draw.uniform(-6, -3, dims)).astype(np.float32)
    y = b.node("Mul", y, b.node("Mul", scale, b.const(factor)))
    b.compare(y, [side, side], [(side, side)])


CONVS = list(itertools.product(KINDS, (None, 0, 1), (1, 4), (False, True)))


@pytest.mark.parametrize("kind, axis, group, some_zero_points", CONVS)
@pytest.mark.parametrize("norm", [False, True])
def test_convolutions_and_normalisation_after_them(kind, axis, group,
                                                    some_zero_points, norm):
    b = Builder()
    x = b.activation("x", kind, SIDE)
    w = b.weight([SIDE, SIDE // group, 3, 3], axis, some_zero_points)
    y = b.node("Conv", x, w, b.floats(-1, 1, SIDE), group=group,
               pads=[1, 1, 1, 1])
    if norm:
        y = b.node("BatchNormalization", y, b.floats(-2, 2, SIDE),
                   b.floats(-1, 1, SIDE), b.floats(-1, 1, SIDE),
                   b.floats(0.1, 4, SIDE), epsilon=0.01)
    b.compare(y, ["n", SIDE, "h", "w"], [(1, SIDE, 5, 4), (2, SIDE, 16, 16)])


@pytest.mark.parametrize("axis", (None, 0, 1))
@pytest.mark.parametrize("biased", (None, "float", "integers"))
def test_normalisation_after_transposed_convolutions(axis, biased):
    b = Builder()
    w = b.weight([SIDE, SIDE, 2, 2], axis)
    inputs = [b.activation("x", "uint8", SIDE), w]
    if biased == "float":
        inputs.append(b.floats(-1, 1, SIDE))
    elif biased:
        values = b.draw.integers(-900, 900, [SIDE]).astype(np.int32)
        inputs.append(b.node("DequantizeLinear", b.const(values),
                             b.const(np.float32(0.001))))
    y = b.node("ConvTranspose", *inputs, strides=[2, 2])
    y = b.node("BatchNormalization", y, b.floats(-2, 2, SIDE),
               b.floats(-1, 1, SIDE), b.floats(-1, 1, SIDE),
               b.floats(0.1, 4, SIDE))
    b.compare(y, ["n", SIDE, "h", "w"], [(2, SIDE, 3, 5)])

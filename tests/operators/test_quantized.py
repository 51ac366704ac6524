"""Quantised models, as ONNX Runtime's quantiser writes them, against ONNX
Runtime.

Limber runs int8 matmuls with constant weights as int8 GEMMs where rows are a
multiple of 4 bytes; others, and nodes between QuantizeLinear and
DequantizeLinear, run in float32. The results must be the same.
"""

import random

import limber
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)

CASES = 16
SIZES = (1, 1, 2, 3, 7, 16, 17, 64, 65)


class Model:
    """One input x, one output y; nodes between them."""

    def __init__(self, kind, seed):
        self.py = random.Random(f"{kind} {seed}")
        self.np = np.random.default_rng(self.py.getrandbits(32))
        self.nodes, self.weights = [], []

    def size(self):
        return self.py.choice(SIZES)

    def node(self, op, inputs, n_out=1, **attrs):
        out = [f"v{len(self.nodes)}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(op, inputs, out, **attrs))
        return out[0] if n_out == 1 else out

    def const(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def bytes(self, *shape):
        if self.py.random() < 0.5:
            return self.signed_bytes(*shape)
        return self.np.integers(0, 256, shape).astype(np.uint8)

    def signed_bytes(self, *shape):
        """So small that the sum of two products with a uint8 fits into 16 bits:
        without VNNI, ONNX Runtime adds them there, and would overflow."""
        return self.np.integers(-64, 65, shape).astype(np.int8)

    def scale(self, low=0.005, high=0.02):
        return self.const(np.float32(self.py.uniform(low, high)))

    def zeros(self, like, n):
        """Zero points: None, one, or one for each of n."""
        count = self.py.choice((None, 1, n))
        if count is None:
            return ""
        zero = self.np.integers(0, 9, count).astype(like.dtype)
        return self.const(zero[0] if count == 1 else zero)

    def seal(self, y, rank, opset=19):
        graph = helper.make_graph(
            self.nodes, "case",
            [helper.make_tensor_value_info(
                "x", TensorProto.FLOAT, [f"d{i}" for i in range(rank)])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
            self.weights)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", opset)]).SerializeToString()


def x_of(m, *shape):
    """Random; sometimes all equal, or zero."""
    x = m.np.standard_normal(shape).astype(np.float32)
    style = m.py.randint(0, 5)
    if style == 0:
        x[...] = 0
    if style == 1:
        x = np.abs(x)
    if style == 2:
        x = -np.abs(x)
    return x


def scaled(m, y, scale, bias):
    by = m.node("Mul", [scale, m.scale()])
    y = m.node("Mul", [m.node("Cast", [y], to=TensorProto.FLOAT), by])
    return m.node("Add", [y, m.const(bias)]) if m.py.random() < 0.5 else y


def dynamic_matmul(m):
    rows, k, n = m.size(), m.size(), m.size()
    b = m.bytes(k, n)
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    y = m.node("MatMulInteger", [q, m.const(b), zero, m.zeros(b, n)])
    bias = m.np.standard_normal(n).astype(np.float32)
    return m.seal(scaled(m, y, scale, bias), 3), x_of(m, 2, rows, k)


def shared_dynamic_matmul(m):
    """The quantised x has two consumers, and the scale is an output as well."""
    rows, k, n = m.size(), m.size(), m.size()
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    parts = []
    for _ in range(2):
        b = m.bytes(k, n)
        i = m.node("MatMulInteger", [q, m.const(b), zero, m.zeros(b, n)])
        f = m.node("Cast", [i], to=TensorProto.FLOAT)
        parts.append(m.node("Mul", [f, scale]))
    back = m.node("DequantizeLinear", [q, scale, zero])
    total = m.node("ReduceSum", [back], keepdims=0)
    y = m.node("Add", [m.node("Sub", parts), total])
    return m.seal(y, 2), x_of(m, rows, k)


def dynamic_conv(m):
    c, o, h, w = m.size(), m.size(), m.size() + 2, m.size() + 2
    weights = m.bytes(o, c, 3, 3)
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    y = m.node("ConvInteger", [q, m.const(weights), zero,
                               m.zeros(weights, 1)],
               pads=[m.py.randint(0, 1)] * 4, kernel_shape=[3, 3])
    bias = m.np.standard_normal((o, 1, 1)).astype(np.float32)
    return m.seal(scaled(m, y, scale, bias), 4), x_of(m, 1, c, h, w)


def dynamic_conv_with_integer_bias(m):
    """As older quantisers write it, and pooled."""
    c, o, h, w = m.size(), m.size(), m.size() + 2, m.size() + 2
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    y = m.node("ConvInteger", [q, m.const(m.bytes(o, c, 3, 3)), zero],
               pads=[1] * 4, kernel_shape=[3, 3])
    bias = m.np.integers(-999, 999, (1, o, 1, 1)).astype(np.int32)
    y = m.node("Add", [y, m.const(bias)])
    y = scaled(m, y, scale, np.float32(0.5))
    return m.seal(m.node("MaxPool", [y], kernel_shape=[2, 2]), 4), \
        x_of(m, 1, c, h, w)


def fake_quantised(m):
    """QDQ pairs around a Relu, of 8 or 16 bits."""
    dtype = m.py.choice((np.uint8, np.int8, np.uint16, np.int16))
    zero = m.const(np.array(m.py.choice((0, 3, 100)), dtype))
    scale = m.scale(0.02, 0.1)
    y = "x"
    for _ in range(2):
        q = m.node("QuantizeLinear", [y, scale, zero])
        y = m.node("DequantizeLinear", [q, scale, zero])
        y = m.node("Relu", [y])
    return m.seal(y, 2, 21), 5 * x_of(m, m.size(), m.size())


def fake_quantised_weights(m):
    """Weights of 8 bits, one scale per column; large ones, too."""
    k, n = m.py.choice((16, 1200)), m.py.choice((16, 1000))
    b = m.np.integers(-99, 99, (k, n)).astype(np.int8)
    scales = m.np.uniform(0.001, 0.01, n).astype(np.float32)
    w = m.node("DequantizeLinear", [
        m.const(b), m.const(scales), m.const(np.zeros(n, np.int8))], axis=1)
    y = m.node("MatMul", ["x", w])
    if m.py.random() < 0.5:  # a bias with the dims of the quantiser
        bias = m.np.integers(-999, 999, n).astype(np.int32)
        y = m.node("Add", [y, m.node("DequantizeLinear", [
            m.const(bias), m.const(np.array([0.003], np.float32)),
            m.const(np.array(0, np.int32))])])
    return m.seal(y, 2), x_of(m, m.size(), k)


def weights_of_four_bits(m):
    """In blocks along k, each with a scale and optionally a zero point."""
    k, n, block = 2 * m.size(), m.size(), 2
    dtype, low = m.py.choice(((TensorProto.INT4, -8), (TensorProto.UINT4, 0)))

    def half_bytes(name, *shape):
        m.weights.append(helper.make_tensor(
            name, dtype, shape,
            m.np.integers(low, low + 16, shape).ravel().tolist()))
        return name

    scale = m.const(m.np.uniform(0.01, 0.1, (k // block, n))
                    .astype(np.float32))
    inputs = [half_bytes("b", k, n), scale]
    if m.py.random() < 0.5:
        inputs.append(half_bytes("z", k // block, n))
    w = m.node("DequantizeLinear", inputs, axis=0, block_size=block)
    return m.seal(m.node("MatMul", ["x", w]), 2, 21), x_of(m, m.size(), k)


def qlinear_weights(m, n, *shape):
    """Weights, scales and zero points: one for all, or one per column or
    channel."""
    w = m.signed_bytes(*shape)
    many = m.py.random() < 0.5
    scale = m.np.uniform(0.002, 0.01, n).astype(np.float32)
    zero = np.zeros(n, np.int8)
    return [m.const(v) for v in ((w, scale, zero) if many else
                                 (w, scale[0], np.int8(m.py.choice((0, 3)))))]


def qlinear_output(m):
    zero = np.uint8(m.py.choice((0, 3, 128)))
    return [m.scale(0.02, 0.1), m.const(zero)]


def qlinear_conv(m):
    """Two convolutions with pooling between them, all in int8."""
    c, o, h, w = m.size(), m.size(), m.size() + 2, m.size() + 2
    q = qlinear_output(m)
    y = m.node("QuantizeLinear", ["x", *q])
    for k in range(2):
        weights = qlinear_weights(m, o, o, o if k else c, 3, 3)
        next_q = qlinear_output(m)
        inputs = [y, *q, *weights, *next_q]
        if m.py.random() < 0.5:
            inputs.append(m.const(m.np.integers(-999, 999, o)
                                  .astype(np.int32)))
        y = m.node("QLinearConv", inputs, pads=[1] * 4, kernel_shape=[3, 3])
        q = next_q
        if m.py.random() < 0.5:
            y = m.node("MaxPool", [y], kernel_shape=[2, 2], pads=[1, 0, 0, 1])
    return m.seal(m.node("DequantizeLinear", [y, *q]), 4), x_of(m, 2, c, h, w)


def qlinear_matmul(m):
    rows, k, n = m.size(), m.size(), m.size()
    q, next_q = qlinear_output(m), qlinear_output(m)
    y = m.node("QuantizeLinear", ["x", *q])
    y = m.node("QLinearMatMul", [y, *q, *qlinear_weights(m, n, k, n),
                                 *next_q])
    if m.py.random() < 0.5:
        y = m.node("Flatten", [y])
    return m.seal(m.node("DequantizeLinear", [y, *next_q]), 3), \
        x_of(m, 2, rows, k)


def qlinear_matmul_of_two(m):
    """Both operands are computed at run time."""
    rows, k = m.size(), m.size()
    q, next_q = qlinear_output(m), qlinear_output(m)
    y = m.node("QuantizeLinear", ["x", *q])
    transposed = m.node("Transpose", [y], perm=[0, 2, 1])
    y = m.node("QLinearMatMul", [y, *q, transposed, *q, *next_q])
    return m.seal(m.node("DequantizeLinear", [y, *next_q]), 3), \
        x_of(m, 2, rows, k)


def between_pairs(m):
    """A float matmul between QDQ pairs, as ONNX Runtime's static quantiser
    writes it."""
    rows, k, n = m.size(), m.py.choice((4, 7, 16, 64, 68)), m.size()
    dtype = m.py.choice((np.uint8, np.int8))
    gemm = m.py.random() < 0.5
    trans_b = gemm and m.py.random() < 0.5
    pair = [m.scale(0.02, 0.1),
            m.const(np.array(m.py.choice((0, 3, 100)), dtype))]
    x = m.node("DequantizeLinear", [m.node("QuantizeLinear", ["x", *pair]),
                                    *pair])
    weights = qlinear_weights(m, n, *((n, k) if trans_b else (k, n)))
    w = m.node("DequantizeLinear", weights, axis=int(not trans_b))
    if not gemm:
        return m.seal(m.node("MatMul", [x, w]), 3), 3 * x_of(m, 2, rows, k)
    inputs = [x, w]
    if m.py.random() < 0.5:
        inputs.append(m.const(m.np.standard_normal(n).astype(np.float32)))
    return m.seal(m.node("Gemm", inputs, transB=int(trans_b)), 2), \
        3 * x_of(m, rows, k)


def convolution_between_pairs(m):
    """The same for convolutions, with groups, strides and padding."""
    groups = m.py.choice((1, 1, 2))
    c, o = groups * m.py.choice((3, 4, 8, 16)), groups * m.size()
    dtype = m.py.choice((np.uint8, np.int8))
    pair = [m.scale(0.02, 0.1),
            m.const(np.array(m.py.choice((0, 3, 100)), dtype))]
    x = m.node("DequantizeLinear", [m.node("QuantizeLinear", ["x", *pair]),
                                    *pair])
    kernel = [m.py.choice((1, 3)), m.py.choice((1, 3, 5))]
    w = m.node("DequantizeLinear",
               qlinear_weights(m, o, o, c // groups, *kernel), axis=0)
    inputs = [x, w]
    if m.py.random() < 0.5:
        inputs.append(m.const(m.np.standard_normal(o).astype(np.float32)))
    pads = [m.py.randint(0, kernel[i % 2] // 2) for i in range(4)]
    y = m.node("Conv", inputs, kernel_shape=kernel, pads=pads, group=groups,
               strides=[m.py.randint(1, 2), m.py.randint(1, 2)])
    return m.seal(y, 4), 3 * x_of(m, m.py.randint(1, 2), c, m.size() + 4,
                                  m.size() + 4)


KINDS = {f.__name__: f for f in (
    dynamic_matmul, shared_dynamic_matmul, dynamic_conv,
    dynamic_conv_with_integer_bias, fake_quantised, fake_quantised_weights,
    weights_of_four_bits, qlinear_conv, qlinear_matmul,
    qlinear_matmul_of_two, between_pairs, convolution_between_pairs)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_model_agrees_with_onnx_runtime(kind):
    bad = []
    options = onnxruntime.SessionOptions()  # without graph optimisations
    options.graph_optimization_level = \
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for seed in range(CASES):
        model, x = KINDS[kind](Model(kind, seed))
        want, = onnxruntime.InferenceSession(
            model, options, ["CPUExecutionProvider"]).run(None, {"x": x})
        session = limber.InferenceSession(model)
        for when in ("at first", "settled"):
            got, = session.run(None, {"x": x})
            size = np.abs(want).max(initial=0) + 1e-3
            if got.shape != want.shape or \
                    np.abs(got - want).max(initial=0) > 1e-5 * size:
                bad.append(f"{kind} {seed} {when} {list(x.shape)}: off by "
                           f"{np.abs(got - want).max(initial=0)}")
            session.settle(300)
        if any(step["tier"] == "reference" and
               (step["op"].endswith(("Integer", "QuantizeLinear", "Pool")) or
                step["op"].startswith("QLinear"))
               for step in session.profile(None, {"x": x})) \
                and kind != "shared_dynamic_matmul":
            bad.append(f"{kind} {seed}: still on a reference kernel")
    assert not bad, "\n".join(bad)


def run_both(model, x):
    """Results of ONNX Runtime, of Limber before and after settling."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = \
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want, = onnxruntime.InferenceSession(
        model, options, ["CPUExecutionProvider"]).run(None, {"x": x})
    session = limber.InferenceSession(model)
    first, = session.run(None, {"x": x})
    session.settle(300)
    return want, first, session.run(None, {"x": x})[0]


@pytest.mark.parametrize("dtype", (np.uint8, np.int8, np.uint16, np.int16))
def test_nan_is_quantised_to_the_minimum(dtype):
    m = Model("nan", 0)
    pair = [m.const(np.float32(0.5)), m.const(np.array(3, dtype))]
    y = m.node("DequantizeLinear", [m.node("QuantizeLinear", ["x", *pair]),
                                    *pair])
    x = np.array([np.nan, -np.inf, np.inf, 0, 1.3, np.nan], np.float32)
    for got in run_both(m.seal(y, 1, 21), x):
        least = (np.iinfo(dtype).min - 3) * 0.5
        assert got[0] == got[1] == got[5] == least and got[4] == 1.5


def test_nan_does_not_change_the_dynamic_scale():
    m = Model("dynamic nan", 0)
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    y = m.node("MatMulInteger", [q, m.const(m.signed_bytes(8, 5)), zero])
    y = m.node("Mul", [m.node("Cast", [y], to=TensorProto.FLOAT), scale])
    x = m.np.standard_normal((3, 8)).astype(np.float32)
    x[1, 2] = np.nan
    want, first, settled = run_both(m.seal(y, 2), x)
    assert np.allclose(first[::2], want[::2], rtol=1e-6)
    assert np.allclose(settled, first, rtol=1e-6)


@pytest.mark.parametrize("shape", ((3, 5), (1,), (64, 65), (0, 4)))
def test_dynamic_quantisation_has_kernels_for_all_consumers(shape):
    m = Model("dynamic", sum(shape))
    q, scale, zero = m.node("DynamicQuantizeLinear", ["x"], 3)
    bytes_, zero = (m.node("Cast", [v], to=TensorProto.FLOAT)
                    for v in (q, zero))
    y = m.node("Add", [m.node("Mul", [bytes_, scale]), zero])
    x = m.np.standard_normal(shape).astype(np.float32)
    model = m.seal(y, len(shape))
    want, first, settled = run_both(model, x)
    assert np.allclose(first, want, rtol=1e-6)
    assert np.array_equal(settled, first)
    session = limber.InferenceSession(model)
    assert "DynamicQuantizeLinear" not in \
        [step["op"] for step in session.profile(None, {"x": x})]


def test_long_int8_sums_do_not_overflow():
    m = Model("long", 0)
    k = 80000
    pair = [m.const(np.float32(0.1)), m.const(np.array(0, np.uint8))]
    x = m.node("DequantizeLinear", [m.node("QuantizeLinear", ["x", *pair]),
                                    *pair])
    w = m.node("DequantizeLinear", [
        m.const(np.full((k, 2), 127, np.int8)), m.const(np.float32(0.001)),
        m.const(np.int8(0))])
    want, first, settled = run_both(
        m.seal(m.node("MatMul", [x, w]), 2), np.full((1, k), 99, np.float32))
    assert np.allclose(first, want, rtol=2e-3)
    assert np.allclose(settled, want, rtol=2e-3)


@pytest.mark.parametrize("behind", ("Flatten", "Transpose", "Identity"))
def test_int8_pooling_has_kernels(behind):
    m = Model("pools", 0)
    pair = qlinear_output(m)
    y = m.node("MaxPool", [m.node("QuantizeLinear", ["x", *pair])],
               kernel_shape=[2, 2], strides=[2, 2])
    attrs = {"perm": [0, 2, 3, 1]} if behind == "Transpose" else {}
    y = m.node("DequantizeLinear", [m.node(behind, [y], **attrs), *pair])
    x = m.np.standard_normal((1, 8, 6, 6)).astype(np.float32)
    model = m.seal(y, 4)
    want, first, settled = run_both(model, x)
    assert np.array_equal(first, want) and np.array_equal(settled, want)
    session = limber.InferenceSession(model)
    session.run(None, {"x": x})
    session.settle(300)
    assert not [step for step in session.profile(None, {"x": x})
                if step["op"] == "MaxPool" and step["tier"] == "reference"]


@pytest.mark.parametrize("k", (32, 33))
def test_matmuls_with_all_int8_values_are_exact(k):
    """Extreme values, for which ONNX Runtime overflows without VNNI."""
    m = Model("extremes", k)
    a, b = m.np.choice([0, 1, 254, 255], (7, k)), \
        m.np.choice([-128, -127, 127], (k, 9))
    q = m.node("Cast", ["x"], to=TensorProto.UINT8)
    y = m.node("MatMulInteger", [q, m.const(b.astype(np.int8))])
    session = limber.InferenceSession(
        m.seal(m.node("Cast", [y], to=TensorProto.FLOAT), 2))
    for _ in range(2):
        got, = session.run(None, {"x": a.astype(np.float32)})
        assert np.array_equal(got, a @ b)
        session.settle(300)

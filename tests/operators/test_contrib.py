"""Operators of ONNX Runtime (com.microsoft) against ONNX Runtime itself.

A case is drawn from its operator's name and a number: sizes that favour 1,
omitted inputs, attributes. Both engines run it, Limber before and after
settling.
"""

import random

import limber
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

onnxruntime.set_default_logger_severity(4)

CASES = 12
SIZES = (1, 1, 2, 3, 5, 8, 16, 17, 33)
OPTIONAL = 0.5


class Draw:
    """The random choices of one case."""

    def __init__(self, op, seed):
        self.py = random.Random(f"{op} {seed}")
        self.np = np.random.default_rng(self.py.getrandbits(32))

    def size(self):
        return self.py.choice(SIZES)

    def maybe(self, x):
        return x if self.py.random() < OPTIONAL else None

    def f32(self, *shape):
        return self.np.standard_normal(shape).astype(np.float32)

    def ints(self, dtype, low, high, *shape):
        return self.np.integers(low, high, shape).astype(dtype)

    def scale(self, *shape):
        return self.np.uniform(0.01, 0.05, shape).astype(np.float32)

    def bytes(self, *shape):
        if self.py.random() < 0.5:
            return self.ints(np.uint8, 0, 255, *shape)
        return self.signed_bytes(*shape)

    def signed_bytes(self, *shape):
        """As in test_quantized.py."""
        return self.ints(np.int8, -64, 65, *shape)

    def zero(self, like, *shape):
        low = 90 if like.dtype == np.uint8 else -20
        return self.ints(like.dtype, low, low + 40, *shape)


def same_shape(count):
    def make(d):
        shape = [d.size() for _ in range(d.py.randint(2, 3))]
        row = shape[-1:]
        return [d.f32(*shape), *(d.f32(*row) for _ in range(count - 1))], {}
    return make


def fast_gelu(d):
    (x, b), attrs = same_shape(2)(d)
    return [x, d.maybe(b)], attrs


def quick_gelu(d):
    attrs = {"alpha": d.py.uniform(0.5, 2)} if d.py.random() < 0.5 else {}
    return same_shape(1)(d)[0], attrs


def simplified_norm(d):
    return same_shape(2)(d)[0], {"axis": -1, "epsilon": 1e-5}


def skip_norm(d):
    b, s, n = d.size(), d.size(), d.size()
    return [d.f32(b, s, n), d.f32(b, s, n), d.f32(n), d.maybe(d.f32(n)),
            d.maybe(d.f32(n))], {"epsilon": 1e-5}


def skip_simplified_norm(d):
    inputs, attrs = skip_norm(d)
    return inputs[:3] + inputs[4:], attrs


def embed_norm(d):
    b, s, n = d.size(), d.size(), d.size()
    ids = d.ints(np.int32, 0, 7, b, s)
    types = d.maybe(d.ints(np.int32, 0, 2, b, s))
    mask = d.maybe(d.ints(np.int32, 0, 2, b, s))
    places = d.maybe(d.ints(np.int32, 0, 40, b, s))
    return [ids, types, d.f32(7, n), d.f32(40, n),
            None if types is None else d.f32(2, n), d.f32(n), d.f32(n), mask,
            places], {"epsilon": 1e-5}


def fused_matmul(d):
    b, m, k, n = (d.size() for _ in range(4))
    ta, tb = d.py.randint(0, 1), d.py.randint(0, 1)
    batch = [b] * d.py.randint(0, 2)
    return [d.f32(*batch, *([k, m] if ta else [m, k])),
            d.f32(*batch, *([n, k] if tb else [k, n]))], {
        "alpha": d.py.choice((1.0, 0.125, -2.0)), "transA": ta, "transB": tb}


def fused_gemm(d):
    m, k, n = (d.size() for _ in range(3))
    tb = d.py.randint(0, 1)
    act, params = d.py.choice((
        ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("Softplus", {}),
        ("Softsign", {}), ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.4}),
        ("Selu", {"alpha": 1.2, "gamma": 0.7}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4})))
    attrs = {"transB": tb, "alpha": 0.5, "activation": act}
    attrs.update({f"activation_{name}": v for name, v in params.items()})
    return [d.f32(m, k), d.f32(*([n, k] if tb else [k, n])),
            d.maybe(d.f32(n))], attrs


def fused_conv(d):
    b, c, o = d.size(), d.size(), d.size()
    act, params = d.py.choice((
        ("Relu", None), ("Tanh", None), ("Sigmoid", None),
        ("LeakyRelu", [0.1]), ("Clip", [-0.5, 0.75]),
        ("HardSigmoid", [0.2, 0.5])))
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": act}
    if params:
        attrs["activation_params"] = params
    h, w = d.size(), d.size()
    bias = d.maybe(d.f32(o))
    return [d.f32(b, c, h, w), d.f32(o, c, 3, 3), bias,
            d.maybe(d.f32(b, o, h, w)) if act == "Relu" else None], attrs


def key_mask(d, b, keys):
    if d.py.random() < 0.3:
        return None
    if d.py.random() < 0.5:
        return d.ints(np.int32, 1, keys + 1, b)
    mask = d.ints(np.int32, 0, 2, b, keys)
    mask[:, 0] = 1
    return mask


def attention(d):
    b, s, heads, size = d.size(), d.size(), d.py.choice((1, 2, 4)), 8
    past = d.maybe(d.f32(2, b, heads, d.size(), size))
    keys = s + (0 if past is None else past.shape[3])
    n, k = heads * size, d.size()
    return [d.f32(b, s, k), d.f32(k, 3 * n), d.f32(3 * n),
            key_mask(d, b, keys), past,
            d.maybe(d.f32(b, heads, s, keys)) if past is None else None], {
        "num_heads": heads, "unidirectional": d.py.randint(0, 1)}


def multi_head_attention(d):
    b, s, keys, heads = d.size(), d.size(), d.size(), d.py.choice((1, 2, 4))
    n = heads * 8
    return [d.f32(b, s, n), d.f32(b, keys, n), d.f32(b, keys, n),
            d.maybe(d.f32(3 * n)), key_mask(d, b, keys),
            d.maybe(d.f32(1, heads, s, keys))], {
        "num_heads": heads, "scale": d.py.choice((0.0, 0.3))}


def caches(rows, half):
    """Cosines and sines of positions."""
    angles = np.arange(rows)[:, None] / 100 ** (np.arange(half) / half)
    return [f(angles).astype(np.float32) for f in (np.cos, np.sin)]


def rotary(d):
    b, s, heads, size = d.size(), d.size(), d.py.choice((1, 2, 4)), 16
    attrs = {"interleaved": d.py.randint(0, 1)}
    part = size
    x = d.f32(b, heads, s, size)
    if d.py.random() < 0.7:
        x = d.f32(b, s, heads * size)
        if d.py.random() < 0.7:
            attrs["num_heads"] = heads
            part = attrs["rotary_embedding_dim"] = d.py.choice((8, size))
    ids = d.ints(np.int64, 0, 7, 1) if d.py.random() < 0.5 else \
        d.ints(np.int64, 0, 40, b, s)
    return [x, ids, *caches(40, part // 2)], attrs


def group_query_attention(d):
    """A first run, or one with past keys and values, of one row or, for a
    single sequence, several; the cache may have capacity for more."""
    b, s, past = d.size(), d.size(), d.py.choice((0, d.size()))
    if past and b > 1:
        s = 1
    kv, size = d.py.choice((1, 2)), 16
    heads, total = kv * d.py.choice((1, 3)), past + s
    lengths = d.ints(np.int32, s if past else 1, total + 1, b) - 1
    lengths[d.py.randint(0, b - 1)] = total - 1
    attrs = {"num_heads": heads, "kv_num_heads": kv}
    for name, value in (("scale", 0.2), ("softcap", 3.0), ("scale", 0.0),
                        ("local_window_size", 4)):
        if d.py.random() < 0.3:
            attrs[name] = value
    rotations = [None, None]
    if d.py.random() < 0.6:
        attrs |= {"do_rotary": 1, "rotary_interleaved": d.py.randint(0, 1)}
        rotations = caches(80, size // 2)
    q, k, v = d.f32(b, s, heads * size), d.f32(b, s, kv * size), \
        d.f32(b, s, kv * size)
    if d.py.random() < 0.3:
        q, k, v = np.concatenate([q, k, v], 2), None, None
    capacity = past if d.py.random() < 0.7 else total + d.size()
    return [q, k, v, d.f32(b, kv, capacity, size),
            d.f32(b, kv, capacity, size),
            lengths, np.array(total, np.int32), *rotations, None,
            d.f32(1, 1, s, total) if d.py.random() < 0.4 else None], attrs


def matmul_of_few_bits(d):
    m, k, n = d.size(), d.py.choice((1, 16, 31, 64, 100)), d.size()
    bits, block = d.py.choice((4, 4, 8)), d.py.choice((16, 32, 64))
    blocks = -(-k // block)
    b = d.ints(np.uint8, 0, 256, n, blocks, block * bits // 8)
    scales = d.scale(n, blocks)
    zeros = d.maybe(d.ints(np.uint8, 0, 256, n, -(-blocks * bits // 8)))
    if d.py.random() < 0.5:  # as older tools write it
        scales = scales.ravel()
        zeros = None if zeros is None else zeros.ravel()
    return [d.f32(2, m, k), b, scales, zeros, None, d.maybe(d.f32(n))], {
        "K": k, "N": n, "bits": bits, "block_size": block,
        "accuracy_level": 1}  # float32, on every processor


def table_of_few_bits(d):
    rows, block, blocks = d.size(), 16, d.py.choice((1, 2, 3))
    bits = d.py.choice((4, 8))
    data = d.ints(np.uint8, 0, 256, rows, block * blocks * bits // 8)
    zeros = d.maybe(d.ints(np.uint8, 0, 256, rows, -(-blocks * bits // 8)))
    ids = d.ints(np.int64, 0, rows, *(d.size() for _ in range(2)))
    return [data, ids, d.scale(rows, blocks), zeros], {
        "bits": bits, "block_size": block, "quantize_axis": 1}


def integer_matmul(d):
    m, k, n = (d.size() for _ in range(3))
    a, b = d.ints(np.uint8, 0, 255, m, k), d.bytes(k, n)
    return [a, b, d.scale(), d.scale(), d.maybe(d.zero(a)),
            d.maybe(d.zero(b)), d.maybe(d.f32(n))], {}


def dynamic_matmul(d):
    m, k, n = (d.size() for _ in range(3))
    b = d.bytes(k, n)
    return [d.f32(m, k), b, d.scale(), d.maybe(d.zero(b)),
            d.maybe(d.f32(n))], {}


def quantised_attention(d):
    b, s, k, heads = d.size(), d.size(), d.size(), d.py.choice((1, 2))
    n = heads * 8
    x, w = d.ints(np.uint8, 0, 255, b, s, k), d.bytes(k, 3 * n)
    return [x, w, d.f32(3 * n), d.scale(), d.scale(), key_mask(d, b, s),
            d.zero(x), d.zero(w)], {"num_heads": heads}


def quantised_pair(d):
    shape = [d.size() for _ in range(3)]
    a = d.bytes(*shape)
    b = d.ints(a.dtype, 0, 100, *shape[d.py.randint(0, 2):])
    return [a, d.scale(), d.zero(a), b, d.scale(), d.zero(a), d.scale(),
            d.zero(a)], {}


def quantised_choice(d):
    pair, attrs = quantised_pair(d)
    return [d.ints(np.bool_, 0, 2, *pair[0].shape), *pair], attrs


def quantised_one(**attrs):
    def make(d):
        x = d.bytes(d.size(), d.size(), d.size() + 1, d.size() + 1)
        return [x, d.scale(), d.zero(x), d.scale(), d.zero(x)], attrs
    return make


def quantised_concat(d):
    b, c = d.size(), d.size()
    first = d.bytes(b, d.size(), c)
    inputs = [d.scale(), d.zero(first)]
    for _ in range(d.py.randint(1, 5)):
        inputs += [d.ints(first.dtype, 0, 100, b, d.size(), c), d.scale(),
                   d.zero(first)]
    return inputs, {"axis": 1}


def quantised_gemm(d):
    m, k, n = (d.size() for _ in range(3))
    tb = d.py.randint(0, 1)
    a = d.ints(np.uint8, 0, 255, m, k)
    b = d.signed_bytes(*([n, k] if tb else [k, n]))
    return [a, d.scale(), d.zero(a), b, d.scale(), d.zero(b),
            d.maybe(d.ints(np.int32, -99, 99, n)), d.scale(), d.zero(a)], {
        "transB": tb}


def gates(d):
    s, b, n, h = d.size(), d.size(), d.size(), d.py.choice((4, 8))
    one = d.py.random() < 0.5
    way = 1 if one else 2
    w = d.bytes(way, n, 4 * h)
    r = d.ints(w.dtype, 0, 65, way, h, 4 * h)
    x = d.ints(np.float32, -128, 128, s, b, n)  # quantised without loss
    x.flat[0], x.flat[-1] = -128, 127
    return [x / 100, w, r, d.f32(way, 8 * h), None, None, None, None,
            d.scale(way) / 5, d.zero(w, way), d.scale(way) / 5,
            d.zero(r, way)], {
        "hidden_size": h,
        "direction": "forward" if one else "bidirectional"}


# op -> (function that draws inputs and attributes, outputs compared)
OPERATORS = {
    "Gelu": (same_shape(1), [0]),
    "BiasGelu": (same_shape(2), [0]),
    "FastGelu": (fast_gelu, [0]),
    "QuickGelu": (quick_gelu, [0]),
    "SimplifiedLayerNormalization": (simplified_norm, [0]),
    "SkipLayerNormalization": (skip_norm, [0, 3]),
    "SkipSimplifiedLayerNormalization": (skip_simplified_norm, [0, 3]),
    "EmbedLayerNormalization": (embed_norm, [0, 1]),
    "FusedMatMul": (fused_matmul, [0]),
    "FusedGemm": (fused_gemm, [0]),
    "FusedConv": (fused_conv, [0]),
    "Attention": (attention, [0, 1]),
    "MultiHeadAttention": (multi_head_attention, [0]),
    "RotaryEmbedding": (rotary, [0]),
    "GroupQueryAttention": (group_query_attention, [0, 1, 2]),
    "MatMulNBits": (matmul_of_few_bits, [0]),
    "GatherBlockQuantized": (table_of_few_bits, [0]),
    "MatMulIntegerToFloat": (integer_matmul, [0]),
    "DynamicQuantizeMatMul": (dynamic_matmul, [0]),
    "QAttention": (quantised_attention, [0]),
    "DynamicQuantizeLSTM": (gates, [0]),
    "QLinearAdd": (quantised_pair, [0]),
    "QLinearMul": (quantised_pair, [0]),
    "QLinearWhere": (quantised_choice, [0]),
    "QLinearSigmoid": (quantised_one(), [0]),
    "QLinearLeakyRelu": (quantised_one(alpha=0.2), [0]),
    "QLinearSoftmax": (quantised_one(axis=-1, opset=13), [0]),
    "QLinearGlobalAveragePool": (quantised_one(), [0]),
    "QLinearAveragePool": (quantised_one(kernel_shape=[2, 2]), [0]),
    "QLinearConcat": (quantised_concat, [0]),
    "QGemm": (quantised_gemm, [0]),
}

# op -> absolute tolerance, reason
TOLERANCES = {
    "DynamicQuantizeLSTM": (0.02, "theirs rounds every step's state to 8 bits"),
    "FastGelu": (1e-4, "their tanh"),
}
OWN_DOMAIN = {"SimplifiedLayerNormalization": ""}  # in ONNX's domain
IS_WEIGHT = {"FusedConv": [1, 2], "Attention": [1, 2], "QAttention": [1],
             "MatMulNBits": [1, 2, 3, 5], "GatherBlockQuantized": [0, 2, 3],
             "RotaryEmbedding": [2, 3],
             "DynamicQuantizeLSTM": [1, 2, 3, 8, 9, 10, 11],
             "EmbedLayerNormalization": [2, 3, 4, 5, 6], "QLinearSoftmax": [1, 2, 3, 4],
             "QLinearSigmoid": [1, 2, 3, 4], "QLinearLeakyRelu": [1, 2, 3, 4]}

# Operators whose inputs have packed heads: models declare the last dim.
KNOWN_WIDTH = ("GroupQueryAttention", "RotaryEmbedding")


def dims_of(op, i, x):
    dims = [f"d{i}_{k}" for k in range(x.ndim)]
    if op in KNOWN_WIDTH and x.ndim > 1:
        dims[-1] = x.shape[-1]
    return dims


def meant(op, inputs, y):
    """Without rows beyond the end of a sequence, which are undefined."""
    if op != "GroupQueryAttention":
        return y
    y = np.moveaxis(y, -2, 1).copy()
    for row, last in zip(y, inputs[5]):
        row[last + 1:] = 0
    return y


def wanted(op, inputs, outputs):
    """The outputs that this case can have."""
    if op == "EmbedLayerNormalization" and inputs[7] is None:
        return [0]
    if op == "Attention" and inputs[4] is None:
        return [0]
    return outputs


def model_of(op, inputs, attrs, outputs):
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    while not names[-1]:
        names.pop()
    weights = IS_WEIGHT.get(op, [])
    made = [f"y{i}" if i in outputs else "" for i in range(max(outputs) + 1)]
    if op == "EmbedLayerNormalization" and len(made) == 1:
        made.append("unused")  # ONNX Runtime always computes it
    domain = OWN_DOMAIN.get(op, "com.microsoft")
    node = helper.make_node(op, names, made, "node", domain=domain, **attrs)
    given = [(i, x) for i, x in enumerate(inputs) if x is not None]
    graph = helper.make_graph(
        [node], "case",
        [helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype),
            dims_of(op, i, x))
         for i, x in given if i not in weights],
        [helper.make_tensor_value_info(y, TensorProto.UNDEFINED, None)
         for y in made if y and y != "unused"],
        [helper.make_tensor(
            f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape,
            x.tobytes(), raw=True) for i, x in given if i in weights])
    for v in graph.output:
        v.ClearField("type")
    model = helper.make_model(
        graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 17),
            helper.make_opsetid("com.microsoft", 1)]).SerializeToString()
    return model, {f"x{i}": x for i, x in given if i not in weights}


def differs(op, got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype.kind == "f":
        atol = TOLERANCES.get(op, (1e-4, ""))[0]
        if not np.allclose(got, want, 1e-4, atol, equal_nan=True):
            return f"off by {np.abs(got - want).max()}"
        return None
    # A sum halfway between two quantised values may be rounded to either.
    off = np.abs(got.astype(np.int64) - want.astype(np.int64))
    exact = want.dtype in (np.int32, np.int64)
    return f"off by {off.max()}" if off.max(initial=0) > (not exact) else None


@pytest.mark.parametrize("op", OPERATORS)
def test_an_operator_agrees_with_onnx_runtime(op):
    make, outputs = OPERATORS[op]
    bad = []
    for seed in range(CASES):
        inputs, attrs = make(Draw(op, seed))
        outs = wanted(op, inputs, outputs)
        model, feeds = model_of(op, inputs, attrs, outs)
        theirs = onnxruntime.InferenceSession(
            model, providers=["CPUExecutionProvider"]).run(None, feeds)
        session = limber.InferenceSession(model)
        for when in ("at first", "settled"):
            ours = session.run(None, feeds)
            bad += [f"seed {seed} {when}: output {i} {text}" for i, got, want
                    in zip(outs, ours, theirs)
                    if (text := differs(op, meant(op, inputs, got),
                                        meant(op, inputs, want)))]
            session.settle(300)
        if op == "MatMulNBits":  # dequantised when the model is loaded
            bad += [f"seed {seed}: {step['op']} in every run"
                    for step in session.profile(None, feeds)
                    if step["op"] not in ("MatMul", "Add")]
    assert not bad, "\n".join(bad)


def test_packed_and_separate_heads_agree():
    """ONNX Runtime supports packed ones only on GPUs."""
    d = Draw("packed", 0)
    b, s, heads, size = 2, 5, 2, 8
    parts = [d.f32(b, s, heads, size) for _ in range(3)]
    rows = [p.reshape(b, s, heads * size) for p in parts]
    want = None
    for inputs in (rows, [np.stack(parts, 3)],
                   [rows[0], np.stack(parts[1:], 3)]):
        model, feeds = model_of("MultiHeadAttention", inputs,
                                {"num_heads": heads}, [0])
        got, = limber.InferenceSession(model).run(None, feeds)
        want = got if want is None else want
        assert np.allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("op, count, attrs, what", [
    ("GroupQueryAttention", 12, {}, "head_sink"),
    ("GroupQueryAttention", 7, {"smooth_softmax": 1}, "smooth_softmax"),
    ("GatherBlockQuantized", 3, {"gather_axis": 1}, "gather_axis"),
    ("MatMulNBits", 5, {}, "g_idx"),
    ("MatMulNBits", 3, {"bits": 3}, "bits other than 4 and 8"),
])
def test_unsupported_features_are_rejected_by_name(op, count, attrs, what):
    names = [f"x{i}" for i in range(count)]
    node = helper.make_node(op, names, ["y"], "node", domain="com.microsoft",
                            **attrs)
    graph = helper.make_graph(
        [node], "case", [helper.make_tensor_value_info(n, 1, None)
                         for n in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    with pytest.raises(Exception, match=what):
        limber.InferenceSession(model.SerializeToString())

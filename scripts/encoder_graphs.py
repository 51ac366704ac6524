"""Writes encoders for batches of padded sequences as ONNX models, as exporters
write them: an attention mask among the inputs, and one row per sequence as
output.

minilm_pooled  all-MiniLM-L6-v2 with masked mean pooling and normalisation, as
               sentence-transformers exports it
bert           BERT with token types, an additive mask and a pooler on the first
               token (opset 14: LayerNormalization is decomposed)
distilbert     DistilBERT: scores are replaced where the mask is 0; mean pooling
roberta        RoBERTa: position ids are counted over the tokens that are not
               padding; the first token is selected

All but the first have seeded random weights.
"""

import functools

import minilm_graph
import numpy as np
import onnx
from minilm_graph import Graph, gelu
from onnx import TensorProto, helper

LOWEST = np.finfo(np.float32).min
MASK_TYPES = {
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
    "float": TensorProto.FLOAT,
}


class RandomWeights:
    """Weights by name, drawn when first read: each name is its own seed."""

    def __init__(self, shapes):
        self.shapes = shapes  # last part of a name -> shape

    @functools.cache
    def __getitem__(self, name):
        shape = self.shapes(name)
        rng = np.random.default_rng(list(name.encode()))
        if len(shape) == 1:
            base = 1.0 if "LayerNorm.weight" in name else 0.0
            return (base + 0.1 * rng.standard_normal(shape)).astype(np.float32)
        scale = 1.0 if "embeddings" in name else shape[1] ** -0.5
        return (scale * rng.standard_normal(shape)).astype(np.float32)


def weights_of(hidden, inner, vocab=1000, positions=514):
    def shape_of(name):
        *_, owner, kind = name.split(".")
        if owner == "LayerNorm" or kind == "bias":
            return (inner,) if "intermediate" in name else (hidden,)
        return {
            "word_embeddings": (vocab, hidden),
            "position_embeddings": (positions, hidden),
            "token_type_embeddings": (2, hidden),
        }.get(owner, (inner, hidden) if "intermediate" in name else
              (hidden, inner) if name.startswith("ffn_out") else
              (hidden, hidden))

    return RandomWeights(shape_of)


# -- parts --------------------------------------------------------------------


def linear(g, s, name, x):
    weight = g.linear_weight(name + ".weight", len(g.matmuls) + 700)
    return g.op(s, "Add", g.param(name + ".bias"), g.op(s, "MatMul", x, weight))


def layer_norm(g, s, name, x, decomposed):
    gain, bias = g.param(name + ".weight"), g.param(name + ".bias")
    if not decomposed:
        return g.op(s, "LayerNormalization", x, gain, bias, axis=-1,
                    epsilon=1e-12)
    mean = g.op(s, "ReduceMean", x, axes=[-1], keepdims=1)
    y = g.op(s, "Sub", x, mean)
    square = g.op(s, "Pow", y, g.const(s, 2, np.float32))
    variance = g.op(s, "ReduceMean", square, axes=[-1], keepdims=1)
    variance = g.op(s, "Add", variance, g.const(s, 1e-12, np.float32))
    y = g.op(s, "Div", y, g.op(s, "Sqrt", variance))
    return g.op(s, "Add", g.op(s, "Mul", y, gain), bias)


def lookup(g, s, name, indices):
    return g.op(s, "Gather", g.param(f"embeddings.{name}.weight"), indices)


def count_positions(g, s, start):
    """[1, seq]: start, start + 1, ... as a Slice of a constant."""
    ids = g.const(s, [range(start, 512)])
    end = g.unsqueeze(s, g.dim(s, "input_ids", 1), 0)
    return g.op(s, "Slice", ids, g.const(s, [0]), end, g.const(s, [1]),
                g.const(s, [1]))


def split_heads(g, s, x, like, heads, perm):
    dims = [g.unsqueeze(s, g.dim(s, like, i), 0) for i in (0, 1)]
    dims += [g.const(s, [heads]), g.const(s, [-1])]
    x = g.reshape(s, x, g.op(s, "Concat", *dims, axis=0))
    return g.op(s, "Transpose", x, perm=perm)


def attention(g, s, module, x, heads, head, masked, scale_query=False):
    """`masked` applies the mask to scores."""
    q, k, v = (linear(g, s, f"{module}.{n}", x) for n in ("query", "key",
                                                           "value"))
    q = split_heads(g, s, q, x, heads, [0, 2, 1, 3])
    k = split_heads(g, s, k, x, heads, [0, 2, 3, 1])
    v = split_heads(g, s, v, x, heads, [0, 2, 1, 3])
    root = g.const(s, head ** 0.5, np.float32)
    if scale_query:
        q = g.op(s, "Div", q, root)
    scores = g.op(s, "MatMul", q, k)
    if not scale_query:
        scores = g.op(s, "Div", scores, root)
    weights = g.op(s, "Softmax", masked(g, s, scores), axis=-1)
    y = g.op(s, "Transpose", g.op(s, "MatMul", weights, v), perm=[0, 2, 1, 3])
    dims = [g.unsqueeze(s, g.dim(s, x, i), 0) for i in (0, 1)]
    shape = g.op(s, "Concat", *dims, g.const(s, [heads * head]), axis=0)
    return g.reshape(s, y, shape)


def layers(g, x, count, heads, head, masked, decomposed, scale_query=False):
    for i in range(count):
        s, m = f"/layer.{i}", f"layer.{i}"
        y = attention(g, s, m, x, heads, head, masked, scale_query)
        y = linear(g, s, m + ".dense", y)
        y = g.op(s, "Add", y, x)
        x = layer_norm(g, s, m + ".LayerNorm", y, decomposed)
        y = gelu(g, s, linear(g, s, m + ".intermediate.dense", x))
        y = linear(g, s, f"ffn_out.{i}.dense", y)
        y = g.op(s, "Add", y, x)
        x = layer_norm(g, s, m + ".output.LayerNorm", y, decomposed)
    return x


def additive(g, s, mask, lowest, boolean_input):
    """(1 - mask) * lowest, as [batch, 1, 1, seq]."""
    mask = g.unsqueeze(s, g.unsqueeze(s, mask, 1), 2)
    if boolean_input:
        allowed = mask
        return g.op(s, "Where", allowed, g.const(s, 0, np.float32),
                    g.const(s, lowest, np.float32))
    mask = g.op(s, "Cast", mask, to=TensorProto.FLOAT)
    inverted = g.op(s, "Sub", g.const(s, 1, np.float32), mask)
    return g.op(s, "Mul", inverted, g.const(s, lowest, np.float32))


def adds(mask):
    return lambda g, s, scores: g.op(s, "Add", scores, mask)


def mean_pooling(g, x, mask, normalise=True):
    """As sentence-transformers: sum(x * mask) / clamp(sum(mask), 1e-9)."""
    s = "/pooling"
    wide = g.op(s, "Expand", g.unsqueeze(s, mask, -1), g.op(s, "Shape", x))
    wide = g.op(s, "Cast", wide, to=TensorProto.FLOAT)
    axes = g.const(s, [1])
    total = g.op(s, "ReduceSum", g.op(s, "Mul", x, wide), axes, keepdims=0)
    count = g.op(s, "ReduceSum", wide, axes, keepdims=0)
    count = g.op(s, "Clip", count, g.const(s, 1e-9, np.float32))
    if not normalise:
        return g.op(s, "Div", total, count, out="sentence_embedding")
    mean = g.op(s, "Div", total, count)
    s = "/normalize"
    norm = g.op(s, "ReduceL2", mean, axes=[1], keepdims=1)
    norm = g.op(s, "Clip", norm, g.const(s, 1e-12, np.float32))
    norm = g.op(s, "Expand", norm, g.op(s, "Shape", mean))
    return g.op(s, "Div", mean, norm, out="sentence_embedding")


def model(g, inputs, outputs, opset, mask="int64"):
    """`inputs`: names, of [batch, seq]; or, like outputs, (name, more dims)."""
    def info(name, dims):
        kind = MASK_TYPES[mask] if name == "attention_mask" else (
            TensorProto.FLOAT if dims[-1] != "seq" else TensorProto.INT64)
        return helper.make_tensor_value_info(name, kind, ["batch", *dims])

    rows = [n if isinstance(n, tuple) else (n, ["seq"]) for n in inputs]
    graph = helper.make_graph(
        g.nodes, "main_graph", [info(*row) for row in rows],
        [info(*row) for row in outputs], g.params + g.matmuls)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8,
        producer_name="limber")


# -- models -------------------------------------------------------------------


def minilm_pooled(weights):
    g = Graph(weights)
    x = minilm_graph.embeddings(g)
    mask, batch, seq = minilm_graph.additive_mask(g, x)
    for layer in range(minilm_graph.LAYERS):
        x = minilm_graph.encoder_layer(g, layer, x, mask, batch, seq)
    mean_pooling(g, x, "attention_mask")
    return model(g, ["input_ids", "attention_mask", "token_type_ids"],
                 [("sentence_embedding", [minilm_graph.HIDDEN])], 17)


def bert(count=4, hidden=256, heads=4, inner=1024, mask="int64",
         lowest=LOWEST, states=True):
    g, s = Graph(weights_of(hidden, inner)), "/embeddings"
    allowed = additive(g, "/mask", "attention_mask", lowest, mask == "bool")
    x = g.op(s, "Add", lookup(g, s, "word_embeddings", "input_ids"),
             lookup(g, s, "token_type_embeddings", "token_type_ids"))
    x = g.op(s, "Add", x, lookup(g, s, "position_embeddings",
                                 count_positions(g, s, 0)))
    x = layer_norm(g, s, "embeddings.LayerNorm", x, True)
    x = layers(g, x, count, heads, hidden // heads, adds(allowed), True)
    if states:
        x = g.op("/out", "Identity", x, out="last_hidden_state")
    first = g.op("/pooler", "Gather", x, g.const("/pooler", 0), axis=1)
    weight = g.param("pooler.dense.weight")
    y = g.op("/pooler", "Gemm", first, weight, g.param("pooler.dense.bias"),
             transB=1)
    g.op("/pooler", "Tanh", y, out="pooler_output")
    outputs = [("last_hidden_state", ["seq", hidden])] if states else []
    return model(g, ["input_ids", "attention_mask", "token_type_ids"],
                 outputs + [("pooler_output", [hidden])], 14, mask)


def distilbert(count=4, hidden=256, heads=4, inner=1024, mask="int64",
               lowest=LOWEST, normalise=True):
    g, s = Graph(weights_of(hidden, inner)), "/embeddings"
    x = g.op(s, "Add", lookup(g, s, "word_embeddings", "input_ids"),
             lookup(g, s, "position_embeddings", count_positions(g, s, 0)))
    x = layer_norm(g, s, "embeddings.LayerNorm", x, False)
    kind = {"float": np.float32, "int32": np.int32}.get(mask, np.int64)

    def fill(g, s, scores):
        dims = [g.unsqueeze(s, g.dim(s, x, 0), 0), g.const(s, [1]),
                g.const(s, [1]), g.unsqueeze(s, g.dim(s, x, 1), 0)]
        hidden_keys = (
            g.op(s, "Not", "attention_mask") if mask == "bool" else
            g.op(s, "Equal", "attention_mask", g.const(s, 0, kind)))
        hidden_keys = g.reshape(s, hidden_keys,
                                g.op(s, "Concat", *dims, axis=0))
        hidden_keys = g.op(s, "Expand", hidden_keys, g.op(s, "Shape", scores))
        return g.op(s, "Where", hidden_keys, g.const(s, lowest, np.float32),
                    scores)

    y = layers(g, x, count, heads, hidden // heads, fill, False, True)
    mean_pooling(g, y, "attention_mask", normalise)
    return model(g, ["input_ids", "attention_mask"],
                 [("sentence_embedding", [hidden])], 17, mask)


def embedded(count=2, hidden=64, heads=2, inner=96):
    """An encoder that is given embeddings, with an additive mask."""
    g = Graph(weights_of(hidden, inner))
    allowed = additive(g, "/mask", "attention_mask", LOWEST, False)
    x = layers(g, "inputs_embeds", count, heads, hidden // heads,
               adds(allowed), False)
    mean_pooling(g, x, "attention_mask")
    return model(g, [("inputs_embeds", ["seq", hidden]), "attention_mask"],
                 [("sentence_embedding", [hidden])], 17)


def roberta(count=2, hidden=128, heads=4, inner=256, mask="int64",
            lowest=LOWEST, pad=1):
    g, s = Graph(weights_of(hidden, inner)), "/embeddings"
    real = g.op(s, "Cast",
                g.op(s, "Not", g.op(s, "Equal", "input_ids", g.const(s, pad))),
                to=TensorProto.INT32)
    ids = g.op(s, "Mul", g.op(s, "CumSum", real, g.const(s, 1)), real)
    ids = g.op(s, "Add", g.op(s, "Cast", ids, to=TensorProto.INT64),
               g.const(s, pad))
    x = g.op(s, "Add", lookup(g, s, "word_embeddings", "input_ids"),
             lookup(g, s, "position_embeddings", ids))
    x = layer_norm(g, s, "embeddings.LayerNorm", x, False)
    allowed = additive(g, "/mask", "attention_mask", lowest, mask == "bool")
    x = layers(g, x, count, heads, hidden // heads, adds(allowed), False)
    s = "/select"
    first = g.op(s, "Slice", x, g.const(s, [0]), g.const(s, [1]),
                 g.const(s, [1]), g.const(s, [1]))
    g.op(s, "Squeeze", first, g.const(s, [1]), out="first_token")
    return model(g, ["input_ids", "attention_mask"],
                 [("first_token", [hidden])], 17, mask)


def write(directory):
    """Writes the encoders that are not there yet; minilm.onnx is."""
    for name, build in (("bert", bert), ("distilbert", distilbert)):
        if not (directory / f"{name}.onnx").exists():
            onnx.save(build(), directory / f"{name}.onnx")
    pooled = directory / "minilm-pooled.onnx"
    if pooled.exists():
        return
    source = onnx.load(directory / "minilm.onnx").graph.initializer
    weights = {}
    for t in source:
        weights[t.name.removeprefix("m.")] = onnx.numpy_helper.to_array(t)
    names = linear_names()
    for name, number in names.items():
        weights[name] = weights[f"onnx::MatMul_{number}"].T
    onnx.save(minilm_pooled(weights), pooled)


def linear_names():
    """name of each Linear of MiniLM -> number of its weight in minilm.onnx"""
    names = {}
    for layer in range(minilm_graph.LAYERS):
        m, n = f"encoder.layer.{layer}", 714 + 13 * layer
        for part, k in (("attention.self.query", 0), ("attention.self.key", 7),
                        ("attention.self.value", 8),
                        ("attention.output.dense", 10),
                        ("intermediate.dense", 11), ("output.dense", 12)):
            names[f"{m}.{part}.weight"] = n + k
    return names

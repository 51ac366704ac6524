"""Writes all-MiniLM-L6-v2 as an ONNX model: weights from safetensors, graph
as PyTorch's exporter writes it (opset 17), node for node and name for name.

The exporter's graph is kept with all its redundancy (shape arithmetic, a mask
built by Gathers, decomposed GELU), because real models have it.
"""

import json
import sys

import exporter_graph
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HIDDEN, HEAD = 6, 384, 32
EPSILON = 1e-12


def read_safetensors(path):
    """name -> array. A length, a JSON header, then the bytes of all tensors."""
    raw = np.memmap(path, np.uint8, "r")
    length = int(raw[:8].view("<u8")[0])
    header = json.loads(raw[8:8 + length].tobytes())
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}
    body = raw[8 + length:]
    return {
        name: body[slice(*t["data_offsets"])].view(types[t["dtype"]])
        .reshape(t["shape"]) for name, t in header.items()
    }


class Graph(exporter_graph.Graph):
    """With the modules of BERT."""

    def __init__(self, weights):
        super().__init__(weights, prefix="m.")

    def ones(self, scope, shape, dtype):
        value = numpy_helper.from_array(np.ones(1, dtype))
        return self.op(scope, "ConstantOfShape", shape, value=value)

    def layer_norm(self, module, x, out=None):
        gain = self.param(module + ".weight")
        bias = self.param(module + ".bias")
        return self.op("/m/" + module_path(module), "LayerNormalization", x,
                       gain, bias, out=out, axis=-1, epsilon=EPSILON)

    def linear(self, module, x, number):
        scope = "/m/" + module_path(module)
        weight = self.linear_weight(module + ".weight", number)
        bias = self.param(module + ".bias")
        y = self.op(scope, "MatMul", x, weight)
        return self.op(scope, "Add", bias, y)


def module_path(module):
    """encoder.layer.0.output.dense -> encoder/layer.0/output/dense"""
    return module.replace(".", "/").replace("layer/", "layer.")


def embeddings(g):
    s = "/m/embeddings"
    seq = g.dim(s, "input_ids", 1)
    positions = g.const(s, [range(512)], out="onnx::Slice_110")
    axes = g.const(s, [1])
    start = g.const(s, [0])
    end = g.unsqueeze(s, seq, 0)
    step = g.const(s, [1])
    ids = g.op(s, "Slice", positions, start, end, axes, step)

    def lookup(kind, indices):
        table = g.param(f"embeddings.{kind}.weight")
        return g.op(f"{s}/{kind}", "Gather", table, indices)

    words = lookup("word_embeddings", "input_ids")
    types = lookup("token_type_embeddings", "token_type_ids")
    x = g.op(s, "Add", words, types)
    x = g.op(s, "Add", x, lookup("position_embeddings", ids))
    return g.layer_norm("embeddings.LayerNorm", x)


def additive_mask(g, x):
    """0 for tokens that are attended to, the lowest float for others."""
    s = "/m"
    mask = g.op(s, "Cast", "attention_mask", to=TensorProto.BOOL)
    queries = g.dim(s, x, 1)
    keys = g.dim(s, mask, 1)
    batch = g.dim(s, x, 0)

    def count_to(n):
        n = g.op(s, "Cast", n, to=TensorProto.INT64)
        return g.op(s, "Range", g.const(s, 0), n, g.const(s, 1))

    ranges = [count_to(n) for n in (batch, queries, keys)]
    for i, axes in enumerate([(1, 2, 3), (0, 1, 3), (0, 1, 2)]):
        for axis in axes:
            ranges[i] = g.unsqueeze(s, ranges[i], axis)
    rows, query, key = ranges

    always = g.ones(s, g.const(s, []), bool)
    valid = g.op(s, "GreaterOrEqual", query, g.const(s, 0))
    valid = g.op(s, "Cast", valid, to=TensorProto.BOOL)
    allowed = g.op(s, "And", always, valid)

    shape = g.op(s, "Shape", mask)
    width = g.op(s, "Gather", shape, g.const(s, [1]), axis=0)
    flat = g.op(s, "Flatten", mask, axis=2)
    index = g.op(s, "Add", key, g.op(s, "Mul", rows, width))
    picked = g.op(s, "Gather", flat, index, axis=0)
    shape = g.op(s, "Shape", index)
    picked = g.reshape(s, picked, g.const(s, [-1]))
    picked = g.reshape(s, picked, g.op(s, "Concat", shape, axis=0))
    picked = g.op(s, "Cast", picked, to=TensorProto.BOOL)
    allowed = g.op(s, "And", allowed, picked)

    dims = [g.unsqueeze(s, batch, 0), g.const(s, [-1]),
            g.unsqueeze(s, queries, 0), g.unsqueeze(s, keys, 0)]
    target = g.op(s, "Concat", *dims, axis=0)
    target = g.reshape(s, target, g.const(s, [-1]))
    ones = g.ones(s, g.op(s, "Shape", target), np.int64)
    minus = g.op(s, "Mul", ones, g.const(s, -1))
    keep = g.op(s, "Equal", target, minus)
    allowed = g.op(s, "Expand", allowed, g.op(s, "Where", keep, ones, target))
    zero = g.const(s, 0, np.float32)
    lowest = g.const(s, np.finfo(np.float32).min, np.float32)
    return g.op(s, "Where", allowed, zero, lowest), batch, queries


def attention(g, layer, x, mask, batch, seq):
    module = f"encoder.layer.{layer}.attention.self"
    s = "/m/" + module_path(module)
    numbers = 714 + 13 * layer
    if layer:  # the first layer shares the mask's
        batch, seq = g.dim(s, x, 0), g.dim(s, x, 1)

    def split_shape(number, *tail):
        number += 84 * layer
        dims = [g.unsqueeze(s, batch, 0, f"onnx::Unsqueeze_{number}"),
                g.unsqueeze(s, seq, 0, f"onnx::Unsqueeze_{number + 2}")]
        dims += [g.const(s, [n]) for n in tail]
        return g.op(s, "Concat", *dims, axis=0)

    q = g.linear(module + ".query", x, numbers)
    shapes = [split_shape(n, -1, HEAD) for n in (214, 223, 232)]
    q = g.reshape(s, q, shapes[0])
    q = g.op(s, "Transpose", q, perm=[0, 2, 1, 3])
    k = g.reshape(s, g.linear(module + ".key", x, numbers + 7), shapes[1])
    v = g.reshape(s, g.linear(module + ".value", x, numbers + 8), shapes[2])
    v = g.op(s, "Transpose", v, perm=[0, 2, 1, 3])
    k = g.op(s, "Transpose", k, perm=[0, 2, 3, 1])
    scores = g.op(s, "MatMul", q, k)
    scale = g.const(s, HEAD ** -0.5, np.float32)
    scores = g.op(s, "Mul", scores, scale)
    scores = g.op(s, "Add", scores, mask)
    weights = g.op(s, "Softmax", scores, axis=-1)
    y = g.op(s, "MatMul", weights, v)
    y = g.op(s, "Transpose", y, perm=[0, 2, 1, 3])
    return g.reshape(s, y, split_shape(260, -1))


def gelu(g, s, x):
    root = g.const(s, 2 ** 0.5, np.float32)
    y = g.op(s, "Erf", g.op(s, "Div", x, root))
    y = g.op(s, "Add", y, g.const(s, 1, np.float32))
    y = g.op(s, "Mul", x, y)
    return g.op(s, "Mul", y, g.const(s, 0.5, np.float32))


def encoder_layer(g, layer, x, mask, batch, seq):
    m = f"encoder.layer.{layer}"
    s = "/m/" + module_path(m)
    number = 714 + 13 * layer
    y = attention(g, layer, x, mask, batch, seq)
    y = g.linear(m + ".attention.output.dense", y, number + 10)
    y = g.op(s + "/attention/output", "Add", y, x)
    x = g.layer_norm(m + ".attention.output.LayerNorm", y)
    y = g.linear(m + ".intermediate.dense", x, number + 11)
    y = gelu(g, s + "/intermediate/intermediate_act_fn", y)
    y = g.linear(m + ".output.dense", y, number + 12)
    y = g.op(s + "/output", "Add", y, x)
    out = "last_hidden_state" if layer == LAYERS - 1 else None
    return g.layer_norm(m + ".output.LayerNorm", y, out)


def build(weights):
    g = Graph(weights)
    x = embeddings(g)
    mask, batch, seq = additive_mask(g, x)
    for layer in range(LAYERS):
        x = encoder_layer(g, layer, x, mask, batch, seq)

    def info(name, dtype, *dims):
        return helper.make_tensor_value_info(name, dtype, dims)

    inputs = [info(name, TensorProto.INT64, "batch", "seq")
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = info(x, TensorProto.FLOAT, "batch", "seq", HIDDEN)
    graph = helper.make_graph(g.nodes, "main_graph", inputs, [output],
                              g.params + g.matmuls)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8,
                             producer_name="limber")


if __name__ == "__main__":
    source, target = sys.argv[1:]
    onnx.save(build(read_safetensors(source)), target)

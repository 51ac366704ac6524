"""Writes a GPT-2 decoder with seeded random weights as an ONNX model: the graph
as PyTorch's exporter writes it for text generation with past keys and values
(opset 14), node for node and name for name.

The exporter's graph is kept with all its redundancy (shape arithmetic, Gemm
between Reshapes, a causal mask cut out of a buffer, decomposed LayerNorm and
GELU), because real models have it.

    inputs   input_ids, position_ids [batch, sequence], attention_mask [batch,
             past + sequence], past_key_values.N.key and .value [batch, heads,
             past, head size]
    outputs  logits [batch, sequence, vocabulary], present.N.key and .value
             [batch, heads, past + sequence, head size]
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import exporter_graph
import numpy as np
import onnx
from onnx import TensorProto, helper

EPSILON = 1e-5
LOWEST = float(np.finfo(np.float32).min)


@dataclass
class Config:
    layers: int = 8
    hidden: int = 512
    heads: int = 8
    inner: int = 2048  # of the feed-forward layers
    vocabulary: int = 8000
    positions: int = 1024

    @property
    def head_size(self):
        return self.hidden // self.heads


def random_weights(config, seed=1):
    """name -> array. Scaled so that activations have a variance near 1."""
    rng = np.random.default_rng(seed)
    weights = {}

    def add(name, *shape, scale=1.0, mean=0.0):
        weights[name] = mean + scale * rng.standard_normal(shape, np.float32)
        weights[name] = weights[name].astype(np.float32)

    def conv1d(name, rows, cols):
        add(name + ".weight", rows, cols, scale=rows ** -0.5)
        add(name + ".bias", cols, scale=0.1)

    def norm(name):
        add(name + ".weight", config.hidden, scale=0.1, mean=1.0)
        add(name + ".bias", config.hidden, scale=0.1)

    add("wte.weight", config.vocabulary, config.hidden)
    add("wpe.weight", config.positions, config.hidden)
    for i in range(config.layers):
        norm(f"h.{i}.ln_1")
        conv1d(f"h.{i}.attn.c_attn", config.hidden, 3 * config.hidden)
        conv1d(f"h.{i}.attn.c_proj", config.hidden, config.hidden)
        norm(f"h.{i}.ln_2")
        conv1d(f"h.{i}.mlp.c_fc", config.hidden, config.inner)
        conv1d(f"h.{i}.mlp.c_proj", config.inner, config.hidden)
    norm("ln_f")
    n = config.positions
    weights["h.0.attn.bias"] = np.tri(n, dtype=bool).reshape(1, 1, n, n)
    return weights


class Graph(exporter_graph.Graph):
    """With the modules of GPT-2."""

    def __init__(self, config):
        super().__init__(random_weights(config), prefix="transformer.")
        self.config = config
        self.causal = self.param("h.0.attn.bias")  # all layers share it

    def scalar(self, s, value):
        return self.const(s, value, np.float32)

    def dims(self, s, x, *axes):
        return [self.dim(s, x, axis) for axis in axes]

    def view(self, s, x, *sizes):
        """Sizes are scalar values of the graph, or numbers."""
        parts = [self.unsqueeze(s, n, 0) if isinstance(n, str)
                 else self.const(s, [n]) for n in sizes]
        return self.reshape(s, x, self.op(s, "Concat", *parts, axis=0))

    def layer_norm(self, name, x):
        s = "/transformer/" + module_path(name)
        mean = self.op(s, "ReduceMean", x, axes=[-1])
        centred = self.op(s, "Sub", x, mean)
        square = self.op(s, "Pow", centred, self.scalar(s, 2))
        variance = self.op(s, "ReduceMean", square, axes=[-1])
        variance = self.op(s, "Add", variance, self.scalar(s, EPSILON))
        y = self.op(s, "Div", centred, self.op(s, "Sqrt", variance))
        y = self.op(s, "Mul", y, self.param(name + ".weight"))
        return self.op(s, "Add", y, self.param(name + ".bias"))

    def conv1d(self, name, x, width):
        """addmm of the flattened input: Gemm between two Reshapes."""
        s = "/transformer/" + module_path(name)
        batch, seq, size = self.dims(s, x, 0, 1, 2)
        flat = self.view(s, x, -1, size)
        y = self.op(s, "Gemm", flat, self.param(name + ".weight"),
                    self.param(name + ".bias"), alpha=1.0, beta=1.0)
        return self.view(s, y, batch, seq, width)

    def split_heads(self, s, x):
        batch, seq = self.dims(s, x, 0, 1)
        y = self.view(s, x, batch, seq, self.config.heads,
                      self.config.head_size)
        return self.op(s, "Transpose", y, perm=[0, 2, 1, 3])

    def merge_heads(self, s, x):
        y = self.op(s, "Transpose", x, perm=[0, 2, 1, 3])
        batch, seq = self.dims(s, y, 0, 1)
        return self.view(s, y, batch, seq, self.config.hidden)

    def causal_mask(self, s, query, key):
        """bias[:, :, keys - queries : keys, :keys]"""
        queries, keys = self.dim(s, query, -2), self.dim(s, key, -2)
        start = self.unsqueeze(s, self.op(s, "Sub", keys, queries), 0)
        end = self.unsqueeze(s, keys, 0)
        rows = self.op(s, "Slice", self.causal, start, end,
                       self.const(s, [2]), self.const(s, [1]))
        end = self.unsqueeze(s, keys, 0)
        return self.op(s, "Slice", rows, self.const(s, [0]), end,
                       self.const(s, [3]), self.const(s, [1]))

    def scores(self, s, query, key, value):
        transposed = self.op(s, "Transpose", key, perm=[0, 1, 3, 2])
        y = self.op(s, "MatMul", query, transposed)
        size = self.op(s, "Cast", self.dim(s, value, -1),
                       to=TensorProto.FLOAT)
        root = self.op(s, "Pow", size, self.scalar(s, 0.5))
        root = self.op(s, "Cast", root, to=TensorProto.FLOAT)
        y = self.op(s, "Div", y, root)
        causal = self.causal_mask(s, query, key)
        return self.op(s, "Where", causal, y, self.scalar(s, LOWEST))

    def attention(self, layer, x, mask):
        name = f"h.{layer}.attn"
        s = "/transformer/" + module_path(name)
        qkv = self.conv1d(name + ".c_attn", x, 3 * self.config.hidden)
        query, key, value = self.split_qkv(s, qkv)
        query, key, value = [self.split_heads(s, v)
                             for v in (query, key, value)]
        past = f"past_key_values.{layer}"
        key = self.op(s, "Concat", past + ".key", key, axis=-2,
                      out=f"present.{layer}.key")
        value = self.op(s, "Concat", past + ".value", value, axis=-2,
                        out=f"present.{layer}.value")
        y = self.op(s, "Add", self.scores(s, query, key, value), mask)
        y = self.op(s, "Softmax", y, axis=-1)
        y = self.merge_heads(s, self.op(s, "MatMul", y, value))
        return self.conv1d(name + ".c_proj", y, self.config.hidden)

    def split_qkv(self, s, x):
        name = self.name(s, "Split")
        outs = [f"{name}_output_{i}" for i in range(3)]
        sizes = self.const(s, 3 * [self.config.hidden])
        self.nodes.append(helper.make_node("Split", [x, sizes], outs, name,
                                           axis=2))
        return outs

    def gelu(self, s, x):
        """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
        half = self.op(s, "Mul", x, self.scalar(s, 0.5))
        cube = self.op(s, "Pow", x, self.scalar(s, 3))
        y = self.op(s, "Mul", cube, self.scalar(s, 0.044715))
        y = self.op(s, "Add", x, y)
        y = self.op(s, "Mul", y, self.scalar(s, (2 / np.pi) ** 0.5))
        y = self.op(s, "Add", self.op(s, "Tanh", y), self.scalar(s, 1))
        return self.op(s, "Mul", half, y)

    def block(self, layer, x, mask):
        name = f"h.{layer}"
        s = "/transformer/" + module_path(name)
        y = self.attention(layer, self.layer_norm(name + ".ln_1", x), mask)
        x = self.op(s, "Add", y, x)
        y = self.layer_norm(name + ".ln_2", x)
        y = self.conv1d(name + ".mlp.c_fc", y, self.config.inner)
        y = self.gelu(s + "/mlp/act", y)
        y = self.conv1d(name + ".mlp.c_proj", y, self.config.hidden)
        return self.op(s, "Add", x, y)


def module_path(module):
    """h.0.attn.c_attn -> h.0/attn/c_attn"""
    return module.replace(".", "/").replace("h/", "h.", 1) \
        if module.startswith("h.") else module


def embeddings(g):
    s = "/transformer"
    seq = g.dim(s, "input_ids", 1)
    ids = g.view(s, "input_ids", -1, seq)
    positions = g.view(s, "position_ids", -1, seq)
    words = g.op(s + "/wte", "Gather", g.param("wte.weight"), ids)
    places = g.op(s + "/wpe", "Gather", g.param("wpe.weight"), positions)
    return g.op(s, "Add", words, places), seq


def additive_mask(g):
    """0 for tokens that are attended to, the lowest float for others."""
    s = "/transformer"
    batch = g.dim(s, "input_ids", 0)
    mask = g.view(s, "attention_mask", batch, -1)
    mask = g.unsqueeze(s, g.unsqueeze(s, mask, 1), 2)
    mask = g.op(s, "Cast", mask, to=TensorProto.FLOAT)
    mask = g.op(s, "Sub", g.scalar(s, 1), mask)
    return g.op(s, "Mul", mask, g.scalar(s, LOWEST))


def value_infos(config):
    """The inputs and outputs of the model."""
    past, new = "past_sequence_length", "sequence_length"
    both = f"{past} + {new}"

    def info(name, dtype, *dims):
        return helper.make_tensor_value_info(name, dtype,
                                             ["batch_size", *dims])

    def cache(name, length):
        return [info(f"{name}.{i}.{kind}", TensorProto.FLOAT, config.heads,
                     length, config.head_size)
                for i in range(config.layers) for kind in ("key", "value")]

    ids = info("input_ids", TensorProto.INT64, new)
    mask = info("attention_mask", TensorProto.INT64, both)
    positions = info("position_ids", TensorProto.INT64, new)
    logits = info("logits", TensorProto.FLOAT, new, config.vocabulary)
    return ([ids, mask, positions, *cache("past_key_values", past)],
            [logits, *cache("present", both)])


def build(config):
    g = Graph(config)
    x, seq = embeddings(g)
    mask = additive_mask(g)
    for layer in range(config.layers):
        x = g.block(layer, x, mask)
    x = g.layer_norm("ln_f", x)
    s = "/transformer"
    x = g.view(s, x, -1, seq, g.dim(s, x, 2))
    g.op("/lm_head", "MatMul", x, g.linear_weight("wte.weight", 2000),
         out="logits")
    inputs, outputs = value_infos(config)
    graph = helper.make_graph(g.nodes, "main_graph", inputs, outputs,
                              g.params + g.matmuls)
    return helper.make_model(graph, ir_version=7, producer_name="limber",
                             opset_imports=[helper.make_opsetid("", 14)])


def main(directory):
    target = Path(directory, "decoder.onnx")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        fresh = target.with_suffix(".fresh")
        onnx.save(build(Config()), fresh)
        os.replace(fresh, target)
    print(f"models: 1 in {directory}")


if __name__ == "__main__":
    main(sys.argv[1])

"""Random graphs on padded batches: results without padding are those of ONNX
Runtime, whatever is between the masks and the results.

LIMBER_TEST_SEEDS: number of graphs. A failure names its seed.
"""

import os

import numpy as np
import pytest
from test_ragged import encoder_graphs  # noqa: F401 (sets the path)
from minilm_graph import Graph
from onnx import TensorProto, helper

import limber
import reference
import test_ragged

SEEDS = int(os.environ.get("LIMBER_TEST_SEEDS", 60))
WIDTH, HEADS = 8, 2
LOWEST = np.finfo(np.float32).min


class Random:
    """A graph that grows by random nodes; `x` is [batch, seq, WIDTH]."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.g = Graph({})
        self.x = "x"
        self.attentions = 0

    def op(self, name, *inputs, **attributes):
        return self.g.op("", name, *inputs, **attributes)

    def const(self, value, dtype=np.float32):
        return self.g.const("", value, dtype)

    def draw(self, *shape):
        scale = shape[0] ** -0.5 if len(shape) > 1 else 1
        return self.const(scale * self.rng.standard_normal(shape))

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]()

    # -- masks ----------------------------------------------------------------

    def mask(self, axes):
        """The mask as floats, with axes of size 1 added."""
        mask = self.op("Cast", "mask", to=TensorProto.FLOAT)
        return self.op("Unsqueeze", mask, self.const(axes, np.int64))

    def flags(self, axes):
        mask = self.pick(
            lambda: self.op("Cast", "mask", to=TensorProto.BOOL),
            lambda: self.op("Not", self.op("Equal", "mask",
                                           self.const(0, np.int64))),
            lambda: self.op("Greater", "mask", self.const(0, np.int64)))
        return self.op("Unsqueeze", mask, self.const(axes, np.int64))

    def additive(self):
        low = self.const(self.pick(lambda: LOWEST, lambda: -10000.0,
                                   lambda: -1e9))
        if self.rng.random() < 0.5:
            return self.op("Where", self.flags([1, 2]), self.const(0), low)
        return self.op("Mul", self.op("Sub", self.const(1),
                                      self.mask([1, 2])), low)

    # -- nodes on rows --------------------------------------------------------

    def shape_as(self, *sizes):
        """A shape whose first two sizes are those of x."""
        dims = [self.g.unsqueeze("", self.g.dim("", self.x, i), 0)
                for i in (0, 1)]
        return self.op("Concat", *dims, self.const(sizes, np.int64), axis=0)

    def heads(self, x, perm):
        x = self.op("Reshape", x, self.shape_as(HEADS, WIDTH // HEADS))
        return self.op("Transpose", x, perm=perm)

    def attention(self):
        q, k, v = (self.op("MatMul", self.x, self.draw(WIDTH, WIDTH))
                   for _ in range(3))
        scores = self.op("MatMul", self.heads(q, [0, 2, 1, 3]),
                         self.heads(k, [0, 2, 3, 1]))
        scores = self.op("Mul", scores, self.const(0.5))
        scores = self.op("Add", scores, self.additive())
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1),
                    self.heads(v, [0, 2, 1, 3]))
        y = self.op("Transpose", y, perm=[0, 2, 1, 3])
        self.attentions += 1
        return self.op("Reshape", y, self.shape_as(WIDTH))

    def flat(self):
        y = self.op("Reshape", self.x, self.const([-1, WIDTH], np.int64))
        y = self.op("Gemm", y, self.draw(WIDTH, WIDTH), self.draw(WIDTH))
        return self.op("Reshape", y, self.shape_as(WIDTH))

    def pieces(self):
        half = WIDTH // 2
        a = self.op("Slice", self.x, *(self.const([n], np.int64)
                                       for n in (0, half, 2)))
        b = self.op("Slice", self.x, *(self.const([n], np.int64)
                                       for n in (half, WIDTH, 2)))
        return self.op("Concat", b, self.op("Tanh", a), axis=2)

    def by_position(self):
        count = self.g.dim("", self.x, 1)
        index = self.op("Range", self.const(0, np.int64), count,
                        self.const(1, np.int64))
        return self.op("Add", self.x, self.op("Gather", self.draw(64, WIDTH),
                                              index))

    def centred(self):
        mean = self.op("ReduceMean", self.x, axes=[-1], keepdims=1)
        return self.op("Sub", self.x, mean)

    def grow(self):
        residual = self.x
        self.x = self.pick(
            self.attention, self.attention, self.flat, self.pieces,
            self.by_position, self.centred,
            lambda: self.op("Relu", self.x),
            lambda: self.op("Add", self.x, self.draw(WIDTH)),
            lambda: self.op("MatMul", self.x, self.draw(WIDTH, WIDTH)),
            lambda: self.op("Softmax", self.x, axis=-1),
            lambda: self.op("Mul", self.x, self.mask([-1])),
            lambda: self.op("Where", self.flags([-1]), self.x,
                            self.const(0)),
            lambda: self.op("LayerNormalization", self.x, self.draw(WIDTH),
                            self.draw(WIDTH), axis=-1))
        if self.rng.random() < 0.4:
            self.x = self.op("Add", self.x, residual)

    # -- results --------------------------------------------------------------

    def masked(self):
        return self.pick(
            lambda: self.op("Mul", self.x, self.mask([-1])),
            lambda: self.op("Mul", self.mask([-1]), self.x),
            lambda: self.op("Where", self.flags([-1]), self.x, self.const(0)))

    def total(self):
        return self.op("ReduceSum", self.masked(), self.const([1], np.int64),
                       keepdims=int(self.rng.integers(2)))

    def mean(self):
        count = self.op("ReduceSum", self.mask([-1]),
                        self.const([1], np.int64), keepdims=0)
        total = self.op("ReduceSum", self.masked(),
                        self.const([1], np.int64), keepdims=0)
        return self.op("Div", total, self.op("Max", count, self.const(1)))

    def first(self):
        index = self.pick(lambda: 0, lambda: [0])
        return self.op("Gather", self.x, self.const(index, np.int64), axis=1)

    def model(self):
        for _ in range(self.rng.integers(2, 9)):
            self.grow()
        results = [self.pick(self.total, self.mean, self.first, self.masked,
                             lambda: self.op("ReduceMax", self.x, axes=[1]))
                   for _ in range(self.rng.integers(1, 3))]
        named = [self.op("Identity", name) for name in results]

        def info(name, kind, dims):
            return helper.make_tensor_value_info(name, kind, dims)

        inputs = [info("x", TensorProto.FLOAT, ["b", "s", WIDTH]),
                  info("mask", TensorProto.INT64, ["b", "s"])]
        outputs = [helper.make_empty_tensor_value_info(n) for n in named]
        for value in outputs:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.g.nodes, "random", inputs, outputs,
                                  self.g.params)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8).SerializeToString()


def check(seed):
    """Returns how many of three runs left padding out."""
    model = Random(seed).model()
    live, theirs = test_ragged.open_as("live", model), reference.session(model)
    rng = np.random.default_rng(seed)
    for batch, seq in ((2, 3), (5, 9), (9, 17)):
        pad = (test_ragged.right_padded, test_ragged.arbitrary)[seed % 2]
        mask = pad(rng, batch, seq)
        feeds = {"x": rng.standard_normal([batch, seq, WIDTH],
                                          dtype=np.float32),
                 "mask": mask.astype(np.int64)}
        names = [value.name for value in theirs.get_outputs()]
        for name, got, want in zip(names, live.run(None, feeds),
                                   theirs.run(None, feeds)):
            reference.assert_close(f"seed {seed}, {name}", got, want)
    return live.stats().ragged_runs


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_random_graphs_agree(first):
    counts = [check(seed) for seed in range(first, first + 20)]
    assert sum(count == 3 for count in counts) >= 2

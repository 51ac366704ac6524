"""Equal partitions share launches if their operands have equal layouts: here
they differ. Each operator is applied many times in one model, with different
weights each time, to inputs that are dense, transposed, slices of larger ones,
broadcast or written into a Concat; every order of two such inputs occurs."""

import itertools

import limber
import numpy as np
import onnxruntime
import pytest
from conftest import GraphBuilder, make_model
from onnx import TensorProto

# The size of every axis but the batch, so that transposed dims are equal dims.
# Constants of fewer elements are compared, and partitions would not be equal.
SIDE = 10


class Builder(GraphBuilder):
    def __init__(self, rank, seed):
        super().__init__(seed)
        self.rank = rank
        self.inputs, self.outputs = {}, {}

    def weight(self, *dims):
        return self.const(self.draw.normal(size=dims).astype(np.float32))

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def input(self, batch, *dims):
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (TensorProto.FLOAT, [batch, *dims])
        return name

    def dense(self):
        return self.input("n", *[SIDE] * (self.rank - 1))

    def output(self, value):
        self.outputs[value] = (TensorProto.FLOAT, None)

    def model(self):
        model = make_model(self.nodes, self.inputs, self.outputs)
        model.graph.initializer.extend(self.weights)
        return model.SerializeToString()


# -- layouts of an operand of dims [n, SIDE, ...] ----------------------------

def transposed(*order):
    def read(b):
        return b.node("Transpose", b.dense(), perm=[0, *order])
    return read


def batch_last(b):
    x = b.input(SIDE, *[SIDE] * (b.rank - 2), "n")
    return b.node("Transpose", x, perm=[b.rank - 1, *range(b.rank - 1)])


def cut_out(axis):
    def read(b):
        dims = [SIDE] * (b.rank - 1)
        if axis:
            dims[axis - 1] = SIDE + 5
        x = b.input("n", *dims)
        return b.node("Slice", x, b.ints(2 if axis else 0),
                      b.ints(2 + SIDE if axis else 2**31), b.ints(axis))
    return read


def every_second(b):
    x = b.input("n", *[SIDE] * (b.rank - 2), 2 * SIDE)
    return b.node("Slice", x, b.ints(1), b.ints(2**31), b.ints(-1), b.ints(2))


def broadcast(b):
    x = b.input("n", *[SIDE] * (b.rank - 2), 1)
    return b.node("Expand", x, b.ints(*[1] * (b.rank - 1), SIDE))


def split_off(b):
    x = b.input("n", 3 * SIDE, *[SIDE] * (b.rank - 2))
    name = b.node("Split", x, b.ints(3, SIDE, 2 * SIDE - 3), axis=1)
    b.nodes[-1].output[:] = [f"{name}_0", name, f"{name}_2"]
    return name


def reads_of(rank):
    orders = list(itertools.permutations(range(1, rank)))[1:]
    return [Builder.dense, *[transposed(*order) for order in orders],
            batch_last, cut_out(1), cut_out(rank - 1), every_second, broadcast,
            split_off]


# -- operators that read it ----------------------------------------------------

def conv(group, kernel, **attributes):
    def apply(b, x):
        return b.node("Conv", x, b.weight(SIDE, SIDE // group, kernel, kernel),
                      b.weight(SIDE), group=group, kernel_shape=[kernel] * 2,
                      pads=[kernel // 2] * 4, **attributes)
    return apply


def layer_norm(b, x):
    """The epsilon keeps rows of equal elements well-conditioned."""
    return b.node("LayerNormalization", x, b.weight(SIDE), b.weight(SIDE),
                  epsilon=1.0)


def batch_norm(b, x):
    return b.node("BatchNormalization", x, b.weight(SIDE), b.weight(SIDE),
                  b.weight(SIDE),
                  b.const(b.draw.uniform(1, 2, SIDE).astype(np.float32)))


def add_bias(b, x):
    return b.node("Add", x, b.weight(*[SIDE] * (b.rank - 1)))


def pair(b, x):
    """A binary operator with one dense operand."""
    return b.node("Add", b.node("Exp", x), b.dense())


def in_double(b, x):
    """float64, for which only reference kernels exist."""
    return b.node("Cast", b.node("Exp", b.node(
        "Cast", x, to=TensorProto.DOUBLE)), to=TensorProto.FLOAT)


OPERATORS = {
    "covered": (3, in_double),
    "exp": (3, lambda b, x: b.node("Exp", x)),
    "add": (3, add_bias),
    "pair": (3, pair),
    "softmax": (3, lambda b, x: b.node("Softmax", x, axis=-1)),
    "softmax_1": (3, lambda b, x: b.node("Softmax", x, axis=1)),
    "layer_norm": (3, layer_norm),
    "mean": (3, lambda b, x: b.node("ReduceMean", x, axes=[-1], keepdims=1)),
    "mean_1": (4, lambda b, x: b.node("ReduceMean", x, axes=[1], keepdims=1)),
    "matmul": (3, lambda b, x: b.node("MatMul", x, b.weight(SIDE, SIDE))),
    "matmul_b": (3, lambda b, x: b.node("MatMul", b.dense(), x)),
    "conv_1x1": (4, conv(1, 1)),
    "conv_3x3": (4, conv(1, 3)),
    "conv_stride": (4, conv(1, 3, strides=[2, 2])),
    "conv_depthwise": (4, conv(SIDE, 3)),
    "max_pool": (4, lambda b, x: b.node("MaxPool", x, kernel_shape=[2, 2])),
    "mean_pool": (4, lambda b, x: b.node("AveragePool", x,
                                         kernel_shape=[3, 3],
                                         pads=[1, 1, 1, 1])),
    "global_pool": (4, lambda b, x: b.node("GlobalAveragePool", x)),
    "batch_norm": (4, batch_norm),
}


def feeds_of(b, sizes):
    return {name: b.draw.normal(size=[sizes.get(d, d) for d in dims])
            .astype(np.float32) for name, (_, dims) in b.inputs.items()}


def compare(b, *all_sizes):
    """Compares with ONNX Runtime without graph optimisations, at given
    sizes."""
    model = b.model()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    reference = onnxruntime.InferenceSession(model, options)
    ours = limber.load(model, compile="settle")
    for sizes in all_sizes or ({"n": 1}, {"n": 3}, {"n": 8}):
        feeds = feeds_of(b, sizes)
        names = list(b.outputs)
        for name, got, want in zip(names, ours.run(names, feeds),
                                   reference.run(names, feeds)):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4,
                                       err_msg=f"{sizes}, {name}")


@pytest.mark.parametrize("name", OPERATORS)
def test_equal_partitions_with_different_input_layouts(name):
    rank, apply = OPERATORS[name]
    b = Builder(rank, seed=1)
    for first, second in itertools.product(reads_of(rank), repeat=2):
        b.output(apply(b, first(b)))
        b.output(apply(b, second(b)))
    compare(b)


@pytest.mark.parametrize("op", ["Sub", "MatMul"])
@pytest.mark.parametrize("rank", [3, 4])
def test_operands_of_one_node_with_different_layouts(op, rank):
    b = Builder(rank, seed=6)
    for first, second in itertools.product(reads_of(rank), repeat=2):
        b.output(b.node("Relu", b.node(op, first(b), second(b))))
    compare(b)


@pytest.mark.parametrize("name", ["covered", "exp", "softmax", "matmul",
                                  "layer_norm"])
def test_equal_partitions_with_different_output_layouts(name):
    """Into slices of a Concat along each axis, and into buffers."""
    rank, apply = OPERATORS[name]
    b = Builder(rank, seed=2)
    for axis in (None, 2, 1, None, 1, 2, None):
        parts = [apply(b, b.dense()) for _ in range(3)]
        if axis is None:
            for part in parts:
                b.output(part)
        else:
            b.output(b.node("Concat", *parts, axis=axis))
    compare(b)


@pytest.mark.parametrize("axis", [1, 2])
def test_parts_of_a_split_concatenated_in_another_order(axis):
    """A Concat of all parts in order may need no copy."""
    b = Builder(3, seed=5)
    for order in ("abc", "acb", "bac", "cab", "ab", "bc", "aab", "axbc", "abcx",
                  "xabc", "bbb"):
        name = b.node("Split", b.node("Exp", b.dense()),
                      b.ints(2, SIDE - 5, 3), axis=axis)
        parts = {key: f"{name}_{key}" for key in "abc"}
        b.nodes[-1].output[:] = list(parts.values())
        parts["x"] = b.node("Exp", b.dense())
        b.output(b.node("Concat", *[parts[key] for key in order], axis=axis))
    compare(b)


@pytest.mark.parametrize("channels", [11, SIDE])
@pytest.mark.parametrize("spatial", [1, 2])
def test_convolutions_of_planar_and_channels_last_inputs(spatial, channels):
    """The first convolution of a model reads its input channels first and has
    its weights in that order (unless they are K2-interleaved); the others read
    channels-last feature maps. Where pooling causes a copy of the input, both
    read dense memory, and with rows of one element both layouts are equal."""
    b = Builder(2 + spatial, seed=3)
    dims = [f"d{i}" for i in range(spatial)]

    def convolve(x):
        return b.node("Conv", x, b.weight(channels, channels, *[3] * spatial),
                      b.weight(channels), pads=[1] * 2 * spatial)
    for _ in range(2):
        x = b.input("n", channels, *dims)
        pooled = b.node("MaxPool", x, kernel_shape=[3] * spatial,
                        pads=[1] * 2 * spatial)
        for value in (x, pooled, x):
            b.output(convolve(value))
        y = b.input("n", *dims, channels)
        back = b.node("Transpose", y, perm=[0, 1 + spatial,
                                            *range(1, 1 + spatial)])
        b.output(convolve(back))
        b.output(convolve(convolve(x)))
    compare(b, *[{"n": 2, **dict(zip(dims, sizes))}
                 for sizes in itertools.product((1, 2, SIDE), repeat=spatial)])


def chain(first, second):
    """Subtracts two of exp(x) and -exp(x), in a given order."""
    def apply(b, x):
        values = [b.node("Exp", x)]
        values.append(b.node("Neg", values[0]))
        return b.node("Sub", values[first], values[second])
    return apply


def operands(*indices):
    def apply(b, x):
        pair = [x, b.dense()]
        return b.node("Sub", *[pair[i] for i in indices])
    return apply


def attributes(op, **values):
    return lambda b, x: b.node(op, x, **values)


def gemm(trans):
    def apply(b, x):
        rows = b.node("Reshape", x, b.ints(-1, SIDE))
        return b.node("Gemm", rows, b.weight(SIDE, SIDE), transB=trans)
    return apply


def scaled(scale):
    return lambda b, x: b.node("Mul", x, b.const(np.float32([scale])))


ALIKE = {
    "chain": (3, [chain(0, 1), chain(1, 0), chain(0, 0), chain(1, 1)]),
    "operands": (3, [operands(0, 1), operands(1, 0), operands(0, 0)]),
    "slope": (3, [attributes("LeakyRelu", alpha=a) for a in (0.1, 0.2)]),
    "softmax": (3, [attributes("Softmax", axis=a) for a in (1, 2)]),
    "axes": (3, [attributes("ReduceMean", axes=[a], keepdims=k)
                 for a in (1, 2) for k in (0, 1)]),
    "gemm": (3, [gemm(0), gemm(1)]),
    "constant": (3, [scaled(2), scaled(3)]),
    "dtype": (3, [OPERATORS["exp"][1], in_double]),
    "conv": (4, [conv(1, 3), conv(2, 3), conv(SIDE, 3)]),
    "pool": (4, [attributes("AveragePool", kernel_shape=[3, 3],
                            pads=[1, 1, 1, 1], count_include_pad=c)
                 for c in (0, 1)]
             + [attributes("MaxPool", kernel_shape=[3, 3],
                           pads=[1, 1, 1, 1])]),
}


@pytest.mark.parametrize("name", ALIKE)
def test_partitions_that_differ_slightly(name):
    rank, forms = ALIKE[name]
    b = Builder(rank, seed=4)
    for order in itertools.permutations(forms):
        for apply in order:
            b.output(apply(b, b.dense()))
    compare(b)

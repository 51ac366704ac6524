"""Random partitions: a matmul, a row reduction or an elementwise node with
nodes that may be fused with it, at sizes around the ends of tiles and vectors.

Every value is computed here in float64 together with a bound for the difference
of two correct implementations in the model's dtype: 2 * K * eps * sum |a * b|
for a matmul, 4 ulp for a function, propagated through later nodes. Generated
and reference kernels must differ by less than the bound of the output.
"""

from typing import NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from case import seal
from draw import Draw

EDGES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65,
         96, 127, 128, 129, 255, 256, 257)
MATMUL = 300_000  # multiplications
ELEMENTS = 20_000
ODD = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-41, -1e-41, 1e-38)
OPSET = 20


class Value(NamedTuple):
    name: str
    array: np.ndarray  # float64
    error: np.ndarray  # of the same shape

    @property
    def shape(self):
        return self.array.shape


class Chain:
    """A model under construction."""

    def __init__(self, draw):
        self.d = draw
        self.dtype = draw.pick([np.float32] * 5 + [np.float64])
        self.eps = float(np.finfo(self.dtype).eps)
        self.odd = draw.chance(0.15)
        self.nodes, self.initializers, self.feeds = [], [], {}
        self.names = iter(range(1000))

    def dim(self, most=257):
        if self.d.chance(0.01):
            return 0
        return self.d.pick([n for n in EDGES if n <= most])

    def operand(self, shape, constant=None):
        """An input or a constant; sometimes one that is not dense."""
        constant = self.d.chance(0.3) if constant is None else constant
        values = self.d.rng.normal(0, 1, shape).astype(self.dtype)
        if self.odd:
            chosen = self.d.rng.random(shape) < 0.02
            values[chosen] = self.d.rng.choice(ODD, np.count_nonzero(chosen))
        if constant:  # docs/decisions/006: kernels treat subnormal weights as 0
            subnormal = np.abs(values) < np.finfo(self.dtype).tiny
            values[subnormal] = np.copysign(0, values[subnormal])
        if not constant and shape and self.d.chance(0.3):
            return self.strided(values)
        return self.exact(self.leaf(values, constant), values)

    def leaf(self, values, constant):
        name = f"x{next(self.names)}"
        if constant:
            self.initializers.append(numpy_helper.from_array(values, name))
        else:
            self.feeds[name] = values
        return name

    def strided(self, values):
        """The same values behind a Slice or a Transpose."""
        if self.d.chance(0.5) and values.ndim > 1:
            perm = [int(a) for a in self.d.rng.permutation(values.ndim)]
            base = np.ascontiguousarray(values.transpose(np.argsort(perm)))
            name = self.emit("Transpose", [self.leaf(base, False)], perm=perm)
            return self.exact(name, values)
        axis = self.d.int(0, values.ndim - 1)
        wider = np.pad(values, [(1, 2) if a == axis else (0, 0)
                                for a in range(values.ndim)])
        ends = [self.index([v]) for v in (1, 1 + values.shape[axis], axis)]
        name = self.emit("Slice", [self.leaf(wider, False), *ends])
        return self.exact(name, values)

    def index(self, values):
        name = f"i{next(self.names)}"
        self.initializers.append(
            numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def exact(self, name, values):
        values = values.astype(np.float64)
        return Value(name, values, np.zeros_like(values))

    def emit(self, op, inputs, **attrs):
        name = f"v{next(self.names)}"
        inputs = [i.name if isinstance(i, Value) else i for i in inputs]
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    # -- values with their error bounds ---------------------------------------

    def rounded(self, name, array, error, ulps=1):
        """Infinities and NaNs are the same on both sides."""
        tiny = float(np.finfo(self.dtype).smallest_subnormal)
        error = error + ulps * (self.eps * np.abs(array) + tiny)
        return Value(name, array, np.where(np.isfinite(array), error, 0))

    def matmul(self, a, b, name=None):
        k = a.shape[-1]
        size = np.abs(a.array) @ np.abs(b.array)
        carried = a.error @ np.abs(b.array) + np.abs(a.array) @ b.error
        name = name or self.emit("MatMul", [a, b])
        return self.rounded(name, a.array @ b.array,
                            2 * k * self.eps * size + 2 * carried)

    def binary(self, op, a, b):
        name = self.emit(op, [a, b])
        x, y, dx, dy = a.array, b.array, a.error, b.error
        if op == "Mul":
            return self.rounded(name, x * y, np.abs(x) * dy + np.abs(y) * dx
                                + dx * dy)
        result = {"Add": np.add, "Sub": np.subtract, "Max": np.maximum,
                  "Min": np.minimum}[op](x, y)
        return self.rounded(name, result, dx + dy)

    def unary(self, op):
        """op -> Value -> Value"""
        function, slope, part, attrs = UNARY[op]

        def apply(x):
            y = function(x.array)
            own = 4 * self.eps * part(x.array, y)
            return self.rounded(self.emit(op, [x], **attrs), y,
                                slope * x.error + own)
        return apply

    def softmax(self, x):
        shifted = x.array - x.array.max(-1, keepdims=True, initial=-np.inf)
        e = np.exp(shifted)
        y = e / e.sum(-1, keepdims=True)
        moved = x.error + self.eps * np.abs(shifted)
        moved = np.where(y > 0, moved, 0)
        of_sum = (y * moved).sum(-1, keepdims=True)
        own = (2 * x.shape[-1] + 8) * self.eps
        at_max = (x.error * (shifted == 0)).max(-1, keepdims=True, initial=0)
        error = y * (moved + of_sum + 2 * at_max + own)
        return self.rounded(self.emit("Softmax", [x], axis=-1), y, 2 * error)

    def normalise(self, x, op="LayerNormalization"):
        n = x.shape[-1]
        scale = self.operand((n,), constant=True)
        bias = self.operand((n,), constant=True)
        mean = x.array.mean(-1, keepdims=True)
        d = x.array - mean
        var = (d * d).mean(-1, keepdims=True)
        dev = np.sqrt(var + float(np.float32(1e-5)))
        size = np.abs(x.array).max(-1, keepdims=True, initial=0)
        moved = 2 * x.error.max(-1, keepdims=True, initial=0) + \
            2 * n * self.eps * size
        relative = moved * np.abs(d).max(-1, keepdims=True, initial=0) / \
            (dev * dev) + 2 * n * self.eps
        y = d / dev * scale.array
        error = np.abs(scale.array) * (moved / dev + np.abs(d / dev) *
                                       relative)
        name = self.emit(op, [x, scale, bias], axis=-1)
        return self.rounded(name, y + bias.array, error, 8)

    # -- the whole ------------------------------------------------------------

    def model(self, outputs):
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        inputs = [helper.make_tensor_value_info(
            name, dtype, [f"{name}_{i}" for i in range(array.ndim)])
            for name, array in self.feeds.items()]
        graph = helper.make_graph(
            self.nodes, "fused", inputs,
            [helper.make_empty_tensor_value_info(v.name) for v in outputs],
            self.initializers)
        return seal(graph, OPSET)


def tanh_of_gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 *
                                  (x + 0.044715 * x * x * x)))


def own(x, y):
    return np.abs(y)


def of_input(x, y):  # 1 + x cancels: ulps of x, not of the result
    return np.abs(x)


def of_one(x, y):
    return np.ones_like(x)


# op -> function, maximum slope, the value whose ulps count, attributes
UNARY = {
    "Relu": (lambda x: np.maximum(x, 0), 1, own, {}),
    "Abs": (np.abs, 1, own, {}),
    "Neg": (np.negative, 1, own, {}),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 1, own, {}),
    "Tanh": (np.tanh, 1, own, {}),
    "Gelu": (tanh_of_gelu, 1.2, of_input, {"approximate": "tanh"}),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 1.5, of_input, {}),
    "HardSigmoid": (lambda x: np.clip(0.25 * x + 0.5, 0, 1), 1, of_one,
                    {"alpha": 0.25}),
    "LeakyRelu": (lambda x: np.where(x < 0, 0.125 * x, x), 1, own,
                  {"alpha": 0.125}),
    "Sin": (np.sin, 1, of_one, {}),
}


# -- preceding and following nodes --------------------------------------------


def narrowed(c, shape):
    return c.operand(c.d.narrowed(shape) if c.d.chance(0.7) else shape)


def elementwise(c, x, low, high, rows=True):
    """Some nodes, each of which reads the one before."""
    for _ in range(c.d.int(low, high)):
        choice = c.d.int(0, 9)
        if choice < 4:
            x = c.unary(c.d.pick([*UNARY]))(x)
        elif choice < 9 or not rows or x.array.ndim == 0:
            other = narrowed(c, x.shape)
            pair = [x, other] if c.d.chance(0.5) else [other, x]
            x = c.binary(c.d.pick(["Add", "Add", "Sub", "Mul", "Max", "Min"]),
                         *pair)
        else:
            x = c.normalise(x)
    return x


def shape_within(c, low, high, budget=ELEMENTS):
    shape = [c.dim() for _ in range(c.d.int(low, high))]
    while np.prod(shape) > budget:
        i = int(np.argmax(shape))
        shape[i] = c.d.pick([n for n in EDGES if n < shape[i]])
    return tuple(shape)


def eltwise(c):
    return [elementwise(c, c.operand(shape_within(c, 1, 4)), 1, 6)]


def rows(c):
    x = elementwise(c, c.operand(shape_within(c, 1, 3)), 0, 2, rows=False)
    x = c.softmax(x) if c.d.chance(0.5) else c.normalise(x)
    return [elementwise(c, x, 0, 3)]


def matmul_sizes(c):
    m, n, k = c.dim(), c.dim(), c.dim()
    while m * n * k > MATMUL:
        m, n, k = (c.d.pick([e for e in EDGES if e <= max(1, v // 2)])
                   if v == max(m, n, k) else v for v in (m, n, k))
    return m, n, k


def matmuls(c):
    """Matmuls with a constant or with another input, with any batch dims."""
    m, n, k = matmul_sizes(c)
    constant = c.d.chance(0.6)
    batch = () if m * n * k > MATMUL // 8 else c.d.pick([(), (2,), (3, 2)])
    a = c.operand(batch + (m, k), constant=False)
    side = () if constant else c.d.narrowed(batch)
    b = c.operand(side + (k, n), constant)
    return [elementwise(c, c.matmul(a, b), 0, 4)]


def gemms(c):
    m, n, k = matmul_sizes(c)
    trans_a, trans_b = c.d.int(0, 1), c.d.int(0, 1)
    a = c.operand((k, m) if trans_a else (m, k), constant=False)
    b = c.operand((n, k) if trans_b else (k, n))
    bias = c.operand(c.d.pick([(n,), (1, n), (m, 1), (m, n), (1,)]))
    name = c.emit("Gemm", [a, b, bias], transA=trans_a, transB=trans_b)
    p = c.matmul(transposed(a) if trans_a else a,
                 transposed(b) if trans_b else b, name)
    return [elementwise(c, c.rounded(name, p.array + bias.array,
                                     p.error + bias.error), 0, 3)]


def transposed(v):
    return Value(v.name, v.array.T, v.error.T)


def common_input(c):
    """Several matmuls of one value: queries, keys, values."""
    m, n, k = matmul_sizes(c)
    x = elementwise(c, c.operand((2, m, k), constant=False), 0, 2)
    outputs = []
    for _ in range(3):
        y = c.matmul(x, c.operand((k, n), constant=True))
        outputs.append(c.binary("Add", y, c.operand((n,), constant=True)))
    return outputs


def attention(c):
    """As exporters write it: heads by Reshape and Transpose, a mask."""
    b, h = c.d.int(1, 3), c.d.pick([1, 2, 3, 12])
    s, t = c.dim(65), c.dim(65)
    d = c.d.pick([1, 4, 8, 16, 32, 33, 64])
    heads = [split_heads(c, b, n, h, d, perm) for n, perm in
             ((s, (0, 2, 1, 3)), (t, (0, 2, 3, 1)), (t, (0, 2, 1, 3)))]
    scores = c.matmul(heads[0], heads[1])
    scale = np.asarray(np.sqrt(d), c.dtype)
    inverse = np.asarray(1 / scale, c.dtype)
    scores = c.binary("Mul", scores,
                      c.exact(c.leaf(inverse, True), inverse))
    if c.d.chance(0.7):
        kept = c.d.rng.random((b, 1, 1, t)) < 0.8
        mask = np.where(kept, 0, -1e4).astype(c.dtype)
        scores = c.binary("Add", scores, c.exact(c.leaf(mask, False), mask))
    y = c.matmul(c.softmax(scores), heads[2])
    if c.d.chance(0.5):
        return [y]
    back = c.emit("Transpose", [y], perm=[0, 2, 1, 3])
    return [Value(c.emit("Reshape", [back, c.index([0, 0, h * d])]),
                  *(v.transpose(0, 2, 1, 3).reshape(b, s, h * d)
                    for v in (y.array, y.error)))]


def split_heads(c, b, n, h, d, perm):
    x = c.operand((b, n, h * d), constant=False)
    whole = c.emit("Reshape", [x, c.index([0, 0, h, d])])
    name = c.emit("Transpose", [whole], perm=list(perm))
    return c.exact(name, x.array.reshape(b, n, h, d).transpose(perm))


def along(c, values, axis=-1):
    """A Concat."""
    return Value(c.emit("Concat", values, axis=axis),
                 np.concatenate([v.array for v in values], axis),
                 np.concatenate([v.error for v in values], axis))


def split_parts(c, x, axis=-1):
    """The parts of a Split."""
    at = c.d.int(0, x.shape[axis])
    names = [f"v{next(c.names)}" for _ in range(2)]
    sizes = c.index([at, x.shape[axis] - at])
    c.nodes.append(
        helper.make_node("Split", [x.name, sizes], names, axis=axis))
    return [Value(name, *parts) for name, *parts in
            zip(names, *(np.split(v, [at], axis) for v in (x.array, x.error)))]


def joined(c):
    """Trees of Concat: of matmuls, of nodes after them, of their parts, of
    inputs; some have other consumers, too."""
    m, k = c.dim(33), c.dim(33)
    x = c.operand((2, m, k), constant=False)

    def branch():
        if c.d.chance(0.1):
            return c.operand((2, m, c.dim(33)))
        y = c.matmul(x, c.operand((k, c.dim(65)), constant=True))
        return elementwise(c, y, 0, 2)

    def tree(depth):
        parts = [tree(depth - 1) if depth and c.d.chance(0.4) else branch()
                 for _ in range(c.d.int(2, 3))]
        seen.extend(parts)
        if c.d.chance(0.4):
            parts[:1] = split_parts(c, parts[0])
        if c.d.chance(0.1):
            parts.append(parts[0])
        return along(c, parts)

    seen = []
    y = tree(2)
    outputs = [y if c.d.chance(0.3) else elementwise(c, y, 1, 2)]
    if c.d.chance(0.5):
        outputs.append(elementwise(c, c.d.pick(seen), 0, 2))
    if c.d.chance(0.2):
        outputs.append(along(c, [c.d.pick(seen) for _ in range(1)] * 2, 0))
    return outputs


def resized(c):
    """A feature map resized by repeating pixels, and its consumers."""
    shape = [max(1, n) for n in (c.dim(3), c.dim(9), c.dim(9), c.dim(65))]
    by = [1, c.d.int(1, 4), c.d.int(1, 4), 1]
    x = elementwise(c, c.operand(tuple(shape), constant=False), 0, 2)
    scales = f"x{next(c.names)}"
    c.initializers.append(
        numpy_helper.from_array(np.array(by, np.float32), scales))
    where, mode = c.d.pick([("asymmetric", "floor"),
                            ("half_pixel", "round_prefer_floor"),
                            ("tf_half_pixel_for_nn", "floor"),
                            ("pytorch_half_pixel", "round_prefer_ceil")])
    y = Value(c.emit("Resize", [x, "", scales], mode="nearest",
                     coordinate_transformation_mode=where, nearest_mode=mode),
              *(v.repeat(by[1], 1).repeat(by[2], 2)
                for v in (x.array, x.error)))
    if by[1] * shape[1] == 1 and c.d.chance(0.5):  # its consumer is larger
        other = c.operand((*y.shape[:1], 3, *y.shape[2:]), False)
        y = c.binary("Add", y, c.unary("Neg")(other))
    return [elementwise(c, y, 0, 3)]


def source_of(where, o, n, out, scale):
    """The source coordinate among `n` of output element o of `out`, in
    float32."""
    f = np.float32
    if where == "align_corners":
        return f(o) * f(n - 1) / f(out - 1) if out > 1 else f(0)
    if where == "asymmetric":
        return f(o) / f(scale)
    if where == "pytorch_half_pixel" and out == 1:
        return f(0)
    return (f(o) + f(0.5)) / f(scale) - f(0.5)


def weights_at(mode, x, n):
    """Indices and weights of the elements interpolated at coordinate x."""
    base = np.floor(np.float64(x))
    part = np.float64(x) - base
    reach = 1 if mode == "linear" else 2
    for k in range(1 - reach, 1 + reach):
        far = abs(k - part)
        if mode == "linear":
            weight = 1 - far
        elif far <= 1:
            weight = ((-0.75 + 2) * far - (-0.75 + 3)) * far * far + 1
        else:
            weight = ((-0.75 * far + 3.75) * far - 6) * far + 3
        yield int(np.clip(base + k, 0, n - 1)), weight


def along_axis(c, x, axis, out, scale, mode, where):
    """Values and error of x, one axis resized."""
    n = x.shape[axis]
    values, errors = [], []
    for o in range(out):
        value = error = 0.0
        for i, w in weights_at(mode, source_of(where, o, n, out, scale), n):
            here = x.array.take(i, axis)
            value = value + w * here
            error = error + abs(w) * (x.error.take(i, axis) +
                                      8 * c.eps * np.abs(here))
        values.append(value)
        errors.append(error)
    return Value(None, np.stack(values, axis), np.stack(errors, axis))


def interpolated(c):
    """A feature map resized by interpolation, and its consumers."""
    c.odd = False
    shape = [max(1, n) for n in (c.dim(3), c.dim(9), c.dim(9), c.dim(65))]
    halved = c.d.chance(0.2)  # to one row, which its consumer may broadcast
    if halved:
        shape[1] = c.d.int(2, 3)
    x = elementwise(c, c.operand(tuple(shape), constant=False), 0, 2)
    mode = c.d.pick(["linear", "linear", "cubic"])
    where = c.d.pick(["half_pixel", "align_corners", "asymmetric",
                      "pytorch_half_pixel"])
    axes = c.d.pick([[1], [2], [1, 2], [1, 2], [2, 1]])
    if halved or c.d.chance(0.5):
        by = [0.5 if halved and a == 1 else
              c.d.pick([1, 2, 3, 1.5, 1.3] + [0.5] * (shape[a] > 1))
              for a in axes]
        sizes = [int(np.float32(s) * np.float32(shape[a]))
                 for a, s in zip(axes, by)]
        given = np.array(by, np.float32)
        inputs = ["", "by"]
    else:
        sizes = [c.d.int(1, 17) for _ in axes]
        by = [np.float32(n) / np.float32(shape[a])
              for a, n in zip(axes, sizes)]
        given = np.array(sizes, np.int64)
        inputs = ["", "", "by"]
    c.initializers.append(numpy_helper.from_array(given, "by"))

    def of(x):
        y = x
        for axis, out, scale in sorted(zip(axes, sizes, by)):
            if out != shape[axis] or scale != 1:
                y = along_axis(c, y, axis, out, scale, mode, where)
        name = c.emit("Resize", [x, *inputs], mode=mode, axes=axes,
                      coordinate_transformation_mode=where)
        return c.rounded(name, y.array, y.error)

    y = of(x)
    if y.shape[1] == 1 and c.d.chance(0.5):
        other = c.operand((*y.shape[:1], 3, *y.shape[2:]), False)
        y = c.binary("Add", y, c.unary("Neg")(other))
    outputs = [elementwise(c, y, 0, 3)]
    if c.d.chance(0.4):  # the same for another value
        outputs += [of(c.unary("Neg")(x)), of(c.unary("Abs")(x))]
    return outputs


def windows_of(array, k, fill):
    """[batch, channels, height, width, k, k]: the window of each pixel."""
    pad = [(0, 0), (0, 0)] + [(k // 2, k // 2)] * 2
    return np.lib.stride_tricks.sliding_window_view(
        np.pad(array, pad, constant_values=fill), (k, k), (2, 3))


def convolved(c, x):
    """A Conv that keeps height and width; sometimes depthwise."""
    n, k = x.shape[1], c.d.pick([1, 3, 1, 3, 13])
    alone = c.d.chance(0.3)
    out = n if alone else c.d.pick([1, 3, 8, 16, 17, 24])
    w = c.operand((out, 1 if alone else n, k, k), constant=True)
    apart = c.d.chance(0.2)  # the padding is a separate node
    padding = c.index([0, 0, k // 2, k // 2] * 2) if apart else None
    y = c.emit("Pad", [x, padding]) if apart else x
    name = c.emit("Conv", [y, w], pads=[0 if apart else k // 2] * 4,
                  group=n if alone else 1)
    rule = "bchwij,cij->bchw" if alone else "bchwij,ocij->bohw"
    weights = w.array[:, 0] if alone else w.array

    def sums(image, by):
        return np.einsum(rule, windows_of(image, k, 0), by)
    size = sums(np.abs(x.array), np.abs(weights))
    terms = k * k * (1 if alone else n)
    return c.rounded(name, sums(x.array, weights), 2 * terms * c.eps * size +
                     2 * sums(x.error, np.abs(weights)))


def pooled(c, x):
    k = c.d.pick([3, 3, 5, 13])
    name = c.emit("MaxPool", [x], kernel_shape=[k, k], pads=[k // 2] * 4)
    return Value(name, windows_of(x.array, k, -np.inf).max((4, 5)),
                 windows_of(x.error, k, 0).max((4, 5)))


def normalised(c, x):
    """Batch normalisation with stored statistics."""
    n = x.shape[1:2]
    scale, shift, mean = (c.operand(n, constant=True) for _ in range(3))
    spread = (1 + np.abs(c.d.rng.normal(0, 1, n))).astype(c.dtype)
    var = c.exact(c.leaf(spread, True), spread)
    name = c.emit("BatchNormalization", [x, scale, shift, mean, var])
    by, add, at, of = (v.array[:, None, None]
                       for v in (scale, shift, mean, var))
    by = by / np.sqrt(of + float(np.float32(1e-5)))
    size = (np.abs(x.array) + np.abs(at)) * np.abs(by) + np.abs(add)
    return c.rounded(name, (x.array - at) * by + add,
                     8 * c.eps * size + 2 * x.error * np.abs(by))


def grouped(c, x):
    """Group normalisation as exporters write it, or per channel."""
    n, h, w = x.shape[1:]
    groups = c.d.pick([k for k in (1, 2, 4, n) if n % k == 0])
    scale, shift = (c.operand((groups,), constant=True) for _ in range(2))
    rows = x.array.reshape(len(x.array), groups, -1)
    if rows.size == 0 or np.any(x.error):
        return x
    y = c.emit("Reshape", [x, c.index([0, groups, -1])])
    y = c.emit("InstanceNormalization", [y, scale, shift])
    name = c.emit("Reshape", [y, c.index([0, n, h, w])])
    middle = rows.mean(2, keepdims=True)
    spread = np.sqrt(rows.var(2, keepdims=True) + float(np.float32(1e-5)))
    by, add = scale.array[:, None], shift.array[:, None]
    size = np.abs(rows).max(2, keepdims=True)
    error = 16 * c.eps * (rows.shape[2] * (size / spread + (size / spread)**3)
                          * np.abs(by) + np.abs(add))
    value = (rows - middle) / spread * by + add
    return c.rounded(name, value.reshape(x.shape),
                     np.broadcast_to(error, rows.shape).reshape(x.shape))


def shuffled(c, x):
    """Channel shuffle: channels of two split_parts interleaved."""
    n, h, w = x.shape[1:]
    if n % 2 or 0 in x.shape:
        return x
    y = c.emit("Reshape", [x, c.index([0, 2, n // 2, h, w])])
    y = c.emit("Transpose", [y], perm=[0, 2, 1, 3, 4])

    def interleaved(v):
        v = v.reshape(len(v), 2, n // 2, h, w)
        return v.transpose(0, 2, 1, 3, 4).reshape(x.shape)
    return Value(c.emit("Reshape", [y, c.index([0, n, h, w])]),
                 interleaved(x.array), interleaved(x.error))


def doubled(c, x):
    """Twice as high and wide: by repeated pixels, or by ConvTranspose."""
    if c.d.chance(0.5):
        scales = f"x{next(c.names)}"
        c.initializers.append(
            numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32),
                                    scales))
        return Value(c.emit("Resize", [x, "", scales], mode="nearest"),
                     *(v.repeat(2, 2).repeat(2, 3)
                       for v in (x.array, x.error)))
    n, out = x.shape[1], c.d.pick([1, 8, 24])
    w = c.operand((n, out, 2, 2), constant=True)

    def sums(image, by):
        y = np.einsum("bchw,coij->bohiwj", image, by)
        return y.reshape(*y.shape[:2], y.shape[2] * 2, y.shape[4] * 2)
    size = sums(np.abs(x.array), np.abs(w.array))
    name = c.emit("ConvTranspose", [x, w], strides=[2, 2])
    return c.rounded(name, sums(x.array, w.array), 2 * n * c.eps * size +
                     2 * sums(x.error, np.abs(w.array)))


def feature_maps(c):
    """Branches of convolutions and pooling, concatenated along channels."""
    c.odd = False
    h, w = max(1, c.dim(17)), max(1, c.dim(17))
    x = c.operand((c.d.int(1, 2), c.d.pick([1, 3, 8, 16]), h, w), False)

    def branch():
        y = grouped(c, x) if c.d.chance(0.2) else x
        y = convolved(c, y)
        for _ in range(c.d.int(0, 2)):
            y = c.d.pick([lambda v: pooled(c, v), lambda v: convolved(c, v),
                          lambda v: normalised(c, v),
                          lambda v: shuffled(c, v), c.unary("Relu"),
                          c.unary("Sigmoid")])(y)
        return y

    parts = [branch() for _ in range(c.d.int(2, 3))]
    if c.d.chance(0.4):
        parts[:1] = split_parts(c, parts[0], 1)
    y = along(c, parts, 1)
    if c.d.chance(0.5):
        y = along(c, [convolved(c, y), c.d.pick(parts)], 1)
    if c.d.chance(0.4):
        y = along(c, [doubled(c, y), doubled(c, x)], 1)
    return [y if c.d.chance(0.5) else convolved(c, y)]


FAMILIES = (eltwise, rows, matmuls, matmuls, gemms, common_input, attention,
            joined, resized, interpolated, feature_maps)


class FusedCase:
    """One random partition: its model, feeds, outputs with their bounds."""

    op = "fused"

    def __init__(self, seed):
        chain = Chain(Draw("fused", seed))
        with np.errstate(all="ignore"):
            self.outputs = chain.d.pick(FAMILIES)(chain)
        self.bytes = chain.model(self.outputs)
        self.data = chain.feeds
        self.ops = " ".join(n.op_type for n in chain.nodes)

    def model(self):
        return self.bytes

    def feeds(self):
        return self.data

    def too_far(self, i, got, ref):
        """Elements whose difference exceeds the bound of the output."""
        with np.errstate(invalid="ignore"):
            apart = np.abs(got.astype(np.float64) - ref.astype(np.float64))
            near = apart <= self.outputs[i].error
        same = (got == ref) | (np.isnan(got) & np.isnan(ref))
        return ~(same | near)

    def wrong(self, ref):
        """None, or where the reference kernels differ from float64: this checks
        the model and the bounds themselves."""
        for i, (got, want) in enumerate(zip(ref, self.outputs)):
            finite = np.isfinite(want.array) & np.isfinite(want.error)
            far = np.abs(got - want.array) > 2 * want.error + 1e-30
            if got.shape != want.shape or np.any(far & finite):
                return f"output {i}: the reference is far from float64"
        return None

    def __str__(self):
        shapes = [f"{x.dtype}{list(x.shape)}" for x in self.data.values()]
        return f"fused({', '.join(shapes)}): {self.ops}"

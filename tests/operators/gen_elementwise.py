"""Cases of elementwise operators and of quantisation."""

import numpy as np
from onnx import helper

from case import const, single
from registry import operator


@operator("Abs", "Asinh", "Atan", "BitwiseNot", "Ceil", "Cos", "Erf", "Floor",
          "HardSwish", "Identity", "Mish", "Neg", "Reciprocal", "Relu",
          "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt",
          "Tanh", "Not", "IsNaN", "Log", "Exp", "Acos", "Asin", "Sinh", "Cosh")
def unary(d):
    params = {c.type_param_str for c in d.schema.type_constraints}
    param = "T" if "T" in params else "V" if "V" in params else "T1"
    return single(d, [d.array(d.dtype(param), d.shape())])


@operator("Tan", "Acosh", "Atanh")
def limited_unary(d):
    low, high = {"Tan": (-1.5, 1.5), "Acosh": (0.9, 9),
                 "Atanh": (-0.999, 0.999)}[d.op]
    return single(d, [d.array(d.dtype(), d.shape(), low, high)])


@operator("Celu", "Elu", "LeakyRelu", "ThresholdedRelu", "Swish")
def with_alpha(d):
    x = d.array(d.dtype(), d.shape())
    return single(d, [x], alpha=d.maybe(d.pick([0.5, 1.0, -0.25, 2.0, 0.01])))


@operator("Selu")
def selu(d):
    return single(d, [d.array(d.dtype(), d.shape())],
                  alpha=d.maybe(d.real(0, 2)), gamma=d.maybe(d.real(0, 2)))


@operator("HardSigmoid")
def hard_sigmoid(d):
    return single(d, [d.array(d.dtype(), d.shape())],
                  alpha=d.maybe(d.real(-1, 1)), beta=d.maybe(d.real(0, 1)))


@operator("Shrink")
def shrink(d):
    dtype = np.dtype(d.dtype())
    return single(d, [d.array(dtype, d.shape(), special=dtype.kind == "f")],
                  lambd=d.maybe(d.real(0, 2)), bias=d.maybe(d.real(-1, 1)))


@operator("Gelu")
def gelu(d):
    return single(d, [d.array(d.dtype(), d.shape())],
                  approximate=d.maybe(d.pick(["none", "tanh"])))


@operator("IsInf")
def is_inf(d):
    return single(d, [d.array(d.dtype("T1"), d.shape())],
                  detect_negative=d.maybe(d.int(0, 1)),
                  detect_positive=d.maybe(d.int(0, 1)))


def in_range_of(d, source, target, shape):
    """Values whose cast is defined: floats in an integer's range."""
    source, target = np.dtype(source), np.dtype(target)
    if source.kind == "f" and target.kind in "iu":
        low = 0 if target.kind == "u" else -100
        return d.array(source, shape, low, 100)
    return d.array(source, shape)


def cast_pair(d, param):
    source, target = d.dtype(param), d.dtype("T2")
    return in_range_of(d, source, target, d.shape()), target


@operator("Cast")
def cast(d):
    x, target = cast_pair(d, "T1")
    return single(d, [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


@operator("CastLike")
def cast_like(d):
    x, target = cast_pair(d, "T1")
    return single(d, [x, d.array(target, d.shape(0, 1))])


@operator("BitCast")
def bit_cast(d):
    x = d.array(d.dtype("T1"), d.shape())
    targets = [t for t in (np.float32, np.int32, np.uint32, np.int64, np.uint8,
                           np.float64, np.float16, np.int16)
               if np.dtype(t).itemsize == x.dtype.itemsize]
    target = np.dtype(d.pick(targets))
    return single(d, [x], to=helper.np_dtype_to_tensor_dtype(target))


@operator("Clip")
def clip(d):
    x = d.array(d.dtype(), d.shape())
    if d.version < 11:
        return single(d, [x], min=d.maybe(d.real(-3, 0)),
                      max=d.maybe(d.real(0, 3)))
    low = d.array(x.dtype, (), 0, 3)
    high = d.array(x.dtype, (), 3, 6)
    if d.chance(0.1):
        low, high = high, low
    return single(d, [x, d.maybe(low), d.maybe(high)])


@operator("Dropout")
def dropout(d):
    x = d.array(d.dtype(), d.shape())
    n_out = d.int(1, 2) if d.version >= 10 else 1
    if d.version < 12:
        return single(d, [x], n_out, ratio=d.maybe(d.real(0, 0.9)))
    ratio = d.array(d.dtype("T1"), (), 0, 0.9)
    training = const(np.array(False))
    return single(d, [x, d.maybe(ratio), d.maybe(training)], n_out,
                  seed=d.maybe(3))


# -- several inputs -----------------------------------------------------------


@operator("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater",
          "GreaterOrEqual", "Less", "LessOrEqual", "BitwiseAnd", "BitwiseOr",
          "BitwiseXor")
def binary(d):
    a, b = d.broadcast(2)
    dtype = d.dtype()
    return single(d, [d.array(dtype, a), d.array(dtype, b)])


def divisor(d, dtype, shape):
    """Integers are not zero: the result would be undefined."""
    if np.dtype(dtype).kind == "f":
        return d.array(dtype, shape)
    y = d.array(dtype, shape, 1, 9)
    if np.dtype(dtype).kind == "i" and d.chance(0.5):
        y = np.where(d.rng.random(shape) < 0.5, y, -y).astype(dtype)
    return y


@operator("Div")
def divide(d):
    a, b = d.broadcast(2)
    dtype = d.dtype()
    return single(d, [d.array(dtype, a, special=np.dtype(dtype).kind != "i"),
                      divisor(d, dtype, b)])


@operator("Mod")
def mod(d):
    a, b = d.broadcast(2)
    dtype = np.dtype(d.dtype())
    fmod = 1 if dtype.kind == "f" else d.maybe(d.int(0, 1))
    x = d.array(dtype, a, special=False)
    return single(d, [x, divisor(d, dtype, b)], fmod=fmod)


@operator("BitShift")
def bit_shift(d):
    a, b = d.broadcast(2)
    dtype = np.dtype(d.dtype())
    shift = d.array(dtype, b, 0, dtype.itemsize * 8 - 1)
    return single(d, [d.array(dtype, a), shift],
                  direction=d.pick(["LEFT", "RIGHT"]))


@operator("Pow")
def power(d):
    a, b = d.broadcast(2)
    base = np.dtype(d.dtype())
    exponent = np.dtype(d.dtype("T1")) if d.version >= 12 else base
    if base.kind == "f":
        x, y = d.array(base, a), d.array(exponent, b, special=False)
    else:
        x, y = d.array(base, a, -5, 5), d.array(exponent, b, 0, 4)
    return single(d, [x, y])


@operator("PRelu")
def prelu(d):
    shape = d.shape()
    dtype = d.dtype()
    return single(d, [d.array(dtype, shape), d.array(dtype, d.narrowed(shape))])


@operator("Max", "Min", "Sum", "Mean")
def variadic(d):
    count = d.int(1, 4)
    shapes = d.broadcast(count) if d.version >= 8 else [d.shape()] * count
    dtype = d.dtype()
    return single(d, [d.array(dtype, s) for s in shapes])


@operator("Where")
def where(d):
    c, a, b = d.broadcast(3)
    dtype = d.dtype()
    return single(d, [d.array(np.bool_, c), d.array(dtype, a),
                      d.array(dtype, b)])


# -- quantisation -------------------------------------------------------------


def block_shape(d, shape):
    """Scales and zero points: (axis, block size, shape)."""
    if not shape or d.version < 13 or d.chance(0.4):
        return None, None, ()
    axis = d.axis(len(shape))
    if d.version < 21 or d.chance(0.5):
        return axis, None, (shape[axis],)
    size = d.int(1, max(1, shape[axis]))
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // size)
    return axis, size, tuple(blocks)


@operator("QuantizeLinear")
def quantize(d):
    kind = d.dtype("T1")
    shape = d.shape(zero=0)
    axis, size, scales = block_shape(d, shape)
    target = d.dtype("T3" if d.version >= 23 else "T2", "iu")
    x = d.array(kind, shape, -40, 40)
    if d.chance(0.4) and x.dtype.kind == "f":
        x = np.round(x * 2) / x.dtype.type(2)
    scale = d.array(kind if d.version >= 19 else np.float32, scales, 0.25, 2)
    if d.chance(0.4) and scale.dtype.kind == "f":
        scale = np.full(scales, 0.5, scale.dtype)
    zero = d.maybe(d.array(target, scales, 0, 9), 0.8)
    dtype = None
    if zero is None and d.version >= 21 and d.chance(0.5):
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    return single(d, [x, scale, zero], axis=axis, block_size=size,
                  output_dtype=dtype)


@operator("DequantizeLinear")
def dequantize(d):
    dtype = d.dtype("T1" if d.version >= 19 else "T", "iu")
    shape = d.shape(zero=0)
    axis, size, scales = block_shape(d, shape)
    scale = d.dtype("T2") if d.version >= 19 else np.float32
    zero = d.maybe(d.array(dtype, scales, 0, 9))
    if np.dtype(dtype) == np.int32:
        zero = None
    return single(d, [d.array(dtype, shape), d.array(scale, scales, 0.1, 2),
                      zero], axis=axis, block_size=size)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(d):
    return single(d, [d.array(np.float32, d.shape(1, 4, zero=0),
                              special=False)], 3)

"""Cases of reductions, softmax and normalisation."""

import numpy as np

from case import single
from registry import operator


def axes_form(d, axes, since):
    """Axes as input or as attribute: (input, attribute)."""
    if axes is None:
        return None, None
    return (d.ints(axes), None) if d.version >= since else (None, axes)


@operator("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
          "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
          "ReduceSumSquare")
def reduce(d):
    shape = d.shape()
    dtype = d.dtype()
    mild = d.op in ("ReduceProd", "ReduceLogSum")
    x = d.array(dtype, shape, 0 if mild else None, 3 if mild else None,
                special=d.op in ("ReduceMax", "ReduceMin"))
    axes = d.maybe(d.axes(len(shape)), 0.8)
    since = 13 if d.op == "ReduceSum" else 18
    if d.version < since and axes == []:
        axes = None
    as_input, as_attr = axes_form(d, axes, since)
    noop = d.maybe(d.int(0, 1)) if d.version >= since else None
    return single(d, [x, as_input], axes=as_attr,
                  keepdims=d.maybe(d.int(0, 1)), noop_with_empty_axes=noop)


@operator("ArgMax", "ArgMin")
def arg_reduce(d):
    shape = d.shape(1)
    last = d.maybe(d.int(0, 1)) if d.version >= 12 else None
    return single(d, [d.array(d.dtype(), shape, special=False)],
                  axis=d.maybe(d.axis(len(shape))),
                  keepdims=d.maybe(d.int(0, 1)), select_last_index=last)


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(d):
    shape = d.shape(1)
    axis = d.axis(len(shape)) if d.version >= 11 else d.int(0, len(shape) - 1)
    if d.chance(0.3) and (d.version >= 13 or len(shape) > 1):
        axis = None
    return single(d, [d.array(d.dtype(), shape, special=False)], axis=axis)


@operator("LpNormalization")
def lp_norm(d):
    shape = d.shape(1)
    return single(d, [d.array(d.dtype(), shape, special=False)],
                  axis=d.maybe(d.axis(len(shape))), p=d.maybe(d.int(1, 2)))


@operator("MeanVarianceNormalization")
def mean_variance(d):
    rank = d.int(1, 4)
    axes = d.axes(rank, 1) if rank < 4 else d.maybe(d.axes(rank, 1))
    return single(d, [d.array(d.dtype(), d.shape(rank, rank, zero=0),
                              special=False)], axes=axes)


@operator("LRN")
def lrn(d):
    return single(d, [d.array(d.dtype(), d.shape(4, 4, zero=0),
                              special=False)],
                  size=d.pick([1, 3, 5, 7]), alpha=d.maybe(d.real(0, 1)),
                  beta=d.maybe(d.real(0, 1)), bias=d.maybe(d.real(1, 2)))


@operator("LayerNormalization")
def layer_norm(d):
    shape = d.shape(1, zero=0)
    axis = d.axis(len(shape))
    scale = shape[axis % len(shape):]
    dtype = d.dtype()
    inputs = [d.array(dtype, shape, special=False), d.array(dtype, scale, -2, 2),
              d.maybe(d.array(dtype, scale, -2, 2))]
    return single(d, inputs, d.int(1, 3), axis=axis,
                  epsilon=d.maybe(d.pick([1e-5, 1e-2])))


@operator("RMSNormalization")
def rms_norm(d):
    shape = d.shape(1, zero=0)
    axis = d.axis(len(shape))
    dtype = d.dtype()
    return single(d, [d.array(dtype, shape, special=False),
                      d.array(dtype, shape[axis % len(shape):], -2, 2)],
                  axis=axis, epsilon=d.maybe(d.pick([1e-5, 1e-2])))


@operator("BatchNormalization")
def batch_norm(d):
    shape = d.shape(2, 5)
    dtype = d.dtype()
    vector = (shape[1],)
    inputs = [d.array(dtype, shape, special=False),
              d.array(dtype, vector, -2, 2), d.array(dtype, vector, -2, 2), d.array(dtype, vector, -2, 2),
              d.array(dtype, vector, 0.1, 4)]
    return single(d, inputs, epsilon=d.maybe(1e-3),
                  momentum=d.maybe(0.5))


@operator("InstanceNormalization")
def instance_norm(d):
    shape = d.shape(3, 5, zero=0)
    dtype = d.dtype()
    return single(d, [d.array(dtype, shape, special=False),
                      d.array(dtype, shape[1:2], -2, 2),
                      d.array(dtype, shape[1:2], -2, 2)],
                  epsilon=d.maybe(d.pick([1e-5, 1e-2])))


@operator("GroupNormalization")
def group_norm(d):
    groups, each = d.int(1, 4), d.int(1, 3)
    shape = (d.int(1, 3), groups * each) + d.shape(1, 2, 9, zero=0)
    count = groups if d.version < 21 else groups * each
    dtype = d.dtype()
    return single(d, [d.array(dtype, shape, special=False),
                      d.array(dtype, (count,), -2, 2),
                      d.array(dtype, (count,), -2, 2)],
                  num_groups=groups, epsilon=d.maybe(1e-2))


@operator("CumSum", "CumProd")
def cumulate(d):
    shape = d.shape(1, most=9)
    axis = d.array(d.pick([np.int32, np.int64]), d.pick([(), (1,)]), 0, 0)
    axis = (axis + d.axis(len(shape))).astype(axis.dtype)
    return single(d, [d.array(d.dtype(), shape, special=False), axis],
                  exclusive=d.maybe(d.int(0, 1)), reverse=d.maybe(d.int(0, 1)))


def labels(d, shape):
    classes = max(1, shape[1])
    dtype = d.dtype("Tind")
    return d.array(dtype, shape[:1] + shape[2:], 0, classes - 1)


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d):
    shape = d.shape(2, 4, 9, zero=0)
    dtype = d.dtype()
    weight = d.maybe(d.array(dtype, shape[1:2], 0.1, 2))
    both = d.op == "SoftmaxCrossEntropyLoss" and d.chance(0.5)
    return single(d, [d.array(dtype, shape, -3, 3), labels(d, shape), weight],
                  2 if both else 1,
                  reduction=d.maybe(d.pick(["none", "sum", "mean"])),
                  ignore_index=d.maybe(d.int(-1, shape[1] - 1), 0.3))

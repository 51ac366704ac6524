"""Cases of views, movement, creation and search."""

import numpy as np
from onnx import helper

from case import const, single
from registry import operator
from gen_reduction import axes_form


def any_array(d, low=0, high=4, param="T", **limits):
    return d.array(d.dtype(param), d.shape(low, high, **limits))


def split_dim(d, n):
    """n as a product of two factors."""
    factors = [k for k in range(1, n + 1) if n % k == 0] or [0]
    k = d.pick(factors)
    return [k, n // k] if k else [0]


@operator("Reshape")
def reshape(d):
    x = any_array(d)
    target = []
    for n in x.shape:
        target += split_dim(d, n) if d.chance(0.4) else [n]
    if x.size and d.chance(0.4):
        target = [x.size] if d.chance(0.5) else target + [1]
    if d.chance(0.5) and target:
        at = d.int(0, len(target) - 1)
        if d.chance(0.5) or at >= x.ndim:
            target[at] = -1
        elif target[at] == x.shape[at]:
            target[at] = 0
    allow = d.maybe(d.int(0, 1), 0.3) if d.version >= 14 else None
    return single(d, [x, d.ints(target)], allowzero=allow)


@operator("Flatten")
def flatten(d):
    x = any_array(d)
    axis = d.int(0, x.ndim)
    if d.version >= 11 and d.chance(0.4) and axis:
        axis -= x.ndim
    if x.ndim > 1 and d.chance(0.3):
        axis = None
    return single(d, [x], axis=axis)


@operator("Squeeze")
def squeeze(d):
    shape = list(d.shape(1))
    for i in range(len(shape)):
        if d.chance(0.5):
            shape[i] = 1
    ones = [i for i, n in enumerate(shape) if n == 1]
    axes = [a - len(shape) if d.version >= 11 and d.chance(0.3) else a
            for a in ones if d.chance(0.7)]
    if not axes or d.chance(0.2):
        axes = None
    as_input, as_attr = axes_form(d, axes, 13)
    return single(d, [d.array(d.dtype(), shape), as_input], axes=as_attr)


@operator("Unsqueeze")
def unsqueeze(d):
    x = any_array(d, 0, 3)
    count = d.int(1, 3)
    rank = x.ndim + count
    axes = [int(a) for a in d.rng.permutation(rank)[:count]]
    if d.version >= 11:
        axes = [a - rank if d.chance(0.3) else a for a in axes]
    as_input, as_attr = axes_form(d, axes, 13)
    return single(d, [x, as_input], axes=as_attr)


@operator("Transpose")
def transpose(d):
    x = any_array(d, 0, 5)
    perm = [int(a) for a in d.rng.permutation(x.ndim)]
    return single(d, [x], perm=d.maybe(perm, 0.8))


def slice_bounds(d, n, step):
    far = d.pick([0, 0, 3, 2**31 - 1, 2**62])
    start, end = d.int(-n - 2, n + 2), d.int(-n - 2, n + 2)
    if far:
        start, end = (start, far) if step > 0 else (start, -far)
    return start, end


@operator("Slice")
def slice_(d):
    x = any_array(d, 1)
    axes = d.axes(x.ndim, 1)
    if d.version < 10:
        axes = [a % x.ndim for a in axes]
    if d.chance(0.2):
        axes = list(range(len(axes)))
    steps = [d.pick([1, 1, 2, 3, -1, -2]) for _ in axes]
    if d.version < 10 or d.chance(0.3):
        steps = [1] * len(axes)
    bounds = [slice_bounds(d, x.shape[a], s) for a, s in zip(axes, steps)]
    starts, ends = [b[0] for b in bounds], [b[1] for b in bounds]
    no_axes = axes == list(range(len(axes))) and d.chance(0.7)
    if d.version < 10:
        return single(d, [x], starts=starts, ends=ends,
                      axes=None if no_axes else axes)
    kind = d.pick([np.int32, np.int64])
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    inputs = [np.clip(v, low, high).astype(kind)
              for v in (starts, ends, axes, steps)]
    if no_axes:
        inputs[2] = None
    if all(s == 1 for s in steps) and d.chance(0.5):
        inputs[3] = None
    return single(d, [x, *inputs])


@operator("Split")
def split(d):
    x = any_array(d, 1)
    axis = d.axis(x.ndim) if d.version >= 11 else d.int(0, x.ndim - 1)
    n = x.shape[axis]
    count = d.int(1, 4)
    cuts = sorted(d.int(0, n) for _ in range(count - 1))
    sizes = [int(s) for s in np.diff([0, *cuts, n])]
    if d.chance(0.6):
        as_input, as_attr = axes_form(d, sizes, 13)
        return single(d, [x, as_input], count, split=as_attr, axis=axis)
    if d.version < 18 and n % count:
        count = 1
    return single(d, [x], count, axis=axis,
                  num_outputs=count if d.version >= 18 else None)


@operator("Expand")
def expand(d):
    shape = d.shape()
    target = d.narrowed(shape) if d.chance(0.3) else shape
    return single(d, [d.array(d.dtype(), d.narrowed(shape)), d.ints(target)])


@operator("Concat")
def concat(d):
    shape = list(d.shape(1))
    axis = d.axis(len(shape)) if d.version >= 11 else d.int(0, len(shape) - 1)
    dtype = d.dtype()
    inputs = []
    for _ in range(d.int(1, 4)):
        shape[axis] = d.dim(9, 0.1)
        inputs.append(d.array(dtype, shape))
    return single(d, inputs, axis=axis)


@operator("Pad")
def pad(d):
    modes = ["constant", "reflect", "edge"] + ["wrap"] * (d.version >= 19)
    mode = d.maybe(d.pick(modes), 0.8)
    x = any_array(d, 1, zero=0.03 if mode in (None, "constant") else 0)
    axes = list(range(x.ndim))
    if d.version >= 18 and d.chance(0.3):
        axes = d.axes(x.ndim, 1)
    least = [-(x.shape[a] // 3) if d.chance(0.3) else 0 for a in axes]
    most = [max(0, x.shape[a] - 1 + min(0, l)) if mode == "reflect" else 3
            for a, l in zip(axes, least)]
    pads = [d.int(l, max(l, min(3, m)))
            for _ in range(2) for l, m in zip(least, most)]
    if mode in ("reflect", "edge", "wrap"):
        pads = [max(0, p) for p in pads]
    if d.version < 11:
        return single(d, [x], pads=pads, mode=mode,
                      value=d.maybe(d.real(-2, 2)))
    value = d.maybe(d.array(x.dtype, (), 0, 3))
    given = d.ints(axes) if axes != list(range(x.ndim)) else None
    return single(d, [x, d.ints(pads), value, given], mode=mode)


@operator("Tile")
def tile(d):
    x = any_array(d, 0, 4, budget=200)
    return single(d, [x, d.ints([d.int(0, 3) if d.chance(0.2) else d.int(1, 3)
                                 for _ in range(x.ndim)])])


@operator("DepthToSpace", "SpaceToDepth")
def space_depth(d):
    b = d.int(1, 3)
    n, c, h, w = d.int(1, 2), d.int(1, 4), d.dim(5), d.dim(5)
    if d.op == "SpaceToDepth":
        return single(d, [d.array(d.dtype(), (n, c, h * b, w * b))],
                      blocksize=b)
    mode = d.maybe(d.pick(["DCR", "CRD"])) if d.version >= 11 else None
    return single(d, [d.array(d.dtype(), (n, c * b * b, h, w))], blocksize=b,
                  mode=mode)


@operator("CenterCropPad")
def center_crop_pad(d):
    x = any_array(d, 1, zero=0)
    axes = d.maybe(d.axes(x.ndim, 1))
    count = x.ndim if axes is None else len(axes)
    sizes = [d.dim(9, 0) for _ in range(count)]
    return single(d, [x, np.array(sizes, d.pick([np.int32, np.int64]))],
                  axes=axes)


@operator("ReverseSequence")
def reverse_sequence(d):
    shape = d.shape(2, zero=0)
    batch = d.int(0, 1)
    lens = d.array(np.int64, (shape[batch],), 0, shape[1 - batch])
    return single(d, [d.array(d.dtype(), shape), lens],
                  batch_axis=batch, time_axis=1 - batch)


@operator("Trilu")
def trilu(d):
    x = any_array(d, 2)
    k = d.maybe(np.array(d.int(-x.shape[-2] - 2, x.shape[-1] + 2), np.int64))
    return single(d, [x, k], upper=d.maybe(d.int(0, 1)))


def indices(d, shape, n, dtype=None):
    """Indices into n; negative ones where the opset allows them."""
    dtype = dtype or d.dtype("Tind")
    low = -n if d.version >= 11 else 0
    if n == 0:
        return np.zeros((0,) * len(shape), dtype)
    return d.array(dtype, shape, low, n - 1)


@operator("Gather")
def gather(d):
    x = any_array(d, 1, zero=0)
    axis = d.axis(x.ndim) if d.version >= 11 else d.int(0, x.ndim - 1)
    return single(d, [x, indices(d, d.shape(0, 2, 9), x.shape[axis])],
                  axis=d.maybe(axis, 0.8) if axis else axis)


@operator("GatherElements")
def gather_elements(d):
    x = any_array(d, 1, zero=0)
    axis = d.axis(x.ndim)
    shape = [d.int(0 if d.chance(0.05) else 1, n) for n in x.shape]
    shape[axis] = d.dim(9)
    return single(d, [x, indices(d, shape, x.shape[axis])], axis=axis)


def nd_indices(d, x, batch, rank):
    """Tuples of indices into x, of a random length."""
    depth = d.int(1, x.ndim - batch)
    outer = x.shape[:batch] + d.shape(max(0, rank - batch), rank, 5)
    columns = [indices(d, outer, x.shape[batch + i], np.int64)
               for i in range(depth)]
    return np.stack(columns, -1)


@operator("GatherND")
def gather_nd(d):
    x = any_array(d, 1, zero=0)
    batch = d.int(0, x.ndim - 1) if d.version >= 12 and d.chance(0.4) else 0
    return single(d, [x, nd_indices(d, x, batch, 2)],
                  batch_dims=batch or None)


def reduction(d):
    choices = ["none"]
    choices += ["add", "mul"] * (d.version >= 16)
    choices += ["max", "min"] * (d.version >= 18)
    return d.pick(choices) if d.version >= 16 else None


@operator("ScatterElements", "Scatter")
def scatter_elements(d):
    how = None if d.op == "Scatter" else reduction(d)
    x = any_array(d, 1, zero=0)
    axis = d.axis(x.ndim) if d.version >= 11 else d.int(0, x.ndim - 1)
    shape = [d.int(1, n) for n in x.shape]
    at = indices(d, shape, x.shape[axis])
    if how in (None, "none"):  # the order of writes is not defined
        order = d.rng.permutation(x.shape[axis])[:shape[axis]]
        broad = order.reshape([-1 if i == axis % x.ndim else 1
                               for i in range(x.ndim)])
        at = np.broadcast_to(broad, shape).astype(at.dtype)
    return single(d, [x, at, d.array(x.dtype, shape)], axis=axis,
                  reduction=how)


@operator("ScatterND")
def scatter_nd(d):
    how = reduction(d)
    x = any_array(d, 1, zero=0)
    if how in (None, "none"):
        depth = d.int(1, x.ndim)
        cells = np.array(list(np.ndindex(x.shape[:depth])))
        at = d.rng.permutation(cells)[:d.int(1, min(5, len(cells)))]
    else:
        at = nd_indices(d, x, 0, 1)
    at = at.astype(np.int64)
    shape = at.shape[:-1] + x.shape[at.shape[-1]:]
    return single(d, [x, at, d.array(x.dtype, shape)], reduction=how)


@operator("TensorScatter")
def tensor_scatter(d):
    shape = d.shape(3, 4, 9, zero=0)
    axis = d.int(1, len(shape) - 1)
    update = list(shape)
    update[axis] = d.int(1, shape[axis])
    mode = d.maybe(d.pick(["linear", "circular"]))
    last = shape[axis] - (1 if mode == "circular" else update[axis])
    at = d.maybe(d.array(np.int64, shape[:1], 0, last))
    dtype = d.dtype()
    return single(d, [d.array(dtype, shape), d.array(dtype, update), at],
                  axis=axis if d.chance(0.5) else axis - len(shape), mode=mode)


# -- creation -----------------------------------------------------------------


@operator("Shape")
def shape_of(d):
    x = any_array(d)
    if d.version < 15:
        return single(d, [x])
    return single(d, [x], start=d.maybe(d.int(-5, 5)), end=d.maybe(d.int(-5, 5)))


@operator("Size")
def size_of(d):
    return single(d, [any_array(d)])


@operator("ConstantOfShape")
def constant_of_shape(d):
    value = d.array(d.dtype("T2"), (1,))
    tensor = helper.make_tensor("value", helper.np_dtype_to_tensor_dtype(
        value.dtype), (1,), value.tobytes(), raw=True)
    return single(d, [d.ints(d.shape(0, 4, zero=0.1))], value=d.maybe(tensor))


@operator("Range")
def range_(d):
    dtype = np.dtype(d.dtype())
    step = d.pick([1, 2, 3, -1, -2] if dtype.kind != "f" else
                  [1, 0.5, -0.25, 0.1, 3])
    start, limit = d.int(-20, 20), d.int(-20, 20)
    return single(d, [np.array(v, dtype) for v in (start, limit, step)])


@operator("EyeLike")
def eye_like(d):
    dtype = d.maybe(helper.np_dtype_to_tensor_dtype(np.dtype(d.dtype("T2"))))
    return single(d, [any_array(d, 2, 2, "T1")], k=d.maybe(d.int(-4, 4)),
                  dtype=dtype)


@operator("OneHot")
def one_hot(d):
    shape = d.shape(1, 3, 9)
    kind = np.dtype(d.dtype("T1"))
    depth = d.int(1, 7)
    low = -depth - 1 if kind.kind != "u" and d.version >= 11 else 0
    at = d.array(kind, shape, low, depth + 1)
    at = np.trunc(at).astype(kind)
    axis = d.maybe(d.axis(len(shape) + 1))
    return single(d, [at, np.array(depth, d.dtype("T2")).reshape(
        d.pick([(), (1,)])), d.array(d.dtype("T3"), (2,))], axis=axis)


@operator("BlackmanWindow", "HammingWindow", "HannWindow")
def window(d):
    size = np.array(d.int(1, 33), d.dtype("T1"))
    to = np.dtype(d.dtype("T2"))
    return single(d, [size], periodic=d.maybe(d.int(0, 1)),
                  output_datatype=d.maybe(helper.np_dtype_to_tensor_dtype(to)))


@operator("MelWeightMatrix")
def mel_weights(d):
    rate = d.pick([8000, 16000, 44100])
    whole, real = d.dtype("T1"), d.dtype("T2")
    bins, length = d.int(1, 8), d.pick([16, 31, 64, 100])
    low, high = d.int(0, 300), d.int(1000, rate // 2)
    return single(d, [np.array(bins, whole), np.array(length, whole),
                      np.array(rate, whole), np.array(low, real),
                      np.array(high, real)])


@operator("RandomNormal", "RandomUniform")
def random(d):
    return single(d, [], shape=list(d.shape()),
                  dtype=d.maybe(d.pick([1, 11])), seed=d.maybe(2.0))


@operator("RandomNormalLike", "RandomUniformLike", "Bernoulli")
def random_like(d):
    x = d.array(d.dtype("T1"), d.shape(), 0, 1)
    return single(d, [x], dtype=d.pick([1, 11]), seed=d.maybe(2.0))


@operator("Multinomial")
def multinomial(d):
    return single(d, [d.array(d.dtype("T1"), d.shape(2, 2, zero=0), -3, 0)],
                  sample_size=d.maybe(d.int(1, 5)), seed=d.maybe(2.0),
                  dtype=d.maybe(d.pick([6, 7])))


# -- search -------------------------------------------------------------------


@operator("TopK")
def top_k(d):
    x = any_array(d, 1, zero=0)
    axis = d.axis(x.ndim) if d.version >= 11 else d.int(0, x.ndim - 1)
    k = d.int(0, x.shape[axis]) if d.version >= 10 else d.int(1, x.shape[axis])
    if x.dtype.kind == "f":
        x = d.array(x.dtype, x.shape, special=False)
    if d.version < 10:
        return single(d, [x], 2, axis=axis, k=k)
    largest = d.maybe(d.int(0, 1)) if d.version >= 11 else None
    return single(d, [x, d.ints([k])], 2, axis=axis, largest=largest)


@operator("NonZero")
def non_zero(d):
    x = any_array(d)
    return single(d, [x * (d.rng.random(x.shape) < 0.6)
                      if x.dtype.kind != "b" else x])


@operator("Unique")
def unique(d):
    x = d.array(d.dtype(), d.shape(1, 3, zero=0), special=False)
    if x.dtype.kind == "f":
        x = np.round(x)
    if d.chance(0.6):
        x = d.array(x.dtype, x.shape, 0, 2)
        x = np.round(x).astype(x.dtype)
    n_out = d.int(1, 4)
    skipped = [i for i in range(1, n_out - 1) if d.chance(0.3)]
    return single(d, [x], n_out, skipped, axis=d.maybe(d.axis(x.ndim)),
                  sorted=d.maybe(d.int(0, 1)))


@operator("Compress")
def compress(d):
    x = any_array(d, 1)
    axis = d.maybe(d.axis(x.ndim) if d.version >= 11
                   else d.int(0, x.ndim - 1))
    n = x.size if axis is None else x.shape[axis]
    return single(d, [x, d.array(np.bool_, (d.int(0, n),))], axis=axis)


@operator("NonMaxSuppression")
def nms(d):
    batch, boxes, classes = d.int(1, 2), d.pick([1, 2, 5, 17]), d.int(1, 3)
    corners = d.array(np.float32, (batch, boxes, 2), 0, 5)
    sizes = d.array(np.float32, (batch, boxes, 2), 0.5, 5)
    center = d.chance(0.4)
    coords = [corners, sizes] if center else [corners, corners + sizes]
    if not center and d.chance(0.2):
        coords.reverse()
    scores = d.array(np.float32, (batch, classes, boxes), 0, 1)
    one = d.pick([(), (1,)])
    limits = [d.maybe(np.full(one, d.int(0, 5), np.int64), 0.8),
              d.maybe(d.array(np.float32, one, 0, 1)),
              d.maybe(d.array(np.float32, one, 0, 1))]
    return single(d, [np.concatenate(coords, -1), scores, *limits],
                  center_point_box=int(center))

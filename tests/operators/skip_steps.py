"""The steps of skip_graphs.py: each adds one value or more, or none where nothing
fits."""

import numpy as np
from onnx import TensorProto, helper

from graphs import needed, typed
from skip_graphs import (BOOL, F32, FAR, FEEDS, FLOAT, INT64, LARGEST, Graph,
                         Value, broadcast, fits, fixed, replaced, tensor_type)

STEPS = []


def step(weight=1):
    def register(function):
        STEPS.extend([function] * weight)
        return function
    return register


# -- movement -----------------------------------------------------------------


def permute(g, x, perm):
    return g.apply("Transpose", x, dims=[x.dims[a] for a in perm], perm=perm)


@step(3)
def transpose(g):
    x = g.pick("fib", low=2)
    if x is None:
        return
    perm = list(range(x.rank))
    if g.d.chance(0.5):
        a, b = g.axis_of(x), g.d.int(0, x.rank - 1)
        perm[a], perm[b] = perm[b], perm[a]
    else:
        perm = [int(a) for a in g.d.rng.permutation(x.rank)]
    permute(g, x, perm)


@step(2)
def transpose_back(g):
    """Two transposes that cancel, with or without something between."""
    x = g.pick("fi", low=2)
    if x is None:
        return
    perm = [int(a) for a in g.d.rng.permutation(x.rank)]
    y = permute(g, x, perm)
    for _ in range(g.d.int(0, 2)):
        y = g.d.pick([unary_of, cast_same, times_one])(g, y) or y
    permute(g, y, [int(a) for a in np.argsort(perm)])


def reshape(g, x, dims, p_knob=0.5):
    """Reshape to known dims: by a knob, by a 0 or -1, or by arithmetic."""
    shapes = g.per_feed(lambda f: [d[f] for d in dims])
    if x.empty or g.d.chance(p_knob):
        target, attrs = g.knob(shapes), {"allowzero": 1}
    else:
        at = g.d.int(-1, len(dims) - 1)
        kept = [0 if i < x.rank and dims[i] == x.dims[i] and g.d.chance(0.5)
                else -1 if i == at else None for i in range(len(dims))]
        for i, k in enumerate(kept):
            if k is None and len(set(dims[i])) == 1:
                kept[i] = dims[i][0]
        attrs = {}
        if None in kept:
            target = g.knob(shapes)
        else:
            target = g.const(kept)
    return g.apply("Reshape", x, target, dims=dims, **attrs)


@step(2)
def merge_dims(g):
    x = g.pick("fi", low=2)
    if x is None:
        return
    at = g.axis_of(x)
    at = min(at, x.rank - 2)
    merged = tuple(a * b for a, b in zip(x.dims[at], x.dims[at + 1]))
    reshape(g, x, x.dims[:at] + (merged,) + x.dims[at + 2:])


@step()
def split_dim(g):
    x = g.pick("fi", low=1, high=4)
    if x is None:
        return
    at = g.d.int(0, x.rank - 1)
    extra = [x.dims[at], fixed(1)]
    if all(n % 2 == 0 for n in x.dims[at]) and g.d.chance(0.7):
        extra = [fixed(2), tuple(n // 2 for n in x.dims[at])]
    if g.d.chance(0.5):
        extra.reverse()
    reshape(g, x, x.dims[:at] + tuple(extra) + x.dims[at + 1:])


@step()
def same_shape(g):
    """A Reshape to the shape that the value has."""
    x = g.pick("fi", low=1)
    if x is None:
        return
    if g.d.chance(0.5):
        g.apply("Reshape", x, g.emit("Shape", [x]), allowzero=1)
    else:
        reshape(g, x, x.dims)


@step()
def flatten(g):
    x = g.pick("fi")
    axis = g.d.int(0, x.rank)
    dims = [tuple(int(np.prod([d[f] for d in part])) for f in range(FEEDS))
            for part in (x.dims[:axis], x.dims[axis:])]
    g.apply("Flatten", x, dims=dims, axis=axis)


@step(2)
def unsqueeze(g):
    x = g.pick("fib", high=4)
    if x is None:
        return
    at = g.d.int(0, x.rank)
    g.apply("Unsqueeze", x, g.const([at]),
            dims=x.dims[:at] + (fixed(1),) + x.dims[at:])


@step(2)
def squeeze(g):
    x = g.pick("fib", test=lambda v: fixed(1) in v.dims)
    if x is None:
        return
    at = x.dims.index(fixed(1))
    g.apply("Squeeze", x, g.const([g.sign(at, x.rank)]),
            dims=x.dims[:at] + x.dims[at + 1:])


def slice_one(g, x, axis, bounds):
    """Slice of one axis by (start, end, step) of each feed."""
    dim = [len(range(n)[slice(*b)]) for n, b in zip(x.dims[axis], bounds)]
    ends = [[-FAR if e is None and s < 0 else FAR if e is None else e]
            for _, e, s in bounds]
    starts = [[s if s is not None else 0 if st > 0 else FAR]
              for s, _, st in bounds]
    inputs = [g.knob(starts), g.knob(ends), g.const([g.sign(axis, x.rank)])]
    steps = [[s] for _, _, s in bounds]
    if steps != [[1]] * FEEDS or g.d.chance(0.3):
        inputs.append(g.knob(steps))
    return g.apply("Slice", x, *inputs, dims=replaced(x.dims, axis, dim))


def bounds_of(g, n, kind):
    """(start, end, step) along an axis of n elements."""
    if kind == "full":
        return g.d.pick([(0, None, 1), (0, n, 1), (0, n + 3, 1), (-n, None, 1)
                         if n else (0, None, 1)])
    if kind == "part":
        start = g.d.int(0, max(0, n - 1))
        return start, g.d.int(start + (n > start), max(n, start)), 1
    if kind == "reverse":
        return None, None, -1
    if kind == "every":
        return 0, None, g.d.pick([2, 3])
    return n, n, 1  # empty


@step(3)
def slice_axis(g):
    x = g.pick("fib", low=1)
    if x is None:
        return
    axis = g.axis_of(x, likes_one=False)
    kinds = ["full"] * 4 + ["part", "part", "reverse", "every", "empty"]
    kind = g.d.pick(kinds)
    mixed = g.d.chance(0.5)
    slice_one(g, x, axis, [
        bounds_of(g, n, g.d.pick(kinds[:-1]) if mixed else kind)
        for n in x.dims[axis]])


@step(2)
def split(g):
    """Sizes that may give one output all elements and another none."""
    x = g.pick("fi", low=1)
    if x is None:
        return
    axis = g.axis_of(x)
    parts = g.d.int(1, 3)
    sizes = []
    for n in x.dims[axis]:
        cuts = sorted(g.d.pick([0, n, g.d.int(0, n)]) for _ in range(parts - 1))
        ends = [0, *cuts, n]
        sizes.append([b - a for a, b in zip(ends, ends[1:])])
    names = g.emit("Split", [x, g.knob(sizes)], parts,
                   axis=g.sign(axis, x.rank))
    for i, name in enumerate([names] if parts == 1 else names):
        g.add(name, replaced(x.dims, axis, [s[i] for s in sizes]), x)


def indices_of(g, n, kind):
    if n == 0:
        return []
    if kind == "all":
        return list(range(n))
    if kind == "broken":
        order = list(range(n))
        order[g.d.int(0, n - 1)] = g.d.int(0, n - 1)
        return order
    if kind == "run":
        start = g.d.int(0, n - 1)
        return list(range(start, g.d.int(start + 1, n)))
    if kind == "negative":
        return [i - n for i in range(n)]
    if kind == "back":
        return list(range(n))[::-1]
    return [g.d.int(0, n - 1)]  # one


@step(3)
def gather(g):
    x = g.pick("fib", low=1)
    if x is None:
        return
    axis = g.axis_of(x)
    dim = x.dims[axis]
    dtype = g.d.pick([np.int64, np.int64, np.int32])
    rest = (x.dims[:axis], x.dims[axis + 1:])
    if min(dim) > 0 and g.d.chance(0.25):
        at = [g.d.pick([0, -1])] * FEEDS if g.d.chance(0.5) else \
            g.per_feed(lambda f: g.d.pick([0, dim[f] - 1, -1]))
        g.apply("Gather", x, g.knob(at, dtype), dims=rest[0] + rest[1],
                axis=axis)
        return
    kinds = ["all", "all", "broken", "run", "negative", "back", "one"]
    kind, mixed = g.d.pick(kinds), g.d.chance(0.5)
    lists = [indices_of(g, n, g.d.pick(kinds) if mixed else kind) for n in dim]
    count = tuple(map(len, lists))
    if g.d.chance(0.2):  # indices of rank 2 add an axis
        dims = rest[0] + (fixed(1), count) + rest[1]
        lists = [[r] for r in lists]
    else:
        dims = rest[0] + (count,) + rest[1]
    arrays = [np.array(r, np.int64).reshape((1, -1)[-np.ndim(r):] or ())
              for r in lists]
    g.apply("Gather", x, g.knob(arrays, dtype), dims=dims,
            axis=g.sign(axis, x.rank))


@step(2)
def expand(g):
    x = g.pick("fib", high=4)
    if x is None:
        return
    style = g.d.int(0, 3)
    if style == 0:
        other = g.pick("f")
        dims = broadcast(x, other)
        if dims is not None:
            g.apply("Expand", x, g.emit("Shape", [other]), dims=dims)
        return
    grow = [g.d.pick([2, 3]) if style == 2 and g.d.chance(0.4) else 1
            for _ in range(FEEDS)]
    dims = tuple(tuple(m if n == 1 else n for n, m in zip(d, grow))
                 if 1 in d else d for d in x.dims)
    if style == 3 and x.rank < 4:
        dims = (tuple(grow),) + dims
    if fits(lambda f: [d[f] for d in dims]):
        same = g.d.chance(0.5)
        g.apply("Expand", x, g.knob(
            [[1 if same and i >= len(dims) - x.rank and
              x.dims[i - len(dims) + x.rank][f] == d[f] else d[f]
              for i, d in enumerate(dims)] for f in range(FEEDS)]), dims=dims)


def cast_same(g, x):
    return g.apply("Cast", x, to=tensor_type(x.dtype))


@step(2)
def cast(g):
    x = g.pick("fib")
    if g.d.chance(0.6):
        cast_same(g, x)
    elif x.dtype == F32:
        wide = g.emit("Cast", [x], to=TensorProto.DOUBLE)
        g.add(g.emit("Cast", [wide], to=FLOAT), x.dims, x)
    elif x.dtype.kind in "ib" and x.dtype != F32:
        name = g.emit("Cast", [x], to=FLOAT)
        g.values.append(Value(name, x.dims, F32, x.exact))


# -- writes that may write nothing -------------------------------------------


def updates_for(g, x, shapes):
    return g.knob([g.d.rng.integers(-4, 5, s) / 2 for s in shapes], x.dtype)


@step(2)
def scatter_nd(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    depth = g.d.int(1, min(2, x.rank))
    p = g.d.pick([0, 0.5, 1])
    indices, shapes = [], []
    for f in range(FEEDS):
        shape = x.shape(f)
        places = list(np.ndindex(*shape[:depth]))
        count = 0 if g.d.chance(p) else min(len(places), g.d.int(0, 3))
        order = g.d.rng.permutation(len(places))[:count]
        rows = np.array([places[i] for i in order], np.int64)
        indices.append(rows.reshape(count, depth))
        shapes.append((count,) + shape[depth:])
    attrs = {"reduction": "add"} if g.d.chance(0.2) else {}
    g.apply("ScatterND", x, g.knob(indices), updates_for(g, x, shapes), **attrs)


@step(2)
def scatter_elements(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    axis, p = g.axis_of(x), g.d.pick([0, 0.5, 1])
    indices = []
    for f in range(FEEDS):
        shape = list(x.shape(f))
        n = shape[axis]
        shape[axis] = 0 if g.d.chance(p) else g.d.int(0, n)
        picked = g.d.rng.permutation(n)[:shape[axis]]
        column = picked.reshape([-1 if a == axis else 1
                                 for a in range(x.rank)])
        indices.append(np.broadcast_to(column, shape))
    attrs = {"reduction": "add"} if g.d.chance(0.2) else {}
    g.apply("ScatterElements", x, g.knob(indices),
            updates_for(g, x, [i.shape for i in indices]),
            axis=g.sign(axis, x.rank), **attrs)


# -- sizes --------------------------------------------------------------------


@step(2)
def resize(g):
    x = g.pick("f", low=3, high=4,
               test=lambda v: v.dtype == F32 and not v.empty)
    if x is None:
        return
    attrs = {"mode": g.d.pick(["nearest", "nearest", "linear"]),
             "coordinate_transformation_mode":
                 g.d.pick(["half_pixel", "asymmetric", "align_corners"])}
    if attrs["mode"] == "linear" and x.rank != 4:
        attrs["mode"] = "nearest"
    spatial = range(2, x.rank)
    if g.d.chance(0.6):
        scales = [1.0] * 2 + [g.d.pick([1.0, 1.0, 1.1, 2.0]) for _ in spatial]
        dims = tuple(tuple(int(np.floor(n * np.float32(s))) for n in d)
                     for d, s in zip(x.dims, scales))
        inputs = ["", g.const(scales, np.float32)]
        g.kept_sizes.update(
            f for f in range(FEEDS) for a in spatial
            if scales[a] != 1 and dims[a][f] == x.dims[a][f])
    else:
        grown = [[n + (g.d.chance(0.3) and g.d.int(0, 2)) for n in x.dims[a]]
                 for a in spatial]
        dims = x.dims[:2] + tuple(map(tuple, grown))
        inputs = ["", "", g.knob(g.per_feed(lambda f: [d[f] for d in dims]))]
    if fits(lambda f: [d[f] for d in dims]):
        g.apply("Resize", x, *inputs, dims=dims,
                exact=attrs["mode"] == "nearest", **attrs)


@step(3)
def concat(g):
    """One input, empty ones, and parts of dynamic length."""
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    axis = g.axis_of(x, likes_one=False)
    parts = [x]
    for _ in range(g.d.int(0, 2)):
        style = g.d.int(0, 2)
        if style == 0:
            hollow = [tuple(0 if a == axis else n for a, n in
                            enumerate(x.shape(f))) for f in range(FEEDS)]
            part = Value(g.knob([np.zeros(s) for s in hollow], F32),
                         replaced(x.dims, axis, fixed(0)))
        elif style == 1:
            part = slice_one(g, x, axis, [
                bounds_of(g, n, g.d.pick(["full", "part", "empty"]))
                for n in x.dims[axis]])
        else:
            part = g.d.pick([v for v in g.values if v.dtype == F32
                             and v.rank == x.rank and
                             replaced(v.dims, axis, fixed(0)) ==
                             replaced(x.dims, axis, fixed(0))])
        parts.insert(g.d.int(0, len(parts)), part)
    dim = tuple(map(sum, zip(*(v.dims[axis] for v in parts))))
    dims = replaced(x.dims, axis, dim)
    if fits(lambda f: [d[f] for d in dims]):
        name = g.emit("Concat", parts, axis=g.sign(axis, x.rank))
        g.add(name, dims, x, all(v.exact for v in parts))


@step()
def extend(g):
    """A Concat that appends to an input, as a key cache grows."""
    fit = [v for v in g.values if v.name.startswith("x") and v.rank
           and v.dtype == F32]
    if g.depth or not fit:
        return
    x = g.d.pick(fit)
    axis = g.d.int(0, x.rank - 1)
    others = [v for v in g.values if v.rank == x.rank and v.dtype == F32
              and replaced(v.dims, axis, fixed(0)) ==
              replaced(x.dims, axis, fixed(0))]
    new = g.d.pick(others)
    dim = tuple(map(sum, zip(x.dims[axis], new.dims[axis])))
    dims = replaced(x.dims, axis, dim)
    if fits(lambda f: [d[f] for d in dims]):
        name = g.emit("Concat", [x, new], axis=g.sign(axis, x.rank))
        g.add(name, dims, x, new.exact)
        g.caches.append((x.name, name, axis))


@step(2)
def pad(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    axis, p = g.axis_of(x, likes_one=False), g.d.pick([0, 0.3, 1])
    mode = g.d.pick(["constant", "constant", "edge"])
    pads = []
    for f in range(FEEDS):
        row = [0] * (2 * x.rank)
        n = x.dims[axis][f]
        if g.d.chance(p) and n:
            row[axis], row[axis + x.rank] = g.d.pick(
                [(1, 0), (0, 2), (-1, 0), (0, -1)]
                if mode == "constant" and n > 1 else [(1, 0), (0, 2)])
        pads.append(row)
    dims = tuple(tuple(d[f] + pads[f][a] + pads[f][a + x.rank]
                       for f in range(FEEDS)) for a, d in enumerate(x.dims))
    if fits(lambda f: [d[f] for d in dims]):
        g.apply("Pad", x, g.knob(pads), dims=dims, mode=mode)


@step()
def tile(g):
    x = g.pick("fi", low=1)
    if x is None:
        return
    p = g.d.pick([0, 0.3])
    repeats = [[2 if g.d.chance(p) else 1 for _ in x.dims]
               for _ in range(FEEDS)]
    dims = tuple(tuple(n * r[a] for n, r in zip(d, repeats))
                 for a, d in enumerate(x.dims))
    if fits(lambda f: [d[f] for d in dims]):
        g.apply("Tile", x, g.knob(repeats), dims=dims)


# -- reductions over one element ----------------------------------------------


@step(3)
def reduce(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    op = g.d.pick(["Sum", "Mean", "Max", "Min", "Prod", "Sum", "Mean", "L2",
                   "L1", "SumSquare"])
    axis = g.axis_of(x)
    if 0 in x.dims[axis] and op not in ("Sum", "Prod"):
        return
    if g.d.chance(0.1) and op != "L2":  # no axes: nothing is reduced
        exact = op in ("Sum", "Mean", "Max", "Min", "Prod")
        g.apply(f"Reduce{op}", x, g.const(np.zeros(0)), exact=exact,
                noop_with_empty_axes=1) if exact else None
        return
    keep = g.d.int(0, 1)
    dims = x.dims[:axis] + ((fixed(1),) if keep else ()) + x.dims[axis + 1:]
    g.apply(f"Reduce{op}", x, g.const([g.sign(axis, x.rank)]), dims=dims,
            exact=op in ("Max", "Min"), keepdims=keep)


@step(2)
def cumsum(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None:
        return
    axis = g.axis_of(x)
    g.apply("CumSum", x, g.const(axis), exact=False,
            exclusive=int(g.d.chance(0.2)), reverse=int(g.d.chance(0.3)))


@step(2)
def softmax(g):
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32 and not v.empty)
    if x is not None:
        op = g.d.pick(["Softmax", "Softmax", "LogSoftmax"])
        g.apply(op, x, exact=False, axis=g.sign(g.axis_of(x), x.rank))


@step(2)
def pool(g):
    x = g.pick("f", low=3, high=4,
               test=lambda v: v.dtype == F32 and not v.empty)
    if x is None:
        return
    spatial = x.rank - 2
    op = g.d.pick(["MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool",
                   "GlobalMaxPool"])
    if op.startswith("Global"):
        g.apply(op, x, dims=x.dims[:2] + (fixed(1),) * spatial,
                exact=op == "GlobalMaxPool")
        return
    stride = g.d.pick([1, 1, 2])
    dims = x.dims[:2] + tuple(tuple((n - 1) // stride + 1 for n in d)
                              for d in x.dims[2:])
    attrs = {"strides": [stride] * spatial} if stride > 1 else {}
    g.apply(op, x, dims=dims, exact=op == "MaxPool",
            kernel_shape=[1] * spatial, **attrs)


# -- bit-exact algebra --------------------------------------------------------

# (operator, the number that does nothing, whether it may be the first operand)
NEUTRAL = [("Mul", 1.0, True), ("Div", 1.0, False), ("Sub", 0.0, False),
           ("Add", -0.0, True), ("Pow", 1.0, False), ("Add", 0.0, True),
           ("Sub", -0.0, False)]


def times_one(g, x):
    if x.dtype != F32:
        return None
    return with_number(g, x, *g.d.pick(NEUTRAL), 1.0)


def with_number(g, x, op, number, commutes, p):
    """x and a number that does nothing with probability p in each feed."""
    shape = g.d.pick([(), (1,), (1,) * x.rank, "as x"])
    arrays = []
    for f in range(FEEDS):
        dims = x.shape(f) if shape == "as x" else shape
        array = np.full(dims, number, np.float32)
        if array.size and not g.d.chance(p):
            array.flat[g.d.int(0, array.size - 1)] = g.d.pick([2.0, 0.5, -1.0])
        arrays.append(array)
    other = g.knob(arrays, F32)
    pair = [other, x] if commutes and g.d.chance(0.5) else [x, other]
    dims = (fixed(1),) if shape == (1,) and not x.rank else x.dims
    return g.add(g.emit(op, pair), dims, x, op != "Pow")


@step(3)
def algebra(g):
    x = g.pick("f", test=lambda v: v.dtype == F32)
    with_number(g, x, *g.d.pick(NEUTRAL), g.d.pick([1.0, 0.7, 0.7]))


@step()
def whole_numbers(g):
    """The same of integers."""
    x = g.pick("i")
    if x is None:
        return
    op, number = g.d.pick([("Mul", 1), ("Div", 1), ("Sub", 0), ("Add", 0)])
    numbers = g.per_feed(lambda f: number if g.d.chance(0.7) else 2)
    g.apply(op, x, g.knob(numbers, x.dtype))


@step(2)
def where(g):
    x = g.pick("f", test=lambda v: v.dtype == F32)
    others = [v for v in g.values if v.dtype == F32 and v.dims == x.dims]
    y = g.d.pick(others) if others and g.d.chance(0.6) else \
        Value(g.const(g.d.int(-2, 2), F32), ())
    shape, way = g.d.pick([(), (1,), "as x"]), g.d.chance(0.5)
    conditions = []
    for f in range(FEEDS):
        dims = x.shape(f) if shape == "as x" else shape
        array = np.full(dims, way if g.d.chance(0.8) else not way)
        if array.size and g.d.chance(0.2):
            array.flat[g.d.int(0, array.size - 1)] ^= True
        conditions.append(array)
    pair = (x, y) if g.d.chance(0.5) else (y, x)
    dims = (fixed(1),) if shape == (1,) and not x.rank else x.dims
    g.add(g.emit("Where", [g.knob(conditions, bool), *pair]), dims, x, y.exact)


@step(2)
def identity(g):
    x = g.pick("fib")
    if g.d.chance(0.6) or x.dtype != F32:
        g.apply("Identity", x)
    elif g.d.chance(0.7):
        g.apply("Dropout", x)
    else:
        name, mask = g.emit("Dropout", [x], 2)
        g.add(name, x.dims, x)
        g.values.append(Value(mask, x.dims, np.dtype(bool), True))


# -- read for its shape only, or empty -----------------------------------------


@step(2)
def only_shape(g):
    """A chain that only Shape or Size reads."""
    x, other = g.pick("f"), g.pick("f", test=lambda v: v.dtype == F32)
    y = x
    seen = len(g.values)
    for _ in range(g.d.int(1, 3)):
        g.d.pick([transpose, unsqueeze, slice_axis, identity, algebra,
                  unary])(g)
        if len(g.values) > seen:
            y = g.values[-1]
    keep = g.values[:seen]
    if g.d.chance(0.5):
        number = g.emit("Size", [y])
    else:
        number = g.emit("ReduceSum", [g.emit("Shape", [y])], keepdims=0)
    if g.d.chance(0.5):
        g.values = keep  # no one else reads the chain
    number = g.emit("Cast", [number], to=FLOAT)
    g.apply("Add", other, number)


@step()
def through_empty(g):
    """An empty value goes through operators and is joined again."""
    x = g.pick("f", low=1, high=4, test=lambda v: v.dtype == F32)
    if x is None:
        return
    axis = g.d.int(0, x.rank - 1)
    y = slice_one(g, x, axis, [(0, 0, 1)] * FEEDS)
    for _ in range(g.d.int(1, 3)):
        y = g.d.pick([unary_of, cast_same, times_one])(g, y) or y
    pair = [x, y] if g.d.chance(0.5) else [y, x]
    g.apply("Concat", *pair, dims=x.dims, axis=axis)


# -- work ----------------------------------------------------------------------


def unary_of(g, x):
    if x.dtype.kind != "f":
        return None
    op = g.d.pick(["Relu", "Abs", "Neg", "Tanh", "Sigmoid"])
    return g.apply(op, x, exact=op in ("Relu", "Abs", "Neg"))


@step(4)
def unary(g):
    unary_of(g, g.pick("f"))


@step(4)
def binary(g):
    x = g.pick("f", test=lambda v: v.dtype == F32)
    others = [v for v in g.values if v.dtype == F32 and
              broadcast(x, v) is not None]
    y = g.d.pick(others)
    op = g.d.pick(["Add", "Sub", "Mul", "Max", "Min"])
    pair = [x, y] if g.d.chance(0.5) else [y, x]
    g.add(g.emit(op, pair), broadcast(x, y), x, y.exact)


@step(2)
def matmul(g):
    """x times its own transpose, or weights."""
    x = g.pick("f", low=2, test=lambda v: v.dtype == F32)
    if x is None:
        return
    if len(set(x.dims[-1])) == 1 and x.dims[-1][0] and g.d.chance(0.7):
        n = g.d.pick([1, 3, 8])
        weights = g.const(g.d.rng.integers(-4, 5, (x.dims[-1][0], n)) / 4, F32)
        dims = x.dims[:-1] + (fixed(n),)
    else:
        weights = permute(g, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])
        dims = x.dims[:-1] + (x.dims[-2],)
    if fits(lambda f: [d[f] for d in dims]):
        y = g.emit("MatMul", [x, weights])
        g.add(g.emit("Tanh", [y]), dims, x, False)


@step(2)
def conv(g):
    x = g.pick("f", low=3, high=4, test=lambda v: v.dtype == F32 and
               not v.empty and len(set(v.dims[1])) == 1)
    if x is None:
        return
    spatial, channels = x.rank - 2, x.dims[1][0]
    taps, group = g.d.pick([1, 3]), g.d.pick([1, channels])
    out = channels if group > 1 else g.d.pick([1, 2, 5])
    shape = [out, channels // group] + [taps] * spatial
    weights = g.const(g.d.rng.integers(-4, 5, shape) / 8, F32)
    dims = x.dims[:1] + (fixed(out),) + x.dims[2:]
    if fits(lambda f: [d[f] for d in dims]):
        y = g.emit("Conv", [x, weights], group=group,
                   pads=[taps // 2] * (2 * spatial))
        g.add(g.emit("Tanh", [y]), dims, x, False)


@step()
def chosen_rows(g):
    """Compress by a knob: the number of rows is known after the run only."""
    x = g.pick("f", low=1, test=lambda v: v.dtype == F32)
    if x is None or g.depth:
        return
    axis = g.d.int(0, x.rank - 1)
    rows = g.per_feed(lambda f: g.d.rng.random(x.dims[axis][f]) <
                      g.d.pick([1, 1, 0.7, 0.3]))
    count = tuple(int(r.sum()) for r in rows)
    g.apply("Compress", x, g.knob(rows, bool),
            dims=replaced(x.dims, axis, count), axis=axis)


# -- bodies -------------------------------------------------------------------


def body(g, inputs, values, grow):
    """A graph that captures g's values; grow(inner) returns the names and
    types of its outputs."""
    inner = Graph(g.d, g.values + values, g)
    outputs = grow(inner)
    return helper.make_graph(
        needed(inner.nodes, [name for name, _ in outputs]), g.name(), inputs,
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs])


def plain_steps(g, low, high):
    plain = [s for s in STEPS if s not in CONTROL]
    for _ in range(g.d.int(low, high)):
        g.d.pick(plain)(g)


def ending(inner, x):
    """The name of a value with x's dims that the body computes."""
    last = inner.values[-1]
    own = any(last.name in n.output for n in inner.nodes)
    if last.dims == x.dims and last.dtype == x.dtype and own:
        return last
    return inner.apply(inner.d.pick(["Neg", "Identity", "Abs"]), x)


@step()
def branch(g):
    """If by a knob, or by whether a dim is 1."""
    x = g.pick("f", test=lambda v: v.dtype == F32)
    if g.depth > 1:
        return
    if x.rank and g.d.chance(0.4):
        size = g.emit("Squeeze", [g.dim_of(x, g.axis_of(x)), g.const([0])])
        condition = g.emit("Equal", [size, g.const(1)])
    else:
        condition = g.knob(g.per_feed(lambda f: g.d.chance(0.5)), bool)
    exact = []

    def grow(inner):
        plain_steps(inner, 0, 3)
        last = ending(inner, x)
        exact.append(last.exact)
        return [(last.name, FLOAT)]

    bodies = {way: body(g, [], [], grow)
              for way in ("then_branch", "else_branch")}
    g.add(g.emit("If", [condition], **bodies), x.dims, x, all(exact))


@step()
def loop(g):
    """A state of one shape, steps that capture views, and all its values."""
    x = g.pick("f", high=4, test=lambda v: v.dtype == F32)
    trips = g.per_feed(lambda f: g.d.int(1, 3))
    if g.depth or x is None or 3 * max(x.sizes()) > LARGEST:
        return
    count, going, state = g.name(), g.name(), Value(g.name(), x.dims, F32,
                                                    False)

    def grow(inner):
        plain_steps(inner, 1, 3)
        last = ending(inner, state)
        mixed = inner.emit("Add", [last, state])
        name = inner.emit("Tanh", [mixed]) if g.d.chance(0.5) else last.name
        return [(inner.emit("Identity", [going]), BOOL), (name, FLOAT),
                (inner.emit("Identity", [name]), FLOAT)]

    inputs = [typed(count, INT64, []), typed(going, BOOL, []),
              typed(state.name, FLOAT)]
    graph = body(g, inputs, [state], grow)
    final, scans = g.emit("Loop", [g.knob(trips), "", x], 2, body=graph)
    g.add(final, x.dims, x, False)
    g.add(scans, (tuple(trips),) + x.dims, x, False)


CONTROL = (branch, loop, chosen_rows)

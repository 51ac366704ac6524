"""Random graphs, for what single nodes cannot test: shape arithmetic, views of
views, long-lived values, branches and loops that capture outer values.

A graph is drawn step by step at the sizes of its first run, and has no size in
it: it then runs at other sizes, where both engines may reject it. A value is
*exact* if rounding cannot change it; only exact values are compared, rounded or
counted by nodes, so that the last bit cannot change the control flow.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from case import seal
from draw import Draw, LAST_OPSET

FIRST = 18  # from here on, axes are inputs everywhere
LARGEST = 600  # elements of a value
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Value(NamedTuple):
    name: str
    shape: tuple
    exact: bool = True

    @property
    def rank(self):
        return len(self.shape)


class Graph:
    """A graph under construction: its nodes, and the visible float values."""

    def __init__(self, draw, values, depth=0, names=None):
        self.d = draw
        self.values = list(values)
        self.depth = depth
        self.names = names if names is not None else iter(range(10**6))
        self.nodes, self.initializers = [], []

    def name(self):
        return f"v{next(self.names)}"

    def emit(self, op, inputs, n_out=1, **attrs):
        """Adds a node; returns the name of its output, or names."""
        outputs = [self.name() for _ in range(n_out)]
        inputs = [i.name if isinstance(i, Value) else i for i in inputs]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attrs))
        return outputs[0] if n_out == 1 else outputs

    def const(self, values, dtype=np.int64):
        """A constant, as initializer or as node."""
        tensor = numpy_helper.from_array(np.array(values, dtype), self.name())
        if self.depth or self.d.chance(0.5):
            return self.emit("Constant", [], value=tensor)
        self.initializers.append(tensor)
        return tensor.name

    def add(self, name, shape, exact):
        value = Value(name, tuple(int(n) for n in shape), exact)
        self.values.append(value)
        return value

    def pick(self, exact=False, rank=0):
        """One of the values, the latest most often."""
        fit = [v for v in self.values if v.rank >= rank
               and (v.exact or not exact)]
        if not fit:
            return None
        return fit[-1] if self.d.chance(0.6) else self.d.pick(fit)

    def dim_of(self, value, axis):
        """The size of one axis, as a tensor of one int64."""
        shape = self.emit("Shape", [value])
        return self.emit("Gather", [shape, self.const([axis])], axis=0)


def names_in(node):
    """Names that a node and the nodes of its bodies read."""
    names = set(node.input)
    for attr in node.attribute:
        names.update(o.name for o in attr.g.output)
        for inner in attr.g.node:
            names |= names_in(inner)
    return names


def needed(nodes, outputs):
    """The nodes that outputs need: an engine may skip the others, or fail in
    them."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            wanted |= names_in(node)
            kept.append(node)
    return kept[::-1]


# -- steps: each adds one value or more, or none where nothing fits -----------

STEPS = []


def step(function):
    STEPS.append(function)
    return function


@step
def exact_unary(g):
    x = g.pick()
    op = g.d.pick(["Relu", "Abs", "Neg", "Identity", "Dropout", "Identity"])
    g.add(g.emit(op, [x]), x.shape, x.exact)


@step
def smooth_unary(g):
    x = g.pick()
    op = g.d.pick(["Sigmoid", "Tanh", "Erf", "Softplus", "Sin", "Gelu"])
    attrs = {}
    if op == "Gelu" and g.d.version < 20:
        op = "Elu"
    g.add(g.emit(op, [x], **attrs), x.shape, False)


@step
def binary(g):
    x = g.pick()
    op = g.d.pick(["Add", "Sub", "Mul", "Max", "Min"])
    partners = [v for v in g.values if fits(v.shape, x.shape)]
    if g.d.chance(0.3):
        other = Value(g.const(g.d.int(-2, 2), np.float32), ())
    elif partners:
        other = g.d.pick(partners)
    else:
        other = x
    pair = [x, other] if g.d.chance(0.5) else [other, x]
    g.add(g.emit(op, pair), np.broadcast_shapes(x.shape, other.shape),
          x.exact and other.exact and op != "Mul")


def fits(a, b):
    try:
        return np.prod(np.broadcast_shapes(a, b)) <= LARGEST
    except ValueError:
        return False


@step
def choose(g):
    x = g.pick(exact=True)
    y = g.pick()
    if x is None or not fits(x.shape, y.shape):
        return
    mask = g.emit(g.d.pick(["Greater", "LessOrEqual", "Equal"]),
                  [x, g.const(g.d.int(-1, 1), np.float32)])
    g.add(g.emit("Where", [mask, y, x]),
          np.broadcast_shapes(x.shape, y.shape), x.exact and y.exact)


@step
def through_integers(g):
    x = g.pick(exact=True)
    if x is None:
        return
    whole = g.emit("Cast", [g.emit("Floor", [x])], to=INT64)
    if g.d.chance(0.5):
        whole = g.emit("Mod", [whole, g.const(g.d.pick([2, 3, 7]))])
    g.add(g.emit("Cast", [whole], to=FLOAT), x.shape, True)


# -- movement -----------------------------------------------------------------


@step
def transpose(g):
    x = g.pick()
    perm = [int(a) for a in g.d.rng.permutation(x.rank)]
    if perm:
        g.add(g.emit("Transpose", [x], perm=perm),
              [x.shape[a] for a in perm], x.exact)


@step
def merge_dims(g):
    """Shape -> Gather -> Concat -> Reshape: two adjacent dims become one."""
    x = g.pick(rank=2)
    if x is None:
        return
    at = g.d.int(0, x.rank - 2)
    parts = [g.dim_of(x, a) for a in range(x.rank) if a not in (at, at + 1)]
    parts.insert(at, g.const([-1]))
    shape = g.emit("Concat", parts, axis=0)
    merged = x.shape[:at] + (x.shape[at] * x.shape[at + 1],) + x.shape[at + 2:]
    g.add(g.emit("Reshape", [x, shape]), merged, x.exact)


@step
def split_dim(g):
    """Reshape to [..., n, 1, ...] by arithmetic on the shape."""
    x = g.pick(rank=1)
    if x is None or x.rank > 4:
        return
    at = g.d.int(0, x.rank - 1)
    n = g.dim_of(x, at)
    same = g.emit("Div", [g.emit("Mul", [n, g.const([2])]), g.const([2])])
    parts = [g.dim_of(x, a) for a in range(at)] + [same, g.const([1])]
    parts += [g.dim_of(x, a) for a in range(at + 1, x.rank)]
    g.add(g.emit("Reshape", [x, g.emit("Concat", parts, axis=0)]),
          x.shape[:at + 1] + (1,) + x.shape[at + 1:], x.exact)


@step
def copy_dims(g):
    x = g.pick(rank=1)
    if x is not None:
        g.add(g.emit("Reshape", [x, g.const([0] * (x.rank - 1) + [-1])]),
              x.shape, x.exact)


@step
def unsqueeze(g):
    x = g.pick()
    if x.rank < 5:
        at = g.d.int(0, x.rank)
        g.add(g.emit("Unsqueeze", [x, g.const([at])]),
              x.shape[:at] + (1,) + x.shape[at:], x.exact)


@step
def squeeze(g):
    fit = [v for v in g.values if 1 in v.shape]
    if fit:
        x = g.d.pick(fit)
        at = x.shape.index(1)
        g.add(g.emit("Squeeze", [x, g.const([at])]),
              x.shape[:at] + x.shape[at + 1:], x.exact)


@step
def slice_axis(g):
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.d.axis(x.rank)
    n = x.shape[axis]
    cut = g.d.pick([slice(1, None), slice(None, -1), slice(0, 2),
                    slice(None, None, -1), slice(None, None, 2),
                    slice(-2, None)])
    far = 2**62
    step_ = cut.step or 1
    start = cut.start if cut.start is not None else 0 if step_ > 0 else far
    end = cut.stop if cut.stop is not None else far if step_ > 0 else -far
    shape = list(x.shape)
    shape[axis] = len(range(n)[cut])
    g.add(g.emit("Slice", [x, g.const([start]), g.const([end]),
                           g.const([axis]), g.const([step_])]), shape, x.exact)


@step
def halves(g):
    """Split in two by computed sizes; both parts are used later."""
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.d.int(0, x.rank - 1)
    n = g.dim_of(x, axis)
    first = g.emit("Div", [n, g.const([2])])
    sizes = g.emit("Concat", [first, g.emit("Sub", [n, first])], axis=0)
    names = g.emit("Split", [x, sizes], 2, axis=axis)
    half = x.shape[axis] // 2
    for name, size in zip(names, (half, x.shape[axis] - half)):
        shape = list(x.shape)
        shape[axis] = size
        g.add(name, shape, x.exact)


@step
def concat(g):
    x = g.pick(rank=1)
    if x is None or 2 * np.prod(x.shape) > LARGEST:
        return
    axis = g.d.int(0, x.rank - 1)
    rest = [v for v in g.values if v.rank == x.rank
            and all(v.shape[i] == x.shape[i] for i in range(x.rank)
                    if i != axis)]
    other = g.d.pick(rest)
    shape = list(x.shape)
    shape[axis] += other.shape[axis]
    if np.prod(shape) <= LARGEST:
        g.add(g.emit("Concat", [x, other], axis=axis), shape,
              x.exact and other.exact)


@step
def expand(g):
    x, y = g.pick(), g.pick()
    if fits(x.shape, y.shape):
        g.add(g.emit("Expand", [x, g.emit("Shape", [y])]),
              np.broadcast_shapes(x.shape, y.shape), x.exact)


@step
def filled(g):
    x = g.pick()
    one = helper.make_tensor("value", FLOAT, [1], [1.5])
    ones = g.emit("ConstantOfShape", [g.emit("Shape", [x])], value=one)
    g.add(g.emit("Add", [x, ones]), x.shape, x.exact)


@step
def gather_by_range(g):
    """Gather with the reversed indices Range(0, n), from the shape."""
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.d.int(0, x.rank - 1)
    n = g.emit("Squeeze", [g.dim_of(x, axis), g.const([0])])
    order = g.emit("Range", [g.const(0), n, g.const(1)])
    back = g.emit("Sub", [g.emit("Sub", [n, g.const(1)]), order])
    g.add(g.emit("Gather", [x, back], axis=axis), x.shape, x.exact)


@step
def pad_and_tile(g):
    x = g.pick(rank=1)
    if x is None or np.prod([n + 1 for n in x.shape]) > LARGEST // 2:
        return
    pads = [0] * (2 * x.rank)
    pads[-1] = 1
    g.add(g.emit("Pad", [x, g.const(pads)]),
          x.shape[:-1] + (x.shape[-1] + 1,), x.exact)
    g.add(g.emit("Tile", [x, g.const([2] + [1] * (x.rank - 1))]),
          (2 * x.shape[0],) + x.shape[1:], x.exact)


# -- reductions and matmuls ---------------------------------------------------


@step
def reduce(g):
    x = g.pick(rank=1)
    if x is None:
        return
    axis = g.d.axis(x.rank)
    op = g.d.pick(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"])
    keep = g.d.int(0, 1)
    shape = list(x.shape)
    shape[axis] = 1
    if not keep:
        del shape[axis]
    g.add(g.emit(op, [x, g.const([axis])], keepdims=keep), shape,
          x.exact and op != "ReduceMean")


@step
def soften(g):
    x = g.pick(rank=1)
    if x is not None:
        op = g.d.pick(["Softmax", "LogSoftmax"])
        g.add(g.emit(op, [x], axis=g.d.axis(x.rank)), x.shape, False)


@step
def square(g):
    """x times its own transpose."""
    x = g.pick(rank=2)
    if x is None or np.prod(x.shape[:-1]) * x.shape[-2] > LARGEST:
        return
    perm = list(range(x.rank - 2)) + [x.rank - 1, x.rank - 2]
    transposed = g.emit("Transpose", [x], perm=perm)
    g.add(g.emit("Tanh", [g.emit("MatMul", [x, transposed])]),
          x.shape[:-1] + (x.shape[-2],), False)


@step
def normalise(g):
    """A decomposed layer norm, as exporters write it."""
    x = g.pick(rank=1)
    if x is None:
        return
    axes = g.const([-1])
    centred = g.emit("Sub", [x, g.emit("ReduceMean", [x, axes])])
    two = g.const(2, np.float32)
    variance = g.emit("ReduceMean", [g.emit("Pow", [centred, two]), axes])
    root = g.emit("Sqrt", [g.emit("Add", [variance,
                                          g.const(1e-3, np.float32)])])
    g.add(g.emit("Div", [centred, root]), x.shape, False)


# -- data-dependent shapes ----------------------------------------------------


@step
def positive_rows(g):
    """Rows whose first element is positive: NonZero, then Gather."""
    x = g.pick(exact=True, rank=2)
    if x is None or 0 in x.shape or g.depth:
        return
    flat = g.emit("Flatten", [x], axis=1)
    first = g.emit("Gather", [flat, g.const(0)], axis=1)
    mask = g.emit("Greater", [first, g.const(0, np.float32)])
    if g.d.chance(0.5):
        rows = g.emit("Compress", [x, mask], axis=0)
    else:
        at = g.emit("Squeeze", [g.emit("NonZero", [mask]), g.const([0])])
        rows = g.emit("Gather", [x, at], axis=0)
    total = g.emit("ReduceSum", [rows, g.const([0])], keepdims=1)
    g.add(g.emit("Concat", [x, total], axis=0),
          (x.shape[0] + 1,) + x.shape[1:], True)


# -- control flow -------------------------------------------------------------


def body(g, inputs, values, grow):
    """A graph that captures g's values; grow(inner) returns the names and
    types of its outputs."""
    inner = Graph(g.d, g.values + values, g.depth + 1, g.names)
    outputs = grow(inner)
    return helper.make_graph(
        needed(inner.nodes, [name for name, _ in outputs]), g.name(), inputs,
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs])


def typed(name, elem, shape=None):
    return helper.make_tensor_value_info(name, elem, shape)


def some_steps(g, low, high):
    plain = [s for s in STEPS if g.depth < 2 or s not in CONTROL]
    for _ in range(g.d.int(low, high)):
        g.d.pick(plain)(g)


@step
def branch(g):
    """If: two branches that end in values of one shape."""
    x = g.pick()
    if g.d.chance(0.5):
        condition = "flag"
    else:
        seen = g.pick(exact=True)
        if seen is None or 0 in seen.shape:
            return
        total = g.emit("ReduceMax", [seen], keepdims=0)
        condition = g.emit("Greater", [total, g.const(1, np.float32)])

    def grow(inner):
        some_steps(inner, 0, 3)
        last = inner.values[-1]
        if last.shape != x.shape or last.name == x.name:
            last = inner.add(inner.emit("Neg", [x]), x.shape, x.exact)
        elif all(last.name not in n.output for n in inner.nodes):
            last = inner.add(inner.emit("Identity", [last]), x.shape,
                             last.exact)
        exact.append(last.exact)
        return [(last.name, FLOAT)]

    exact = []
    then, other = body(g, [], [], grow), body(g, [], [], grow)
    g.add(g.emit("If", [condition], then_branch=then, else_branch=other),
          x.shape, all(exact))


@step
def loop(g):
    """Loop: a state of one shape, and its value in each iteration."""
    x = g.pick()
    iterations = g.d.int(1, 3)
    state = Value(g.name(), x.shape, False)
    count, going = g.name(), g.name()

    def grow(inner):
        some_steps(inner, 0, 2)
        last = inner.values[-1]
        if last.shape != x.shape:
            last = state
        name = inner.emit("Tanh", [inner.emit("Add", [last, state])])
        scanned = inner.emit("Mul", [name, inner.emit("Cast", [count],
                                                      to=FLOAT)])
        if g.d.chance(0.5):
            still = inner.emit("Identity", [going])
        else:
            still = inner.emit("Less", [count, inner.const(iterations - 1)])
        return [(still, BOOL), (name, FLOAT), (scanned, FLOAT)]

    inputs = [typed(count, INT64, []), typed(going, BOOL, []),
              typed(state.name, FLOAT)]
    graph = body(g, inputs, [state], grow)
    trips = "trips" if g.d.chance(0.5) else g.const(iterations)
    # At least one iteration: without any, the shape of a row is unknown.
    final, scans = g.emit("Loop", [trips, g.d.pick(["", g.const(True, bool)]),
                                   x], 2, body=graph)
    g.add(final, x.shape, False)
    if x.rank < 5:  # the number of iterations is known only at run time
        g.add(g.emit("ReduceSum", [scans, g.const([0])], keepdims=0), x.shape,
              False)


@step
def scan(g):
    """Scan along axis 0: a running mean of rows."""
    x = g.pick(rank=1)
    if x is None or 0 in x.shape:
        return
    row = Value(g.name(), x.shape[1:], x.exact)
    state = Value(g.name(), x.shape[1:], False)

    def grow(inner):
        some_steps(inner, 0, 2)
        both = inner.emit("Add", [row, state])
        half = inner.emit("Mul", [both, inner.const(0.5, np.float32)])
        return [(half, FLOAT), (inner.emit("Relu", [half]), FLOAT)]

    first = g.emit("Gather", [x, g.const(0)], axis=0)
    inputs = [typed(state.name, FLOAT), typed(row.name, FLOAT)]
    graph = body(g, inputs, [row, state], grow)
    backwards = g.d.int(0, 1)
    final, rows = g.emit("Scan", [first, x], 2, body=graph, num_scan_inputs=1,
                         scan_input_directions=[backwards])
    g.add(final, x.shape[1:], False)
    g.add(rows, x.shape, False)


CONTROL = (branch, loop, scan)


# -- whole models -------------------------------------------------------------


class GraphCase:
    """A model, and feeds at several sizes; the first are repeated at the
    end."""

    op = "graph"

    def __init__(self, seed):
        d = Draw("graph", seed)
        d.version = d.int(FIRST, LAST_OPSET)
        ranks = [d.int(1, 3), d.int(1, 3)]
        sizes = [{s: d.dim(7, 0.02) for s in "abc"} for _ in range(3)]
        dims = ["abc"[:r] for r in ranks]
        shapes = [tuple(sizes[0][s] for s in names) for names in dims]
        g = Graph(d, [Value(f"x{i}", s) for i, s in enumerate(shapes)])
        some_steps(g, 3, 8)
        self.graph, self.opset = g, d.version
        self.bytes = seal(self.wrap(g, dims), d.version)
        self.feeds = [self.feed(d, dims, size) for size in sizes + sizes[:1]]

    def wrap(self, g, dims):
        made = [v.name for v in g.values if not v.name.startswith("x")]
        kept = [n for n in made[:-1] if g.d.chance(0.3)] + made[-1:]
        if not kept:
            kept = [g.emit("Identity", ["x0"])]
        inputs = [typed(f"x{i}", FLOAT, list(names))
                  for i, names in enumerate(dims)]
        inputs += [typed("flag", BOOL, []), typed("trips", INT64, [])]
        return helper.make_graph(
            needed(g.nodes, kept), "case", inputs,
            [helper.make_empty_tensor_value_info(n) for n in kept],
            g.initializers)

    def feed(self, d, dims, sizes):
        values = {f"x{i}": d.rng.integers(-6, 7, [sizes[s] for s in names])
                  .astype(np.float32) / 2 for i, names in enumerate(dims)}
        return {**values, "flag": np.array(d.chance(0.7)),
                "trips": np.array(d.int(1, 3), np.int64)}

    def __str__(self):
        ops = " ".join(n.op_type for n in self.graph.nodes)
        sizes = [[list(f[x].shape) for x in ("x0", "x1")] for f in self.feeds]
        return f"graph-{self.opset} {sizes}: {ops}"

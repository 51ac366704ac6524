"""A model of random skippable operators, and its feeds."""

import numpy as np
from onnx import helper

from case import seal
from draw import SPECIAL, Draw
from graphs import needed, typed
from skip_graphs import F32, FEEDS, I64, Graph, Value, fits, fixed, tensor_type
from skip_steps import STEPS

SIZES = (1, 1, 1, 1, 2, 2, 3, 4, 5, 7)


def draw_sizes(d):
    """Per feed sizes of a symbol: 1 in some feeds, or in none."""
    if d.chance(0.15):
        return fixed(d.pick(SIZES))
    zero = 0.1 if d.chance(0.15) else 0
    return tuple(0 if d.chance(zero) else d.pick(SIZES) for _ in range(FEEDS))


def elements(rng, style, dtype, shape):
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if dtype.kind == "i":
        return rng.integers(-6, 7, shape).astype(dtype)
    if style == "plain":
        return (rng.integers(-6, 7, shape) / 2).astype(dtype)
    x = rng.normal(0, 1, shape)
    if style == "special":
        x = np.where(rng.random(shape) < 0.4, rng.choice(SPECIAL, shape), x)
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)


class SkipCase:
    """A model and its feeds. With `steps`, only that many first steps of the
    graph are drawn; the feeds stay the same."""

    op = "skip"

    def __init__(self, seed, steps=None):
        d = Draw("skip", seed)
        self.opset = d.version = d.int(18, 23)
        sizes = {s: draw_sizes(d) for s in "abcd"}
        self.declared, values = {}, []
        for i in range(d.int(1, 3)):
            values.append(self.draw_input(d, f"x{i}", sizes))
        g = self.graph = Graph(d, values)
        count = d.int(3, 12)
        for _ in range(count if steps is None else min(count, steps)):
            d.pick(STEPS)(g)
        self.steps = count
        self.runs = np.random.default_rng([seed, 1])  # for all further draws
        self.inputs = values
        self.styles = self.runs.choice(["plain", "plain", "normal", "special"],
                                       FEEDS)
        self.feeds = [self.feed(f, seed) for f in range(FEEDS)]
        self.outputs = self.pick_outputs()
        names = [v.name for v in self.outputs]
        # (input, index of an output that begins with its elements, axis)
        self.caches = [(x, names.index(name), axis)
                       for x, name, axis in g.caches if name in names]
        self.optimized = self.runs.random() < 0.8  # are graph passes on?
        self.bytes = self.seal()

    def draw_input(self, d, name, sizes):
        rank = d.pick([1, 2, 3, 3, 4, 4])
        declared, dims = [], []
        for axis in range(rank):
            n = 4 if axis == 1 and rank > 2 and d.chance(0.4) else \
                1 if d.chance(0.1) else None
            symbol = d.pick("abcd")
            declared.append(n or symbol)
            dims.append(fixed(n) if n else sizes[symbol])
        while not fits(lambda f: [m[f] for m in dims]):
            declared.pop()
            dims.pop()
        dtype = np.dtype(d.pick([F32] * 7 + [I64, np.int32, np.float64]))
        if name == "x0":
            dtype = F32
        self.declared[name] = (dtype, declared)
        return Value(name, tuple(dims), dtype)

    def feed(self, f, seed):
        rng = np.random.default_rng([seed, 2, f])
        arrays = {v.name: elements(rng, self.styles[f], v.dtype, v.shape(f))
                  for v in self.inputs}
        return {**arrays, **{k: a[f] for k, a in self.graph.knobs.items()}}

    def pick_outputs(self):
        """Every value that nothing reads, and some that others read too."""
        g, rng = self.graph, self.runs
        made = [v for v in g.values if v.name.startswith("v")]
        if not made:
            made = [g.apply("Identity", self.inputs[0])]
        read = set().union(*(names for names in map(reads, g.nodes)))
        grown = {name for _, name, _ in g.caches}
        kept = [v for v in made if v.name not in read or v.name in grown
                or rng.random() < 0.25]
        kept = kept or made[-1:]
        if rng.random() < 0.3:  # one value as two outputs
            kept.append(g.apply("Identity", kept[-1]))
        return kept

    def seal(self):
        g = self.graph
        nodes = needed(g.nodes, [v.name for v in self.outputs])
        used = set().union(*map(reads, nodes))
        inputs = [typed(name, tensor_type(dtype), dims)
                  for name, (dtype, dims) in self.declared.items()]
        self.knobs = [k for k in g.knobs if k in used]
        for name in self.knobs:
            arrays = g.knobs[name]
            dims = [n[0] if len(set(n)) == 1 else None
                    for n in zip(*(a.shape for a in arrays))]
            inputs.append(typed(name, tensor_type(arrays[0].dtype), dims))
        names = {v.name for v in self.inputs} | set(self.knobs)
        self.feeds = [{n: a for n, a in feed.items() if n in names}
                      for feed in self.feeds]
        graph = helper.make_graph(
            nodes, "case", inputs,
            [helper.make_empty_tensor_value_info(v.name)
             for v in self.outputs],
            [t for t in g.initializers if t.name in used])
        return seal(graph, self.opset)

    def is_apart(self, feed):
        """Does ONNX Runtime compute something else (quirks.py)? Its reductions
        of empty values have other shapes, and its Resize copies a value that
        keeps its shape, whatever the scale is."""
        return feed in self.graph.kept_sizes or \
            any(0 in v.shape(feed) for v in self.graph.values)

    def __str__(self):
        ops = " ".join(n.op_type for n in self.graph.nodes
                       if n.op_type != "Constant")
        return f"skip-{self.opset} {ops}"


def reads(node):
    """Names that a node and the nodes of its bodies read."""
    names = set(node.input)
    for attr in node.attribute:
        names.update(o.name for o in attr.g.output)
        for inner in attr.g.node:
            names |= reads(inner)
    return names

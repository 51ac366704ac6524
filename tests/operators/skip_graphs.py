"""Random graphs rich in operators that do nothing at some shapes or contents.

A graph has several feeds from the beginning: a dim is the tuple of its sizes in
each feed, and a step is added only if it is valid in all of them. So one session
meets shapes, and contents that decide, at which a node alternately does nothing
and runs. Contents that decide (indices, sizes, conditions, factors) are
constants, or *knobs*: inputs of their own with a value for each feed.

A value is *exact* if no kernel may round it differently.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FEEDS = 6
LARGEST = 300  # elements of a value
FAR = 2**62
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def tensor_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Value(NamedTuple):
    name: str
    dims: tuple  # for each axis, the tuple of its sizes in all feeds
    dtype: np.dtype = F32
    exact: bool = True

    @property
    def rank(self):
        return len(self.dims)

    def shape(self, feed):
        return tuple(d[feed] for d in self.dims)

    def sizes(self):
        return [int(np.prod(self.shape(f))) for f in range(FEEDS)]

    @property
    def empty(self):
        return min(self.sizes()) == 0


def fixed(n):
    """A dim that has one size in all feeds."""
    return (n,) * FEEDS


def fits(shape_of):
    """Is shape_of(feed) small and valid in each feed?"""
    try:
        return all(np.prod(shape_of(f)) <= LARGEST for f in range(FEEDS))
    except ValueError:
        return False


def broadcast(*values):
    """The dims of values broadcast together, or None if a feed forbids it."""
    def shape(feed):
        return np.broadcast_shapes(*(v.shape(feed) for v in values))
    if not fits(shape):
        return None
    return tuple(zip(*map(shape, range(FEEDS)))) or ()


class Graph:
    """A graph under construction: its nodes, visible values, and knobs."""

    def __init__(self, draw, values, outer=None):
        self.d, self.values = draw, list(values)
        self.depth = outer.depth + 1 if outer else 0
        self.names = outer.names if outer else iter(range(10**6))
        self.knobs = outer.knobs if outer else {}  # name -> array per feed
        self.initializers = outer.initializers if outer else []
        # Feeds in which a scale that is not 1 keeps a size.
        self.kept_sizes = outer.kept_sizes if outer else set()
        # (input, output, axis) of Concats that extend an input.
        self.caches = []
        self.nodes = []

    def name(self):
        return f"v{next(self.names)}"

    def emit(self, op, inputs, n_out=1, **attrs):
        """Adds a node; returns the name of its output, or names."""
        outputs = [self.name() for _ in range(n_out)]
        names = [i.name if isinstance(i, Value) else i for i in inputs]
        node = helper.make_node(op, names, outputs,
                                name=f"{op}_{outputs[0]}", **attrs)
        self.nodes.append(node)
        return outputs[0] if n_out == 1 else outputs

    def add(self, name, dims, like, exact=True):
        """A value as `like`, with other dims."""
        value = Value(name, tuple(dims), like.dtype, like.exact and exact)
        self.values.append(value)
        return value

    def apply(self, op, x, *others, dims=None, exact=True, **attrs):
        """Adds a node and its only output, which has x's dims by default."""
        name = self.emit(op, [x, *others], **attrs)
        return self.add(name, x.dims if dims is None else dims, x, exact)

    def const(self, array, dtype=I64):
        tensor = numpy_helper.from_array(np.array(array, dtype), self.name())
        if self.d.chance(0.5):
            return self.emit("Constant", [], value=tensor)
        self.initializers.append(tensor)
        return tensor.name

    def knob(self, arrays, dtype=I64, p=0.5):
        """The name of a tensor that has arrays[feed] in a feed: a constant with
        probability p if all are equal, else an input."""
        arrays = [np.array(a, dtype) for a in arrays]
        equal = all(a.shape == arrays[0].shape and
                    a.tobytes() == arrays[0].tobytes() for a in arrays)
        if equal and self.d.chance(p):
            return self.const(arrays[0], dtype)
        name = f"k{len(self.knobs)}"
        self.knobs[name] = arrays
        return self.emit("Identity", [name]) if self.d.chance(0.1) else name

    def per_feed(self, function):
        return [function(f) for f in range(FEEDS)]

    def pick(self, kinds="f", low=0, high=9, test=None):
        """One of the values, the latest most often; None if there is none."""
        fit = [v for v in self.values if low <= v.rank <= high
               and v.dtype.kind in kinds and (test is None or test(v))]
        if not fit:
            return None
        return fit[-1] if self.d.chance(0.6) else self.d.pick(fit)

    def axis_of(self, value, likes_one=True):
        """An axis; one whose size is 1 in some feed, most often."""
        axes = [a for a, d in enumerate(value.dims) if 1 in d]
        if likes_one and axes and self.d.chance(0.7):
            return self.d.pick(axes)
        return self.d.int(0, value.rank - 1)

    def sign(self, axis, rank):
        return axis - rank if self.d.chance(0.3) else axis

    def dim_of(self, value, axis):
        """The size of one axis, as a tensor of one int64."""
        shape = self.emit("Shape", [value])
        return self.emit("Gather", [shape, self.const([axis])], axis=0)


def replaced(dims, axis, dim):
    return dims[:axis] + (tuple(dim),) + dims[axis + 1:]

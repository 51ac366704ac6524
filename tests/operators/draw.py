"""All random choices of a case: opset, dtypes, shapes, values.

Sizes favour the edges where code breaks: 0, 1, powers of two and their
neighbours, small primes. Cases stay small: a thousand elements at most.
"""

import functools
import zlib

import numpy as np
import onnx

FIRST_OPSET, LAST_OPSET = 7, 26  # Limber's oldest, ONNX Runtime's newest

DTYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64,
    "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16,
    "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}
COMMON = (np.float32, np.int64)

DIMS = (1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 31, 32, 33)
BUDGET = 1000  # elements

SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 3e38, -3e38,
           0.5, -0.5, 1.5, 2.5, 1.0, -1.0, 88.0, -88.0)


@functools.cache
def history():
    """op -> [(since, deprecated)] of the default domain, oldest first."""
    ops = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            ops.setdefault(schema.name, []).append(
                (schema.since_version, schema.deprecated))
    return {op: sorted(rows) for op, rows in ops.items()}


@functools.cache
def spans(op):
    """(first opset, last opset) of each form that the operator has had."""
    rows = history().get(op, [])
    ends = [since - 1 for since, _ in rows[1:]] + [LAST_OPSET]
    pairs = [(max(FIRST_OPSET, since), min(end, LAST_OPSET))
             for (since, gone), end in zip(rows, ends) if not gone]
    return [(first, last) for first, last in pairs if first <= last]


class Draw:
    """The random generator of one case. Equal arguments give equal cases."""

    def __init__(self, op, seed, attempt=0):
        self.op = op
        self.rng = np.random.default_rng(
            [zlib.crc32(op.encode()), seed, attempt])
        choices = spans(op)
        if choices:
            newest = self.chance(0.35)
            first, last = choices[-1] if newest else self.pick(choices)
            self.version = self.int(first, last)
            self.schema = onnx.defs.get_schema(op, self.version, "")
        else:
            self.version = self.int(13, LAST_OPSET)

    # -- plain choices --------------------------------------------------------

    def int(self, low, high):
        """low <= n <= high"""
        return int(self.rng.integers(low, high + 1))

    def chance(self, p):
        return bool(self.rng.random() < p)

    def pick(self, choices):
        return choices[self.int(0, len(choices) - 1)]

    def maybe(self, value, p=0.5):
        """The value, or None: an omitted input or attribute."""
        return value if self.chance(p) else None

    def real(self, low, high):
        return float(np.float32(self.rng.uniform(low, high)))

    def axis(self, rank, low=0):
        """An axis in [low, rank), or its negative equivalent."""
        axis = self.int(low, max(low, rank - 1))
        return axis - rank if self.chance(0.4) else axis

    def axes(self, rank, least=0):
        """Different axes in any order, of either sign."""
        count = self.int(min(least, rank), rank)
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - rank if self.chance(0.4) else int(a) for a in chosen]

    # -- dtypes ---------------------------------------------------------------

    def dtype(self, param="T", only=None):
        """A dtype that the schema allows for a type parameter; in half of the
        cases float32 or int64."""
        allowed = next(c.allowed_type_strs for c in self.schema.type_constraints
                       if c.type_param_str == param)
        known = [DTYPES[t] for t in allowed if t in DTYPES]
        if only:
            known = [t for t in known if np.dtype(t).kind in only]
        common = [t for t in known if t in COMMON]
        return self.pick(common if common and self.chance(0.5) else known)

    # -- shapes ---------------------------------------------------------------

    def dim(self, most=33, zero=0.03):
        if self.chance(zero):
            return 0
        return self.pick([d for d in DIMS if d <= most])

    def shape(self, low=0, high=4, most=33, zero=0.03, budget=BUDGET):
        """A shape of low to high dims."""
        return self.fit([self.dim(most, zero)
                         for _ in range(self.int(low, high))], budget)

    def fit(self, shape, budget=BUDGET):
        """The same with its largest dims reduced until it fits the budget."""
        shape = list(shape)
        while np.prod(shape) > budget:
            largest = int(np.argmax(shape))
            shape[largest] = self.pick([d for d in DIMS if d < shape[largest]])
        return tuple(shape)

    def narrowed(self, shape):
        """A shape that broadcasts to the given one."""
        cut = self.int(0, len(shape)) if self.chance(0.4) else 0
        keep = self.chance(0.4)
        return tuple(d if keep or self.chance(0.7) else 1
                     for d in shape[cut:])

    def broadcast(self, count, low=0, high=4):
        """Shapes that broadcast with each other, rarely some that do not."""
        whole = self.shape(low, high)
        shapes = [self.narrowed(whole) for _ in range(count)]
        if self.chance(0.03) and whole:
            shapes[0] = whole[:-1] + (whole[-1] + 1,)
        return shapes

    # -- values ---------------------------------------------------------------

    def array(self, dtype, shape, low=None, high=None, special=True):
        """Values of a dtype: in [low, high] where given, else of any kind."""
        dtype = np.dtype(dtype)
        shape = tuple(shape)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            return self.integers(dtype, shape, low, high, special)
        return self.floats(dtype, shape, low, high, special)

    def integers(self, dtype, shape, low, high, special):
        info = np.iinfo(dtype)
        if low is None and special and self.chance(0.2):
            edges = [info.min, info.max, 0, 1, info.min + 1, info.max - 1]
            return self.rng.choice(np.array(edges, dtype), shape)
        low = max(info.min, -9) if low is None else low
        high = 9 if high is None else high
        return self.rng.integers(low, high, shape, dtype, endpoint=True)

    def floats(self, dtype, shape, low, high, special):
        if low is not None:
            return self.rng.uniform(low, high, shape).astype(dtype)
        style = self.int(0, 3)
        if style == 0:  # ties and exact results
            x = self.rng.integers(-8, 9, shape) / 2
        elif style == 1:
            x = self.rng.normal(0, 10, shape)
        else:
            x = self.rng.normal(0, 1, shape)
        x = np.asarray(x, np.float64)
        if special and self.chance(0.15):
            chosen = self.rng.random(shape) < 0.3
            x = np.where(chosen, self.rng.choice(SPECIAL, shape), x)
        with np.errstate(over="ignore"):
            return x.astype(dtype)

    def ints(self, values):
        """An int64 vector: axes, sizes, pads as an input."""
        return np.array(values, np.int64)

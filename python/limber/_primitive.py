"""Primitives: operators without a model."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Sequence

import numpy as np

from limber import _limber
from limber._arrays import numpy_dtype
from limber._model import preference

LAYOUTS = {"default": 0, "row_major": 1, "channels_last": 2}
DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
DTYPES = {"float32": 1, "float64": 2, "float16": 3, "bfloat16": 4, "int8": 5,
          "int16": 6, "int32": 7, "int64": 8, "uint8": 9, "uint16": 10,
          "uint32": 11, "uint64": 12, "bool": 13}
TRANSPOSE = {"": 0, "a": 1, "b": 2, "ab": 3}


class Operand(NamedTuple):
    """An operand that is given at each execution. A dim of None is a runtime
    dim: its size is that of the array. `layout` is "default", "row_major" or
    "channels_last"; dims are always [batch, channels, spatial...]."""

    dtype: str
    dims: Sequence[int | None]
    layout: str = "default"


class PrimitiveInfo(NamedTuple):
    """How a primitive is computed."""

    key: str  # descriptor and attributes as text
    implementation: str  # a line for each step: tier, operator, kernel
    tier: str  # the slowest tier of its steps
    reusable: bool  # all its kernels serve other shapes too
    prefer_reusable: bool
    prefer_reusable_from: str  # "attribute", "environment" or "build"
    n_inputs: int
    n_outputs: int
    channels_last: bool  # the layout of the result
    steps: int
    kernels: int
    scratch_bytes: int
    packed_bytes: int


def named(table: dict[str, int], what: str, name: Any) -> int:
    if name not in table:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, table))},"
                         f" not {name!r}")
    return table[name]


def operand_row(value: Any) -> tuple[Any, ...] | None:
    """An operand as the extension reads it: dtype, layout, dims, constant."""
    if value is None:
        return None
    if isinstance(value, tuple):
        value = Operand(*value)
        return (str(numpy_dtype(value.dtype).name), named(
            LAYOUTS, "layout", value.layout), tuple(value.dims), None)
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    return array.dtype.name, 0, array.shape, array


def post_row(post: Any) -> tuple[Any, ...]:
    """A post-operation as the extension reads it."""
    if isinstance(post, str):
        post = (post,)
    name, *rest = post
    if name == "sum":
        return "sum", float(rest[0]) if rest else 1.0
    if rest and (isinstance(rest[0], tuple) or hasattr(rest[0], "dtype")):
        return name, operand_row(rest[0])
    alpha, beta = [*map(float, rest), 0.0, 0.0][:2]
    return name, alpha, beta


class Primitive(_limber.Primitive):
    """One operator, with operators that follow it, prepared for the shapes of
    its operands; docs/primitives.md lists the kinds and the fields that each
    reads.

    operands: a tuple (dtype, dims) or an Operand for one that is given at each
    execution, an array for a constant one, such as weights, and None for one
    that is absent. post: post-operations: "relu", ("clip", 0, 6), ("add",
    array or operand), ("sum", scale). transpose: "a", "b" or "ab".
    blob: the bytes that cache_blob returned for the same primitive.

        >>> weights = np.full((4, 2), 0.5, np.float32)
        >>> matmul = Primitive("matmul", [("float32", (None, 4)), weights],
        ...                    post=["relu", ("add", np.float32([1, 2]))])
        >>> matmul(np.ones((3, 4), np.float32))
        array([[3., 4.],
               [3., 4.],
               [3., 4.]], dtype=float32)
    """

    def __init__(self, kind: str, operands: Iterable[Any], *,
                 alg: str | None = None, post: Iterable[Any] = (),
                 out_dtype: str | None = None, out_layout: str = "default",
                 transpose: str = "", direction: str = "forward",
                 axes: Sequence[int] | None = None,
                 deterministic: bool = False,
                 prefer_reusable_kernels: bool | None = None,
                 reference: bool = False, blob: bytes | None = None,
                 **fields: Any):
        if out_dtype is not None:
            fields["out_dtype"] = named(DTYPES, "out_dtype", out_dtype)
        if axes is not None:
            fields["axes"], fields["n_axes"] = tuple(axes), len(axes)
        for name, table, value in (
                ("out_layout", LAYOUTS, out_layout),
                ("transpose", TRANSPOSE, transpose),
                ("direction", DIRECTIONS, direction)):
            number = named(table, name, value)
            if number:
                fields[name] = number
        super().__init__(kind, alg, [operand_row(o) for o in operands], fields,
                         [post_row(p) for p in post], deterministic,
                         preference(prefer_reusable_kernels), reference, blob)

    def __call__(self, *arrays: Any) -> Any:
        """Executes the primitive on the operands that are not constant, then
        those of post-operations. Returns an array, or a list of several."""
        results = self._execute(arrays)
        if self.channels_last:
            results[0] = np.moveaxis(results[0], -1, 1)
        return results[0] if len(results) == 1 else results

    def query(self, *arrays: Any) -> PrimitiveInfo:
        """Says how the primitive is computed, for arrays of these shapes if it
        has runtime dims."""
        return PrimitiveInfo(**self._query(arrays))

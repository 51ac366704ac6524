"""Converts Python values into arrays that the C extension can read."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np


@functools.cache
def bfloat16_dtype() -> np.dtype[Any]:
    """The numpy dtype for bfloat16: that of ml_dtypes, or uint16 if ml_dtypes
    is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def numpy_dtype(name: str) -> np.dtype[Any]:
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)


def to_array(value: Any, dtype: str | None) -> np.ndarray:
    """Returns `value` as a dense array in native byte order. An array keeps
    its dtype; lists and Python numbers are converted to `dtype` if it can hold
    them."""
    if hasattr(value, "dtype") or hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        array = from_python(value, dtype)
    native = array.dtype.newbyteorder("=")
    return np.require(np.asarray(array, native, order="C"),
                      requirements=["C", "A"])


def from_python(value: Any, dtype: str | None) -> np.ndarray:
    array = np.asarray(value)
    if dtype is None or array.dtype == object:
        return array
    wanted = numpy_dtype(dtype)
    fits = array.size == 0 or np.can_cast(array.dtype, wanted, "same_kind")
    if wanted.kind == "u" and array.dtype.kind == "i":
        fits = array.size == 0 or array.min() >= 0
    if wanted.kind in "V" and array.dtype.kind in "biuf":
        fits = True
    return array.astype(wanted) if fits else array


def as_bfloat16(array: np.ndarray) -> np.ndarray:
    """Returns a view of an array of two-byte elements as bfloat16."""
    return array.view(bfloat16_dtype())


def leading(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """Returns the first elements of a contiguous array as a view with these
    dims."""
    return array.reshape(-1)[:math.prod(dims)].reshape(dims)


def in_place(value: Any) -> Any:
    """Returns `value`, or an array that shares its memory, for Limber to read
    and write there."""
    if hasattr(value, "__array_struct__"):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise TypeError(
            "bind takes arrays whose memory can be shared (numpy, DLPack, "
            f"__array_interface__ or buffers), not {type(value).__name__}"
        ) from None

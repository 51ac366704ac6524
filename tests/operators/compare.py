"""What agreement means: dtype, shape and values, with a tolerance for floats.

Integers and bools are equal. Floats differ by at most atol + rtol * |b|; a
wider tolerance stands in TOLERANCES with its reason. A result where the other
engine fails is a disagreement, unless quirks.py says why.
"""

import numpy as np

from case import Failure
from quirks import excused

ATOL, RTOL = 1e-5, 1e-4
HALF = (2e-3, 4e-3)  # results are rounded once to 11 bits, sums before it

# op -> (atol, rtol), reason
TOLERANCES = {
    "DFT": ((1e-4, 1e-3), "cancelling sums; theirs is a float32 recursion"),
    "STFT": ((1e-4, 1e-3), "as DFT"),
    "MatMul": ((1e-4, 1e-4), "cancelling sums in another order"),
    "Gemm": ((1e-4, 1e-4), "as MatMul"),
    "GroupNormalization": ((1e-3, 1e-3), "close values: their variance"),
    "graph": ((1e-4, 1e-3), "errors of a chain add up"),
    "Det": ((1e-3, 1e-3), "cancellation in the elimination"),
    "MelWeightMatrix": ((1e-4, 1e-3), "differences of close frequencies"),
    "Range": ((1e-3, 1e-3), "theirs adds the step up, ours multiplies it"),
    "LpPool": ((1e-4, 1e-3), "powers of p in float32"),
    "Tan": ((1e-5, 1e-3), "poles: the argument's last bit decides"),
    "MeanVarianceNormalization": ((1e-3, 1e-3),
                                  "theirs is E(x^2) - E(x)^2"),
    "InstanceNormalization": ((1e-3, 1e-3), "as above"),
}

# Operators whose results are drawn at random: dtype and shape are compared.
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike",
          "RandomUniformLike", "Bernoulli", "Multinomial"}


def tolerance(op, dtype):
    atol, rtol = TOLERANCES.get(op, ((ATOL, RTOL), ""))[0]
    if dtype == np.float16:
        return max(atol, HALF[0]), max(rtol, HALF[1])
    return atol, rtol


def difference(op, got, want):
    """None, or how one output differs."""
    if got.dtype != want.dtype:
        return f"{got.dtype}, not {want.dtype}"
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, not {list(want.shape)}"
    if op in RANDOM:
        return None
    if want.dtype.kind == "f":
        atol, rtol = tolerance(op, want.dtype)
        close = np.isclose(got, want, rtol, atol, equal_nan=True)
    else:
        close = got == want
    if np.all(close):
        return None
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return (f"{np.count_nonzero(~close)} of {close.size} values differ, "
            f"first {list(at)}: {got[at]}, not {want[at]}")


def disagreement(case, got, want):
    """None, or how results or failures differ."""
    text = raw_disagreement(case.op, got, want)
    if text and excused(case, got, want):
        return None
    return text


def raw_disagreement(op, got, want):
    if isinstance(got, Failure) and isinstance(want, Failure):
        return None
    if isinstance(got, Failure):
        return f"Limber {got}"
    if isinstance(want, Failure):
        return f"ONNX Runtime {want}"
    for i, (a, b) in enumerate(zip(got, want)):
        text = difference(op, np.asarray(a), np.asarray(b))
        if text:
            return f"output {i}: {text}"
    return None

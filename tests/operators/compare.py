"""Agreement of results: names, dtypes, shapes and values of all outputs, with a
tolerance for floats.

Integers and bools are equal. Floats differ by at most atol + rtol * |b|; a
wider tolerance is in TOLERANCES with its reason. A result where the other
engine fails is a disagreement, unless quirks.py explains it. A case that both
engines reject is neither: it tests nothing, and is counted separately as
REJECTED. Limber rejects a case by an error that blames the model or its inputs;
any other error of Limber is a disagreement, whatever ONNX Runtime does.
"""

import numpy as np

from case import Failure
from quirks import QUIRKS

REJECTED = "both engines reject it"

ATOL, RTOL = 1e-5, 1e-4
HALF = (2e-3, 4e-3)  # results are rounded to 11 bits, sums before that

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

# Operators with random results: only dtype and shape are compared.
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike",
          "RandomUniformLike", "Bernoulli", "Multinomial"}


def tolerance(op, dtype):
    atol, rtol = TOLERANCES.get(op, ((ATOL, RTOL), ""))[0]
    if dtype == np.float16:
        return max(atol, HALF[0]), max(rtol, HALF[1])
    return atol, rtol


def difference(op, got, want, skipped=False):
    """None, or how one output differs in elements that are not `skipped`."""
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
    close = close | skipped
    if np.all(close):
        return None
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return (f"{np.count_nonzero(~close)} of {close.size} values differ, "
            f"first {list(at)}: {got[at]}, not {want[at]}")


def names_differ(got, want):
    """None, or how the outputs' names or their number differ."""
    if len(got) != len(want) or got.names != want.names:
        return f"outputs {len(got)} {got.names}, not {len(want)} {want.names}"
    return None


def disagreement(case, got, want):
    """None, REJECTED, or how results or failures differ."""
    text = raw_disagreement(case.op, got, want)
    if text in (None, REJECTED):
        return text
    explained = [explanation(q, case, got, want) for q in QUIRKS
                 if case.op in q.ops and q.holds(case, got, want)]
    if None in explained:
        return None
    return "; ".join([text, *explained])


def explanation(quirk, case, got, want):
    """None if the quirk explains every difference, else the unexplained one."""
    if isinstance(got, Failure):
        fits = quirk.rejects and got.rejects and quirk.rejects in got.text
        return None if fits else f"quirks.py does not excuse it: {got}"
    if quirk.instead:
        want = quirk.instead(case)
        where = "what quirks.py expects instead"
    else:
        where = "what quirks.py does not excuse"
    if isinstance(want, Failure):
        return f"{where}: {want}"
    if len(got) != len(want):
        return f"{where}: {len(got)} outputs, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        mask = quirk.mask(case, i, a, b) \
            if quirk.mask and a.shape == b.shape else False
        text = difference(case.op, a, np.asarray(b), mask)
        if text:
            return f"{where}: output {i}: {text}"
    return None


def raw_disagreement(op, got, want, other="ONNX Runtime"):
    """None, REJECTED, or how results or failures differ, quirks included."""
    if isinstance(got, Failure):
        rejected = got.rejects and isinstance(want, Failure)
        return REJECTED if rejected else f"Limber {got}"
    if isinstance(want, Failure):
        return f"{other} {want}"
    text = names_differ(got, want)
    if text:
        return text
    for i, (a, b) in enumerate(zip(got, want)):
        text = difference(op, np.asarray(a), np.asarray(b))
        if text:
            return f"output {i}: {text}"
    return None

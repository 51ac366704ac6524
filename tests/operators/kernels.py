"""The same case on reference kernels and on generated kernels, and the allowed
difference.

A model is loaded twice in one process: with reference=True, where
src/device/reference computes everything, and with kernels, which are compiled
when it settles. Results must agree:

  integers, bools, movement   bit by bit
  elementwise                 4 ulp of the result, or of the value in OF
  sums of products            2 * K * eps * sum |a * b|
  sums                        2 * n * eps * sum |x|

A NaN is a NaN on both sides, an infinity the same infinity.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

import limber
from case import Failure, run_named
from compare import RANDOM, names_differ
from fused import FusedCase

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("LIMBER_JIT", "process")
os.environ.setdefault("LIMBER_COMPILE", "settle")  # compiles on settle
os.environ.setdefault("LIMBER_JIT_PATH", str(ROOT / "build" / "limber-jit"))

SETTLE = 600  # seconds; more than every case needs
LIMITS = {"loop_limit": 1000, "memory_limit": 1 << 28}

ULPS = 4
RECURRENT = ("LSTM", "GRU", "RNN")

# The value whose ulps count where it is not the result, computed from the case
# and its result; and why: cancellation in the formula, or sums.
OF = {
    "Gelu": (lambda case, y: case.inputs[0], "1 + erf, 1 + tanh near -1"),
    "HardSwish": (lambda case, y: case.inputs[0], "x / 6 + 1 / 2 near x = -3"),
    "HardSigmoid": (lambda case, y: np.float32(1), "alpha * x + beta near 0"),
    "Softplus": (lambda case, y: np.float32(1), "log of 1 + exp near 1"),
    "ReduceProd": (lambda case, y: terms(case, y) * y, "n roundings"),
    "Softmax": (lambda case, y: case.inputs[0].size * y, "a sum divides"),
    "LogSoftmax": (lambda case, y: case.inputs[0].size + np.abs(y),
                   "the logarithm of a sum"),
    "LayerNormalization": (lambda case, y: of_norm(case, trailing(case)),
                           "x - mean, of means that are sums"),
    "RMSNormalization": (lambda case, y: case.inputs[0].size * y,
                         "the root of a sum divides"),
    "InstanceNormalization": (lambda case, y: of_norm(case, spatial(case)),
                              "as LayerNormalization"),
    "Attention": (lambda case, y: of_attention(case), "sums in exponents"),
    **{op: (lambda case, y: of_recurrent(case, y), "sums, step after step")
       for op in RECURRENT},
}

# Elements that are not compared: op -> mask, from the first input; reason.
APART = {
    op: (lambda x: np.abs(x) >= 2.0**48,
         "angles past 2^48 are taken for 0: pi has too few digits there")
    for op in ("Sin", "Cos", "Tan")
}

# op -> number of terms of a sum, from the case's inputs and the result
SUMS = {
    "MatMul": lambda case, y: case.inputs[0].shape[-1],
    "Gemm": lambda case, y: gemm_depth(case) + 2,  # alpha, beta * c
    "ReduceSum": lambda case, y: terms(case, y),
    "ReduceMean": lambda case, y: terms(case, y) + 1,
    "GlobalAveragePool": lambda case, y: terms(case, y) + 1,
    "AveragePool": lambda case, y: np.prod(case.attrs["kernel_shape"]) + 1,
    "ReduceL1": lambda case, y: terms(case, y),
    "ReduceSumSquare": lambda case, y: terms(case, y) + 1,
    "Conv": lambda case, y: np.prod(case.inputs[1].shape[1:]) + 1,
    "ConvTranspose": lambda case, y: conv_transpose_depth(case) + 1,
}


def gemm_depth(case):
    return case.inputs[0].shape[0 if case.attrs.get("transA") else 1]


def conv_transpose_depth(case):
    channels, _, *taps = case.inputs[1].shape
    return channels // case.attrs.get("group", 1) * np.prod(taps)


def terms(case, y):
    return case.inputs[0].size // max(1, y.size)


def trailing(case):
    rank = case.inputs[0].ndim
    return tuple(range(case.attrs.get("axis", -1) % rank, rank))


def spatial(case):
    return tuple(range(2, case.inputs[0].ndim))


def of_norm(case, axes):
    """n * max |x| / deviation * scale + bias: the magnitude of the rounding
    errors of the mean, the variance and the final sum."""
    x = np.float64(case.inputs[0])
    per_channel = case.op == "InstanceNormalization"
    shape = (-1,) + (1,) * (x.ndim - 2) if per_channel else None
    scale, bias = (0 if v is None else
                   np.abs(np.float64(v)).reshape(shape or v.shape)
                   for v in (case.inputs + [None])[1:3])
    n = np.prod([x.shape[a] for a in axes])
    deviation = np.sqrt(x.var(axes, keepdims=True)
                        + case.attrs.get("epsilon", 1e-5))
    largest = np.abs(x).max(axes, keepdims=True, initial=0)
    return n * largest / deviation * scale + bias


def of_attention(case):
    """The largest value, for each term of a score and of the two sums."""
    q, k, v = (np.abs(np.float64(x)).max(initial=0) for x in case.inputs[:3])
    scale = case.attrs.get("scale", 1)
    depth = case.inputs[0].shape[-1]
    keys = case.inputs[1].size
    return np.float64(v * (depth * q * k * scale + keys))


def of_recurrent(case, y):
    """The largest state, for each term of a gate in each step."""
    x, w, r = case.inputs[:3]
    steps = x.shape[1 if case.attrs.get("layout") else 0]
    largest = max(1, np.abs(np.float64(y)).max(initial=0))
    return np.float64(steps * (w.shape[2] + r.shape[2] + 2) * largest)


# -- running ------------------------------------------------------------------


def load_reference(model, **options):
    return limber.load(model, threads=1, reference=True, **LIMITS, **options)


def attempt(function):
    """The result of the function, or a Failure for an error of Limber."""
    try:
        return function()
    except limber.Error as error:
        return Failure(error)


def run_model(model, feeds):
    """All outputs of a loaded model, with their names."""
    return run_named(model, model.outputs, feeds)


def run_reference(model, feeds):
    return attempt(lambda: run_model(load_reference(model), feeds))


left_out = 0  # kernels, in this process so far


def settle(session):
    """All kernels that the session requests must be compiled at the end.
    Sessions of a process share them: only the first that requests a failing
    kernel reports it."""
    global left_out
    session.settle(SETTLE)
    stats = session.stats()
    before, left_out = left_out, stats.kernels_requested - stats.kernels
    assert left_out <= before, f"{left_out - before} kernels are left out"


def run_settled(model, feeds):
    """(result before settling, result after)"""
    def run():
        session = limber.load(model, **LIMITS)
        first = attempt(lambda: run_model(session, feeds))
        settle(session)
        return first, run_model(session, feeds)

    results = attempt(run)
    return (results, results) if isinstance(results, Failure) else results


# -- comparing ----------------------------------------------------------------


def ulps_apart(a, b):
    """The number of floats between a and b; NaNs are equal to each other and
    far from everything else."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    low = np.iinfo(bits).min

    def order(x):  # integers in the order of the floats; -0.0 is 0.0
        n = x.view(bits)
        return np.where(n < 0, low - n, n).astype(np.float64)

    far = np.where(np.isnan(a) & np.isnan(b), 0, np.inf)
    either = np.isnan(a) | np.isnan(b)
    return np.where(either, far, np.abs(order(a) - order(b)))


def magnitude(case, i):
    """Output i of the case with absolute values of all inputs: sum |a * b|."""
    inputs = [np.abs(x) if x is not None and x.dtype.kind == "f" else x
              for x in case.inputs]
    attrs = {k: abs(v) if isinstance(v, float) else v
             for k, v in case.attrs.items()}
    positive = replace(case, inputs=inputs, attrs=attrs)
    return run_reference(positive.model(), positive.feeds())[i]


def allowance(case, i, ref):
    """The allowed difference of finite results, besides ulps of the result."""
    eps = np.finfo(ref.dtype).eps
    if case.op in SUMS:
        n = SUMS[case.op](case, ref)
        return 2 * n * eps * np.float64(magnitude(case, i))
    if case.op in OF and (i == 0 or case.op in RECURRENT):
        of, _ = OF[case.op]
        return ULPS * eps * np.abs(of(case, ref).astype(np.float64))
    return np.zeros(ref.shape)


def too_far(case, i, got, ref):
    """Elements whose difference exceeds the allowance."""
    if isinstance(case, FusedCase):
        return case.too_far(i, got, ref)
    if ref.dtype.kind != "f":
        return got != ref
    signs = (got == 0) & (ref == 0) & (np.signbit(got) != np.signbit(ref))
    with np.errstate(all="ignore"):
        apart = np.abs(np.float64(got) - np.float64(ref))
        bad = (ulps_apart(got, ref) > ULPS) & \
            ~(apart <= allowance(case, i, ref))
    if case.op in APART:
        bad &= ~APART[case.op][0](case.inputs[0])
    return bad | signs


def difference(case, got, ref):
    """None, or how results on kernels differ from those of the reference."""
    if isinstance(got, Failure) or isinstance(ref, Failure):
        same = isinstance(got, Failure) and isinstance(ref, Failure) and \
            got.kind == ref.kind
        return None if same else f"{outcome(got)}, the reference {outcome(ref)}"
    text = names_differ(got, ref)
    if text:
        return text
    for i, (a, b) in enumerate(zip(got, ref)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {i}: {a.dtype}{list(a.shape)}, the reference's " \
                   f"{b.dtype}{list(b.shape)}"
        bad = too_far(case, i, a, b)
        if np.any(bad):
            at = tuple(int(n) for n in np.argwhere(bad)[0])
            return (f"output {i}: {np.count_nonzero(bad)} of {bad.size} "
                    f"values differ, first {list(at)}: {a[at]!r}, the "
                    f"reference's "
                    f"{b[at]!r}")
    return None


def outcome(result):
    return str(result) if isinstance(result, Failure) else "runs"


def kernels_disagree(case, ref):
    """None, or how kernels differ from `ref`, the result of run_reference."""
    if case.op in RANDOM:
        return None
    first, settled = run_settled(case.model(), case.feeds())
    for when, result in (("before settle", first), ("settled", settled)):
        text = difference(case, result, ref)
        if text:
            return f"{when}: {text}"
    return None


def check_fused(seed):
    """(case, how generated and reference kernels disagree, or None)"""
    case = FusedCase(seed)
    ref = run_reference(case.model(), case.feeds())
    if isinstance(ref, Failure):
        return case, f"the ref {ref}"
    return case, case.wrong(ref) or kernels_disagree(case, ref)

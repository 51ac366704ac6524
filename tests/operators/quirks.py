"""Intended differences of the two engines, each with its reason.

A quirk names operators and decides which cases it applies to (`holds`). It
excuses only what it explains: `mask` selects the elements of an output that are
not compared; `instead` computes the results that Limber's are compared with
where ONNX Runtime's are wrong or missing. Where the ONNX specification and ONNX
Runtime differ, Limber follows the specification.
`python tests/operators/quirks.py` prints the table.
"""

from dataclasses import replace
from typing import Callable, NamedTuple, Optional

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from case import Failure, run_theirs


class Quirk(NamedTuple):
    ops: tuple
    holds: Callable  # (case, got, want) -> bool
    reason: str
    instead: Optional[Callable] = None  # case -> expected outputs
    mask: Optional[Callable] = None  # (case, output, got, want) -> elements
    rejects: str = ""  # text of the error by which Limber rejects the case


REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
              "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
              "ReduceSum", "ReduceSumSquare")


# -- which cases --------------------------------------------------------------


def theirs_fails(case, got, want):
    return isinstance(want, Failure)


def fails_with(text):
    return lambda case, got, want: \
        isinstance(want, Failure) and text in want.text


def both_run(case, got, want):
    return not isinstance(want, Failure)


def empty(case, got, want):
    return case.inputs[0].size == 0


def any_empty(case, got, want):
    return any(x is not None and x.size == 0 for x in case.inputs)


def empty_and_minus_one(case, got, want):
    return empty(case, got, want) and -1 in case.inputs[1]


def old_half(case, got, want):
    return case.inputs[0].dtype == np.float16 and case.opset < 12


def integer(case, got, want):
    return case.inputs[0].dtype.kind in "iu" and both_run(case, got, want)


def smooth_integers(case, got, want):
    return integer(case, got, want) and bool(case.attrs.get("antialias"))


def same_shape(case, got, want):
    if not both_run(case, got, want):
        return False
    same = [a == b for a, b in zip(want[0].shape[2:], case.inputs[0].shape[2:])]
    return all(same) or any(same) and bool(case.attrs.get("antialias"))


def kept_aspect(case, got, want):
    return theirs_fails(case, got, want) and \
        "keep_aspect_ratio_policy" in case.attrs


def causal_with_past(case, got, want):
    return bool(case.attrs.get("is_causal")) and case.inputs[4] is not None


def stride_past_kernel(case, got, want):
    if not case.attrs.get("auto_pad", "").startswith("SAME"):
        return False
    return any(s > k for s, k in zip(strides_of(case), kernel_of(case)))


def one_element(case, got, want):
    return both_run(case, got, want) and want[0].size == 1


def scalar(case, got, want):
    return case.inputs[0].ndim == 0


def size_one_corner(case, got, want):
    return case.attrs.get("align_corners") == 1 and 1 in case.inputs[1][2:]


def more_outputs_than_size(case, got, want):
    return theirs_fails(case, got, want) and "num_outputs" in case.attrs


def before_12(case, got, want):
    return case.opset < 12 and both_run(case, got, want)


# -- which elements -----------------------------------------------------------


def ours_is_nan(case, i, got, want):
    return np.isnan(got) if got.dtype.kind == "f" else False


def input_is_nan(case, i, got, want):
    return np.isnan(case.inputs[0]) & np.isnan(got)


def input_is_infinite(case, i, got, want):
    return np.isinf(case.inputs[0])


def off_by_one(case, i, got, want):
    if got.dtype.kind not in "iu":
        return False
    return np.abs(got.astype(int) - want.astype(int)) <= 1


def minus_infinity(case, i, got, want):
    """-inf of the fourth output, where theirs is the lowest float."""
    return (i == 3) & (got == -np.inf) & (want == np.finfo(want.dtype).min)


def theirs_is_nan(case, i, got, want):
    return np.isnan(want) & (got == 0)


def not_positive(case, i, got, want):
    x = case.inputs[0]
    return sums(x.astype(np.int64), case) <= 0


def mask_output(case, i, got, want):
    return (i == 1) & (got == True) & (want == False)  # noqa: E712


# -- correct results ----------------------------------------------------------


def reference(case):
    """The results of ONNX's reference implementation."""
    try:
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(case.model()).run(None, case.feeds())
    except Exception as error:  # its errors have no common base class
        return Failure(error)


def kernel_of(case):
    return case.attrs.get("kernel_shape") or case.inputs[1].shape[2:]


def strides_of(case):
    return case.attrs.get("strides") or [1] * len(kernel_of(case))


def axes_of(case):
    """(axes that are reduced, or None for all; whether they are kept)"""
    axes = case.attrs.get("axes")
    if len(case.inputs) > 1 and case.inputs[1] is not None:
        axes = [int(a) for a in case.inputs[1]]
    if not axes and case.attrs.get("noop_with_empty_axes"):
        axes = []
    elif not axes:
        axes = None
    return axes if axes is None else tuple(axes), \
        bool(case.attrs.get("keepdims", 1))


def sums(x, case):
    axes, keep = axes_of(case)
    return x.sum(axis=axes, keepdims=keep, dtype=x.dtype)


def reduced_nothing(case):
    """Reductions of no elements: their neutral elements."""
    x = case.inputs[0]
    axes, keep = axes_of(case)
    if axes == ():
        return [x]
    shape = np.add.reduce(np.zeros(x.shape), axes, keepdims=keep).shape
    lowest, highest = {"f": (-np.inf, np.inf), "b": (False, True)}.get(
        x.dtype.kind) or (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    value = {"ReduceProd": 1, "ReduceMax": lowest, "ReduceMin": highest,
             "ReduceMean": np.nan if x.dtype.kind == "f" else 0,
             "ReduceLogSum": -np.inf if x.dtype.kind == "f" else 0,
             "ReduceLogSumExp": lowest}
    return [np.full(shape, value.get(case.op, 0), x.dtype)]


def index_of_nothing(case):
    x, axis = case.inputs[0], case.attrs.get("axis", 0)
    shape = list(x.shape)
    shape[axis] = 1
    if not case.attrs.get("keepdims", 1):
        del shape[axis]
    return [np.zeros(shape, np.int64)]


def log_sum_exp(case):
    x = case.inputs[0]
    y = np.log(sums(np.exp(x.astype(np.float64)), case))
    return [np.trunc(y).astype(x.dtype)]


def resized_as_float(case):
    """ONNX Runtime's result in float32, then rounded and saturated."""
    x = case.inputs[0]
    real = replace(case, inputs=[x.astype(np.float32), *case.inputs[1:]])
    y = run_theirs(real.model(), real.feeds())
    if isinstance(y, Failure):
        return y
    y = y[0].astype(np.float64)
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        y = np.clip(np.rint(y), info.min, info.max)
    return [y.astype(x.dtype)]


def matmul(case):
    with np.errstate(all="ignore"):
        return [np.asarray(np.matmul(*case.inputs[:2]))]


def gemm(case):
    a, b, c = (list(case.inputs) + [None])[:3]
    attrs = case.attrs
    a = a.T if attrs.get("transA") else a
    b = b.T if attrs.get("transB") else b
    y = attrs.get("alpha", 1.0) * (a @ b)
    if c is not None:
        y = y + attrs.get("beta", 1.0) * c
    return [y.astype(a.dtype)]


def einsum(case):
    """numpy's, which broadcasts dims of 1 under an ellipsis."""
    rule = case.attrs["equation"].replace(" ", "")
    if isinstance(rule, bytes):
        rule = rule.decode()
    return [np.asarray(np.einsum(rule, *case.inputs), case.inputs[0].dtype)]


def reshaped_to_nothing(case):
    """-1 is the number of the input's elements divided by the other dims,
    without dims of 0."""
    x, want = case.inputs[0], list(case.inputs[1])
    keep = not case.attrs.get("allowzero")
    dims = [x.shape[i] if d == 0 and keep else int(d)
            for i, d in enumerate(want)]
    at = dims.index(-1)
    others = int(np.prod([d for d in dims if d > 0]))
    whole = int(np.prod([d for d in x.shape if d > 0]))
    fits = 0 in dims and dims.count(0) == x.shape.count(0) and \
        whole % others == 0
    dims[at] = whole // others if fits else 0
    return [np.zeros(dims, x.dtype)]


def explicit_pads(case):
    """ONNX Runtime's result with the pads that the specification defines for
    auto_pad."""
    x, kernel = case.inputs[0], kernel_of(case)
    dilations = case.attrs.get("dilations") or [1] * len(kernel)
    begins, ends = [], []
    for n, k, s, d in zip(x.shape[2:], kernel, strides_of(case), dilations):
        total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
        small, large = total // 2, total - total // 2
        upper = case.attrs["auto_pad"] == "SAME_UPPER"
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    attrs = {k: v for k, v in case.attrs.items()
             if k not in ("auto_pad", "ceil_mode")}
    again = replace(case, attrs={**attrs, "pads": begins + ends})
    return run_theirs(again.model(), again.feeds())


def explicit_output(case):
    """ONNX Runtime's result with output_shape = input * stride."""
    shape = [n * s for n, s in zip(case.inputs[0].shape[2:], strides_of(case))]
    again = replace(case, attrs={**case.attrs, "output_shape": shape})
    return run_theirs(again.model(), again.feeds())


def explicit_mask(case):
    """ONNX Runtime's result with the causal mask as an input: query i attends
    to keys up to i + past."""
    q, k, _, mask, past = case.inputs[:5]
    flat = q.ndim == 3
    q_len, k_len = (x.shape[1 if flat else 2] for x in (q, k))
    before = past.shape[2]
    seen = np.tri(q_len, before + k_len, before, dtype=bool)
    if mask is None:
        mask = seen
    elif mask.dtype == np.bool_:
        mask = mask & seen
    else:
        mask = np.where(seen, mask, -np.inf).astype(mask.dtype)
    inputs = [*case.inputs[:3], mask, *case.inputs[4:]]
    again = replace(case, inputs=inputs, attrs={**case.attrs, "is_causal": 0},
                    shapes={**case.shapes, 3: mask.shape})
    return run_theirs(again.model(), again.feeds())


def window_of_one(case):
    dtype = case.attrs.get("output_datatype", TensorProto.FLOAT)
    return [np.ones(1, helper.tensor_dtype_to_np_dtype(dtype))]


def known_sizes(case):
    """ONNX Runtime's result with the sizes as a constant."""
    return resized_as_float(replace(case, constants=(*case.constants, 3)))


def resized(case):
    """By ONNX's reference, which has no Resize of opset 10."""
    if case.opset >= 11 or case.op == "Upsample":
        return reference(case)
    x, scales = case.inputs
    return reference(replace(
        case, opset=13, inputs=[x, None, scales], constants=(),
        shapes={0: x.shape, 2: scales.shape},
        attrs={**case.attrs, "coordinate_transformation_mode": "asymmetric",
               "nearest_mode": "floor"}))


def resized_by_policy(case):
    """By ONNX's reference. It does not round the sizes that the policy gives
    where corners are aligned, so they are passed explicitly there."""
    mode = case.attrs.get("coordinate_transformation_mode")
    if mode != "align_corners":
        return reference(case)
    x, sizes = case.inputs[0], case.inputs[3]
    attrs = dict(case.attrs)
    policy = attrs.pop("keep_aspect_ratio_policy")
    scales = [int(s) / n for s, n in zip(sizes, x.shape)]
    scale = min(scales) if policy == "not_larger" else max(scales)
    final = np.array([int(np.floor(scale * n + 0.5)) for n in x.shape])
    return reference(replace(case, attrs=attrs,
                             inputs=[*case.inputs[:3], final]))


def no_rows(case):
    return [np.zeros((0, int(bool(case.inputs[0]))), np.int64)]


def affine_grid(case):
    theta, size = case.inputs[:2]
    line = [np.linspace(-1, 1, n) if n > 1 else np.full(n, -1.0)
            for n in size[2:]]
    grid = np.meshgrid(*line, indexing="ij")[::-1]  # x first
    points = np.stack([*grid, np.ones(grid[0].shape)], -1)
    y = np.einsum("nij,...j->n...i", theta.astype(np.float64), points)
    return [y.astype(theta.dtype)]


def split_in_parts(case):
    x = case.inputs[0]
    axis, count = case.attrs.get("axis", 0), case.attrs["num_outputs"]
    size = -(-x.shape[axis] // count)
    return [np.take(x, range(min(i * size, x.shape[axis]),
                             min((i + 1) * size, x.shape[axis])), axis)
            for i in range(count)]


QUIRKS = [
    Quirk(REDUCTIONS, empty,
          "an empty input: theirs keeps reduced dims of an input that has a "
          "0, and has 0 as the mean of nothing; ours has the shape that the "
          "text gives", instead=reduced_nothing),
    Quirk(("ArgMax", "ArgMin"), empty,
          "an empty input: as above", instead=index_of_nothing),
    Quirk(("ArgMax", "ArgMin"), empty,
          "an empty axis has no index: ours rejects it, theirs returns the "
          "input's shape", rejects="is empty, so there is no index to return"),
    Quirk(("ReduceMax", "ReduceMin", "ScatterElements", "ScatterND"), both_run,
          "NaN: ours passes it on, as numpy does; theirs depends on its position",
          mask=ours_is_nan),
    Quirk(("ReduceLogSumExp",), integer,
          "integers: theirs truncates every exponential, ours the result",
          instead=log_sum_exp),
    Quirk(("ReduceLogSum",), integer,
          "integers: the logarithm of a sum that is not positive",
          mask=not_positive),
    Quirk(("Resize", "Upsample"), integer,
          "integers: ours rounds and saturates as ONNX's reference does, "
          "theirs truncates", mask=off_by_one),
    Quirk(("Resize",), smooth_integers,
          "integers with antialias: theirs counts in fixed point",
          instead=resized_as_float, mask=off_by_one),
    Quirk(("Resize", "Upsample"), same_shape,
          "a dim that keeps its size: theirs copies, whatever the scale is",
          instead=resized, mask=off_by_one),
    Quirk(("Resize",), kept_aspect,
          "keep_aspect_ratio_policy without axes scales the batch too, which "
          "theirs rejects", instead=resized_by_policy, mask=off_by_one),
    Quirk(("Resize",), fails_with("'sizes' (0)"),
          "theirs infers no shape from sizes that it does not know",
          instead=known_sizes, mask=off_by_one),
    Quirk(("ConvTranspose",), stride_past_kernel,
          "auto_pad: the text makes the output input * stride even where the "
          "kernel is smaller than the stride; theirs does not pad outputs",
          instead=explicit_output),
    Quirk(("MatMul",), any_empty,
          "no elements: theirs fails, or does not broadcast the batch",
          instead=matmul),
    Quirk(("Gemm",), empty, "no elements in a sum: theirs forgets beta",
          instead=gemm),
    Quirk(("Reshape",), empty_and_minus_one,
          "-1 beside a dim of 0, which leaves open what it is: ours takes "
          "what other batches have, else 0", instead=reshaped_to_nothing),
    Quirk(("Einsum",), theirs_fails,
          "theirs does not broadcast dims of 1 under an ellipsis",
          instead=einsum),
    Quirk(("Clip",), old_half,
          "float16 before opset 12: a bound that is left out is the lowest "
          "float32 there; ours is that of float16, as later",
          mask=input_is_infinite),
    Quirk(("MaxPool", "AveragePool", "LpPool"), stride_past_kernel,
          "auto_pad with strides past the kernel: theirs pads by less than 0, "
          "or fails", instead=explicit_pads),
    Quirk(("Sign",), both_run, "NaN: theirs is 0 in float16, NaN else",
          mask=input_is_nan),
    Quirk(("Attention",), both_run,
          "masked scores in qk_matmul_output: ours is -inf as in ONNX's "
          "reference, theirs the lowest float", mask=minus_infinity),
    Quirk(("Attention",), causal_with_past,
          "causal with a past: ours lets query i see keys up to i + past, as "
          "the text of opset 24 says; theirs counts from the last key",
          instead=explicit_mask, mask=minus_infinity),
    Quirk(("MeanVarianceNormalization",), both_run,
          "one element has variance 0: theirs divides 0 by 0",
          mask=theirs_is_nan),
    Quirk(("HammingWindow", "HannWindow", "BlackmanWindow"), one_element,
          "a symmetric window of one: theirs divides 0 by 0",
          instead=window_of_one),
    Quirk(("NonZero",), scalar,
          "a scalar: the text gives it no row, theirs has one",
          instead=no_rows),
    Quirk(("AffineGrid",), size_one_corner,
          "aligned corners of a size of 1: ours is -1 as ONNX's reference, "
          "theirs is 0", instead=affine_grid),
    Quirk(("QuantizeLinear", "DequantizeLinear"), theirs_fails,
          "theirs takes one scale for one value per tensor, not for a block",
          instead=reference),
    Quirk(("Split",), more_outputs_than_size,
          "more outputs than elements: ours makes the last ones empty",
          instead=split_in_parts),
    Quirk(("Dropout",), before_12,
          "the mask outside training, which text before opset 12 leaves open: "
          "ours is true, as later; theirs is false", mask=mask_output),
]


if __name__ == "__main__":
    for quirk in QUIRKS:
        print(f"{', '.join(quirk.ops)}: {quirk.reason}")

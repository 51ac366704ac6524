"""Where the two engines differ on purpose, each with its reason.

A quirk is (operators, holds, reason); holds(case, got, want) says of which
disagreements it is the cause. Where ONNX's text and ONNX Runtime differ,
Limber follows the text. `python tests/operators/quirks.py` prints the table.
"""

import numpy as np

from case import Failure

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
              "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
              "ReduceSum", "ReduceSumSquare", "ArgMax", "ArgMin")


def any_case(case, got, want):
    return True


def theirs_fails(case, got, want):
    return isinstance(want, Failure) and not isinstance(got, Failure)


def both_run(got, want):
    return not isinstance(got, Failure) and not isinstance(want, Failure)


def empty(case, got, want):
    return case.inputs[0].size == 0


def any_empty(case, got, want):
    return any(x is not None and x.size == 0 for x in case.inputs)


def empty_and_minus_one(case, got, want):
    return empty(case, got, want) and -1 in case.inputs[1]


def old_half(case, got, want):
    return case.inputs[0].dtype == np.float16 and case.opset < 12


def integer(case, got, want):
    return case.inputs[0].dtype.kind in "iu" and both_run(got, want)


def has_nan(case, got, want):
    return any(x is not None and x.dtype.kind == "f" and np.isnan(x).any()
               for x in case.inputs)


def off_by_one(case, got, want):
    return integer(case, got, want) and got[0].shape == want[0].shape and \
        np.all(np.abs(got[0].astype(int) - want[0].astype(int)) <= 1)


def smooth_integers(case, got, want):
    return integer(case, got, want) and bool(case.attrs.get("antialias"))


def same_shape(case, got, want):
    if not both_run(got, want):
        return False
    same = [a == b for a, b in zip(want[0].shape[2:], case.inputs[0].shape[2:])]
    return all(same) or any(same) and bool(case.attrs.get("antialias"))


def kept_aspect(case, got, want):
    return theirs_fails(case, got, want) and \
        "keep_aspect_ratio_policy" in case.attrs


def masked_is_lowest(case, got, want):
    """Equal but for -inf, where theirs is the lowest float."""
    if not both_run(got, want) or len(got) < 4:
        return False
    lowest = np.finfo(want[3].dtype).min
    return np.allclose(np.maximum(got[3], lowest), want[3], 1e-4, 1e-5)


def more_keys_than_queries(case, got, want):
    return bool(case.attrs.get("is_causal")) and case.inputs[4] is not None


def only_nan_differs(case, got, want):
    if both_run(got, want) and want[0].size == 1:
        return True
    return both_run(got, want) and np.isnan(want[0]).any() and \
        np.allclose(got[0][~np.isnan(want[0])], want[0][~np.isnan(want[0])])


def unknown_sizes(case, got, want):
    return theirs_fails(case, got, want) and "'sizes' (0)" in want.text


def stride_past_kernel(case, got, want):
    if not case.attrs.get("auto_pad", "").startswith("SAME"):
        return False
    kernel = case.attrs.get("kernel_shape") or case.inputs[1].shape[2:]
    strides = case.attrs.get("strides") or [1] * len(kernel)
    return any(s > k for s, k in zip(strides, kernel))


def scalar(case, got, want):
    return case.inputs[0].ndim == 0


def size_one_corner(case, got, want):
    return case.attrs.get("align_corners") == 1 and 1 in case.inputs[1][2:]


def one_block(case, got, want):
    return theirs_fails(case, got, want) and "block_size" in case.attrs


def more_outputs_than_size(case, got, want):
    return theirs_fails(case, got, want) and "num_outputs" in case.attrs


def only_mask_differs(case, got, want):
    return case.opset < 12 and both_run(got, want) and len(got) == 2 and \
        np.array_equal(got[0], want[0], equal_nan=True)


QUIRKS = [
    (REDUCTIONS, empty,
     "an empty input: theirs keeps reduced dims of an input that has a 0, and "
     "has 0 as the mean of nothing; ours has the shape that the text gives"),
    (("ReduceMax", "ReduceMin", "ScatterElements", "ScatterND"), has_nan,
     "NaN: ours passes it on, as numpy does; theirs depends on its place"),
    (("ReduceLogSumExp",), integer,
     "integers: theirs truncates every exponential, ours the result"),
    (("ReduceLogSum",), integer,
     "integers: the logarithm of a sum that is not positive"),
    (("Resize", "Upsample"), off_by_one,
     "integers: ours rounds and saturates as ONNX's reference does, theirs "
     "truncates"),
    (("Resize",), smooth_integers,
     "integers with antialias: theirs counts in fixed point"),
    (("Resize", "Upsample"), same_shape,
     "a dim that keeps its size: theirs copies, whatever the scale is"),
    (("Resize",), kept_aspect,
     "keep_aspect_ratio_policy without axes scales the batch too, which "
     "theirs refuses"),
    (("Resize",), unknown_sizes,
     "theirs infers no shape from sizes that it does not know"),
    (("ConvTranspose",), stride_past_kernel,
     "auto_pad: the text makes the output input * stride even where the "
     "kernel is smaller than the stride; theirs does not pad outputs"),
    (("MatMul",), any_empty,
     "no elements: theirs fails, or does not broadcast the batch"),
    (("Gemm",), empty, "no elements in a sum: theirs forgets beta"),
    (("Reshape",), empty_and_minus_one,
     "-1 beside a dim of 0, which leaves open what it is: ours takes what other "
     "batches have, else 0"),
    (("Einsum",), theirs_fails,
     "theirs does not broadcast dims of 1 under an ellipsis"),
    (("Clip",), old_half,
     "float16 before opset 12: a bound that is left out is the lowest float32 "
     "there; ours is that of float16, as later"),
    (("MaxPool", "AveragePool", "LpPool"), stride_past_kernel,
     "auto_pad with strides past the kernel: theirs pads by less than 0, "
     "or fails"),
    (("Sign",), has_nan, "NaN: theirs is 0 in float16, NaN else"),
    (("Attention",), masked_is_lowest,
     "masked scores in qk_matmul_output: ours is -inf as in ONNX's reference, "
     "theirs the lowest float"),
    (("Attention",), more_keys_than_queries,
     "causal with a past: ours lets query i see keys up to i + past, as the "
     "text of opset 24 says; theirs counts from the last key"),
    (("MeanVarianceNormalization",), only_nan_differs,
     "one element has variance 0: theirs divides 0 by 0"),
    (("HammingWindow", "HannWindow", "BlackmanWindow"), only_nan_differs,
     "a symmetric window of one: theirs divides 0 by 0"),
    (("NonZero",), scalar,
     "a scalar: the text gives it no row, theirs has one"),
    (("AffineGrid",), size_one_corner,
     "aligned corners of a size of 1: ours is -1 as ONNX's reference, theirs "
     "is 0"),
    (("QuantizeLinear", "DequantizeLinear"), one_block,
     "theirs takes one scale for one value per tensor, not for a block"),
    (("Split",), more_outputs_than_size,
     "more outputs than elements: ours makes the last ones empty"),
    (("Dropout",), only_mask_differs,
     "the mask outside training, which text before opset 12 leaves open: ours "
     "is true, as later; theirs is false"),
]


def excused(case, got, want):
    return any(case.op in ops and holds(case, got, want)
               for ops, holds, _ in QUIRKS)


if __name__ == "__main__":
    for operators, _, reason in QUIRKS:
        print(f"{', '.join(operators)}: {reason}")

"""Operator name -> the function that draws a case of it."""

from case import run_theirs, Failure
from compare import REJECTED, disagreement
from draw import Draw
from kernels import kernels_disagree, run_reference

GENERATORS = {}
ATTEMPTS = 40


def operator(*names):
    def register(function):
        GENERATORS.update({name: function for name in names})
        return function
    return register


def attempt(op, seed, number):
    """(case, result of reference kernels, of ONNX Runtime) of one draw."""
    case = GENERATORS[op](Draw(op, seed, number))
    model, feeds = case.model(), case.feeds()
    return case, run_reference(model, feeds), run_theirs(model, feeds)


def check(op, seed):
    """Draws until ONNX Runtime supports the operator at these dtypes. Returns
    the case and how the engines, or generated and reference kernels, disagree,
    or REJECTED; None if ONNX Runtime supports no draw."""
    for number in range(ATTEMPTS):
        case, got, want = attempt(op, seed, number)
        text = disagreement(case, got, want)
        bug = isinstance(got, Failure) and not got.rejects
        if bug or not (isinstance(want, Failure) and want.unsupported):
            if text in (None, REJECTED):
                text = kernels_disagree(case, got) or text
            return case, text
    return None, None

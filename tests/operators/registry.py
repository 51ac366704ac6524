"""Operator name -> the function that draws a case of it."""

from case import run_theirs, Failure
from compare import REFUSED, disagreement
from draw import Draw
from kernels import kernels_disagree, run_on_host

GENERATORS = {}
ATTEMPTS = 40


def operator(*names):
    def register(function):
        GENERATORS.update({name: function for name in names})
        return function
    return register


def attempt(op, seed, number):
    """(case, the host's result, ONNX Runtime's) of one draw."""
    case = GENERATORS[op](Draw(op, seed, number))
    model, feeds = case.model(), case.feeds()
    return case, run_on_host(model, feeds), run_theirs(model, feeds)


def check(op, seed):
    """Draws until ONNX Runtime has the operator at these dtypes. Returns the
    case and how the engines, or kernels and host, disagree about it, or
    REFUSED; None if it never has."""
    for number in range(ATTEMPTS):
        case, got, want = attempt(op, seed, number)
        text = disagreement(case, got, want)
        broken = isinstance(got, Failure) and not got.refuses
        if broken or not (isinstance(want, Failure) and want.unsupported):
            if text in (None, REFUSED):
                text = kernels_disagree(case, got) or text
            return case, text
    return None, None

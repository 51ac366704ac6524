"""Operator name -> the function that draws a case of it."""

from case import run_ours, run_theirs, Failure
from compare import disagreement
from draw import Draw

GENERATORS = {}
ATTEMPTS = 40


def operator(*names):
    def register(function):
        GENERATORS.update({name: function for name in names})
        return function
    return register


def attempt(op, seed, number):
    """(case, Limber's result, ONNX Runtime's) of one draw."""
    case = GENERATORS[op](Draw(op, seed, number))
    model, feeds = case.model(), case.feeds()
    return case, run_ours(model, feeds), run_theirs(model, feeds)


def check(op, seed):
    """Draws until ONNX Runtime has the operator at these dtypes. Returns the
    case and how the engines disagree about it; None if it never has."""
    for number in range(ATTEMPTS):
        case, got, want = attempt(op, seed, number)
        if not (isinstance(want, Failure) and want.unsupported):
            return case, disagreement(case, got, want)
    return None, None

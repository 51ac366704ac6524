"""Runs all cases once, in worker processes because an engine may crash: on the
instruction set of this machine, and some again at x86-64-v3."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

import suite
from workers import run_isolated

SECONDS = 60  # a case that takes longer has failed
MANY = {"graph": 20, "fused": 15}  # cases for each case of an operator
PORTION = {"native": 1, "x86-64-v3": 4}  # one of N cases
REPRO = "build/venv/bin/python tests/operators/repro.py"


def pytest_addoption(parser):
    count = int(os.environ.get("LIMBER_OPERATOR_CASES", 40))
    parser.addoption("--cases", type=int, default=count)


@pytest.fixture(scope="session")
def cases(request):
    return request.config.getoption("cases")


def run_case(job):
    """Raises, with a message, when the engines disagree."""
    case, text = suite.check(*job)
    if case is None:
        raise AssertionError(suite.NO_KERNEL)
    if text == suite.REJECTED:
        raise AssertionError(text)
    if text:
        raise AssertionError(f"{case}\n  {text}")


@contextlib.contextmanager
def environment(values):
    """Sets the environment of processes started inside the `with` block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def run_at(isa, counts):
    """(op, None or one of NO_RESULT or how results disagree) of each case."""
    jobs = {f"{op} {seed}": (op, seed) for op, count in counts.items()
            for seed in range(0, count, PORTION[isa])}
    with environment({"LIMBER_ISA": isa}):
        results = run_isolated(run_case, jobs, 2, SECONDS)
    for name, text in results.items():
        if text and text not in suite.NO_RESULT:
            text = f"  LIMBER_ISA={isa} {REPRO} {name}\n  {text}"
        yield jobs[name][0], text


@pytest.fixture(scope="session")
def outcomes(cases):
    """op -> for each case None, one of NO_RESULT, or how results disagree."""
    counts = {op: cases * MANY.get(op, 1)
              for op in (*suite.GENERATORS, *MANY)}
    found = {op: [] for op in counts}
    for isa in PORTION:
        for op, text in run_at(isa, counts):
            found[op].append(text)
    return found

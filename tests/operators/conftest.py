"""Runs all cases once, in worker processes, as either engine may crash."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

import suite
from workers import run_isolated

SECONDS = 20  # a case that takes longer has failed
GRAPHS = 20  # random graphs for each case of an operator
REPRO = "  build/venv/bin/python tests/operators/repro.py"


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
    if text:
        raise AssertionError(f"{case}\n  {text}")


@pytest.fixture(scope="session")
def outcomes(cases):
    """op -> for each case None, NO_KERNEL, or how the engines disagree."""
    counts = {op: cases for op in suite.GENERATORS} | {"graph": cases * GRAPHS}
    jobs = {f"{op} {seed}": (op, seed)
            for op, count in counts.items() for seed in range(count)}
    found = {op: [] for op in counts}
    for name, text in run_isolated(run_case, jobs, 2, SECONDS).items():
        if text and text != suite.NO_KERNEL:
            text = f"{REPRO} {name}\n  {text}"
        found[jobs[name][0]].append(text)
    return found

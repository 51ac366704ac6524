"""Single operators, drawn at random, against ONNX Runtime.

LIMBER_OPERATOR_CASES=N (or --cases N) is the number of cases per operator;
they are the same ones every time. A failure prints how to run it alone.
"""

import re
from pathlib import Path

import pytest
import suite

OPS_DEF = Path(__file__).parents[2] / "src/graph/ops.def"

# Operators without a generator, and why.
WITHOUT = {
    "CausalConvWithState": "newer than ONNX Runtime's opsets",
    "LinearAttention": "newer than ONNX Runtime's opsets",
    "SwiGLU": "newer than ONNX Runtime's opsets",
    "If": "in graphs.py",
    "Loop": "in graphs.py",
    "Scan": "in graphs.py",
}

# Operators that this ONNX Runtime does not support at all.
NO_REFERENCE = set()

# The share of all cases, and of one operator's, that both engines may reject.
MOST_REFUSED, MOST_REFUSED_OF_ONE = 0.01, 0.1


def test_every_operator_has_a_generator():
    rows = re.findall(r"^LB_(?:OP|CONTROL)\((\w+)", OPS_DEF.read_text(), re.M)
    older = {"Upsample", "Scatter"}  # the importer replaces them by newer ones
    assert set(rows) - set(WITHOUT) == set(suite.GENERATORS) - older


@pytest.mark.parametrize("op", suite.GENERATORS)
def test_agrees_with_onnx_runtime(op, outcomes, cases):
    """All cases of one operator; some of them must have run."""
    bad = [text for text in outcomes[op]
           if text not in (None, *suite.NO_RESULT)]
    assert not bad, "\n".join(bad)
    ran = outcomes[op].count(None)
    assert (ran > 0) != (op in NO_REFERENCE), f"{ran} of {cases} cases ran"


def test_few_cases_are_rejected_by_both_engines(outcomes):
    """A case that neither engine runs tests nothing."""
    rejected = {op: texts.count(suite.REJECTED)
                for op, texts in outcomes.items()}
    total = sum(map(len, outcomes.values()))
    most = max(2, MOST_REFUSED * total)
    assert sum(rejected.values()) <= most, f"of {total} cases: {rejected}"
    many = {op: count for op, count in rejected.items()
            if count > max(2, MOST_REFUSED_OF_ONE * len(outcomes[op]))}
    assert not many, f"of {total} cases: {many}"

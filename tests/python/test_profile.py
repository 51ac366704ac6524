"""session.profile: the steps of a run."""

import numpy as np
import pytest

import limber


def feeds(rows):
    ones = np.ones((1, rows), np.int64)
    return {n: ones
            for n in ("input_ids", "attention_mask", "token_type_ids")}


@pytest.fixture
def steps(models):
    session = limber.InferenceSession(models / "minilm.onnx")
    return session.profile(None, feeds(8))


def test_steps_come_in_order_and_none_is_empty(steps):
    assert len(steps) > 20
    for a, b in zip(steps, steps[1:]):
        assert a["start_ns"] <= a["end_ns"] <= b["start_ns"]
    assert all(s["bytes"] > 0 for s in steps)


def test_tiers_and_kernels_agree(steps):
    for s in steps:
        assert (s["tier"] == "reference") == (s["kernel"] == "")
        assert (s["tier"] == "reference") == (s["outer"] == 0)


def test_matmuls_are_counted(steps):
    kernels = [s for s in steps if s["op"] == "MatMul" and s["kernel"]]
    for s in kernels:
        least = 2 * s["rows"] * s["cols"] * s["k"] * s["outer"]
        assert s["flops"] >= least


def test_wrong_inputs_are_rejected_as_by_run(models):
    model = limber.load(models / "minilm.onnx")
    with pytest.raises(limber.Error, match="missing input"):
        model.profile(None, {})

"""With LIMBER_FUSION=live, the data that runs meet decide what is fused: the
same model leaves padding out where there is some, and not where there is none.
"""

import numpy as np
import pytest

import limber
import reference
import test_ragged

pytestmark = pytest.mark.needs_kernels


@pytest.fixture(scope="module")
def encoder():
    """Large enough that its positions cost more than reading their mask."""
    return test_ragged.encoder_graphs.distilbert(
        count=2, hidden=128, heads=2, inner=256).SerializeToString()


def open_as(model, fusion):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIMBER_FUSION", fusion)
        patch.delenv("LIMBER_FUSION_TRIALS", raising=False)
        return limber.InferenceSession(model)


@pytest.fixture
def engines(encoder):
    return open_as(encoder, "live"), reference.session(encoder)


def padded(rng):
    """Eight sequences, about half of whose positions are padding."""
    return test_ragged.right_padded(rng, 8, int(rng.integers(30, 60)))


def full(rng):
    return np.ones([8, int(rng.integers(30, 60))], bool)


def run(engines, draw, rng, runs):
    """Runs fresh batches; returns how many runs left padding out."""
    live, theirs = engines
    before = live.stats().ragged_runs
    for i in range(runs):
        feeds = test_ragged.draw(theirs, draw(rng), np.int64, rng)
        [got] = live.run(None, feeds)
        if i % 20 == 0:
            [want] = theirs.run(None, feeds)
            reference.assert_close("sentence_embedding", got, want)
        if i in (20, 40):
            live.settle(600)
    return live.stats().ragged_runs - before


def test_padding_that_runs_meet_is_left_out(engines):
    rng = np.random.default_rng(1)
    assert run(engines, padded, rng, 100) > 10
    assert run(engines, padded, rng, 100) > 60


def test_full_masks_are_never_fused(engines):
    rng = np.random.default_rng(2)
    assert run(engines, full, rng, 150) == 0


def test_other_data_change_the_decision(engines):
    rng = np.random.default_rng(3)
    assert run(engines, full, rng, 80) == 0
    assert run(engines, padded, rng, 200) > 50
    assert run(engines, full, rng, 100) == 0
    assert run(engines, padded, rng, 200) > 50


def test_static_fusion_computes_padding(encoder):
    session = open_as(encoder, "static")
    rng = np.random.default_rng(4)
    assert run((session, reference.session(encoder)), padded, rng, 60) == 0

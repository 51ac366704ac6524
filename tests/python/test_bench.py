"""bench/: intervals hold what they should, and a dying engine is an answer."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import fleet
import stats


def test_a_ratio_of_constant_times_is_certain():
    ratio = stats.Ratio([[4.0] * 7, [3.0] * 7], [2.0] * 7)
    assert ratio.value == 1.5
    assert ratio.interval == [1.5, 1.5]


def test_intervals_hold_the_truth_nineteen_times_in_twenty():
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        ours, theirs = rng.lognormal(0, 0.1, (2, 9))
        low, high = stats.Ratio([theirs], ours).interval
        held += low <= 1 <= high
    assert 180 <= held < 200


def test_noise_of_a_round_that_all_engines_share_does_not_widen_a_ratio():
    noise = np.random.default_rng(7).lognormal(0, 0.3, 9)
    low, high = stats.Ratio([2 * noise], noise).interval
    assert low == pytest.approx(2) and high == pytest.approx(2)


@pytest.fixture
def worker():
    found = fleet.Worker("no such engine", "minilm", 1, dict(os.environ))
    yield found
    found.close()


def test_what_an_engine_refuses_is_an_error_and_the_worker_goes_on(worker):
    for _ in range(2):
        with pytest.raises(fleet.Failed, match="no such engine"):
            worker("open")


def test_a_killed_worker_says_by_what(worker):
    os.kill(worker.process.pid, signal.SIGILL)
    with pytest.raises(fleet.Failed, match="SIGILL"):
        worker("open")

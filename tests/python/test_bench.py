"""bench/: intervals have the right coverage, and a failing engine is
reported."""

import os
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "models")]

import decoder
import rampup
import fleet
import plot
import shapes
import stats


def test_a_ratio_of_constant_times_is_certain():
    ratio = stats.Ratio([[4.0] * 7, [3.0] * 7], [2.0] * 7)
    assert ratio.value == 1.5
    assert ratio.interval == [1.5, 1.5]


def test_intervals_contain_the_truth_nineteen_times_in_twenty():
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


def test_left_out_chunks_do_not_change_the_weight_of_a_range():
    def mean(step):
        chunks = [first for span in decoder.RANGES
                  for first in decoder.chunks_of(*span, step)]
        times = np.array([[first >= 512 for first in chunks]], float)
        return decoder.mean_over(chunks, (64, 1024), times)
    assert mean(1) == pytest.approx(512 / 960)
    assert mean(4) == pytest.approx(512 / 960)


@pytest.fixture
def worker():
    found = fleet.Worker("no such engine", "minilm", 1, dict(os.environ))
    yield found
    found.close()


def test_an_error_of_an_engine_is_reported_and_the_worker_continues(worker):
    for _ in range(2):
        with pytest.raises(fleet.Failed, match="no such engine"):
            worker("open")


def test_a_killed_worker_reports_the_signal(worker):
    os.kill(worker.process.pid, signal.SIGILL)
    with pytest.raises(fleet.Failed, match="SIGILL"):
        worker("open")


def test_a_plot_has_every_point_inside_its_frame():
    points = [(0.07, 12.0), (1.0, 0.3), (950.0, 88.0)]
    tree = ElementTree.fromstring(
        plot.scatter("title", ("x", "y"), {"one": points, "two": points[:1]}))
    circles = [c for c in tree.iter() if c.tag.endswith("circle")]
    dots = [c for c in circles if c.get("r") == "2"]
    assert len(dots) == 4 and len(circles) == 6
    for dot in dots:
        assert plot.LEFT <= float(dot.get("cx")) <= plot.WIDTH - 150
        assert plot.TOP <= float(dot.get("cy")) <= plot.HEIGHT - plot.BOTTOM


def test_curves_are_inside_their_frame():
    points = [(1, 0.4), (30, 0.97), (2000, 3.0)]
    tree = ElementTree.fromstring(plot.curves(
        "title", ("x", "y"), {"one": points}, high=1.2, mark=0.95))
    drawn = [c for c in tree.iter() if c.tag.endswith("polyline")]
    assert len(drawn) == 1
    places = [tuple(map(float, p.split(",")))
              for p in drawn[0].get("points").split()]
    assert len(places) == 3
    for x, y in places:
        assert plot.LEFT <= x <= plot.WIDTH - 150
        assert plot.TOP <= y <= plot.HEIGHT - plot.BOTTOM


def test_a_share_compares_runs_with_the_final_times_of_the_same_shapes():
    curve = rampup.Curve([4.0, 2.0, 2.0, 1.0], [2.0, 1.0, 2.0, 1.0])
    assert curve.share(0) == 0.5
    assert curve.share(1) == pytest.approx(5 / 8)
    assert curve.share_at(8.1) == 1
    several = rampup.Curve([4.0, 2.0], [2.0, 1.0], [0.5, 0.7, 0.6])
    assert several.share(0) == 0.6
    assert several.points()[0] == (1, 0.6)
    assert several.share(1) == 0.5


def test_shapes_of_a_stream_are_all_different():
    for model in shapes.load().values():
        found = [tuple(d.items()) for d in model.stream_draws(100, seed=1)]
        assert len(set(found)) == len(found) > 30

"""Medians, ratios of medians, and their bootstrap intervals."""

import numpy as np

DRAWS = 2000


def median(values):
    return float(np.median(values))


def geomean(values):
    return float(np.exp(np.mean(np.log(values)))) if len(values) else None


def resample(n, seed=1):
    """DRAWS bootstrap samples of n indices. Equal for equal n, so that a round
    is drawn with all its engines."""
    return np.random.default_rng(seed).integers(0, n, (DRAWS, n))


def drawn_medians(values):
    values = np.asarray(values)
    return np.median(values[resample(len(values))], axis=1)


def interval(draws):
    """The central 95 %."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return [float(low), float(high)]


class Ratio:
    """min over `above` of the median, divided by the median of `below`; each a
    list of times, one per round."""

    def __init__(self, above, below):
        self.value = min(map(median, above)) / median(below)
        tops = [drawn_medians(times) for times in above]
        self.draws = np.min(tops, axis=0) / drawn_medians(below)
        self.interval = interval(self.draws)

    def as_json(self):
        return {"value": self.value, "interval": self.interval}


def geomean_of(ratios):
    """Geometric mean of Ratios, with its interval."""
    if not ratios:
        return None
    draws = np.exp(np.mean([np.log(r.draws) for r in ratios], axis=0))
    return {"value": geomean([r.value for r in ratios]),
            "interval": interval(draws)}

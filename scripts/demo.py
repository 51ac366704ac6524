"""The demonstration: eight models, one load each, a new shape each request.

For each request: the time of the first run at that shape, on built-in kernels;
the time after kernels were compiled for it (settled); ONNX Runtime's time at a
shape that it has run before, with as many threads; whether a second run gave
the same bits, and the difference from ONNX Runtime's results. Times after the
first run are the best of three.
"""

import argparse
import math
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/models"))

import limber
import reference
import shapes

os.environ["LIMBER_COMPILE"] = "settle"  # nothing compiles during first runs
COLUMNS = "{:8}  {:34} {:>9} {:>10} {:>9} {:>7}  {:6}  {:>10}"


def timed_run(session, feeds):
    start = time.perf_counter()
    outputs = session.run(None, feeds)
    return outputs, 1e3 * (time.perf_counter() - start)


def best_run(session, feeds):
    runs = [timed_run(session, feeds) for _ in range(3)]
    return runs[-1][0], min(ms for _, ms in runs)


def same_bits(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b))


def farthest(got, want):
    return max(float(np.abs(np.float64(a) - b).max(initial=0))
               for a, b in zip(got, want))


def agrees(got, want):
    return all(np.allclose(a, b, reference.RTOL, reference.ATOL)
               for a, b in zip(got, want))


class Request:
    """One shape of one model: its first run and its results."""

    def __init__(self, model, session, dims, seed):
        self.text = " ".join(f"{symbol}={n}" for symbol, n in dims.items())
        self.feeds = model.feeds(dims, seed)
        self.outputs, self.first = timed_run(session, self.feeds)
        again, _ = timed_run(session, self.feeds)
        self.same = same_bits(self.outputs, again)

    def settle(self, model, ours, theirs):
        """Prints the row; returns whether results are correct, and the
        ratio."""
        theirs.run(None, self.feeds)
        want, other = best_run(theirs, self.feeds)
        time.sleep(0.1)  # its threads spin for a while
        got, settled = best_run(ours, self.feeds)
        good = (self.same and agrees(self.outputs, want) and
                agrees(got, want))
        error = max(farthest(self.outputs, want), farthest(got, want))
        print(COLUMNS.format(
            model.name, self.text, f"{self.first:.2f}", f"{settled:.2f}",
            f"{other:.2f}", f"{other / settled:.2f}x",
            "same" if self.same else "DIFFER",
            f"{error:.1e}" + ("" if good else " !")), flush=True)
        return good, other / settled


def demonstrate(model, count, seed):
    """For each shape: whether results are correct, and the ratio."""
    ours = limber.load(model.path)
    theirs = reference.session(model.path)
    requests = [Request(model, ours, dims, seed)
                for dims in model.draws(count, seed)]
    ours.settle(120)
    return [r.settle(model, ours, theirs) for r in requests]


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--shapes", type=int, default=4, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(COLUMNS.format("model", "shape", "first ms", "settled ms", "ORT ms",
                         "faster", "again", "max error"))
    models = shapes.load()
    rows = [row for model in models.values()
            for row in demonstrate(model, options.shapes, options.seed)]
    mean = math.exp(sum(math.log(ratio) for _, ratio in rows) / len(rows))
    right = sum(good for good, _ in rows)
    print(f"{len(models)} models, each loaded once; {len(rows)} requests, "
          f"{right} right; once settled {mean:.2f} times as fast as ONNX "
          "Runtime (geometric mean)")
    return right == len(rows)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

"""The demonstration: eight models, one load each, a new shape each request.

For each request: the time of the first run at that shape, the time once the
shape is known, ONNX Runtime's time (its second run, as many threads), whether a
second run gives the same bits, and how far the result is from ONNX Runtime's.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/models"))

import limber
import reference
import shapes

COLUMNS = "{:8}  {:34} {:>9} {:>9} {:>9}  {:6}  {:>10}"


def timed_run(session, feeds):
    start = time.perf_counter()
    outputs = session.run(None, feeds)
    return outputs, 1e3 * (time.perf_counter() - start)


def same_bits(a, b):
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b))


def farthest(got, want):
    return max(float(np.abs(np.float64(a) - b).max(initial=0))
               for a, b in zip(got, want))


def agrees(got, want):
    return all(np.allclose(a, b, reference.RTOL, reference.ATOL)
               for a, b in zip(got, want))


def demonstrate(model, count, seed):
    """Prints a row for each shape; returns how many went wrong."""
    ours = limber.load(model.path)
    theirs = reference.session(model.path)
    wrong = 0
    for dims in model.draws(count, seed):
        feeds = model.feeds(dims, seed)
        got, first = timed_run(ours, feeds)
        again, steady = timed_run(ours, feeds)
        theirs.run(None, feeds)
        want, other = timed_run(theirs, feeds)
        good = same_bits(got, again) and agrees(got, want)
        wrong += not good
        text = " ".join(f"{symbol}={n}" for symbol, n in dims.items())
        print(COLUMNS.format(
            model.name, text, f"{first:.2f}", f"{steady:.2f}", f"{other:.2f}",
            "same" if same_bits(got, again) else "DIFFER",
            f"{farthest(got, want):.1e}" + ("" if good else " !")),
            flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--shapes", type=int, default=4, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(COLUMNS.format("model", "shape", "first ms", "then ms", "ORT ms",
                         "again", "max error"))
    models = shapes.load()
    wrong = sum(demonstrate(model, options.shapes, options.seed)
                for model in models.values())
    total = len(models) * options.shapes
    print(f"{len(models)} models, each loaded once; {total} requests, "
          f"{total - wrong} right")
    return wrong == 0


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

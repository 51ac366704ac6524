"""tests/operators/skip_runs.py RUNS [SEED] [SECONDS] -- checks cases of skips.py
from SEED on (0), until they had that many runs or that time has passed. Prints
a line for each failure that reproduces it, and what was run. Cases run in a
process of their own, since a wrong address may crash it."""

import multiprocessing
import os
import sys
import time
import warnings

REPRO = "build/venv/bin/python tests/operators/repro.py skip"
VARIABLES = ("LIMBER_JIT", "LIMBER_ISA", "LIMBER_LIBRARY", "LIMBER_SKIP")
BATCH = 50  # cases of one process
SECONDS = 120  # that one case may take


def serve(pipe, first):
    import skips
    warnings.simplefilter("ignore", RuntimeWarning)
    for seed in range(first, first + BATCH):
        pipe.send(("begin", seed, None))
        text = skips.check_skips(seed)[1]
        pipe.send(("end", seed, (text, dict(skips.counts))))
    pipe.close()


def batch(first):
    """Yields (seed, None or how it fails, counts so far)."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(theirs, first))
    process.start()
    theirs.close()
    seed, counts = first - 1, {}
    try:
        while ours.poll(SECONDS):
            what, seed, result = ours.recv()
            if what == "end":
                text, counts = result
                yield seed, text, counts
        yield seed, f"no end in {SECONDS} s", counts
    except EOFError:
        process.join()
        if process.exitcode:
            yield seed, f"crashed: exit code {process.exitcode}", counts
    finally:
        process.kill()
        process.join()


def main():
    most = int(sys.argv[1])
    seed = first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    until = time.monotonic() + (float(sys.argv[3]) if len(sys.argv) > 3
                                else float("inf"))
    prefix = "".join(f"{v}={os.environ[v]} " for v in VARIABLES
                     if v in os.environ)
    totals, bad = {}, 0
    while totals.get("runs", 0) < most and time.monotonic() < until:
        before, last = dict(totals), {}
        for at, text, last in batch(seed):
            totals = {k: before.get(k, 0) + n for k, n in last.items()}
            if text:
                bad += 1
                print(f"{prefix}{REPRO} {at}: {text}", flush=True)
            seed = at + 1
            if totals.get("runs", 0) >= most or time.monotonic() > until:
                break
    print(f"skips: {bad} of {seed - first} cases failed: " +
          ", ".join(f"{n} {k}" for k, n in totals.items()))
    return 1 if bad or not totals.get("runs") else 0


if __name__ == "__main__":
    sys.exit(main())

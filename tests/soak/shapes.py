"""Any number of shapes, under the budgets: plans, kernels and code stay within
their bytes, and the process does not grow.

    python tests/soak/shapes.py MODEL SECONDS [SEED [CAPACITY]]

Plans random signatures of a model with inputs of (batch, seq), runs one in ten,
and has kernels compiled now and then under a capacity of fewer bytes than they
need. Memory at the end may exceed that at half time by 2 MB; that is asked of
5 minutes and more, as less fills no cache of plans.
"""

import random
import sys
import time

import numpy as np

import limber

GROWTH = 2 << 20
SETTLES = 20


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def executable():
    """Bytes of code that was compiled, as mapped."""
    with open("/proc/self/maps") as f:
        spans = [line.split()[0].split("-") for line in f
                 if "limber-code" in line and " r-x" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


def take_one(model, draw, runs):
    dims = (draw.randint(1, 4 if runs else 64),
            draw.randint(1, 64 if runs else 512))
    feeds = {v.name: np.zeros(dims, np.int64) for v in model.inputs}
    if runs:
        model.run(None, feeds)
    else:
        model.plan(feeds)


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    draw = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    capacity = int(sys.argv[4]) if len(sys.argv) > 4 else 30000
    limber.set_cache_capacity(capacity)
    model = limber.load(path)
    start = time.monotonic()
    count = settles = half = most = 0
    while (spent := time.monotonic() - start) < seconds:
        take_one(model, draw, count % 10 == 0)
        count += 1
        if spent >= seconds * settles / SETTLES:
            model.settle(60)
            settles += 1
        if count % 100 == 0:
            stats = limber.cache_stats()
            assert stats["bytes"] <= capacity, stats
            most = max(most, executable())
        if not half and spent >= seconds / 2:
            half = resident()
    end, stats = resident(), limber.cache_stats()
    print(f"{count} shapes: {half >> 10} KB at half time, {end >> 10} KB at "
          f"the end; {stats['kernels']['insertions']} kernels published, "
          f"{stats['kernels']['evictions']} evicted, {stats['slots']} slots; "
          f"at most {most >> 10} KB executable")
    assert most <= capacity + (1 << 20), "executable memory grows"
    assert end <= half + GROWTH or seconds < 300, "the process grows"


main()

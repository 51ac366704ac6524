"""Long sums are as exact as ONNX Runtime's, in every layout and at every tier.

The worst error over the seeds is at most twice that of ONNX Runtime, or of one
rounding (1.2e-7) where that is more: see long_sums.py for the measure. Each
tier is a process of its own.

LIMBER_LONG_SUMS=1 takes 20 seeds, sums of up to 10^7 elements and all tiers,
which is about half an hour.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = HERE / "long_sums.py"
ROUNDING = 1.2e-7

WHOLE = os.environ.get("LIMBER_LONG_SUMS") == "1"
SEEDS = "0:20" if WHOLE else "0:5"
LENGTHS = "49,1000,60000,1048576,10000000" if WHOLE else "49,1000,60000"
TIERS = ("reference", "pack-v3", "pack", "reusable-v3", "reusable",
         "specialised-v3", "specialised", "threads")
if not WHOLE:
    TIERS = ("reference", "pack-v3", "pack", "reusable-v3", "specialised")


def measure(tier):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--tier", tier, "--n", LENGTHS,
         "--seeds", SEEDS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def theirs():
    return measure("onnxruntime")


@pytest.mark.parametrize("tier", TIERS)
def test_long_sums_are_as_exact_as_onnx_runtimes(theirs, tier):
    bad = []
    for case, lengths in measure(tier).items():
        for n, (error, seed) in lengths.items():
            bound = 2 * max(theirs[case][n][0], ROUNDING)
            if error <= bound:
                continue
            bad.append(f"{error:.2e} > {bound:.2e}: build/venv/bin/python "
                       f"tests/operators/long_sums.py --tier {tier} "
                       f"--cases {case} --n {n} --seeds {seed}:{seed + 1}")
    assert not bad, "\n" + "\n".join(bad)

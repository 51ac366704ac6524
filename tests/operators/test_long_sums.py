"""Long sums are as accurate as ONNX Runtime's, in every layout and at every
tier.

The worst error over the seeds is at most twice that of ONNX Runtime, or of one
rounding (1.2e-7) if that is more: see long_sums.py for the measure.

LIMBER_LONG_SUMS=1 uses 20 seeds, sums of up to 10^7 elements and all tiers,
which is one or two hours of two processors.
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
TIERS = ("reference", "reference/2", "reference/3", "pack-v3", "pack",
         "pack/2", "pack/3", "reusable-v3", "reusable", "specialised-v3",
         "specialised-v3/3", "specialised", "specialised/2", "specialised/3")
if not WHOLE:
    TIERS = ("reference", "pack-v3", "pack/2", "reusable-v3", "specialised",
             "specialised/3")


@pytest.fixture(scope="module")
def measured():
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--n", LENGTHS, "--seeds", SEEDS,
         "--tiers", ",".join(("onnxruntime", *TIERS))],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("tier", TIERS)
def test_long_sums_are_as_accurate_as_onnx_runtimes(measured, tier):
    theirs, bad = measured["onnxruntime"], []
    for case, lengths in measured[tier].items():
        for n, (error, seed) in lengths.items():
            bound = 2 * max(theirs[case][n][0], ROUNDING)
            if error <= bound:
                continue
            bad.append(f"{error:.2e} > {bound:.2e}: build/venv/bin/python "
                       f"tests/operators/long_sums.py --tiers {tier} "
                       f"--cases {case} --n {n} --seeds {seed}:{seed + 1}")
    assert not bad, "\n" + "\n".join(bad)

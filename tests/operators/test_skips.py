"""Random graphs of operators that may do nothing, with skipping on and off.

LIMBER_SKIP_RUNS=N is the number of runs, half of them with compiled kernels;
`scripts/soak skips` runs others. Runs of all sessions of a case count.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = int(os.environ.get("LIMBER_SKIP_RUNS", 100_000))


@pytest.mark.parametrize("jit", ["process", "off"])
def test_a_skip_is_never_seen(jit):
    done = subprocess.run(
        [sys.executable, HERE / "skip_runs.py", str(RUNS // 2)],
        env={**os.environ, "LIMBER_JIT": jit}, capture_output=True, text=True,
        timeout=24 * 3600)
    assert done.returncode == 0, done.stdout + done.stderr

"""Kernel trials through the Python package: every trial is decided within
LB_TRIAL_RUNS runs, results are correct meanwhile, and bitwise equal in
deterministic mode."""

import json
import os
import subprocess
import sys

import pytest

from conftest import MODELS

RUNS = 100  # maximum of a trial: LB_TRIAL_RUNS

PROGRAM = r"""
import json, sys, time
import numpy as np
import limber

options = limber.SessionOptions()
options.use_deterministic_compute = "deterministic" in sys.argv
options.prefer_reusable_kernels = "reusable" in sys.argv
reported = []
options.event = lambda e: reported.append((e.name, e.reason))
session = limber.InferenceSession(sys.argv[1], options)
rng = np.random.default_rng(1)
feeds = {"input_ids": rng.integers(0, 30000, (1, 9)),
         "attention_mask": np.ones((1, 9), np.int64),
         "token_type_ids": np.zeros((1, 9), np.int64)}
first = session.run(None, feeds)[0]
session.settle(600)
before = session.stats()
used = {step["kernel"] for step in session.profile(None, feeds)
        if step["tier"] not in ("reference", "pack")}

def decided():
    stats = session.stats()
    return stats.kernels_kept + stats.kernels_demoted

runs = not_equal = far = 0
while runs < int(sys.argv[2]) and (runs < 2 or decided() < len(used)):
    got = session.run(None, feeds)[0]
    not_equal += not np.array_equal(got, first)
    far += not np.allclose(got, first, 1e-3, 1e-4)
    runs += 1
end = time.monotonic() + (300 if before.kernels_on_trial else 0)
while decided() < len(used) and time.monotonic() < end:
    time.sleep(0.01)  # another thread acts on the results of runs
stats = session.stats()
time.sleep(0.2)  # time for events that must not come
more = decided()
del session
print(json.dumps({"runs": runs, "not_equal": not_equal, "far": far,
                  "tried": before.kernels_on_trial, "kernels": stats.kernels,
                  "used": len(used),
                  "decided": more,
                  "on_callers": stats.compile_us_on_callers,
                  "reported": sum(name in ("kernel_kept", "kernel_demoted")
                              for name, _ in reported)}))
"""


def run(*how, **environment):
    path = MODELS / "minilm.onnx"
    if not path.exists():
        pytest.skip("scripts/models")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, str(RUNS + 5), *how], text=True,
        capture_output=True, timeout=1200,
        env={**os.environ, "LIMBER_COMPILE": "background", **environment})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["far"] == 0 and found["on_callers"] == 0
    return found


# A step that alternates between several kernels tries one after the other.
@pytest.mark.parametrize("how", ["", "deterministic", "reusable"])
def test_each_trial_is_decided_soon(how):
    found = run(how)
    assert found["decided"] == found["reported"] == found["used"] > 0
    if how == "deterministic":
        assert found["not_equal"] == 0


def test_there_are_no_trials_where_they_are_off():
    found = run(LIMBER_KERNEL_TRIALS="off")
    assert found["tried"] == found["decided"] == found["reported"] == 0
    assert found["kernels"] > 0


def test_there_are_no_trials_before_settle():
    found = run(LIMBER_COMPILE="settle")
    assert found["tried"] == found["decided"] == 0
    assert found["kernels"] > 0

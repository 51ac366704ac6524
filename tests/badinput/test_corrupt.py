"""Corrupt models: truncated at every 1 % of the length, or with random bit
flips. Each either fails to load with an error or runs; it never crashes. A
worker process loads them, so that a crash is detected and the case is known."""

import random
import subprocess
import sys

import pytest

WORKER = r"""
import random, sys
import numpy as np
import limber

def try_model(data):
    options = limber.SessionOptions()
    options.loop_limit = 100
    options.memory_limit = 256 << 20
    options.log_severity_level = 3
    try:
        s = limber.InferenceSession(data, options)
    except limber.Error as e:
        return "rejected" if str(e) else "no message"
    feeds = {}
    for i in s.get_inputs():
        dims = [d if isinstance(d, int) else 1 for d in i.shape or []]
        if np.prod(dims, dtype=float) > 1 << 20:
            return "huge"
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        feeds[i.name] = np.zeros(dims, kind.get(i.type, np.float32))
    try:
        s.run(None, feeds)
        return "ran"
    except limber.Error as e:
        return "failed" if str(e) else "no message"

path, mode, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = open(path, "rb").read()
counts = {}
rng = random.Random(seed)
for k in range(100):
    print(f"case {k}", flush=True)
    if mode == "truncate":
        bad = data[:len(data) * k // 100]
    else:
        bad = bytearray(data)
        # Most of a model is weights: aim at the structure around them too.
        for _ in range(rng.choice([1, 3, 20])):
            at = rng.randrange(len(bad))
            if rng.random() < 0.7:
                at = rng.choice([at % 2000, len(bad) - 1 - at % 2000])
            bad[at] ^= 1 << rng.randrange(8)
        bad = bytes(bad)
    outcome = try_model(bad)
    counts[outcome] = counts.get(outcome, 0) + 1
print(counts, flush=True)
assert "no message" not in counts
"""

MODELS = ["ocr-cls", "vad", "vad-seq", "magika"]


@pytest.mark.parametrize("mode", ["truncate", "flip"])
@pytest.mark.parametrize("name", MODELS)
def test_corrupt_model_never_crashes(name, mode):
    path = f"build/models/{name}.onnx"
    done = subprocess.run([sys.executable, "-c", WORKER, path, mode, "1"],
                          capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (
        f"{name}, {mode}, {lines[-1] if lines else 'start'}: "
        f"exit {done.returncode}\n{done.stderr[-2000:]}")
    if mode == "truncate":
        assert "rejected" in lines[-1]

"""Deterministic mode: one SHA-256 for a model at a shape, with the pack at each
ISA level, kernels compiled for each level, and 1, 2 and 3 threads.

Each configuration runs in its own process. The tiers of its steps are checked,
too: results would be equal if no configuration used a kernel.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PROGRAM = r"""
import collections
import hashlib
import json
import sys
sys.path.insert(0, sys.argv[1])
import limber
import shapes

threads, settles = int(sys.argv[2]), sys.argv[3] == "settled"
found = {}
for name, model in shapes.load().items():
    session = limber.load(model.path, threads=threads, deterministic=True)
    for dims in model.draws(3, seed=1):
        feeds = model.feeds(dims, seed=1)
        outputs = session.run(None, feeds)
        if settles:
            session.settle(600)
            outputs = session.run(None, feeds)
        steps = session.profile(None, feeds)
        digest = hashlib.sha256(b"".join(x.tobytes() for x in outputs))
        found[f"{name} {dims}"] = (
            digest.hexdigest(),
            dict(collections.Counter(s["tier"] for s in steps)))
print(json.dumps(found))
"""

# name -> LIMBER_ISA, threads, settled or not
CONFIGURATIONS = {
    "pack v3": ("x86-64-v3", 1, "pack"),
    "pack v4": ("native", 1, "pack"),
    "pack, 2 threads": ("native", 2, "pack"),
    "pack, 3 threads": ("x86-64-v3", 3, "pack"),
    "compiled v3": ("x86-64-v3", 2, "settled"),
    "compiled v4": ("native", 1, "settled"),
    "compiled, 3 threads": ("native", 3, "settled"),
}


def run(isa, threads, how):
    jit = "process" if how == "settled" else "off"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(HERE), str(threads), how],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "LIMBER_JIT": jit, "LIMBER_ISA": isa})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found():
    """configuration -> model and shape -> (SHA-256, tier -> steps)"""
    return {name: run(*how) for name, how in CONFIGURATIONS.items()}


def test_one_digest_for_a_model_at_a_shape(found):
    for case in found["pack v3"]:
        digests = {name: results[case][0] for name, results in found.items()}
        assert len(set(digests.values())) == 1, f"{case}: {digests}"


@pytest.mark.parametrize("name", ["minilm", "magika"])
def test_kernels_computed_it(found, name):
    for configuration, results in found.items():
        tier = "reusable" if "compiled" in configuration else "pack"
        for case, (_, tiers) in results.items():
            if case.startswith(name):
                assert tiers.get(tier, 0) > sum(tiers.values()) / 2, \
                    f"{configuration}, {case}: {tiers}"

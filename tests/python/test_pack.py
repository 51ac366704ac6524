"""The built-in kernel pack: models run well without a compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = r"""
import json
import sys
import numpy as np
import onnxruntime
import limber

path, feeds = sys.argv[1], eval(sys.argv[2], {"np": np})
want = onnxruntime.InferenceSession(path).run(None, feeds)
model = limber.load(path)
for got, ort in zip(model.run(None, feeds), want):
    np.testing.assert_allclose(got, ort, 1e-3, 1e-4)
print(json.dumps(model.profile(None, feeds)))
"""

MODELS = {
    "minilm": "{n: np.ones((2, 7), np.int64) for n in "
              "('input_ids', 'attention_mask', 'token_type_ids')}",
    "magika": "{'bytes': np.arange(2 * 2048, dtype=np.int32)"
              ".reshape(2, 2048) % 257}",
}


def steps_of(name, isa):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM,
         str(ROOT / "build" / "models" / f"{name}.onnx"), MODELS[name]],
        capture_output=True, text=True, timeout=1200,
        env={**os.environ, "LIMBER_JIT": "off", "LIMBER_ISA": isa,
             "LIMBER_JIT_PATH": "/nowhere"})
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines()
                if line.startswith("limber")]  # not those of ONNX Runtime
    return json.loads(done.stdout), "\n".join(warnings)


@pytest.mark.parametrize("isa", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", MODELS)
def test_all_compute_steps_use_the_pack(name, isa):
    steps, warnings = steps_of(name, isa)
    assert not warnings
    assert {s["tier"] for s in steps} <= {"pack", "reference"}
    heavy = [s for s in steps if s["op"] in ("MatMul", "Gemm", "Attention",
                                             "LayerNormalization", "Softmax")]
    assert len(heavy) >= 2
    assert {s["tier"] for s in heavy} == {"pack"}
    packed = sum(s["tier"] == "pack" for s in steps)
    assert packed >= 0.8 * len(steps), [s["op"] for s in steps
                                        if s["tier"] == "reference"]


def test_below_v3_everything_runs_on_reference_kernels():
    steps, warnings = steps_of("magika", "x86-64-v2")
    assert {s["tier"] for s in steps} == {"reference"}
    assert warnings.count("kernels need x86-64-v3") == 1


def test_kernels_have_symbols_of_their_own_size():
    """Valgrind fails on a symbol that extends beyond the code."""
    text = subprocess.run(["nm", "-S", ROOT / "build" / "liblimber.so"],
                          capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    symbols = [(int(r[0], 16), int(r[1], 16), r[3]) for r in rows
               if len(r) == 4]
    for level in ("v3", "v4"):
        [(begin, size)] = [s[:2] for s in symbols
                           if s[2] == f"limber_pack_{level}"]
        kernels = [s[:2] for s in symbols
                   if s[2].startswith(f"limber_{level}_")]
        assert len(kernels) > 1000
        assert all(begin <= at and at + n <= begin + size for at, n in kernels)
        assert sum(n for _, n in kernels) <= size

"""Kernels compiled by limber-jit: same answers, and right ones without it."""

import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import sys
import numpy as np
import onnxruntime
import limber

path, feeds = sys.argv[1], eval(sys.argv[2], {"np": np})
want = onnxruntime.InferenceSession(path).run(None, feeds)
model = limber.load(path)


def check():
    for got, ort in zip(model.run(None, feeds), want):
        np.testing.assert_allclose(got, ort, 1e-3, 1e-4)


check()
try:
    model.settle(120)
except limber.Error as e:
    print("settle:", e)
check()
stats = model.stats()
print("kernels:", stats.kernels, "of", stats.kernels_wanted)
"""

MODELS = {
    "minilm": "{n: np.ones((2, 7), np.int64) for n in "
              "('input_ids', 'attention_mask', 'token_type_ids')}",
    "ocr-cls": "{'x': np.linspace(0, 1, 2*3*48*50, dtype=np.float32)"
               ".reshape(2, 3, 48, 50)}",
}


def run(name, **environment):
    feeds = MODELS[name]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"build/models/{name}.onnx", feeds],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "LIMBER_JIT": "process",
             "LIMBER_JIT_PATH": "build/limber-jit", **environment})
    assert done.returncode == 0, done.stderr
    kernels = done.stdout.split("kernels: ")[1].split()
    return int(kernels[0]), int(kernels[2]), done.stdout + done.stderr


@pytest.mark.parametrize("isa", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_kernels_give_right_answers(name, isa):
    compiled, wanted, _ = run(name, LIMBER_ISA=isa)
    assert compiled == wanted > 3


@pytest.mark.parametrize("path", ["build/no-such-program", "/bin/false",
                                  "/bin/cat"])
def test_without_a_sound_worker_answers_are_right_and_settle_says_why(path):
    compiled, wanted, text = run("ocr-cls", LIMBER_JIT_PATH=path)
    assert compiled == 0 and wanted > 3
    assert "settle:" in text and path in text


def test_on_by_default():
    compiled, wanted, _ = run("ocr-cls", LIMBER_JIT="")
    assert compiled == wanted > 3


def test_off_compiles_nothing():
    compiled, _, _ = run("ocr-cls", LIMBER_JIT="off")
    assert compiled == 0


@pytest.mark.parametrize("isa", ["x86-64-v1", "x86-64-v2"])
def test_a_machine_below_v3_is_one_warning(isa):
    compiled, wanted, text = run("ocr-cls", LIMBER_ISA=isa)
    assert (compiled, wanted) == (0, 0)
    assert text.count("fast kernels need x86-64-v3 or more") == 1


def test_unknown_switches_are_one_warning():
    _, wanted, text = run("ocr-cls", LIMBER_JIT="maybe")
    assert wanted > 3
    assert text.count("LIMBER_JIT=maybe is ignored") == 1

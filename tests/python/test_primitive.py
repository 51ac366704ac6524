"""`limber primitive`: operators without a model."""

import json
import os
import re
import subprocess

import pytest

from conftest import ROOT

PROGRAM = os.environ.get("LIMBER_PROGRAM", ROOT / "build" / "limber")
OK, BAD, USAGE = 0, 1, 2

MATMUL = "matmul in=f32:?5x33,f32:33x17:const post=relu,add:f32:17"
CONV = ("convolution in=f32:1x3x?16x16:last,f32:8x3x3x3:const,f32:8:const "
        "strides=2x2 pads=1x1x1x1 post=relu,sum")
SOFTMAX = "softmax in=f32:7x33 axis=-1"
# A window along two axes, channels first: the last axis has no taps.
VOLUME = "convolution in=f32:1x2x7x6x5,f32:4x2x3x5x1:const"


def primitive(*arguments, code=OK, **environment):
    done = subprocess.run(
        [PROGRAM, "primitive", *arguments], capture_output=True, text=True,
        env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code == USAGE else done.stdout


def closing(text):
    return text.rstrip().splitlines()[-1]


@pytest.mark.parametrize("words", [
    [], ["--mode=wonder", MATMUL], ["--random", "0"], ["--kind", "x", MATMUL],
    ["--wonder", MATMUL]])
def test_wrong_usage_is_exit_code_2(words):
    primitive(*words, code=USAGE)


@pytest.mark.parametrize("case,message", [
    ("wonder in=f32:3", "does not begin with a kind"),
    ("matmul in=f3:3", "does not begin with a dtype"),
    ("matmul in=f32:3xy", "write dims as 5x33"),
    ("matmul in=f32:3:lost", "unknown suffix 'lost'"),
    ("matmul in=f32:3x3,f32:3x3 color=1", "unknown field 'color'"),
    ("matmul in=f32:3x3,f32:3x3 axis=1", "axis: matmul does not read it"),
    ("matmul in=f32:3x3,f32:3x3 post=wonder", "is not a post-operation"),
    ("matmul in=f32:3x3,f32:4x3", "'matmul'"),
    ("recurrent alg=gru in=f32:?5x1x3,f32:1x6x?3,f32:1x6x2",
     "in[1] (weights): dims[2] must not be a runtime dim"),
])
def test_a_bad_case_fails_with_its_reason(case, message):
    text = primitive(case, code=BAD)
    assert message in text
    assert f"limber primitive --mode=correctness '{case}'" in text
    assert closing(text) == "0 passed, 1 failed"


def test_cases_pass_before_and_after_compiling():
    text = primitive(MATMUL, CONV, SOFTMAX, VOLUME, "--verbose")
    assert text.count("passed  ") == 4
    assert closing(text) == "4 passed, 0 failed"
    assert int(re.search(r"(\d+) kernels compiled", text)[1]) >= 3


def test_random_cases_are_the_same_each_time_and_differ_by_seed():
    first = primitive("--mode=list", "--random", "40", "--seed", "3")
    assert first == primitive("--mode=list", "--random", "40", "--seed", "3")
    assert first != primitive("--mode=list", "--random", "40", "--seed", "4")


def test_cases_printed_by_list_are_read_from_a_file(tmp_path):
    cases = primitive("--mode=list", "--random", "24", "--seed", "5")
    batch = tmp_path / "cases"
    batch.write_text("# drawn\n\n" + "".join(
        line + "\n" for line in cases.splitlines()[:-1]))
    text = primitive("--mode=init", "--batch", batch)
    assert closing(text) == "24 passed, 0 failed"


def test_the_key_of_a_primitive_is_a_case():
    for line in primitive("--mode=list", "--random", "60").splitlines()[:-1]:
        if "?" in line:
            continue
        key = primitive("--mode=init", line).splitlines()[0]
        assert primitive("--mode=init", key).splitlines()[0] == key


def test_init_prints_the_kernel():
    text = primitive("--mode=init", SOFTMAX + " reusable=1")
    assert "(preferred: attribute)" in text
    text = primitive("--mode=init", SOFTMAX,
                     LIMBER_PREFER_REUSABLE_KERNELS="1")
    assert "(preferred: environment)" in text


def test_performance_prints_times_and_tiers():
    text = primitive("--mode=performance", SOFTMAX)
    assert re.search(r"[\d.]+ us +min +[\d.]+ +reusable", text)


@pytest.fixture
def blobs(tmp_path):
    primitive("--save", tmp_path, MATMUL, CONV, SOFTMAX)
    assert len(list(tmp_path.iterdir())) == 3
    return tmp_path


NO_WORKER = {"LIMBER_JIT_PATH": "/nonexistent"}


def test_blobs_contain_their_kernels_where_there_is_no_worker(blobs):
    cases = (MATMUL, CONV, SOFTMAX)
    assert "tier reference" in primitive("--mode=init", MATMUL, LIMBER_JIT="off") \
        or "tier pack" in primitive("--mode=init", MATMUL, LIMBER_JIT="off")
    text = primitive("--mode=init", "--load", blobs, *cases, **NO_WORKER)
    tiers = re.findall(r"^  tier (\w+)", text, re.M)
    assert set(tiers) <= {"reusable", "specialised"}, text
    for more in ([], ["--no-compile"]):
        text = primitive(*more, "--load", blobs, *cases, **NO_WORKER)
        assert closing(text) == "3 passed, 0 failed"


def test_corrupt_blobs_are_rejected(blobs):
    for path in blobs.iterdir():
        whole = path.read_bytes()
        step = max(1, len(whole) // 40)
        for at in range(0, len(whole), step):
            bad = bytearray(whole)
            bad[at] ^= 0x10
            path.write_bytes(bad)
            text = primitive("--no-compile", "--load", blobs, MATMUL, CONV,
                             SOFTMAX, code=BAD, **NO_WORKER)
            assert text.count("cache blob: ") == 1
            assert closing(text) == "2 passed, 1 failed"
        path.write_bytes(whole[:-1])
        text = primitive("--no-compile", "--load", blobs, MATMUL, CONV,
                         SOFTMAX, code=BAD, **NO_WORKER)
        assert "cache blob: truncated" in text
        path.write_bytes(whole)


def test_blobs_of_other_processors_are_rejected(blobs):
    doctor = subprocess.run([PROGRAM, "doctor", "--json"], check=True,
                            capture_output=True, text=True)
    if json.loads(doctor.stdout)["isa"] == "x86-64-v3":
        pytest.skip("kernels use no more than x86-64-v3 here")
    text = primitive("--load", blobs, SOFTMAX, code=BAD,
                     LIMBER_ISA="x86-64-v3")
    lower = re.search(r"(\S+) cannot be read", text)[1]
    others = [path.read_bytes() for path in blobs.iterdir()]
    for content in others:
        (blobs / os.path.basename(lower)).write_bytes(content)
        text = primitive("--load", blobs, SOFTMAX, code=BAD,
                         LIMBER_ISA="x86-64-v3")
        assert "here kernels may use x86-64-v3" in text


def test_blobs_of_other_descriptors_are_rejected(blobs):
    one, other = list(blobs.iterdir())[:2]
    other.write_bytes(one.read_bytes())
    text = primitive("--no-compile", "--load", blobs, MATMUL, CONV, SOFTMAX,
                     code=BAD)
    assert "it belongs to another descriptor" in text


def test_some_random_cases():
    """For more: limber primitive --random 5000."""
    text = primitive("--random", os.environ.get("LIMBER_PRIMITIVE_CASES", "400"),
                     "--seed", "7")
    assert closing(text).endswith(" 0 failed")

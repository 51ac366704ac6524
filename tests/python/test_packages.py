"""Programs that use unmodified packages for ONNX Runtime give the same results
through `python -m limber.compat`. scripts/packages installs the packages;
LIMBER_PACKAGES=long has those that need torch, too."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT

PROGRAMS = ROOT / "tests" / "python" / "programs"
SHORT, LONG = ROOT / "build" / "packages", ROOT / "build" / "packages-long"
MUSIC = ROOT / "build" / "packages-music"

# The largest difference of a score. That of magika is ONNX Runtime's own
# rounding error where the contents of a file vary little: the model's
# normalisation subtracts nearly equal sums, and beside the same model in
# float64 Limber is wrong by 1.4e-5 and ONNX Runtime by 1.3e-3. The model of
# basic-pitch takes logarithms of small numbers: Limber 6e-4, ONNX Runtime 1e-3.
LARGEST = 1e-4
LARGER = {"file_types.py": 5e-3, "hear_notes.py": 2e-3}


def run(program, directory, site, *launcher):
    done = subprocess.run(
        [sys.executable, *launcher, PROGRAMS / program, directory],
        capture_output=True, text=True, timeout=300, cwd=directory,
        env={**os.environ, "PYTHONPATH": str(site)})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def compare(ours, theirs, where, largest=LARGEST):
    """Equal texts, counts and integers; numbers within the tolerance."""
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for name in ours:
            compare(ours[name], theirs[name], f"{where}.{name}", largest)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for i, pair in enumerate(zip(ours, theirs)):
            compare(*pair, f"{where}[{i}]", largest)
    elif isinstance(ours, float):
        assert abs(ours - theirs) <= largest * max(1, abs(theirs)), where
    else:
        assert ours == theirs, where


def same_results(program, directory, site):
    theirs, _ = run(program, directory, site)
    ours, errors = run(program, directory, site, "-m", "limber.compat")
    assert theirs["runtime"].startswith("ORT Build Info")
    assert ours["runtime"].startswith("Limber")
    assert "CompatibilityWarning" not in errors
    compare(ours["results"], theirs["results"], program,
            LARGER.get(program, LARGEST))
    return ours["results"]


def needs(site):
    if not site.exists():
        pytest.fail(f"{site} does not exist; run scripts/packages")


def texts(results):
    return [text for _, text, _ in results]


CHECKS = {  # what the results must have at least
    "file_types.py": lambda found: found["python"][0] == "python"
    and found["html"][0] == "html" and found["zip"][0] == "zip",
    "read_text.py": lambda found: any("1,284.50" in t for t in texts(found))
    and len(found) == 3,
    "find_speech.py": lambda found: len(found[0]) >= 2
    and max(found[1]) > 0.9 and min(found[1]) < 0.1,
    "read_captcha.py": lambda found: found[0].lower() == "8a3k",
    "detect.py": lambda found: len(found) == 4 and len(found[1]) > 4,
    "embed.py": lambda found: [len(v) for v in found] == [384] * 6,
    "add_vowels.py": lambda found: len(found[0]) > len("السلام عليكم"),
}


@pytest.mark.parametrize("program", CHECKS)
def test_a_package_gives_the_same_results(program, tmp_path):
    needs(SHORT)
    assert CHECKS[program](same_results(program, tmp_path, SHORT))


long_form = pytest.mark.skipif(os.environ.get("LIMBER_PACKAGES") != "long",
                               reason="LIMBER_PACKAGES=long is not set")


@long_form
def test_tensors_of_torch_are_shared(tmp_path):
    needs(LONG)
    done = subprocess.run(
        [sys.executable, PROGRAMS / "torch_tensors.py",
         ROOT / "tests" / "python"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(LONG)})
    assert done.stdout == "right\n", done.stderr


@long_form
def test_sentence_transformers_gives_the_same_results(tmp_path):
    found = same_results("compare_sentences.py", tmp_path, LONG)
    similar, different = found[3][1], found[3][2]
    assert len(found[0]) == 384 and similar > different


@long_form
def test_basic_pitch_gives_the_same_results(tmp_path):
    needs(MUSIC)
    found = same_results("hear_notes.py", tmp_path, MUSIC)
    assert [pitch for pitch, _, _ in found] == [60, 64, 67, 72]


@long_form
def test_silero_vad_gives_the_same_results(tmp_path):
    needs(LONG)
    timestamps, scores = same_results("find_speech_silero.py", tmp_path, LONG)
    assert timestamps and max(scores) > 0.9


def test_a_difference_is_found():
    compare([1, {"a": 0.5}], [1, {"a": 0.50005}], "")
    for ours, theirs in (([1], [2]), (["a"], ["b"]), ([0.5], [0.6]),
                         ([1], [1, 1]), ({"a": 1}, {"b": 1}), ([1], [1.0])):
        with pytest.raises(AssertionError):
            compare(ours, theirs, "")

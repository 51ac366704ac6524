"""The `limber` command: what it prints, and its exit codes."""

import json
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

from conftest import ROOT, add_model, make_model

PROGRAM = ROOT / "build" / "limber"
OK, BAD, USAGE, UNSUPPORTED = 0, 1, 2, 3


def limber(*arguments, code=OK):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == OK else done.stderr


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model())
    return path


@pytest.fixture
def strange(tmp_path):
    """A model with an unknown operator."""
    path = tmp_path / "strange.onnx"
    path.write_bytes(make_model(
        [helper.make_node("Wonder", ["x"], ["y"]),
         helper.make_node("Neg", ["y"], ["z"])],
        {"x": (TensorProto.FLOAT, [1])},
        {"z": (TensorProto.FLOAT, [1])}).SerializeToString())
    return path


RANDOM = ["--input", "a=random:f32[2,3]", "--input", "b=zeros:f32[2,3]"]


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"],
                                   ["inspect", "--help"]])
def test_help_is_printed(words):
    assert limber(*words).startswith("usage: limber")


@pytest.mark.parametrize("command", ["run", "explain", "inspect", "warm",
                                     "doctor", "primitive", "cache"])
def test_the_manual_has_every_option(command):
    manual = (ROOT / "docs" / "limber.1").read_text().replace("\\-", "-")
    section = manual.split(f"OPTIONS OF {command.upper()}\n")[1]
    section = section.split(".SH ")[0]
    options = re.findall(r"^  (--[a-z-]+)", limber(command, "--help"), re.M)
    assert len(options) == len(set(options)) > 0
    for option in options:
        assert re.search(rf"{option}(?![a-z-])", section), option
    listed = set(re.findall(r"^\.(?:B|BI|BR) (--[a-z-]+)", section, re.M))
    assert listed <= set(options)


def test_version_is_printed():
    assert limber("--version").startswith("limber 0.")


@pytest.mark.parametrize("words", [
    [], ["fly"], ["run"], ["inspect"], ["run", "a", "b"], ["run", "--wonder"],
    ["run", "m", "--threads", "0"], ["run", "m", "--repeat", "x"],
    ["run", "m", "--optimize", "maybe"], ["inspect", "m", "--wonder"]])
def test_wrong_usage_is_exit_code_2(words):
    limber(*words, code=USAGE)


def test_a_wrong_input_form_is_exit_code_2(model):
    assert "not of the form" in limber(
        "run", model, "--input", "a=random:f32", code=USAGE)


def test_run_prints_a_line_for_each_output(model):
    lines = limber("run", model, *RANDOM).splitlines()
    assert lines[0].startswith("sum  float32[2,3]  min ")
    assert lines[1].startswith("twice  float32[2,3]  min ")
    assert lines[2].startswith("load ")


def test_run_prints_json(model):
    found = json.loads(limber("run", model, *RANDOM, "--json", "--repeat", "3",
                              "--threads", "2"))
    assert [o["name"] for o in found["outputs"]] == ["sum", "twice"]
    assert found["outputs"][0]["dims"] == [2, 3]
    assert found["outputs"][1]["max"] == 2 * found["outputs"][0]["max"]
    assert found["runs"] == 3 and found["threads"] == 2
    assert 0 < found["best_ms"] <= found["first_ms"]


def test_seeds_determine_inputs(model):
    def run(seed):
        text = limber("run", model, *RANDOM, "--json", "--seed", str(seed))
        return json.loads(text)["outputs"]
    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize("words", [["--dims", "n=4"],
                                   ["--shapes", "a=4x3"],
                                   ["--shapes", "a=4x3 b=4x3"],
                                   ["--input", "b=zeros:f32[4,3]", "--dims",
                                    "n=4"]])
def test_shapes_alone_suffice_for_a_run(model, words):
    found = json.loads(limber("run", model, *words, "--json"))
    assert found["outputs"][0]["dims"] == [4, 3]
    assert found["outputs"][0]["max"] > 0


def test_a_run_has_one_shape(model):
    assert "a run has one shape, but --shapes and --dims describe 2" in limber(
        "run", model, "--dims", "n={1,2}", code=USAGE)


@pytest.mark.parametrize("command", ["run", "warm"])
def test_dims_are_given_together(model, command):
    assert "use --dims 'n=4 m=5'" in limber(
        command, model, "--dims", "n=4", "--dims", "m=5", code=USAGE)


def test_inputs_and_outputs_may_be_files(model, tmp_path):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", a)
    out = tmp_path / "out"
    limber("run", model, "--input", f"a={tmp_path}/a.npy",
           "--input", "b=zeros:f32[2,3]", "--output", out)
    assert np.array_equal(np.load(out / "sum.npy"), a)
    assert np.array_equal(np.load(out / "twice.npy"), 2 * a)


def test_compare_finds_the_first_element_that_differs(model, tmp_path):
    words = ["run", model, *RANDOM]
    limber(*words, "--output", tmp_path)
    assert "all outputs agree" in limber(*words, "--compare", tmp_path)
    wrong = np.load(tmp_path / "twice.npy")
    wrong[1, 2] += 1
    np.save(tmp_path / "twice.npy", wrong)
    text = limber(*words, "--compare", tmp_path, code=BAD)
    assert "'twice'" in text and "1 of 6 elements differ, first [1,2]" in text


def test_missing_inputs_are_listed(model):
    text = limber("run", model, "--input", "a=zeros:f32[1,3]", code=BAD)
    assert "--input 'b=random:f32[1,3]'" in text
    assert "'a=" not in text


def test_bad_models_and_inputs_are_exit_code_1(model, tmp_path):
    limber("run", tmp_path / "none.onnx", code=BAD)
    limber("inspect", tmp_path / "none.onnx", code=BAD)
    (tmp_path / "empty.onnx").touch()
    limber("run", tmp_path / "empty.onnx", code=BAD)
    limber("inspect", tmp_path / "empty.onnx", code=BAD)
    limber("run", model, "--input", "a=none.npy", code=BAD)
    for command in "run", "warm":
        text = limber(command, model, "--input", "c=zeros:f32[1]", code=BAD)
        assert "--input: the model has no input 'c'" in text
    limber("run", model, "--input", "a=", code=USAGE)


def test_inspect_shows_dims_and_operators(model):
    text = limber("inspect", model)
    assert "  a  float32[n,3]" in text and "  sum    float32[n,3]" in text
    [row] = [line.split() for line in text.splitlines() if "Add" in line]
    assert row == ["Add", "17", "2", "yes"]


def test_inspect_prints_json(models):
    found = json.loads(limber("inspect", models / "minilm.onnx", "--json"))
    assert found["inputs"][0] == {"name": "input_ids", "dtype": "int64",
                                  "dims": ["batch", "seq"]}
    assert found["weight_bytes"] > 80_000_000 and found["supported"]
    assert all(op["supported"] for op in found["operators"])


def test_inspect_dumps_the_graph(model):
    assert limber("inspect", model, "--dump").count("Add") == 3
    found = json.loads(limber("inspect", model, "--dump", "--json"))
    assert found["graph"].count("Add") == 2


def test_unsupported_operators_are_listed_with_exit_code_3(strange):
    done = subprocess.run([PROGRAM, "inspect", strange, "--json"],
                          capture_output=True, text=True)
    assert done.returncode == UNSUPPORTED
    found = json.loads(done.stdout)
    assert [(op["name"], op["supported"]) for op in found["operators"]] == [
        ("Wonder", False), ("Neg", True)]
    assert "Wonder" in limber("run", strange, code=UNSUPPORTED)


def test_names_that_are_not_utf_8_are_printed(tmp_path):
    path = tmp_path / "odd.onnx"
    path.write_bytes(add_model().replace(b"twice", b"t\xff\xfe\xfde"))
    shown = json.loads(limber("run", path, *RANDOM, "--json"))
    assert [o["name"] for o in shown["outputs"]] == ["sum", "t???e"]
    shown = json.loads(limber("inspect", path, "--json"))
    assert [o["name"] for o in shown["outputs"]] == ["sum", "t???e"]


def test_results_that_cannot_be_written_are_an_error(model):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "inspect", model], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == BAD
    assert "cannot write the results: No space left" in done.stderr

"""`limber warm`: planning and compiling ahead of requests."""

import json
import os
import re
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber

from conftest import ROOT, add_model, make_model

PROGRAM = ROOT / "build" / "limber"
OK, BAD, USAGE = 0, 1, 2


def warm(*arguments, code=OK, **environment):
    done = subprocess.run(
        [PROGRAM, "warm", *arguments], capture_output=True, text=True,
        env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == OK else done.stderr


def warm_json(*arguments, **environment):
    return json.loads(warm(*arguments, "--json", **environment))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model())
    return path


@pytest.fixture
def reshape(tmp_path):
    """y = NonZero(Reshape(x, shape)): shapes depend on an input's value, then
    on data."""
    path = tmp_path / "reshape.onnx"
    path.write_bytes(make_model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"]),
         helper.make_node("NonZero", ["y"], ["z"]),
         helper.make_node("Neg", ["z"], ["w"])],
        {"x": (TensorProto.FLOAT, ["n"]), "shape": (TensorProto.INT64, [2])},
        {"w": (TensorProto.INT64, [2, "m"])}).SerializeToString())
    return path


@pytest.mark.parametrize("words", [
    [], ["m", "--count", "0"], ["m", "--timeout", "x"], ["m", "--wonder"],
    ["a", "b"]])
def test_wrong_usage_is_exit_code_2(words):
    warm(*words, code=USAGE)


def test_missing_shapes_are_an_error(model):
    assert "the size of 'n' is not given" in warm(model, code=USAGE)
    assert "no input 'x'" in warm(model, "--shapes", "x=2x3", code=USAGE)


@pytest.mark.parametrize("words", [["--dims", "n={1..6}"],
                                   ["--shapes", "a={1..6}x3"],
                                   ["--shapes", "a={1..6}x3 b={1..6}x3"]])
def test_planning_compiles_and_runs_nothing(model, words):
    found = warm_json(model, *words, "--plan-only")
    assert (found["shapes"], found["of"]) == (6, 6)
    assert found["kernels"] >= 1 and found["compiled"] == 0
    assert found["plan_us_a_step"]["median"] > 0
    assert sum(found["tiers"].values()) == found["kernels"]


def test_large_families_are_sampled(model):
    found = warm_json(model, "--dims", "n={1..1000}", "--count", "10",
                      "--plan-only")
    assert (found["shapes"], found["of"]) == (10, 1000)
    text = warm(model, "--dims", "n={1..1000}", "--count", "10", "--plan-only")
    assert re.search(r"^10 of 1000 shapes planned", text)
    assert re.search(r"\d+ distinct kernels; the last 5 shapes added 0", text)


def test_kernels_of_plans_are_compiled(model):
    found = warm_json(model, "--dims", "n={1,5}")
    assert found["settled"] and found["failed"] == 0
    assert found["compiled"] == len(found["compiled_kernels"]) > 0
    assert found["compile_ms"]["median"] > 0 and found["code_bytes"] > 0
    assert found["tiers"]["reusable"] == found["compiled"]
    assert "add.float32" in found["compiled_kernels"][0]["spec"]


def test_impossible_shapes_are_reported(model):
    text = warm(model, "--shapes", "a={1,2}x4", code=BAD)
    assert "none of these shapes can be planned" in text
    assert "dim 1 must be 3" in text


def test_missing_values_that_decide_shapes_are_an_error(reshape):
    text = warm(reshape, "--dims", "n=6", "--plan-only", code=BAD)
    assert "the contents of input 'shape' decide shapes" in text
    found = warm_json(reshape, "--dims", "n=4", "--plan-only", "--input",
                      "shape=random:i64[2]{2..2}")
    assert found["incomplete_shapes"] == 1 and found["nodes_left"] == 1


def test_objects_are_written_with_their_text(model, tmp_path):
    directory = tmp_path / "objects"
    found = warm_json(model, "--dims", "n=5",
                      LIMBER_DUMP_OBJECTS=str(directory))
    for kernel in found["compiled_kernels"]:
        assert (directory / (kernel["name"] + ".txt")).read_text() \
            == kernel["spec"]
        assert (directory / (kernel["name"] + ".o")).read_bytes()[:4] \
            == b"\x7fELF"
    assert len(list(directory.iterdir())) == 2 * found["compiled"] > 0


def test_objects_that_cannot_be_written_are_one_warning(model):
    done = subprocess.run(
        [PROGRAM, "warm", model, "--dims", "n=5"], capture_output=True,
        text=True, env={**os.environ, "LIMBER_DUMP_OBJECTS": "/dev/null/no"})
    assert done.returncode == OK
    assert done.stderr.count("objects cannot be written") == 1


def test_perf_gets_the_names_of_kernels(model):
    process = subprocess.Popen(
        [PROGRAM, "warm", model, "--dims", "n=5", "--json"],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LIMBER_PERF": "1"})
    found = json.loads(process.communicate()[0])
    path = f"/tmp/perf-{process.pid}.map"
    try:
        with open(path) as lines:
            names = [line.split()[2] for line in lines]
    finally:
        os.remove(path)
    assert names == [kernel["name"] for kernel in found["compiled_kernels"]]
    assert names


def test_without_a_worker_warming_reports_why(model):
    text = warm(model, "--dims", "n=5", code=BAD,
                LIMBER_JIT_PATH="build/no-such-program")
    assert "no-such-program" in text


@pytest.mark.parametrize("open_model", [limber.load, limber.InferenceSession])
def test_python_warms(open_model):
    session = open_model(add_model())
    session.warm([{"a": (n, 3), "b": (n, 3)} for n in (1, 5)])
    found = session.stats() if open_model is limber.load else None
    assert found is None or (found.plans_built, found.runs) == (2, 0)
    assert found is None or (found.settled and found.kernels_requested > 0)
    ones = np.ones((5, 3), np.float32)
    assert session.run(["twice"], {"a": ones, "b": ones})[0][4, 2] == 4


def test_python_plans_describe_their_contents(reshape):
    model = limber.load(reshape)
    with pytest.raises(limber.Error, match="contents of input 'shape'"):
        model.plan({"x": (4,), "shape": (2,)})
    found = model.plan({"x": (4,), "shape": np.array([2, 2])})
    assert found["steps"] >= 1 and found["nodes_left"] == 1
    with pytest.raises(limber.Error, match="no input 'y'"):
        model.plan({"y": (4,)})
    with pytest.raises(TypeError, match="input 'x'"):
        model.plan({"x": ("n",), "shape": (2,)})
    with pytest.raises(TypeError):
        model.plan([(4,)])

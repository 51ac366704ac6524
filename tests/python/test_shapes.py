"""Signatures of runs, recorded in a file and prepared for by another
process."""

import json
import os
import pty
import re
import subprocess
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import ROOT, add_model, make_model

PROGRAM = ROOT / "build" / "limber"
OK, BAD, USAGE = 0, 1, 2


def command(*arguments, code=OK):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True,
                          text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == OK else done.stderr


def reshape_model():
    """y = Reshape(x, shape), z = -x"""
    return make_model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"]),
         helper.make_node("Neg", ["x"], ["z"])],
        {"x": (TensorProto.FLOAT, ["n"]), "shape": (TensorProto.INT64, [2])},
        {"y": (TensorProto.FLOAT, ["a", "b"]),
         "z": (TensorProto.FLOAT, ["n"])}).SerializeToString()


def run(model, n, rows, names=None):
    model.run(names, {"x": np.zeros(n, np.float32),
                      "shape": np.array([rows, -1])})


@pytest.mark.parametrize("open_model", [limber.load, limber.InferenceSession])
def test_recorded_signatures_are_planned_without_data(open_model, tmp_path):
    path = tmp_path / "shapes"
    model = open_model(reshape_model())
    model.record_shapes(path)
    for _ in range(3):
        run(model, 6, 2)
    run(model, 6, 3)
    run(model, 6, 3, ["z"])
    del model
    assert path.read_text() == """\
# limber-shapes 1
3 x=float32[6] shape=int64[2]{2,-1}
1 x=float32[6] shape=int64[2]{3,-1} > z
1 x=float32[6] shape=int64[2]{3,-1}
"""
    model = limber.load(reshape_model())
    model.warm(path)
    assert (model.stats().plans_built, model.stats().runs) == (3, 0)
    run(model, 6, 2)
    run(model, 6, 3)
    run(model, 6, 3, ["z"])
    assert model.stats().plans_built == 3
    run(model, 6, 6)
    assert model.stats().plans_built == 4


def test_counts_continue_and_recording_ends(tmp_path):
    path = tmp_path / "shapes"
    model = limber.load(reshape_model())
    for _ in range(2):
        model.record_shapes(str(path))
        run(model, 6, 2)
        model.record_shapes(None)
        run(model, 6, 3)
    assert path.read_text().splitlines()[1:] \
        == ["2 x=float32[6] shape=int64[2]{2,-1}"]
    assert os.listdir(tmp_path) == ["shapes"]


def test_a_file_is_written_while_a_model_serves(tmp_path):
    path = tmp_path / "shapes"
    model = limber.load(reshape_model())
    model.record_shapes(path)
    run(model, 6, 2)
    end = time.monotonic() + 300
    while len(path.read_text().splitlines()) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_threads_are_all_counted(tmp_path):
    path = tmp_path / "shapes"
    model = limber.load(reshape_model())
    model.record_shapes(path)

    def work():
        for i in range(300):
            run(model, 6, 1 + i % 3)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.record_shapes(None)
    counts = [int(line.split()[0])
              for line in path.read_text().splitlines()[1:]]
    assert counts == [400, 400, 400]


def test_wrong_files_are_rejected(tmp_path):
    path = tmp_path / "shapes"
    model = limber.load(reshape_model())
    with pytest.raises(limber.FileError, match="shapes"):
        model.warm(path)
    path.write_text("{}")
    with pytest.raises(limber.InvalidArgument, match="not a file of shapes"):
        model.warm(path)
    with pytest.raises(limber.InvalidArgument, match="not a file of shapes"):
        model.record_shapes(path)
    assert path.read_text() == "{}"
    path.write_text("# limber-shapes 1\n1 x=float32[6]\n")
    with pytest.raises(limber.InvalidArgument, match="missing input 'shape'"):
        model.warm(path)
    path.write_text("# limber-shapes 1\n1 x=float32[6] shape=int64[2]\n")
    with pytest.raises(limber.InvalidArgument, match="contents of input"):
        model.warm(path)
    with pytest.raises(limber.FileError):
        model.record_shapes("/no/such/directory/shapes")
    with pytest.raises(TypeError):
        model.record_shapes(7)


def test_a_signature_that_cannot_be_planned_does_not_stop_the_others(tmp_path):
    path = tmp_path / "shapes"
    path.write_text("# limber-shapes 1\n"
                    "9 x=float32[6] shape=int64[2]{2,-1}\n"
                    "8 x=float32[6] shape=int64[2]{4,4}\n"
                    "7 x=float32[6] shape=int64[2]{3,-1}\n")
    model = limber.load(reshape_model())
    with pytest.raises(limber.InvalidArgument, match="Reshape"):
        model.warm(path)
    assert model.stats().plans == 2


@pytest.fixture
def add(tmp_path):
    path = tmp_path / "add.onnx"
    path.write_bytes(add_model())
    return path


def test_the_command_records_and_warms(add, tmp_path):
    path = tmp_path / "shapes"
    for n in (2, 2, 5):
        command("run", add, "--dims", f"n={n}", "--record-shapes", path,
                "--repeat", "3")
    assert path.read_text().splitlines()[1:] == [
        "6 a=float32[2,3] b=float32[2,3]", "3 a=float32[5,3] b=float32[5,3]"]
    found = json.loads(command("warm", add, "--shapes-file", path, "--json"))
    assert (found["shapes"], found["of"]) == (2, 2)
    assert found["settled"] and found["compiled"] == found["kernels"] > 0
    found = json.loads(command("warm", add, "--shapes-file", path, "--json",
                               "--count", "1", "--plan-only"))
    assert (found["shapes"], found["of"]) == (1, 2)
    text = command("warm", add, "--shapes-file", path, "--dims", "n=2",
                   code=USAGE)
    assert "cannot be combined" in text
    text = command("warm", add, "--shapes-file", add, code=BAD)
    assert "not a file of shapes" in text
    path.write_text("# limber-shapes 1\n")
    assert "no shapes were recorded" in command(
        "warm", add, "--shapes-file", path, code=BAD)


def test_a_terminal_shows_a_progress_bar(models):
    lead, follow = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "warm", models / "minilm.onnx", "--dims",
         "batch={1,2} seq={8..64}", "--count", "20"],
        stdout=subprocess.PIPE, stderr=follow, text=True)
    os.close(follow)
    drawn = b""
    try:
        while chunk := os.read(lead, 4096):
            drawn += chunk
    except OSError:  # the other end is closed
        pass
    process.communicate()
    assert process.returncode == OK
    assert re.search(rb"\[#+\.*\] \d+/\d+ kernels, \d+ s", drawn)
    os.close(lead)

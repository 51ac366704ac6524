"""Runs the public models at their two smallest shapes through the `limber`
command, and compares with ONNX Runtime by its --compare.

Usage: command.py PROGRAM. This is how the models run under the sanitizers,
which cannot be loaded into Python.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import reference
import shapes


def file_of(directory, name):
    """The file of a tensor: the command replaces / in its name."""
    return Path(directory, name.replace("/", "_") + ".npy")


def run(program, model, dims, directory):
    """The finished process of one run; expected outputs are in `directory`."""
    feeds = model.feeds(dims, seed=1)
    session = reference.session(model.path)
    names = [output.name for output in session.get_outputs()]
    expected = Path(directory, "expected")
    expected.mkdir()
    for name, array in zip(names, session.run(names, feeds)):
        np.save(file_of(expected, name), array)
    arguments = []
    for name, array in feeds.items():
        path = file_of(directory, name)
        np.save(path, array)
        arguments += ["--input", f"{name}={path}"]
    return subprocess.run(
        [program, "run", model.path, *arguments, "--compare", expected],
        capture_output=True, text=True)


def main(program):
    failed = count = 0
    for model in shapes.load().values():
        for dims in model.two_smallest():
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as directory:
                done = run(program, model, dims, directory)
            text = " ".join(f"{symbol}={n}" for symbol, n in dims.items())
            result = "ok" if done.returncode == 0 else "FAILED"
            print(f"{model.name:8} {text:34} {result} "
                  f"{time.monotonic() - start:.1f} s", flush=True)
            if done.returncode:
                print(done.stdout + done.stderr)
            count += 1
            failed += done.returncode != 0
    print(f"command: {count - failed} passed, {failed} failed")
    return count > 0 and failed == 0


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1]) else 1)

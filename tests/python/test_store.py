"""Kernels on disk, observed with strace: which processes start a compiler."""

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing

import numpy
import pytest

from conftest import ROOT

PROGRAM = ROOT / "build" / "limber"
WORKER = ROOT / "build" / "limber-jit"


class Machine:
    """A store, and programs that use it; strace counts started compilers."""

    def __init__(self, directory):
        self.store = directory / "store"
        self.trace = directory / "trace"

    def run(self, *words, before=(), **environment):
        """Output of a `limber` command, and the number of compilers it started:
        more than one only if it may not raise the first one's priority again,
        or if the first one was idle for long."""
        done = subprocess.run(
            ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=execve",
             "-o", self.trace, *before, PROGRAM, *words],
            env={**os.environ, "LIMBER_CACHE_DIR": str(self.store),
                 **environment},
            capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr
        started = [line for line in self.trace.read_text().splitlines()
                   if f'execve("{WORKER}"' in line]
        return done.stdout, len(started)

    def warm(self, model, *words, **keywords):
        said, starts = self.run(
            "warm", ROOT / "build/models" / f"{model}.onnx", "--json", *words,
            **keywords)
        found = json.loads(said)
        assert found["settled"]
        return found["tiers"], starts

    def sql(self, text):
        with closing(sqlite3.connect(self.store / "kernels.db")) as database:
            return database.execute(text).fetchall()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


MODEL, WORDS = "ocr-cls", ["--shapes", "x=1x3x48x192"]


def test_a_second_process_starts_no_compiler(machine):
    first, starts = machine.warm(MODEL, *WORDS)
    assert starts and first["reusable"] + first["specialised"] > 10
    second, starts = machine.warm(MODEL, *WORDS)
    assert starts == 0 and second == first


SHAPES = {
    "minilm": ["--dims", "batch=2 seq=16"],
    "ocr-det": ["--shapes", "x=1x3x320x320"],
    "ocr-rec": ["--shapes", "x=1x3x48x320"],
    "ocr-cls": ["--shapes", "x=1x3x48x192"],
    "vad": ["--shapes", "input=1x576 state=2x1x128", "--input",
            "sr=random:i64[]{16000..16000}"],
    "vad-seq": ["--dims", "seq_len=64"],
    "magika": ["--dims", "unk__214=2"],
    "yolo": ["--dims", "batch=1 height=320 width=320"],
}


def test_no_public_model_starts_a_compiler_twice(machine):
    first = {name: machine.warm(name, *words)[0]
             for name, words in SHAPES.items()}
    for name, words in SHAPES.items():
        assert machine.warm(name, *words) == (first[name], 0), name


CASES = ["primitive", "--random", "60", "--seed", "5"]


def test_no_primitive_starts_a_compiler_twice(machine):
    said, starts = machine.run(*CASES)
    assert starts and " 0 kernels compiled" not in said
    said, starts = machine.run(*CASES)  # which waits until no kernel is pending
    assert starts == 0 and " 0 kernels compiled" in said
    assert "60 passed, 0 failed" in said


def test_warming_for_every_shape_stores_no_specialised_kernels(machine):
    tiers, _ = machine.warm(MODEL, *WORDS, "--prefer-reusable-kernels", "1")
    assert tiers["specialised"] == 0 and tiers["reusable"] > 10
    assert machine.sql("SELECT count(*) FROM kernel WHERE reusable = 0") == \
        [(0,)]


def test_blobs_load_their_kernels_from_the_store(machine, tmp_path):
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    machine.run(*CASES)
    _, starts = machine.run(*CASES, "--save", blobs)
    assert starts == 0 and list(blobs.iterdir())
    machine.run(*CASES, "--load", blobs, LIMBER_CACHE_DIR="off",
                LIMBER_JIT="off")


def test_other_shapes_find_the_kernels_of_earlier_ones(machine):
    machine.warm(MODEL, "--shapes", "x={1,2}x3x48x{32..640}", "--count", "40")
    rows = machine.sql("SELECT count(*) FROM kernel")
    tiers, starts = machine.warm(MODEL, "--shapes", "x=1x3x48x{100..500}",
                                 "--count", "5")
    assert machine.sql("SELECT count(*) FROM kernel")[0][0] <= rows[0][0] + 3
    assert tiers["reusable"] + tiers["specialised"] > 10


def test_a_moved_store_works(machine, tmp_path):
    first, _ = machine.warm(MODEL, *WORDS)
    archive = tmp_path / "store.tar"
    subprocess.run(["tar", "-C", machine.store, "-cf", archive, "."],
                   check=True)
    shutil.rmtree(machine.store)
    machine.store = tmp_path / "another place"
    machine.store.mkdir(mode=0o700)
    subprocess.run(["tar", "-C", machine.store, "--no-same-owner", "-xf",
                    archive], check=True)
    machine.store.chmod(0o700)
    again, starts = machine.warm(MODEL, *WORDS, HOSTNAME="elsewhere")
    assert starts == 0 and again == first


def can_run(user):
    """Whether that user may read the program and its parent directories."""
    return shutil.which("setpriv") and os.geteuid() == 0 and subprocess.run(
        [*user, PROGRAM, "--version"], capture_output=True).returncode == 0


USER = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"]


def test_a_store_moved_to_another_user_works(machine):
    if not can_run(USER):
        pytest.skip("another user cannot run the program")
    first, _ = machine.warm(MODEL, *WORDS)
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(f"tar -C '{machine.store}' -cf - . | "
                       f"tar -C '{directory}' --no-same-owner -xf -",
                       shell=True,
                       check=True)
        for path in [directory, *(f"{directory}/{name}"
                               for name in os.listdir(directory))]:
            os.chown(path, 12345, 12345)
        machine.store = directory
        again = machine.warm(MODEL, *WORDS, before=USER, HOME=directory)
    assert again == (first, 0)


def test_an_exported_file_works_as_a_layer(machine, tmp_path):
    first, _ = machine.warm(MODEL, *WORDS)
    file = tmp_path / "kernels.limber"
    subprocess.run([PROGRAM, "cache", "export", file, "--store",
                    machine.store], check=True, capture_output=True)
    machine.store = tmp_path / "empty"
    again, starts = machine.warm(MODEL, *WORDS,
                                 LIMBER_CACHE_READONLY=str(file))
    assert starts == 0 and again == first
    off = machine.warm(MODEL, *WORDS, LIMBER_CACHE_DIR="off",
                       LIMBER_CACHE_READONLY=str(file))
    assert off == (first, 0)


def test_one_store_holds_kernels_of_several_isa_levels(machine):
    machine.warm(MODEL, *WORDS)
    tiers, starts = machine.warm(MODEL, *WORDS, LIMBER_ISA="x86-64-v3")
    targets = {row[0] for row in machine.sql("SELECT target FROM kernel")}
    native = {t for t in targets if t != "x86-64-v3"}
    assert "x86-64-v3" in targets
    assert bool(starts) == bool(native)
    again = machine.warm(MODEL, *WORDS, LIMBER_ISA="x86-64-v3")
    assert again == (tiers, 0)


def outputs(machine, directory, before=(), **environment):
    machine.run("run", ROOT / "build/models" / f"{MODEL}.onnx", *WORDS,
                "--output", directory, before=before, **environment)
    return [numpy.load(path) for path in sorted(directory.iterdir())]


@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="there is no qemu")
def test_an_older_processor_uses_no_kernel_it_cannot_run(machine, tmp_path):
    """On an emulator: an illegal instruction would end the program."""
    older = ["qemu-x86_64", "-cpu", "Haswell"]
    machine.warm(MODEL, *WORDS)
    want = outputs(machine, tmp_path / "native")
    tiers, _ = machine.warm(MODEL, *WORDS, before=older)
    assert tiers["reusable"] > 10
    got = outputs(machine, tmp_path / "emulated", before=older)
    for a, b in zip(want, got, strict=True):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    targets = {row[0] for row in machine.sql("SELECT target FROM kernel")}
    assert "x86-64-v3" in targets


def test_a_corrupt_store_causes_one_warning_and_few_compilations(machine):
    first, _ = machine.warm(MODEL, *WORDS)
    path = machine.store / "kernels.db"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    data[5] ^= 1
    path.write_bytes(data)
    again, _ = machine.warm(MODEL, *WORDS)
    assert again == first
    third, starts = machine.warm(MODEL, *WORDS)
    assert starts == 0 and third == first


def test_a_store_of_another_user_is_rejected(machine):
    first, _ = machine.warm(MODEL, *WORDS)
    try:
        os.chown(machine.store, 12345, 12345)
    except PermissionError:
        pytest.skip("files cannot be given to another user here")
    again, starts = machine.warm(MODEL, *WORDS)
    assert starts and again == first

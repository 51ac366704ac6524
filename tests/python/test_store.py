"""Kernels on disk, seen from outside: who starts a compiler, and who need not."""

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from conftest import ROOT

PROGRAM = ROOT / "build" / "limber"
WORKER = ROOT / "build" / "limber-jit"


class Machine:
    """A store, and a worker that notes each of its starts."""

    def __init__(self, folder):
        self.store = folder / "store"
        self.starts = folder / "starts"
        self.worker = folder / "limber-jit"
        self.worker.write_text(f'#!/bin/sh\necho start >>"{self.starts}"\n'
                               f'exec "{WORKER}" "$@"\n')
        self.worker.chmod(0o755)

    def warm(self, model, *words, **environment):
        environment = {**os.environ, "LIMBER_CACHE_DIR": str(self.store),
                       "LIMBER_JIT_PATH": str(self.worker), **environment}
        before = self.count()
        done = subprocess.run(
            [PROGRAM, "warm", ROOT / "build/models" / f"{model}.onnx",
             "--json", *words], env=environment, capture_output=True,
            text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["settled"]
        return found["tiers"], self.count() - before

    def count(self):
        return len(self.starts.read_text().split()) if self.starts.exists() \
            else 0

    def sql(self, text):
        with closing(sqlite3.connect(self.store / "kernels.db")) as database:
            return database.execute(text).fetchall()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


MODEL, WORDS = "ocr-cls", ["--shapes", "x=1x3x48x192"]


def test_a_second_process_starts_no_compiler(machine):
    first, starts = machine.warm(MODEL, *WORDS)
    assert starts == 1 and first["reusable"] + first["specialised"] > 10
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


def test_other_shapes_find_the_kernels_of_earlier_ones(machine):
    machine.warm(MODEL, "--shapes", "x={1,2}x3x48x{32..640}", "--count", "40")
    rows = machine.sql("SELECT count(*) FROM kernel")
    tiers, starts = machine.warm(MODEL, "--shapes", "x=1x3x48x{100..500}",
                                 "--count", "5")
    assert machine.sql("SELECT count(*) FROM kernel")[0][0] <= rows[0][0] + 3
    assert tiers["reusable"] + tiers["specialised"] > 10


def test_a_moved_store_serves(machine, tmp_path):
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


def test_an_exported_file_serves_as_a_layer(machine, tmp_path):
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


def test_levels_live_side_by_side(machine):
    machine.warm(MODEL, *WORDS)
    tiers, starts = machine.warm(MODEL, *WORDS, LIMBER_ISA="x86-64-v3")
    targets = {row[0] for row in machine.sql("SELECT target FROM kernel")}
    native = {t for t in targets if t != "x86-64-v3"}
    assert "x86-64-v3" in targets
    assert starts == (1 if native else 0)
    again = machine.warm(MODEL, *WORDS, LIMBER_ISA="x86-64-v3")
    assert again == (tiers, 0)


def test_a_damaged_store_costs_one_warning_and_few_kernels(machine):
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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_store_of_another_user_is_refused(machine):
    first, _ = machine.warm(MODEL, *WORDS)
    os.chown(machine.store, 12345, 12345)
    again, starts = machine.warm(MODEL, *WORDS)
    assert starts == 1 and again == first

"""No request waits for a compiler: on threads that run, the time spent
compiling, or waiting for it, is exactly zero, whatever becomes of the compiler
and of the kernels on disk; and the answers are right.

ZERO_SHAPES=N runs N shapes in each state (scripts/soak zero).
"""

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHAPES = int(os.environ.get("ZERO_SHAPES", "0"))
ALL = ("minilm", "ocr-det", "ocr-rec", "ocr-cls", "vad", "vad-seq", "magika",
       "yolo")

PROGRAM = r"""
import json, os, sys, time
import numpy as np
import onnxruntime
import limber
import shapes

name, count, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = shapes.load()[name]
session = limber.InferenceSession(model.path)
reference = onnxruntime.InferenceSession(model.path)


def mark(text):  # seen by strace, and by nobody else
    try:
        os.write(1023, text)
    except OSError:
        pass


def above_pack():
    # The share of the time of a run that is spent in compiled kernels.
    took = {}
    for step in session.profile(None, feeds):
        compiled = step["tier"] not in ("host", "pack")
        took[compiled] = took.get(compiled, 0) + step["end_ns"] - step["start_ns"]
    return took.get(True, 0) / sum(took.values())


wrong = 0
for i, dims in enumerate(model.stream_draws(count, seed=3)):
    feeds = model.feeds(dims, 3)
    for _ in range(2):
        mark(b"run begins")
        got = session.run(None, feeds)
        mark(b"run ends")
    if i < 50:
        want = reference.run(None, feeds)
        wrong += not all(np.allclose(a, b, 1e-3, 1e-4)
                         for a, b in zip(got, want))
wanted = 0.8 if count >= 1000 else 0
shares = [above_pack()]
if state == "normal":  # a short stream is over before the first kernel
    end = time.monotonic() + 300
    while (session.stats().kernels == 0 or shares[-1] < wanted) \
            and time.monotonic() < end:
        time.sleep(0.05)
        session.run(None, feeds)
        shares.append(above_pack())
elif state != "absent":  # one was started at least
    end = time.monotonic() + 300
    while not os.path.exists(state) and time.monotonic() < end:
        time.sleep(0.05)
    session.run(None, feeds)
stats = session.stats()
print(json.dumps({"on_callers": stats.compile_us_on_callers, "wrong": wrong,
                  "kernels": stats.kernels, "above_pack": shares[0],
                  "at_last": shares[-1],
                  "llvm": "LLVM" in open("/proc/self/maps").read()}))
"""

JIT = ROOT / "build" / "limber-jit"
WORKERS = {  # each notes its number first
    "sleeping": "sleep 30",
    "crashing": "kill -SEGV $$",
    "stopped": f"kill -STOP $$; exec {JIT} \"$@\"",
    "garbage": "head -c 4096 /dev/urandom >&3; sleep 1",
}


def environment(tmp_path, worker, store="off"):
    path = [str(ROOT / "tests" / "models"), os.environ.get("PYTHONPATH", "")]
    found = dict(os.environ, LIMBER_SIGHTINGS="1", LIMBER_CACHE_DIR=str(store),
                 LIMBER_COMPILE="background",
                 PYTHONPATH=os.pathsep.join(p for p in path if p))
    if worker == "absent":
        found["LIMBER_JIT_PATH"] = str(tmp_path / "none")
    elif worker in WORKERS:
        program = tmp_path / "limber-jit"
        program.write_text(f"#!/bin/sh\necho $$ >>{tmp_path / 'started'}\n"
                           f"{WORKERS[worker]}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        found["LIMBER_JIT_PATH"] = str(program)
    return found


def run(name, count, state, env, before=()):
    """`state`: normal, absent, or the file that a worker writes."""
    done = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, name, str(count), str(state)],
        env=env, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["on_callers"] == 0
    assert found["wrong"] == 0
    assert not found["llvm"]
    return found, done.stderr


@pytest.mark.parametrize("name", ALL)
def test_a_run_compiles_nothing_while_kernels_arrive(name, tmp_path):
    found, _ = run(name, SHAPES or 8, "normal", environment(tmp_path, "normal"))
    assert found["kernels"] > 0
    if SHAPES >= 1000:
        print(f"{name}: {found['above_pack']:.2f} of the time above the pack, "
              f"{found['at_last']:.2f} at last")
        assert found["at_last"] >= 0.8


@pytest.mark.parametrize("worker", ["absent", *WORKERS])
@pytest.mark.parametrize("name", ALL if SHAPES else ["minilm", "ocr-cls"])
def test_nor_waits_for_a_worker_that_fails(name, worker, tmp_path):
    started = tmp_path / "started"
    found, errors = run(name, SHAPES and 100 or 6,
                        started if worker in WORKERS else worker,
                        environment(tmp_path, worker))
    if worker in WORKERS:
        for pid in started.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    assert found["kernels"] == 0
    lines = [line for line in errors.splitlines() if line.startswith("limber")]
    assert len(lines) <= 1, errors


def corrupt(folder):
    folder.mkdir(mode=0o700)
    (folder / "kernels.db").write_bytes(os.urandom(100_000))


def foreign(folder):
    folder.mkdir()
    folder.chmod(0o777)


STORED = ALL if SHAPES else ["ocr-cls"]


@pytest.mark.parametrize("damage, room", [
    (None, "64M"), (None, "1"), (corrupt, "64M"), (foreign, "64M")])
@pytest.mark.parametrize("name", STORED)
def test_nor_for_the_kernels_on_disk(name, damage, room, tmp_path,
                                     monkeypatch):
    monkeypatch.setenv("LIMBER_STORE_CAPACITY", room)
    folder = tmp_path / "store"
    if damage:
        damage(folder)
    for _ in range(2):  # a second process finds what the first one left
        run(name, SHAPES and 100 or 6, "normal",
            environment(tmp_path, "normal", folder))


# Mounts its first argument so that it is only read, and runs the others.
READ_ONLY = ["unshare", "--mount", "sh", "-c",
             'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" '
             '&& exec "$@"']


@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize("name", STORED)
def test_nor_where_the_disk_is_only_read(name, filled, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    before = [*READ_ONLY, str(folder)]
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    env = environment(tmp_path, "normal", folder)
    if filled:
        run(name, SHAPES and 100 or 6, "normal", env)
    held = sorted(os.listdir(folder))
    run(name, SHAPES and 100 or 6, "normal", env, before)
    assert sorted(os.listdir(folder)) == held


# What would be a compiler's doing, or a wait for it, or for the disk.
FORBIDDEN = re.compile(
    r"(execve|vfork|posix_spawn|fsync|fdatasync|recvfrom|recvmsg|sendto|"
    r"sendmsg|poll|ppoll|select|pselect6|epoll_wait|wait4|waitid|openat|open|"
    r"unlink|rename)\(")


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_seen_from_outside_a_run_does_none_of_it(tmp_path):
    log = tmp_path / "strace"
    before = ["strace", "-f", "-o", str(log), "-e", "signal=none"]
    run("ocr-cls", 25, "normal",
        environment(tmp_path, "normal", tmp_path / "store"), before)
    inside, runs, caller = False, 0, None
    for line in log.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        if "run begins" in call:
            inside, caller, runs = True, thread, runs + 1
        elif "run ends" in call:
            inside = False
        elif inside and thread == caller:
            assert not FORBIDDEN.search(call), line
    assert runs == 50

"""Kernels and the compiler are shared by the process: two runtimes, and two
sessions with different numbers of threads, start one compiler and compile each
kernel once. A proxy in front of the compiler counts starts and requests."""

import os
import subprocess
import sys
import textwrap

import pytest

from conftest import ROOT

MODEL = ROOT / "build" / "models" / "ocr-cls.onnx"
SHAPE = "1x3x48x64"
RUNTIMES = ROOT / "build" / "tests" / "life_runtimes"

# A proxy between the library and the compiler, which logs each start and each
# request: everything that is sent before the next response is one request.
WORKER = """\
#!{python}
import os, socket, subprocess, sys, threading
log = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(log, b"start\\n")
line = socket.socket(fileno=os.dup(3))
ours, its = socket.socketpair()
os.dup2(its.fileno(), 3)
os.set_inheritable(3, True)
subprocess.Popen([{real!r}, *sys.argv[1:]], close_fds=False)
os.close(3)
its.close()
waits = True

def pass_on():
    global waits
    while data := line.recv(1 << 16):
        if waits:
            waits = False
            os.write(log, b"request\\n")
        ours.sendall(data)
    os._exit(0)

threading.Thread(target=pass_on, daemon=True).start()
while data := ours.recv(1 << 16):
    waits = True
    line.sendall(data)
"""

SESSIONS = """
import sys
import numpy as np
import limber

def tiers(session, feeds):
    found = [s["tier"] for s in session.profile(None, feeds) if s["kernel"]]
    made = [tier in ("reusable", "specialised") for tier in found]
    return sum(made), len(made) - sum(made)

heard = [[], []]
models = [limber.load(sys.argv[1], threads=i + 1, event=heard[i].append)
          for i in range(2)]
feeds = {"x": np.zeros([int(n) for n in sys.argv[2].split("x")], np.float32)}
for model in models:
    model.run(None, feeds)
models[0].settle(600)
before = limber.cache_stats()
for model, events in zip(models, heard):
    found = tiers(model, feeds)
    model.flush_events()
    print(*found, model.stats().kernels_requested,
          sum(e.name == "kernel_compiled" for e in events))
print("same" if limber.cache_stats() == before else "differ",
      before["worker"]["hits"])
"""


@pytest.fixture
def worker(tmp_path):
    real = os.environ.get("LIMBER_JIT_PATH", str(ROOT / "build/limber-jit"))
    path = tmp_path / "worker"
    path.write_text(WORKER.format(python=sys.executable, real=real,
                                  log=str(tmp_path / "log")))
    path.chmod(0o755)
    return path


def check(command, worker):
    log = worker.parent / "log"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1200,
        env={**os.environ, "LIMBER_JIT_PATH": str(worker),
             "LIMBER_COMPILE_PACE": "off"})
    assert (done.returncode, done.stderr) == (0, "")
    *sides, last = [line.split() for line in done.stdout.splitlines()]
    same, compiled = last[0], int(last[1])
    lines = log.read_text().split()
    assert lines.count("start") == 1
    assert lines.count("request") == compiled
    assert same == "same" and compiled > 3
    for steps, others, requested, events in sides:
        assert int(steps) > 3 and others == "0"
        assert int(requested) == int(events) == compiled
    return len(sides)


def test_two_runtimes_compile_each_kernel_once(worker):
    assert check([RUNTIMES, MODEL, SHAPE], worker) == 2


def test_two_sessions_with_different_threads_compile_each_kernel_once(worker):
    command = [sys.executable, "-c", textwrap.dedent(SESSIONS), MODEL, SHAPE]
    assert check(command, worker) == 2


def test_the_environment_is_read_once():
    """A second session does not see later changes of the environment."""
    program = textwrap.dedent("""
        import os, sys
        import limber
        first = limber.load(sys.argv[1], threads=1)
        os.environ.update(LIMBER_CACHE_CAPACITY="5M", LIMBER_JIT="off",
                          LIMBER_ISA="x86-64")
        second = limber.load(sys.argv[1], threads=2)
        print(limber.get_cache_capacity(), limber.cache_stats()["slots"] > 0)
    """)
    done = subprocess.run([sys.executable, "-c", program, MODEL], text=True,
                          capture_output=True,
                          env={**os.environ, "LIMBER_CACHE_CAPACITY": "7M"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(7 << 20), "True"]
    assert done.stderr == ""

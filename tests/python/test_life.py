"""A program that exits, forks or unloads the library while kernels are
compiled: nothing hangs, and no process or file is left, at any moment.

LIFE_TIMINGS=N tries N moments of each kind; LIFE_SEED=N draws others.
"""

import ctypes
import os
import random
import signal
import subprocess
import time

import pytest

from conftest import ROOT

HOST = ROOT / "build" / "tests" / "life_host"
LIBRARY = ROOT / "build" / "liblimber.so"
MODEL = ROOT / "build" / "models" / "ocr-cls.onnx"
SHAPES = ["1x3x48x32", "2x3x48x40", "1x3x48x97"]

TIMINGS = int(os.environ.get("LIFE_TIMINGS", 5))
SEED = int(os.environ.get("LIFE_SEED", 1))
PATIENCE = 300  # seconds; more is a hang
PR_SET_CHILD_SUBREAPER = 36


def moments(how):
    """Microseconds: some while the compiler starts, some while it works."""
    draw = random.Random(f"{SEED} {how}")
    return [int(10 ** draw.uniform(2, 5.7)) for _ in range(TIMINGS)]


@pytest.fixture
def orphans():
    """Processes that outlive their parent become ours."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as f:
        return set(f.read().split())


def await_orphans(before):
    """Waits for processes that the host left: they must end soon."""
    end = time.monotonic() + PATIENCE
    while left := children() - before:
        for pid in left:
            os.waitpid(int(pid), os.WNOHANG)
        assert time.monotonic() < end, f"left over: {left}"
        time.sleep(0.005)


class Sandbox:
    """Directories of one program, to detect files that it leaves."""

    def __init__(self, directory):
        self.store = directory / "store"
        self.others = [directory / "tmp", directory / "cwd"]
        for other in self.others:
            other.mkdir()
        self.environment = {**os.environ, "LIMBER_CACHE_DIR": str(self.store),
                            "TMPDIR": str(self.others[0])}

    def start(self, how, us):
        return subprocess.Popen(
            [HOST, LIBRARY, MODEL, str(us), how, *SHAPES], text=True,
            cwd=self.others[1], env=self.environment, stderr=subprocess.PIPE,
            start_new_session=True)

    def check(self):
        assert [list(other.iterdir()) for other in self.others] == [[], []]
        assert not [name for name in os.listdir("/dev/shm") if "limber" in name]
        if not self.store.exists():  # the program ended before using it
            return
        subprocess.run([ROOT / "build" / "limber", "cache", "verify", "--store",
                        self.store], check=True, capture_output=True)
        assert set(os.listdir(self.store)) <= {"kernels.db", "leases"}


def finish(host, what):
    try:
        _, errors = host.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(host.pid, signal.SIGKILL)  # its children hold its stderr
        host.communicate()
        pytest.fail(f"it hangs: {what}")
    return host.returncode, errors


@pytest.mark.parametrize("how", ["exit", "quit", "fork", "leave", "grandchild",
                                 "threads", "close", "unload", "default"])
def test_nothing_hangs_and_nothing_is_left(how, tmp_path, orphans):
    for i, us in enumerate(moments(how)):
        before = children()
        directory = tmp_path / str(i)
        directory.mkdir()
        sandbox = Sandbox(directory)
        code, errors = finish(sandbox.start(how, us), f"{how} {us}")
        assert (code, errors) == (0, ""), f"{how} {us}"
        await_orphans(before)
        sandbox.check()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing(number, tmp_path, orphans):
    for i, us in enumerate(moments(number)):
        before = children()
        directory = tmp_path / str(i)
        directory.mkdir()
        sandbox = Sandbox(directory)
        host = sandbox.start("kill", 0)
        time.sleep(us / 1e6)
        host.send_signal(number)
        assert finish(host, f"kill {us}") == (-number, "")
        await_orphans(before)
        sandbox.check()

"""Kernels compiled by limber-jit: results are correct with it and without.

Each program runs in its own process and prints its results. Whether the
compiler is denied, missing, killed or malicious: the results are those of ONNX
Runtime, and one line on stderr names the problem.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = r"""
import os
import sys
import threading
import time
import numpy as np
import numpy.testing
import onnxruntime
import limber

path, feeds = sys.argv[1], eval(sys.argv[2], {"np": np})
want = onnxruntime.InferenceSession(path).run(None, feeds)
exec(sys.argv[3])
model = limber.load(path)


def check():
    for got, ort in zip(model.run(None, feeds), want):
        np.testing.assert_allclose(got, ort, 1e-3, 1e-4)


def settle(seconds):
    try:
        model.settle(seconds)
        return "ok"
    except limber.Error as e:
        return str(e)


check()
print("settle:", settle(600))
check()
exec(sys.argv[4])
stats = model.stats()
print("kernels:", stats.kernels, "of", stats.kernels_requested)
"""

MODELS = {
    "minilm": "{n: np.ones((2, 7), np.int64) for n in "
              "('input_ids', 'attention_mask', 'token_type_ids')}",
    "magika": "{'bytes': np.arange(2 * 2048, dtype=np.int32)"
              ".reshape(2, 2048) % 257}",
    "ocr-cls": "{'x': np.linspace(0, 1, 2*3*48*50, dtype=np.float32)"
               ".reshape(2, 3, 48, 50)}",
}


class Done:
    """The output of a program."""

    def __init__(self, done):
        assert done.returncode == 0, done.stderr
        self.lines = dict(line.split(": ", 1)
                          for line in done.stdout.splitlines())
        self.settle = self.lines["settle"]
        words = self.lines["kernels"].split()
        self.kernels, self.requested = int(words[0]), int(words[2])
        self.warnings = [line for line in done.stderr.splitlines()
                         if line.startswith("limber: ")]


def run(name, before="", after="", **environment):
    """Runs the model, settles, runs it again; fails unless all results are
    correct. `before`: code that runs before loading, `after`: at the end."""
    environment = {"LIMBER_JIT": "process",
                   "LIMBER_JIT_PATH": str(ROOT / "build" / "limber-jit"),
                   **os.environ, **environment}
    path = str(ROOT / "build" / "models" / f"{name}.onnx")
    return Done(subprocess.run(
        [sys.executable, "-c", PROGRAM, path, MODELS[name], before, after],
        capture_output=True, text=True, timeout=1200, env=environment))


# -- as it should be ----------------------------------------------------------


@pytest.mark.parametrize("isa", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", MODELS)
def test_generated_kernels_give_correct_results(name, isa):
    done = run(name, LIMBER_ISA=isa)
    assert done.kernels == done.requested > 3
    assert done.settle == "ok" and not done.warnings


def test_on_by_default():
    done = run("magika", LIMBER_JIT="")
    assert done.kernels == done.requested > 3


def test_off_compiles_nothing_and_does_not_warn():
    done = run("magika", LIMBER_JIT="off")
    assert done.kernels == 0 and not done.warnings


# -- no kernels ---------------------------------------------------------------

# A seccomp filter that denies mmap and mprotect with PROT_EXEC (4) from now on.
REFUSE = textwrap.dedent(r"""
    import ctypes
    import struct
    import mmap as mapping
    rules = [
        (0x20, 0, 0, 0),           # the number of the call:
        (0x15, 1, 0, 9),           #   mmap
        (0x15, 0, 3, 10),          #   mprotect
        (0x20, 0, 0, 32),          # its third argument, prot
        (0x45, 0, 1, 4),           # has PROT_EXEC:
        (0x06, 0, 0, 0x0005000D),  #   EACCES
        (0x06, 0, 0, 0x7FFF0000),  # everything else goes through
    ]
    code = b"".join(struct.pack("HBBI", *r) for r in rules)
    program = ctypes.create_string_buffer(code)
    whole = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(program))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert prctl(22, 2, whole, 0, 0) == 0  # PR_SET_SECCOMP, filter
    try:
        mapping.mmap(-1, 4096, prot=mapping.PROT_READ | mapping.PROT_EXEC)
        raise SystemExit("executable memory is not denied")
    except PermissionError:
        pass
""")


def test_executable_memory_denied():
    done = run("magika", before=REFUSE)
    assert done.kernels == 0
    assert len(done.warnings) == 1
    assert "refuses executable memory" in done.warnings[0]


@pytest.mark.parametrize("isa", ["x86-64-v1", "x86-64-v2"])
def test_a_processor_below_v3(isa):
    done = run("magika", LIMBER_ISA=isa)
    assert (done.kernels, done.requested) == (0, 0)
    assert len(done.warnings) == 1 and "x86-64-v3" in done.warnings[0]


@pytest.mark.parametrize("variable", ["LIMBER_JIT", "LIMBER_ISA"])
def test_unknown_switches_are_one_warning(variable):
    done = run("magika", **{variable: "maybe"})
    assert len(done.warnings) == 1
    assert f"{variable}=maybe is ignored" in done.warnings[0]
    assert done.kernels == done.requested > 3


# -- workers that fail --------------------------------------------------------


def program(directory, text):
    """A worker written in Python: its socket is descriptor 3."""
    path = directory / "worker"
    path.write_text(f"#!{sys.executable}\nimport os, socket, sys, time\n"
                    f"line = socket.socket(fileno=3)\n{text}\n")
    path.chmod(0o755)
    return str(path)


def check_failing(path):
    """One line names the worker's problem, and settle raises it."""
    done = run("magika", LIMBER_JIT_PATH=path)
    assert done.kernels == 0 and done.requested > 3
    assert path in done.settle
    assert len(done.warnings) == 1 and path in done.warnings[0]
    return done


@pytest.mark.parametrize("path", ["/no/such/program", "/", "/bin/false",
                                  "/bin/cat"])
def test_a_path_that_is_not_a_worker(path):
    check_failing(path)


BAD = {
    "noise": "line.recv(4096)\nline.sendall(os.urandom(65536))",
    "its request": "line.sendall(line.recv(1 << 16))\ntime.sleep(60)",
    "half a head": "line.recv(4096)\nline.sendall(bytes(7))",
    "zeros": "line.recv(4096)\nline.sendall(bytes(1 << 20))",
    "nothing, and dies": "line.recv(1)\nos.kill(os.getpid(), 9)",
    "before a request": "line.sendall(os.urandom(64))\ntime.sleep(60)",
}


@pytest.mark.parametrize("response", BAD)
def test_a_worker_that_responds_with_garbage(response, tmp_path):
    check_failing(program(tmp_path, BAD[response]))


def test_an_object_with_a_changed_byte_is_not_run(tmp_path):
    real = os.environ.get("LIMBER_JIT_PATH", str(ROOT / "build/limber-jit"))
    path = program(tmp_path, textwrap.dedent(f"""
        import subprocess, threading
        outer = line.dup()
        ours, its = socket.socketpair()
        os.dup2(its.fileno(), 3)
        os.set_inheritable(3, True)
        subprocess.Popen([{real!r}, *sys.argv[1:]], close_fds=False)
        os.close(3)
        its.close()

        def pass_on():
            while data := outer.recv(1 << 16):
                ours.sendall(data)
            os._exit(0)

        threading.Thread(target=pass_on, daemon=True).start()
        while data := bytearray(ours.recv(1 << 16)):
            data[-len(data) // 3] ^= 1
            outer.sendall(data)
        """))
    done = check_failing(path)
    assert "invalid response" in done.settle


def test_a_worker_that_hangs_delays_settle_by_its_timeout_only(tmp_path):
    path = program(tmp_path, "time.sleep(600)")
    done = run("magika", after="""
print("again:", settle(1))
check()
""", before="limber.Model.settle = "
                      "lambda m, s, f=limber.Model.settle: f(m, min(s, 2))",
               LIMBER_JIT_PATH=path)
    assert done.kernels == 0 and done.requested > 3
    assert path in done.settle and len(done.warnings) <= 2
    assert "not settled in the time given" in done.settle


# Kills or stops the first worker, whatever it is doing.
HUNT = r"""
def children():
    me = str(os.getpid())
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as f:
            yield from map(int, f.read().split())


def is_worker(pid):  # and not a child of ours that is about to become one
    try:
        return os.readlink(f"/proc/{pid}/exe").endswith("limber-jit")
    except OSError:
        return False


def hunt():
    while True:
        for pid in filter(is_worker, children()):
            os.kill(pid, SIGNAL)
            os.write(1, f"hit: {pid}\n".encode())  # in one piece
            return
        time.sleep(0.001)


threading.Thread(target=hunt, daemon=True).start()
"""


def test_a_worker_killed_while_it_compiles_is_started_again():
    done = run("minilm", before=HUNT.replace("SIGNAL", "9"), after="""
print("again:", settle(600))
check()
""")
    assert "hit" in done.lines
    # Between two requests it is replaced without a warning.
    assert done.settle == "ok" or "it was killed" in done.settle \
        or "it crashed: Killed" in done.settle
    assert len(done.warnings) <= 1
    assert done.lines["again"] == "ok"
    assert done.kernels == done.requested > 3


def test_a_stopped_worker_delays_settle_by_its_timeout_only():
    done = run("minilm", before=HUNT.replace("SIGNAL", "19")
               + "limber.Model.settle = lambda m, s, "
                 "f=limber.Model.settle: f(m, min(s, 3))\n", after="""
print("again:", settle(600))
""")
    assert "hit" in done.lines
    assert "not settled in the time given" in done.settle

"""No request waits for a compiler: on calling threads, the time spent compiling
or waiting for it is exactly zero, whatever happens to the compiler and to the
kernels on disk; and the results are correct.

    scripts/soak zero [--models A,B] [--states A,B] [--shapes N]

runs each model in each state at new shapes, each of them twice, and prints a
line for each: shapes and runs, microseconds of compiling on callers, the number
of results that were compared with ONNX Runtime and the worst error relative to
the tolerance, the number of kernels at the end, and of runs traced by strace.
test_zero.py is a short version.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("minilm", "ocr-det", "ocr-rec", "ocr-cls", "vad", "vad-seq",
          "magika", "yolo")

WORKERS = {  # each writes its process id first
    "sleeping": "sleep 30",
    "crashing": "kill -SEGV $$",
    "stopped": "while :; do kill -STOP $$; done",  # even after SIGCONT
    "garbage": "head -c 4096 /dev/urandom >&3; sleep 1",
}


def empty(store, fill):
    pass


def filled(store, fill):
    fill()


def corrupt(store, fill):
    (store / "kernels.db").write_bytes(os.urandom(100_000))


def foreign(store, fill):
    store.chmod(0o777)


# name -> function that prepares the directory, capacity, what is mounted
READ_ONLY = 'mount -o bind,ro "$0"'
SMALL = "mount -t tmpfs -o size=64k,mode=700 none"
STORES = {
    "cold": (empty, "64M", None),
    "warm": (filled, "64M", None),
    "full": (empty, "1", None),
    "corrupt": (corrupt, "64M", None),
    "foreign": (foreign, "64M", None),
    "disk-full": (empty, "64M", SMALL),
    "read-only": (filled, "64M", READ_ONLY),
    "unwritable": (empty, "64M", READ_ONLY),
}

STATES = {
    "normal": "kernels are compiled meanwhile",
    "absent": "there is no limber-jit",
    "sleeping": "it sleeps for 30 seconds",
    "crashing": "it crashes as soon as it starts",
    "stopped": "it is under SIGSTOP",
    "garbage": "it responds with random bytes",
    "cold": "the store is empty",
    "warm": "an earlier process has filled it",
    "full": "the store has a capacity of one byte",
    "corrupt": "the store's file is random bytes",
    "foreign": "all users may write to the store's directory",
    "disk-full": "the store's disk has 64 KB",
    "read-only": "the store is filled, on a read-only disk",
    "unwritable": "the store is empty, on a read-only disk",
}

PROGRAM = r"""
import json, os, sys, time
import numpy as np
import onnxruntime
import limber
import shapes

name, count, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
model = shapes.load()[name]
session = limber.InferenceSession(model.path)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # more would spin during our runs
reference = onnxruntime.InferenceSession(model.path, options)


def mark(text):  # visible only to strace
    try:
        os.write(1023, text)
    except OSError:
        pass


def wait_for(done):
    end = time.monotonic() + 1200
    while not done() and time.monotonic() < end:
        time.sleep(0.05)


def above_pack():
    # The share of a run's time in compiled kernels.
    took = {True: 0, False: 0}
    for step in session.profile(None, feeds):
        compiled = step["tier"] not in ("reference", "pack")
        took[compiled] += step["end_ns"] - step["start_ns"]
    return took[True] / sum(took.values())


def distance(got, want):
    # The error relative to the tolerance; more than 1 is wrong.
    apart = np.abs(got.astype(np.float64) - want)
    apart[np.isnan(apart)] = np.inf
    return float((apart / (1e-4 + 1e-3 * np.abs(want))).max(initial=0))


draws = model.stream_draws(count, seed=3)
compared, worst = 0, 0
for i, dims in enumerate(draws):
    feeds = model.feeds(dims, 3)
    for _ in range(2):
        mark(b"run begins")
        got = session.run(None, feeds)
        mark(b"run ends")
    if i % -(-len(draws) // 50) == 0:
        want = reference.run(None, feeds)
        worst = max([worst, *map(distance, got, want)])
        compared += 1
    if i == 0 and os.path.isabs(state):  # the worker that fails is there
        wait_for(lambda: os.path.exists(state))
wanted = 0.8 if count >= 1000 else 0
shares = [above_pack()]


def compiled():  # a short stream is over before the first kernel
    session.run(None, feeds)
    shares.append(above_pack())
    some = session.stats().kernels > 0 or shares[-1] > 0  # compiled or loaded
    return some and shares[-1] >= wanted


if state == "normal":
    wait_for(compiled)
stats = session.stats()
print(json.dumps({"shapes": len(draws), "runs": 2 * len(draws),
                  "on_callers": stats.compile_us_on_callers,
                  "compared": compared, "worst": worst,
                  "kernels": stats.kernels, "above_pack": shares[0],
                  "at_last": shares[-1],
                  "llvm": "LLVM" in open("/proc/self/maps").read()}))
"""


def environment(directory, worker, store="off"):
    path = [str(ROOT / "tests" / "models"), os.environ.get("PYTHONPATH", "")]
    found = dict(os.environ, LIMBER_COMPILE_THRESHOLD="1",
                 LIMBER_CACHE_DIR=str(store),
                 LIMBER_COMPILE="background",
                 PYTHONPATH=os.pathsep.join(p for p in path if p))
    if worker == "absent":
        found["LIMBER_JIT_PATH"] = str(directory / "none")
    elif worker in WORKERS:
        program = directory / "limber-jit"
        program.write_text(f"#!/bin/sh\necho $$ >>{directory / 'started'}\n"
                           f"{WORKERS[worker]}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        found["LIMBER_JIT_PATH"] = str(program)
    return found


# System calls of compiling, of waiting for it, or of waiting for the disk.
CALLS = ("clone", "clone3", "execve", "fork", "vfork", "fsync", "fdatasync",
         "flock", "recvfrom", "recvmsg", "sendto", "sendmsg", "poll", "ppoll",
         "select", "pselect6", "epoll_wait", "epoll_pwait", "wait4", "waitid",
         "open", "openat", "read", "pread64", "unlink", "unlinkat", "rename",
         "renameat", "ftruncate")
FORBIDDEN = re.compile(rf"({'|'.join(CALLS)})\((?!.*CLONE_THREAD)")


def strace(log):
    """The prefix of a command whose log `watched` reads."""
    return ["strace", "-f", "--seccomp-bpf", "-o", str(log), "-e",
            "signal=none", "-e", f"trace=write,{','.join(CALLS)}"]


def watched(log):
    """The number of runs in `log`; asserts that none did a forbidden call."""
    inside, runs, caller = False, 0, None
    for line in log.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        if "run begins" in call:
            inside, caller, runs = True, thread, runs + 1
        elif "run ends" in call:
            inside = False
        elif inside and thread == caller:
            assert not FORBIDDEN.search(call), line
    return runs


def run(name, count, state, env, before=(), log=None):
    """`state`: normal, absent, or the file that a worker writes. `before`: a
    prefix of the command. `log`: the file that strace writes."""
    before = [*before, *strace(log)] if log else before
    done = subprocess.run(
        [*before, sys.executable, "-c", PROGRAM, name, str(count), str(state)],
        env=env, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    found["watched"] = watched(log) if log else 0
    found["errors"] = done.stderr
    assert found["on_callers"] == 0, found
    assert found["worst"] <= 1, found
    assert not found["llvm"], "LLVM is in /proc/self/maps"
    assert found["watched"] == (found["runs"] if log else 0), found
    return found


def normal(name, count, directory, log=None):
    found = run(name, count, "normal", environment(directory, "normal"), (),
                log)
    assert found["kernels"] > 0, found
    assert count < 1000 or found["at_last"] >= 0.8, found
    return found


def with_worker(name, count, worker, directory, log=None):
    started = directory / "started"
    found = run(name, count, started if worker in WORKERS else worker,
                environment(directory, worker), (), log)
    if worker in WORKERS:
        for pid in started.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    assert found["kernels"] == 0, found
    lines = [line for line in found["errors"].splitlines()
             if line.startswith("limber")]
    assert len(lines) <= 1, found["errors"]
    return found


def mounted(how, directory):
    """The prefix of a command that mounts `how` at `directory`; None if that
    is not possible."""
    before = ["unshare", "--mount", "sh", "-c", f'{how} "$0" && exec "$@"',
              str(directory)]
    tried = subprocess.run([*before, "true"], capture_output=True)
    return None if tried.returncode else before


def with_store(name, count, kind, directory, log=None):
    """None where nothing can be mounted."""
    make, capacity, how = STORES[kind]
    store = directory / "store"
    store.mkdir(mode=0o700)
    before = mounted(how, store) if how else []
    if before is None:
        return None
    env = environment(directory, "normal", store)
    env["LIMBER_STORE_CAPACITY"] = capacity
    make(store, lambda: run(name, 6, "normal", env))
    held = sorted(os.listdir(store))
    found = run(name, count, "normal", env, before, log)
    assert not how or sorted(os.listdir(store)) == held
    return found


def in_state(name, count, state):
    """None where the state cannot be created."""
    with tempfile.TemporaryDirectory(prefix="limber-zero-") as directory:
        directory = Path(directory)
        log = directory / "strace" if shutil.which("strace") else None
        if state == "normal":
            return normal(name, count, directory, log)
        how = with_store if state in STORES else with_worker
        return how(name, count, state, directory, log)


def names(known):
    def parse(text):
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"there is no {name}; there are: {', '.join(known)}")
        return text.split(",")
    return parse


def arguments():
    states = "\n".join(f"  {name:<10} {what}" for name, what in STATES.items())
    parser = argparse.ArgumentParser(
        prog="scripts/soak zero", epilog=f"states:\n{states}",
        description=f"models: {', '.join(MODELS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=names(MODELS), default=MODELS,
                        metavar="A,B", help="instead of all eight")
    parser.add_argument("--states", type=names(STATES), default=list(STATES),
                        metavar="A,B", help="instead of all of them")
    parser.add_argument("--shapes", type=int, metavar="N",
                        help="instead of 1000 in the normal state and 100 in "
                        "the others; models that have fewer run all they have")
    return parser.parse_args()


COLUMNS = ("shapes", "runs", "on_callers", "compared", "worst", "kernels",
           "watched")
HEAD = (f"{'model':<8} {'state':<10} {'shapes':>6} {'runs':>6} "
        f"{'on callers':>10} {'compared':>8} {'worst':>6} {'kernels':>7} "
        f"{'watched':>7}")
ROW = ("{shapes:>6} {runs:>6} {on_callers:>7} us {compared:>8} {worst:>6.3f} "
       "{kernels:>7} {watched:>7}")


def add(total, found):
    for column in COLUMNS:
        both = (total[column], found[column])
        total[column] = max(both) if column == "worst" else sum(both)


def main():
    options = arguments()
    total, failed = dict.fromkeys(COLUMNS, 0), 0
    print(HEAD, flush=True)
    for name, state in itertools.product(options.models, options.states):
        count = options.shapes or (1000 if state == "normal" else 100)
        try:
            found = in_state(name, count, state)
            line = ROW.format(**found) if found else \
                "skipped: nothing can be mounted here"
            if found:
                add(total, found)
        except AssertionError as error:
            failed += 1
            line = f"FAILED: {error}"
        print(f"{name:<8} {state:<10} {line}", flush=True)
    print("soak: zero: {shapes} shapes, {runs} runs, {on_callers} us on "
          "callers, {compared} results compared, the worst at {worst:.3f} of "
          "the tolerance, {watched} runs watched; {failed} failed"
          .format(failed=failed, **total))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

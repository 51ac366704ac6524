"""Python threads on one session, the thread pools of Limber, and forks."""

import contextlib
import glob
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import limber
from conftest import negate_model, slow_model


PF_EXITING = 4


def live_threads():
    """Ids of this process's threads, without joined threads that are about to
    end. Threads of Python may remain among them for a while: join() waits until
    their function returns, not for their end. Their names are of no use: a
    thread sets its name when it first runs.
    """
    live = set()
    for path in glob.glob("/proc/self/task/*/stat"):
        with contextlib.suppress(OSError), open(path) as text:
            flags = text.read().rpartition(")")[2].split()[6]
            if not int(flags) & PF_EXITING:
                live.add(path)
    return live


# Results are compared bit by bit: either no kernel is replaced between two
# runs, or the session is deterministic.
@pytest.mark.parametrize("options", [{"compile": "settle"},
                                     {"deterministic": True}],
                         ids=["settle", "deterministic"])
def test_one_session_serves_many_threads_at_mixed_shapes(models, options):
    model = limber.load(models / "ocr-cls.onnx", **options)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((1 + i % 3, 3, 48, 8 + i)).astype("f")
              for i in range(6)]
    want = [model(x) for x in inputs]

    def work(i):
        return all(np.array_equal(model(inputs[(i + k) % 6]),
                                  want[(i + k) % 6]) for k in range(6))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_the_interpreter_continues_during_a_run():
    model = limber.load(slow_model(20000))
    x = np.eye(192, dtype=np.float32)
    ended = []

    def run(cancel):
        try:
            model.run(None, {"x": x}, cancel=cancel)
        except limber.Cancelled as e:
            ended.append(re.search(r"after (\d+) of", str(e)))
    for i in range(20):  # until this thread has run during a run of the other
        cancel = limber.Cancel()
        runner = threading.Thread(target=run, args=(cancel,))
        runner.start()
        time.sleep(0.02 * (i + 1))
        cancel.trigger()
        runner.join()
        if ended and int(ended[-1][1]) > 0:
            break
    assert ended and int(ended[-1][1]) > 0


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_session_may_have_its_own_threads(count):
    shared = limber.load(negate_model())
    shared([1])  # starts the shared pool and the compile thread
    before = live_threads()
    options = limber.SessionOptions()
    options.intra_op_num_threads = count
    session = limber.InferenceSession(slow_model(50), options)
    session.run(None, {"x": np.eye(64, dtype=np.float32)})
    own = live_threads() - before
    assert len(own) == count - 1
    del session
    assert not live_threads() & own


def test_sessions_share_the_default_pool():
    limber.load(slow_model(2))(np.eye(64, dtype=np.float32))
    before = live_threads()
    models = [limber.load(slow_model(2)) for _ in range(5)]
    for model in models:
        model(np.eye(64, dtype=np.float32))
    assert not live_threads() - before


def test_results_do_not_depend_on_the_number_of_threads(models):
    x = np.random.default_rng(1).standard_normal((2, 3, 48, 60)).astype("f")
    path = models / "ocr-cls.onnx"
    assert np.array_equal(limber.load(path, threads=1)(x),
                          limber.load(path, threads=4)(x))


CODE = """
import limber, numpy as np, os, sys, logging
sys.path.insert(0, sys.argv[1])
from conftest import slow_model
model = limber.load(slow_model(50))
x = np.eye(64, dtype=np.float32)
model(x)
{}
"""


def run_code(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(code), os.path.dirname(__file__)],
        capture_output=True, text=True, timeout=1200,
        env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_forked_child_can_run():
    out, _ = run_code("""
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(model(x), x) else 1)
print(os.waitpid(child, 0)[1])
""", LIMBER_THREADS="2")
    assert out == "0\n"


def test_children_forked_while_others_run_can_run():
    out, _ = run_code("""
import multiprocessing, threading, warnings
warnings.simplefilter("ignore")  # of Python, on forks with threads
stop = threading.Event()
def work():
    while not stop.is_set():
        model(x)
def job(i):
    return np.array_equal(model(x), x)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
context = multiprocessing.get_context("fork")
for _ in range(10):
    with context.Pool(4) as pool:
        assert pool.map_async(job, range(8)).get(timeout=600) == [True] * 8
stop.set()
for t in threads: t.join()
print("done")
""", LIMBER_THREADS="2")
    assert out == "done\n"


def test_the_environment_sets_threads_and_log():
    out, err = run_code("print(len(os.listdir('/proc/self/task')))",
                        LIMBER_THREADS="3", LIMBER_LOG="info",
                        LIMBER_COMPILE="settle", OPENBLAS_NUM_THREADS="1")
    assert out == "3\n"
    assert "runtime with 3 threads" in err


def test_a_bad_environment_is_one_warning():
    _, err = run_code("limber.load(slow_model(2), threads=2)",
                      LIMBER_THREADS="many", LIMBER_LOG="loud")
    assert err.splitlines() == [
        "limber: warning: LIMBER_LOG=loud is ignored: it must be error, warn, "
        "info or debug",
        "limber: warning: LIMBER_THREADS=many is ignored: it must be a number "
        "from 1 to 1024"]

"""The controlling side of worker processes.

Only one worker runs at a time: a command is sent, and its response awaited,
before the next. The CPU time that the others use meanwhile is counted.
"""

import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BESIDES = ("against", "deterministic")  # further Limber configurations
NAMES = {"limber": "Limber", "onnxruntime": "ONNX Runtime",
         "openvino": "OpenVINO", "skip=off": "skip=off",
         **{e: e for e in BESIDES}}
GRANT_SLACK = 0.02  # seconds: a CPU grant ends at most this much later


class Failed(Exception):
    """The engine reported an error, or its process ended; str() says how."""


def cpu_grant(pid):
    """Seconds that a limber-jit may run before it pauses by itself; see
    jit/worker/program/cpu_grant.h. 0: it does not pause."""
    try:
        with open(f"/proc/{pid}/fd/0", "rb") as file:
            length, gap, slices = struct.unpack("3q", file.read(24))
    except (OSError, struct.error):  # it has ended, or has no grant
        return 0
    return 1e-9 * slices * (length + gap) + GRANT_SLACK if length else 0


class Worker:
    def __init__(self, engine, model, threads, environment, begin=None):
        """begin: called first in the new process."""
        self.engine = engine
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), engine, model,
             str(threads)], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, text=True,
            preexec_fn=begin)

    def __call__(self, do, timeout=300, **arguments):
        try:
            print(json.dumps({"do": do, **arguments}),
                  file=self.process.stdin, flush=True)
            response = self.read_line(timeout)
        except BrokenPipeError:
            response = ""
        if not response:
            raise Failed(self.post_mortem())
        response = json.loads(response)
        if "error" in response:
            raise Failed(response["error"])
        return response

    def read_line(self, timeout):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            self.process.kill()
            raise Failed(f"no response in {timeout} s")
        return self.process.stdout.readline()

    def post_mortem(self):
        status = self.process.wait()
        how = f"ended with status {status}"
        if status < 0:
            how = f"killed by {signal.Signals(-status).name}"
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").split("\n")
        return ": ".join([how, *[line for line in last if line][-1:]])[:300]

    def cpu_seconds(self):
        """CPU time of its threads. 0 once the process has ended."""
        total = 0
        try:
            directory = f"/proc/{self.process.pid}/task"
            for thread in os.listdir(directory):
                with open(f"{directory}/{thread}/schedstat") as text:
                    total += int(text.read().split()[0])
        except OSError:
            pass
        return 1e-9 * total

    def children(self):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(fields[1]) == self.process.pid:
                yield int(stat.parent.name), fields[0]

    def freeze(self):
        """Stops the process, and those of its children that do not pause by
        themselves when their CPU grants end. thaw() resumes all of them."""
        self.process.send_signal(signal.SIGSTOP)
        grants = [cpu_grant(pid) for pid, _ in self.children()]
        time.sleep(max(grants, default=0))
        self.frozen = [pid for pid, state in self.children() if state in "RD"]
        for pid in self.frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self.frozen:
            os.kill(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def wait_idle(self, limit=0.5):
        """Waits until its threads sleep: some spin for tens of milliseconds
        after a run."""
        end = time.perf_counter() + limit
        before, now = -1.0, self.cpu_seconds()
        while now != before and time.perf_counter() < end:
            time.sleep(0.005)
            before, now = now, self.cpu_seconds()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:  # it died with something left to read
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Fleet:
    """One worker per engine, all with the same model. Engines that fail are
    removed; `failed` has the reasons."""

    def __init__(self, engines, model, threads, environments, do="open"):
        self.failed = {}
        self.opened = {}  # engine -> response to open
        self.workers = {}
        self.idle_burnt = self.busy = 0.0
        for engine in engines:
            self.workers[engine] = Worker(engine, model, threads,
                                          environments[engine])
            response = self.ask(engine, do)
            if response:
                self.opened[engine] = response

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in list(self.workers):
            self.drop(engine)

    def drop(self, engine):
        self.workers.pop(engine).close()

    def ask(self, engine, do, **arguments):
        """The response, or None once the engine has failed."""
        if engine not in self.workers:
            return None
        try:
            return self.workers[engine](do, **arguments)
        except Failed as failure:
            self.failed[engine] = f"{do}: {failure}"
            self.drop(engine)
            return None

    def all(self, do, **arguments):
        return {engine: self.ask(engine, do, **arguments)
                for engine in list(self.workers)}

    def run_one(self, engine, do, **arguments):
        """As ask; then waits until the engine's threads sleep, and counts the
        CPU time of the other workers meanwhile."""
        others = [w for e, w in self.workers.items() if e != engine]
        before = sum(w.cpu_seconds() for w in others)
        start = time.perf_counter()
        response = self.ask(engine, do, **arguments)
        self.busy += time.perf_counter() - start
        self.idle_burnt += sum(w.cpu_seconds() for w in others) - before
        if response:
            self.workers[engine].wait_idle()
        return response

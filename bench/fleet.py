"""Worker processes as seen by the one that commands them.

Only one works at a time: a command is sent, and its answer awaited, before the
next. What the others burn meanwhile is counted.
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
BESIDES = ("against", "deterministic")  # Limber once more
NAMES = {"limber": "Limber", "onnxruntime": "ONNX Runtime",
         "openvino": "OpenVINO", **{e: e for e in BESIDES}}
AWHILE = 0.02  # seconds: a lease ends so much later at most


class Failed(Exception):
    """The engine refused, or its process died; str() says how."""


def lease(pid):
    """For how long a limber-jit may go on before it pauses by itself, in
    seconds: see jit/worker/program/cpu_grant.h. 0: it does not."""
    try:
        with open(f"/proc/{pid}/fd/0", "rb") as file:
            length, gap, slices = struct.unpack("3q", file.read(24))
    except (OSError, struct.error):  # it has ended, or has no lease
        return 0
    return 1e-9 * slices * (length + gap) + AWHILE if length else 0


class Worker:
    def __init__(self, engine, model, threads, environment, begin=None):
        """begin: called in the new process before anything else."""
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
            answer = self.read_line(timeout)
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise Failed(self.post_mortem())
        answer = json.loads(answer)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def read_line(self, timeout):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        if not ready:
            self.process.kill()
            raise Failed(f"no answer in {timeout} s")
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
        """Time its threads spent on a processor. 0 when it is gone."""
        total = 0
        try:
            folder = f"/proc/{self.process.pid}/task"
            for thread in os.listdir(folder):
                with open(f"{folder}/{thread}/schedstat") as text:
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
        """Stops it, and its children unless they pause by themselves, once
        their leases are over. thaw() has all go on that was stopped here."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(max([lease(pid) for pid, _ in self.children()], default=0))
        self.frozen = [pid for pid, state in self.children() if state in "RD"]
        for pid in self.frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in self.frozen:
            os.kill(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def rest(self, limit=0.5):
        """Waits until its threads have gone to sleep: some spin for tens of
        milliseconds after a run."""
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
    """One worker an engine, all with the same model. Engines that fail drop
    out; `failed` keeps why."""

    def __init__(self, engines, model, threads, environments):
        self.failed = {}
        self.opened = {}  # engine -> answer of open
        self.workers = {}
        self.idle_burnt = self.busy = 0.0
        for engine in engines:
            self.workers[engine] = Worker(engine, model, threads,
                                          environments[engine])
            answer = self.ask(engine, "open")
            if answer:
                self.opened[engine] = answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for engine in list(self.workers):
            self.drop(engine)

    def drop(self, engine):
        self.workers.pop(engine).close()

    def ask(self, engine, do, **arguments):
        """The answer, or None from then on."""
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

    def turn(self, engine, do, **arguments):
        """As ask; waits for the engine's threads to sleep again, and counts
        what the other workers do meanwhile."""
        others = [w for e, w in self.workers.items() if e != engine]
        before = sum(w.cpu_seconds() for w in others)
        start = time.perf_counter()
        answer = self.ask(engine, do, **arguments)
        self.busy += time.perf_counter() - start
        self.idle_burnt += sum(w.cpu_seconds() for w in others) - before
        if answer:
            self.workers[engine].rest()
        return answer

"""Runs many small jobs in a few worker processes that may crash or hang."""

import multiprocessing
import signal
import sys
import time
from multiprocessing import connection

FORK = multiprocessing.get_context("fork")  # workers inherit the jobs


class Worker:
    """A process that runs one job at a time. If it has crashed or was killed
    after a timeout, the next job starts a new one."""

    def __init__(self, function, jobs):
        self.function, self.jobs = function, jobs
        self.process = None

    def start(self, name, seconds):
        if self.process is None:
            self.pipe, theirs = FORK.Pipe()
            self.process = FORK.Process(target=self.serve, args=(theirs,))
            self.process.start()
            theirs.close()
        self.name = name
        self.deadline = time.monotonic() + seconds
        self.pipe.send(name)

    def serve(self, pipe):
        while (name := pipe.recv()) is not None:
            try:
                self.function(self.jobs[name])
                pipe.send(None)
            except Exception as error:
                pipe.send(str(error) or type(error).__name__)
        sys.exit(0)

    def result(self):
        """None, or the error of the job."""
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            code, self.process = self.process.exitcode, None
            return "crashed: " + (signal.Signals(-code).name if code < 0
                                  else f"exit code {code}")

    def kill(self):
        self.process.kill()
        self.process.join()
        self.process = None

    def stop(self):
        if self.process:
            self.pipe.send(None)
            self.process.join()


def run_isolated(function, jobs, count, seconds):
    """Calls function(job) for each of the named jobs, `count` at a time.
    Returns name -> None, or the text of its exception."""
    errors = {}
    waiting = list(reversed(jobs))
    idle = [Worker(function, jobs) for _ in range(count)]
    busy = []
    while waiting or busy:
        while waiting and idle:
            worker = idle.pop()
            worker.start(waiting.pop(), seconds)
            busy.append(worker)
        patience = min(w.deadline for w in busy) - time.monotonic()
        ready = connection.wait([w.pipe for w in busy], max(0, patience))
        for worker in list(busy):
            if worker.pipe in ready:
                errors[worker.name] = worker.result()
            elif time.monotonic() > worker.deadline:
                worker.kill()
                errors[worker.name] = f"no answer in {seconds} s"
            else:
                continue
            busy.remove(worker)
            idle.append(worker)
    for worker in idle:
        worker.stop()
    return errors

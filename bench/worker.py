"""One engine with one model in its own process. Reads requests from standard
input, one JSON object per line, and writes one line of response to each.

    worker.py ENGINE MODEL THREADS

A failure is a response too: {"error": "..."}; the process continues.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/models"))

import decode
import engines
import shapes

WARM = 5  # runs before those that are timed while the queue is full


def timed(function, *arguments):
    start = time.perf_counter()
    value = function(*arguments)
    return value, time.perf_counter() - start


class Worker:
    def __init__(self, engine, model, threads):
        self.name = engine
        self.model = shapes.find(model)
        self.threads = threads
        self.sessions = []

    def do_open(self):
        """Loads the engine, then the model; `before`: memory in between."""
        self.engine = engines.ENGINES[self.name]()
        before = engines.memory()
        session, seconds = timed(self.engine.open, self.model.path,
                                 self.threads)
        self.sessions = [session]
        self.run = session.caller()
        return {"seconds": seconds, "version": self.engine.version(),
                "before": before}

    def do_feed(self, dims, seed):
        self.feeds = self.model.feeds(dims, seed)
        return {}

    def do_time(self, warm, count):
        for _ in range(warm):
            self.run(self.feeds)
        return {"times": [timed(self.run, self.feeds)[1]
                          for _ in range(count)]}

    def do_settle(self, seconds):
        self.sessions[0].settle(seconds)
        return self.do_stats()

    def do_stats(self):
        return {"stats": self.sessions[0].stats()}

    def do_tiers(self):
        return {"tiers": self.sessions[0].tiers(self.feeds)}

    def do_explain(self):
        """What a run executes and skips: numbers of steps by kind, their bytes;
        skipped nodes by operator; and (operator, disposition, reason, number)
        of nodes that were executed but may do nothing at other shapes."""
        session = self.sessions[0].session
        steps = [s for s in session.explain(None, self.feeds) if s["kind"]]
        nodes = [n for n in session.nodes(None, self.feeds) if not n["pass"]]
        kinds = Counter(s["kind"] for s in steps)
        executed = Counter(
            (n["op"], n["disposition"], n["reason"]) for n in nodes
            if n["runtime_skippable"] and n["step"] is not None)
        return {"launches": kinds["launch"], "calls": kinds["call"],
                "copies": kinds["copy"], "bytes": sum(s["bytes"] for s in steps),
                "copied_bytes": sum(s["bytes"] for s in steps
                                    if s["kind"] == "copy") // 2,
                "skipped": Counter(n["op"] for n in nodes if n["skipped"]),
                "executed": [[*key, n] for key, n in executed.items()]}

    def do_memory(self):
        return engines.memory()

    def do_stream(self, shapes, seed):
        """One run at each shape, back to back, on inputs generated before."""
        self.stream = [self.model.feeds(dims, seed) for dims in shapes]
        before = engines.memory()["VmRSS"]
        times = [timed(self.run, feeds)[1] for feeds in self.stream]
        return {"times": times, "grown": engines.memory()["VmRSS"] - before}

    def do_settled_stream(self):
        """The same again once everything is compiled."""
        self.sessions[0].settle(600)
        return {"final": [min(timed(self.run, feeds)[1] for _ in range(3))
                          for feeds in self.stream]}

    def do_shapes(self, shapes, seed):
        self.stream = [self.model.feeds(dims, seed) for dims in shapes]
        return {}

    def do_become_final(self):
        """Runs all shapes until everything is compiled and a round over them
        ends no trial: kernels of other shapes stay on trial."""
        self.do_round(0, len(self.stream), 0)
        self.sessions[0].settle(600)
        left = None
        while left != self.sessions[0].stats()["kernels_on_trial"]:
            left = self.sessions[0].stats()["kernels_on_trial"]
            self.do_round(0, len(self.stream), 0)
        return self.do_stats()

    def do_round(self, first, count, seconds):
        """Runs back to back, cycling through the shapes from request `first`
        on, until both `count` runs and `seconds` are reached."""
        times, start = [], time.perf_counter()
        now = start
        while len(times) < count or now - start < seconds:
            i = (first + len(times)) % len(self.stream)
            times.append(timed(self.run, self.stream[i])[1])
            now = time.perf_counter()
        return {"times": times}

    def do_fill(self, others, seed):
        """Opens sessions of other models and runs them until their kernels are
        queued, which fills the compile queue for a long time."""
        for name, all_dims in others:
            model = shapes.find(name)
            session = self.engine.open(model.path, self.threads)
            self.sessions.append(session)
            call = session.caller()
            for dims in all_dims:
                feeds = model.feeds(dims, seed)
                call(feeds)
                call(feeds)
        return self.do_stats()

    def do_serve(self, seconds):
        """Runs back to back; returns times and how the queue changed."""
        self.do_time(warm=WARM, count=1)
        before = self.do_stats()["stats"]
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            times.append(timed(self.run, self.feeds)[1])
        after = self.do_stats()["stats"]
        return {"times": times, "queue": [before["kernels_queued"],
                                          after["kernels_queued"]],
                "made": after["kernels"] - before["kernels"]}

    def do_hottest(self, keys, requests):
        """For each of the `keys` kernels that take most of a run: the number of
        runs until all its steps used the compiled kernel. Kernels that were
        not compiled are left out."""
        session = self.sessions[0].session
        steps = session.profile(None, self.feeds)
        hot = {}
        for step in steps:
            if step["kernel"] and step["tier"] != "reference":
                hot[step["kernel"]] = hot.get(step["kernel"], 0) \
                    + step["end_ns"] - step["start_ns"]
        hot = sorted(hot, key=hot.get)[-keys:]
        came = {}
        for i in range(0, requests + 1, 20):
            steps = session.profile(None, self.feeds)
            late = {step["kernel"] for step in steps
                    if step["tier"] in ("pack", "reference")}
            for key in set(hot) - late:
                came.setdefault(key, i)
            if len(came) == len(hot):
                break
            for _ in range(19):
                self.run(self.feeds)
        return {"keys": len(hot), "came": sorted(came.values())}

    def do_drain(self, seconds):
        """Seconds until the compile queue is empty, without requests."""
        start = now = time.perf_counter()
        while self.do_stats()["stats"]["kernels_queued"] and \
                now - start < seconds:
            time.sleep(0.05)
            now = time.perf_counter()
        return {"seconds": now - start}

    def run_until_decided(self, feeds, most=100):
        """Runs until no kernel is on trial: during a trial every other run uses
        the baseline."""
        for i in range(most):
            if not self.sessions[0].stats()["kernels_on_trial"]:
                return i
            for x in feeds:
                self.run(x)
        return most

    def do_trials(self, shapes, most, listens, count):
        """Runs the shapes one after the other until no kernel is on trial, then
        times them. A listener is called for every run, so a caller should use
        either events or times. The engine must not be open yet."""
        results = []

        def hear(event):
            if event.name in ("kernel_kept", "kernel_demoted"):
                results.append((event.name, event.reason, event.value / 1000,
                                event.text))

        session = engines.ENGINES[self.name]().open(
            self.model.path, self.threads, hear if listens else None)
        run = session.caller()
        feeds = [self.model.feeds(dims, 1) for dims in shapes]
        for x in feeds:
            run(x)
        session.settle(600)
        self.sessions, self.run = [session], run
        runs = self.run_until_decided(feeds, most)
        times = [[timed(run, x)[1] for _ in range(count)] for x in feeds]
        stats = session.stats()
        time.sleep(0.1)  # the listener has a thread of its own
        return {"results": results, "runs": runs, "times": times,
                "left": stats["kernels_on_trial"], "kernels": stats["kernels"]}

    def do_trace(self, requests, gap):
        """Requests to several models, one after the other, in one process; then
        the time of each once everything is compiled."""
        known = shapes.load()
        engine = engines.ENGINES[self.name]()
        opened = {name: engine.open(known[name].path, self.threads)
                  for name, _ in requests}
        calls = []
        for name, dims in requests:
            calls.append((opened[name].caller(), known[name].feeds(dims, 1)))
        times = []
        for run, feeds in calls:
            times.append(timed(run, feeds)[1])
            time.sleep(gap)
        for session in opened.values():
            session.settle(600)
        final = {}
        for (run, feeds), (name, dims) in zip(calls, requests):
            key = f"{name} {sorted(dims.items())}"
            if key not in final:
                final[key] = min(timed(run, feeds)[1] for _ in range(9))
        return {"times": times,
                "final": [final[f"{name} {sorted(dims.items())}"]
                          for name, dims in requests]}

    def do_first_runs(self, shapes, seed):
        """The first run at each shape, and the median of those after it."""
        first, steady = [], []
        for dims in shapes:
            self.do_feed(dims, seed)
            times = self.do_time(0, 6)["times"]
            first.append(times[0])
            steady.append(float(np.median(times[1:])))
        return {"first": first, "steady": steady}

    def do_open_decoder(self):
        engine = engines.ENGINES[self.name]()
        self.new_decoder = engine.open_decoder(self.model.path, self.threads)
        return {"version": engine.version()}

    def do_new_decoder(self, capacity):
        self.decoder = self.new_decoder(capacity)
        self.decoder.length = 0
        return {}

    def do_decode(self, first, count, save=None):
        """The times of `count` tokens from position `first` on, after one that
        is not timed; `save`: a file for the last logits, keys and values. The
        keys and values before `first` are random unless it was decoded."""
        d = self.decoder
        if d.length != first:
            d.start(decode.random_past(first, seed=1))
        times = []
        for position in range(first, first + count):
            logits = d.step(decode.token_at(position))
            times.append(d.seconds)
        if save:
            np.savez(save, logits, *d.present())
        return {"times": times[1:]}

    def do_settle_decoder(self, seconds):
        self.decoder.session.settle(seconds)
        return {}

    def do_past_copied(self, position):
        d = self.decoder
        d.start(decode.random_past(position, seed=1))
        return {"bytes": d.past_copied(decode.token_at(position))}

    def do_save(self, path):
        np.savez(path, *self.run(self.feeds))
        return {}

    def do_callers(self, callers, sessions, seconds):
        """`callers` threads run concurrently for `seconds` on `sessions`."""
        while len(self.sessions) < sessions:
            self.sessions.append(
                self.engine.open(self.model.path, self.threads))
        threads = [Caller(self.sessions[i % sessions], self.feeds, seconds)
                   for i in range(callers)]
        for thread in threads:
            thread.run_once()
        _, took = timed(run_all, threads)
        for thread in threads:
            if thread.error:
                raise thread.error
        return {"seconds": took,
                "times": [t for thread in threads for t in thread.times]}

    def respond(self, request):
        try:
            return getattr(self, "do_" + request.pop("do"))(**request)
        except Exception as error:
            text = " ".join(str(error).split())
            return {"error": f"{type(error).__name__}: {text[:300]}"}


class Caller(threading.Thread):
    def __init__(self, session, feeds, seconds):
        super().__init__()
        self.call, self.feeds, self.seconds = session.caller(), feeds, seconds
        self.times, self.error = [], None

    def run_once(self):
        self.call(self.feeds)

    def run(self):
        end = time.perf_counter() + self.seconds
        try:
            while time.perf_counter() < end:
                self.times.append(timed(self.call, self.feeds)[1])
        except Exception as error:
            self.error = error


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    engine, model, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Output of libraries must not mix with the responses.
    responses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engines.pin(threads)
    worker = Worker(engine, model, threads)
    for line in sys.stdin:
        print(json.dumps(worker.respond(json.loads(line))), file=responses,
              flush=True)


if __name__ == "__main__":
    main()

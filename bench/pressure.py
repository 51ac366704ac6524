"""Suite `pressure`: latency of requests while the compile queue is never empty,
on all processors and under a quota of one.

A fresh process settles the model that it serves, then opens seven others, which
fills the compile queue, and serves requests: with compiling on, off, or on and
not throttled. The modes alternate, and the first one changes."""

import os
import time
from pathlib import Path

import numpy as np

import fleet as fleets
import report
import shapes

MODES = {"off": {"LIMBER_COMPILE": "settle"},
         "on": {"LIMBER_COMPILE": "background"},
         "unpaced": {"LIMBER_COMPILE": "background",
                     "LIMBER_COMPILE_PACE": "off"}}
OTHERS = 6      # shapes of each of the other models
P50, P99, THROTTLED = 1.05, 1.2, 0.1
KEYS = 10
REQUESTS = 2000
DRAIN = 60      # seconds


class Quota:
    """A cgroup (v1 or v2) with a quota of one processor; a process calls
    enter() to join it."""

    def __init__(self):
        self.directory = None
        for version, root in ((1, "/sys/fs/cgroup/cpu"), (2, "/sys/fs/cgroup")):
            directory = Path(root) / f"limber-bench-{os.getpid()}"
            try:
                directory.mkdir()
                self.directory = directory
                if version == 1:
                    (directory / "cpu.cfs_period_us").write_text("100000")
                    (directory / "cpu.cfs_quota_us").write_text("100000")
                else:
                    (directory / "cpu.max").write_text("100000 100000")
                return
            except OSError as error:
                self.why = f"{directory}: {error.strerror}"
                self.close()

    def enter(self):
        (self.directory / "cgroup.procs").write_text(str(os.getpid()))

    def throttled(self):
        """Throttled seconds and periods."""
        text = (self.directory / "cpu.stat").read_text().split()
        found = dict(zip(text[::2], map(int, text[1::2])))
        seconds = 1e-9 * found["throttled_time"] if "throttled_time" in found \
            else 1e-6 * found["throttled_usec"]
        return np.array([seconds, found["nr_throttled"]])

    def close(self):
        """Removes the cgroup, once its processes have ended."""
        end = time.monotonic() + 5
        while self.directory:
            try:
                self.directory.rmdir()
                self.directory = None
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


class Pressure:
    goal = (f"with compiling on, p50 <= {P50} and p99 <= {P99} of off, "
            f"throttled time <= +{THROTTLED:.0%} of the time; {KEYS} hottest "
            "kernels within "
            f"{REQUESTS} requests; queue drained {DRAIN} s later")

    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        self.table = report.Table(
            [("model", 8), ("where", 7), ("mode", 7), ("windows", 7),
             ("p50 ms", 7), ("p99 ms", 7), ("/off", 5), ("/off", 5),
             ("throttled", 9), ("periods", 7), ("built/s", 7), ("queue", 9)],
            numbers=3)

    def run(self):
        for model in self.context.models:
            self.run_where(model, "cores", None)
            quota = Quota()
            if quota.directory:
                try:
                    self.run_where(model, "quota 1", quota)
                finally:
                    quota.close()
            else:
                print(f"SKIPPED: no quota of one processor: {quota.why}",
                      flush=True)
        print(f"\ngoal: {self.goal}")
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed}

    def start(self, model, mode, quota):
        threads = 1 if quota else len(os.sched_getaffinity(0))
        # Trials leave a kernel out of every other run, in all modes.
        environment = dict(self.context.environments["limber"], **MODES[mode],
                           LIMBER_THREADS=str(threads),
                           LIMBER_KERNEL_TRIALS="off")
        # 0: one runtime for all models of the process, and so one queue.
        return fleets.Worker("limber", model.name, 0, environment,
                             quota.enter if quota else None)

    def others(self, model):
        return [(other.name, other.stream_draws(OTHERS, seed=1))
                for other in shapes.load().values()
                if other.name != model.name]

    def ready(self, model, mode, quota):
        """A process that has settled its model and has a full compile queue."""
        worker = self.start(model, mode, quota)
        try:
            worker("open")
            worker("feed", dims=model.fixed[0], seed=1)
            worker("time", warm=5, count=1)
            worker("settle", seconds=120)
            worker("fill", others=self.others(model), seed=1)
        except fleets.Failed:
            worker.close()
            raise
        return worker

    def window(self, worker, quota):
        before = quota.throttled() if quota else np.zeros(2)
        seconds = self.context.settings.window_seconds
        found = worker("serve", seconds=seconds)
        after = quota.throttled() if quota else np.zeros(2)
        found["throttled"] = list((after - before) / seconds)
        return found

    def windows(self, model, modes, count, quota):
        """`count` windows of each mode, alternately, with one process per mode.
        A process is stopped while another runs: its compiling would slow that
        one down."""
        workers, found = {}, {mode: [] for mode in modes}
        try:
            for mode in modes:
                workers[mode] = self.ready(model, mode, quota)
                workers[mode].freeze()
            for i in range(count):
                for mode in modes if i % 2 else modes[::-1]:
                    workers[mode].thaw()
                    found[mode].append(self.window(workers[mode], quota))
                    workers[mode].freeze()
        finally:
            for worker in workers.values():
                worker.thaw()
                worker.close()
        return found

    def run_where(self, model, where, quota):
        try:
            found = self.windows(model, ["off", "on"],
                                 self.context.settings.alternations, quota)
            # Two windows: without throttling the queue is empty soon.
            found |= self.windows(model, ["unpaced"], 2, quota)
            for mode in MODES:
                self.print_row(model, where, mode, found)
            self.publish(model, where, quota)
        except fleets.Failed as failure:
            self.failed.append({"model": model.name, "where": where,
                                "failed": str(failure)})
            print(f"{model.name:8}  {where:7}  failed: {failure}", flush=True)

    # Medians over windows: other virtual machines disturb single windows.
    def print_row(self, model, where, mode, found):
        def percentiles(mode):
            return np.array([np.percentile(w["times"], (50, 99))
                             for w in found[mode]])
        windows = found[mode]
        p50, p99 = np.median(percentiles(mode), axis=0)
        ratios = [p50, p99] / np.median(percentiles("off"), axis=0)
        seconds, periods = np.median([w["throttled"] for w in windows], axis=0)
        made = np.mean([w["made"] for w in windows]) \
            / self.context.settings.window_seconds
        queue = windows[0]["queue"][0], windows[-1]["queue"][1]
        self.rows.append({"model": model.name, "where": where, "mode": mode,
                          "p50": p50, "p99": p99, "ratios": list(ratios),
                          "throttled": [seconds, periods],
                          "windows": windows})
        self.table.row(model.name, where, mode, str(len(windows)),
                       report.ms(p50), report.ms(p99), f"{ratios[0]:.2f}",
                       f"{ratios[1]:.2f}", f"{100 * seconds:.1f} %",
                       f"{periods:.1f}/s", f"{made:.1f}",
                       f"{queue[0]}-{queue[1]}")
        if mode == "on":
            self.print_result(model, where, *ratios, seconds - np.median(
                [w["throttled"][0] for w in found["off"]]))

    def print_result(self, model, where, p50, p99, throttled):
        missed = [text for text, bad in (
            (f"p50 {p50:.2f}", p50 > P50), (f"p99 {p99:.2f}", p99 > P99),
            (f"throttled +{100 * throttled:.1f} %", throttled > THROTTLED))
            if bad]
        print(f"{model.name:8}  {where:7}  "
              + (f"MISSED: {', '.join(missed)}" if missed else "holds"),
              flush=True)

    def publish(self, model, where, quota):
        """How soon the hottest kernels of a process that has not settled are
        compiled while its queue is full."""
        worker = self.start(model, "on", quota)
        try:
            worker("open")
            worker("feed", dims=model.fixed[0], seed=1)
            worker("fill", others=self.others(model), seed=1)
            hot = worker("hottest", timeout=3600, keys=KEYS, requests=REQUESTS)
            drain = worker("drain", timeout=3600, seconds=10 * DRAIN)
        finally:
            worker.close()
        came = hot["came"]
        when = f"after {max(came)} requests" if len(came) == hot["keys"] \
            else f"NOT within {REQUESTS} requests ({len(came)} did)"
        late = "" if drain["seconds"] <= DRAIN else ": LATE"
        print(f"{model.name:8}  {where:7}  the {hot['keys']} hottest kernels "
              f"were compiled {when}; then the queue was empty after "
              f"{drain['seconds']:.1f} s{late}", flush=True)
        self.rows.append({"model": model.name, "where": where, **hot,
                          "drain": drain["seconds"]})

"""Suite `disk`: how soon a fresh process has loaded its kernels from a warm
store."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import report
import stats

GOAL = "0.3 ms per kernel found, all kernels 50 ms after the model was loaded"
SECONDS, RUNS = 0.5, 2000  # limits of a process; each run is an event


def input_words(model, dims):
    """--input NAME=random:f32[1,3] for each input, with its range of
    values."""
    words = []
    for i in model.inputs:
        shape = ",".join(str(dims.get(d, d)) for d in i.dims)
        kind = {"float32": "f32", "int64": "i64", "int32": "i32"}[
            i.dtype.__name__]
        span = i.values if ".." in i.values else \
            f"{dims[i.values]}..{dims[i.values]}" if i.values in dims else ""
        words += ["--input", f"{i.name}=random:{kind}[{shape}]" +
                  (f"{{{span}}}" if span else "")]
    return words


class Process:
    """One `limber run` on the store: its trace and its steps."""

    def __init__(self, build, store, words):
        trace = store / "trace.json"
        environment = dict(os.environ, LIMBER_CACHE_DIR=str(store / "kernels"),
                           LIMBER_KERNEL_TRIALS="off", LIMBER_LOG="error")
        done = subprocess.run(
            [build / "limber", "run", *words, "--trace", trace, "--explain",
             "--json"], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        self.output = json.loads(done.stdout)
        self.events = json.loads(trace.read_text())["traceEvents"]

    def tiers(self):
        return [step["tier"] for step in self.output["steps"]]

    def named(self, name):
        return [e for e in self.events if e["name"] == name]

    def found_ms(self):
        """Milliseconds of each kernel from the lookup to its publication."""
        return [e["dur"] / 1e3 for e in self.named("kernel_found")]

    def ready_ms(self):
        """Milliseconds from the end of loading to the last kernel found."""
        begin = min(e["ts"] for e in self.named("run_ended"))
        ends = [e["ts"] + e["dur"] for e in self.named("kernel_found")]
        return max([0, *((end - begin) / 1e3 for end in ends)])


class Disk:
    def __init__(self, context):
        self.context = context
        self.table = report.Table([
            ("model", 8), ("kernels", 8), ("first ms", 9), ("median ms", 10),
            ("95 % ms", 8), ("all after ms", 13), ("tiers", 7)], numbers=1)

    def row(self, model, store):
        build = self.context.build
        words = [model.path, *input_words(model, model.fixed[0])]
        first = Process(build, store, [*words, "--settle", "600"])
        often = min(RUNS, int(SECONDS * 1e3 / first.output["best_ms"]) + 2)
        later = [Process(build, store, [*words, "--repeat", str(often)])
                 for _ in range(self.context.settings.processes)]
        if not all(p.found_ms() for p in later):
            print(f"{model.name}: a process ended before it found a kernel")
            return {"model": model.name, "failed": True}
        found = sorted(ms for p in later for ms in p.found_ms()[1:])
        row = {"model": model.name,
               "kernels": len(later[0].found_ms()),
               "first": stats.median([p.found_ms()[0] for p in later]),
               "median": stats.median(found),
               "p95": found[int(len(found) * 0.95)],
               "ready": stats.median([p.ready_ms() for p in later]),
               "compiled": sum(len(p.named("kernel_compiled")) for p in later),
               "same": all(p.tiers() == first.tiers() for p in later)}
        self.table.row(model.name, str(row["kernels"]), f"{row['first']:.2f}",
                       f"{row['median']:.3f}", f"{row['p95']:.3f}",
                       f"{row['ready']:.1f}",
                       "same" if row["same"] else "DIFFER")
        return row

    def run(self):
        rows = []
        for model in self.context.models:
            with tempfile.TemporaryDirectory() as directory:
                rows.append(self.row(model, Path(directory)))
        print(f"goal: {GOAL}")
        return {"goal": GOAL, "rows": rows}

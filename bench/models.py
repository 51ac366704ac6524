"""Suites `models` and `pack`: whole models against other engines, whose runs
are interleaved with ours."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import fleet as fleets
import report
import stats
import suite

SETTLE_SECONDS = 600


@dataclass
class Point:
    """One (model, threads, shape): times by engine, one per round."""

    model: str
    threads: int
    dims: dict
    seed: int
    times: dict = field(default_factory=dict)
    agrees: bool = True
    error: float = 0.0
    ratio: stats.Ratio = None
    besides: dict = field(default_factory=dict)  # engine -> its time / ours
    tiers: dict = field(default_factory=dict)  # tier -> seconds in a run

    def above_pack(self):
        """Share of step time in kernels compiled since the process started."""
        total = sum(self.tiers.values())
        low = sum(self.tiers.get(t, 0) for t in ("reference", "pack"))
        return (total - low) / total if total else None

    def rate(self, peers):
        above = [self.times[p] for p in peers if p in self.times]
        ours = self.times.get("limber")
        if ours and above:
            self.ratio = stats.Ratio(above, ours)
        self.besides = {e: stats.Ratio([self.times[e]], ours)
                        for e in fleets.BESIDES if ours and e in self.times}

    def as_json(self):
        def of(ratio):
            return ratio and ratio.as_json()
        return {
            "model": self.model, "threads": self.threads, "dims": self.dims,
            "seed": self.seed, "agrees": self.agrees, "max_error": self.error,
            "step_seconds": self.tiers, "above_pack": self.above_pack(),
            "r": of(self.ratio), **{e: of(r) for e, r in self.besides.items()},
            "seconds": {engine: {"median": stats.median(times),
                                 "interval": stats.interval(
                                     stats.drawn_medians(times)),
                                 "rounds": times}
                        for engine, times in self.times.items()}}


def shapes_of(model, settings):
    """(dims, seed) of every point: fixed ones, then random ones."""
    points = [(dims, 1) for dims in model.fixed[:settings.fixed]]
    for seed in range(1, settings.seeds + 1):
        points += [(dims, seed)
                   for dims in model.bench_draws(settings.random, seed)]
    return points


def prepare(fleet, dims, seed):
    """Sets the inputs of all engines, runs each once so that it knows the
    shape, waits until kernels are compiled, and runs each once more."""
    fleet.all("feed", dims=dims, seed=seed)
    fleet.all("time", warm=0, count=1)
    for engine in ("limber", *fleets.BESIDES):
        fleet.ask(engine, "settle", seconds=SETTLE_SECONDS, timeout=900)
    fleet.all("time", warm=0, count=1)


def outputs_of(fleet, directory):
    found = {}
    for engine in list(fleet.workers):
        path = str(Path(directory) / f"{engine}.npz")
        if fleet.ask(engine, "save", path=path) is not None:
            with np.load(path) as arrays:
                found[engine] = [arrays[name] for name in arrays.files]
    return found


def compare(fleet, point):
    """Compares our outputs with a peer's, because a fast but wrong result is
    worthless. Sets `agrees` and `error` of the point."""
    from reference import ATOL, RTOL
    with tempfile.TemporaryDirectory() as directory:
        outputs = outputs_of(fleet, directory)
    want = outputs.get("onnxruntime") or outputs.get("openvino")
    got = outputs.get("limber")
    if want and got:
        pairs = list(zip(got, want))
        point.agrees = all(a.shape == b.shape and np.allclose(a, b, RTOL, ATOL)
                           for a, b in pairs)
        point.error = max(float(np.abs(np.float64(a) - b).max(initial=0))
                          for a, b in pairs if a.shape == b.shape)


def runs_per_round(fleet, seconds):
    """engine -> the number of runs that take about `seconds`, 1 to 500."""
    found = {}
    for engine, response in fleet.all("time", warm=1, count=2).items():
        if response:
            one = max(min(response["times"]), 1e-7)
            found[engine] = int(min(max(seconds / one, 1), 500))
    return found


def measure(fleet, point, settings):
    """Times the engines in rounds. In each round every engine has one series
    of runs, whose median counts; the engine that starts rotates. An engine
    that failed in any round gets no times."""
    counts = runs_per_round(fleet, settings.round_seconds)
    times = {engine: [] for engine in counts}
    for i in range(settings.rounds):
        order = list(counts)
        order = order[i % len(order):] + order[:i % len(order)]
        for engine in order:
            response = fleet.run_one(engine, "time", warm=1,
                                     count=counts[engine])
            if response:
                times[engine].append(stats.median(response["times"]))
    point.times = {e: t for e, t in times.items()
                   if len(t) == settings.rounds}


class Models(suite.ByModel):
    """Suite `models` and its table."""

    goal = "geomean(r) >= 1.1, no point whose 95 % upper bound is < 0.9"
    floor = 0.9

    def __init__(self, context):
        self.context = context
        self.points, self.rows, self.compiled = [], [], {}
        self.idle_burnt = self.busy = 0.0
        names = [("model", 8), ("thr", 3), ("shape", 24)]
        names += [(f"{fleets.NAMES[e]} ms", 15) for e in context.engines]
        names += [("r [95 %]", 18), ("jit", 5)]
        self.besides = [e for e in fleets.BESIDES if e in context.engines]
        names += [(f"{e}/ours", 18) for e in self.besides]
        self.table = report.Table(names, numbers=3)

    def run_model(self, model, threads):
        context = self.context
        with fleets.Fleet(context.engines, model.name, threads,
                          context.environments) as fleet:
            for dims, seed in shapes_of(model, context.settings):
                point = Point(model.name, threads, dims, seed)
                prepare(fleet, dims, seed)
                compare(fleet, point)
                measure(fleet, point, context.settings)
                response = fleet.ask("limber", "tiers")
                point.tiers = response["tiers"] if response else {}
                point.rate(context.peers)
                self.points.append(point)
                self.print_point(point)
            response = fleet.ask("limber", "stats")
            if response:
                kernels = response["stats"].get("kernels")
                self.compiled[f"{model.name}, {threads} threads"] = kernels
            self.idle_burnt += fleet.idle_burnt
            self.busy += fleet.busy
            self.note_failures(fleet, model.name, threads)
            context.versions.update(
                {e: a["version"] for e, a in fleet.opened.items()})

    def note_failures(self, fleet, model, threads):
        for engine, why in fleet.failed.items():
            self.rows.append({"model": model, "threads": threads,
                              "engine": engine, "failed": why})
            print(f"{model:8}  {threads:3}  {fleets.NAMES[engine]} failed: "
                  f"{why}", flush=True)

    def print_point(self, point):
        cells = [point.model, str(point.threads), report.dims_text(point.dims)]
        for engine in self.context.engines:
            times = point.times.get(engine)
            cells.append(report.ms(stats.median(times)) if times else "-")
        cells.append(report.ratio_text(point.ratio))
        cells.append(percent(point.above_pack()))
        cells += [report.ratio_text(point.besides.get(e)) for e in self.besides]
        if not point.agrees:
            cells.append(f"WRONG by {point.error:.1e}")
        elif point.ratio and point.ratio.interval[1] < self.floor:
            cells.append("LOSS")
        self.table.row(*cells)

    def summary(self):
        rated = [p for p in self.points if p.ratio]
        losses = [p for p in rated if p.ratio.interval[1] < self.floor]
        wrong = [p for p in self.points if not p.agrees]
        out = {"goal": self.goal, "points": [p.as_json() for p in self.points],
               "failed": self.rows, "kernels_compiled": self.compiled,
               "share_above_pack": share_above_pack(self.points),
               "geomean": stats.geomean_of([p.ratio for p in rated]),
               "losses": len(losses), "wrong": len(wrong),
               "idle_burnt": self.idle_burnt / self.busy if self.busy else 0}
        print()
        for key in sorted({(p.model, p.threads) for p in rated}):
            some = [p for p in rated if (p.model, p.threads) == key]
            self.print_group(f"{key[0]}, {key[1]} thread(s)", some)
        if rated:
            self.print_group("all", rated)
        print(f"goal: {self.goal}")
        print(f"points below the goal: {len(losses)} of {len(rated)}"
              + "".join(f"\n  {point_text(p)}" for p in losses))
        if wrong:
            print(f"wrong: {', '.join(map(point_text, wrong))}")
        print("kernels compiled after start: "
              + (", ".join(f"{k}: {n}" for k, n in self.compiled.items())
                 or "n/a"))
        print("share of step time above tier pack: "
              + percent(out["share_above_pack"]))
        print(f"CPU time of the other engines while one ran: "
              f"{100 * out['idle_burnt']:.1f} %")
        return out

    def print_group(self, name, points):
        worst = min(points, key=lambda p: p.ratio.value)
        text = report.ratio_text(stats.geomean_of([p.ratio for p in points]))
        line = f"{name}: geomean(r) {text}, worst {worst.ratio.value:.2f} at " \
               f"{point_text(worst)}"
        for engine in self.besides:
            some = [p.besides[engine] for p in points if engine in p.besides]
            if some:
                line += f"; {engine}/ours " + report.ratio_text(
                    stats.geomean_of(some))
        print(line)


def share_above_pack(points):
    """Unweighted mean of `above_pack` over the points."""
    shares = [p.above_pack() for p in points if p.tiers]
    return sum(shares) / len(shares) if shares else None


def percent(share):
    return "n/a" if share is None else f"{100 * share:.0f} %"


def point_text(point):
    return f"{point.model} {report.dims_text(point.dims)} " \
           f"x{point.threads}"


class Pack(Models):
    """Suite `pack`: no compiler, built-in kernels only, as every installation
    has them from its first request on."""

    goal = "geomean(r) >= 0.77, no point below 0.5; r = ONNX Runtime / ours"
    floor = 0.5

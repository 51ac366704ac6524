"""Suite `stream`: a fresh process serves requests, each at a new shape, with
compiling in the background, as in production."""

from pathlib import Path

import numpy as np

import fleet as fleets
import plot
import report
import stats

EARLY = 200  # requests after which the final speed should be reached
AROUND = 10  # neighbours on each side, averaged to smooth a request's share


def percentile(times, n):
    return float(np.percentile(times, n))


def share_at(times, final, i):
    """The share of its final speed that the engine had around request i."""
    part = slice(max(0, i - AROUND), i + AROUND + 1)
    return sum(final[part]) / sum(times[part])


class Stream:
    goal = "total <= 0.9 of the better peer's (geomean); p99 not above theirs"

    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        self.points = {}  # model -> [(the better peer's ms, ours)]
        names = [("model", 8), ("thr", 3), ("shapes", 6)]
        for engine in context.engines:
            names += [(f"{fleets.NAMES[engine]} s", 15), ("p50 ms", 7),
                      ("p99 ms", 7), ("+MB", 6)]
        names += [("r", 5), ("at 1", 5), (f"at {EARLY}", 6)]
        self.table = report.Table(names, numbers=2)

    def run(self):
        for i, model in enumerate(self.context.models):
            for threads in self.context.settings.threads:
                self.run_model(model, threads, i)
        return self.summary()

    # An engine has the machine to itself from its first request to its last: if
    # engines alternated, one would compile during the requests of another.
    def run_model(self, model, threads, number):
        context = self.context
        shapes = model.stream_draws(context.settings.shapes, seed=1)
        engines = context.engines
        first = number % len(engines)
        order = engines[first:] + engines[:first]
        found = {}
        for engine in order:
            worker = fleets.Worker(engine, model.name, threads,
                                   context.environments[engine])
            try:
                worker("open")
                found[engine] = worker("stream", timeout=3600, shapes=shapes,
                                       seed=1)
                if engine == "limber":
                    found[engine] |= worker("settled_stream", timeout=3600)
            except fleets.Failed as failure:
                self.note_failure(model, threads, engine, str(failure))
            finally:
                worker.close()
        self.print_row(model, threads, shapes, found)

    def note_failure(self, model, threads, engine, why):
        self.failed.append({"model": model.name, "threads": threads,
                            "engine": engine, "failed": why})
        print(f"{model.name:8}  {threads:3}  {fleets.NAMES[engine]} failed: "
              f"{why}", flush=True)

    def print_row(self, model, threads, shapes, found):
        cells = [model.name, str(threads), str(len(shapes))]
        row = {"model": model.name, "threads": threads, "shapes": shapes,
               "engines": found}
        for engine in self.context.engines:
            if engine not in found:
                cells += ["-"] * 4
                continue
            times = found[engine]["times"]
            cells += [f"{sum(times):.2f}", report.ms(percentile(times, 50)),
                      report.ms(percentile(times, 99)),
                      f"{found[engine]['grown'] / 2**20:.0f}"]
        self.rate(model, row, found)
        cells.append(f"{row['r']:.2f}" if "r" in row else "n/a")
        for i, share in row.get("share", {}).items():
            cells.append(f"{share:.2f}")
        self.rows.append(row)
        self.table.row(*cells)

    def rate(self, model, row, found):
        if "limber" not in found:
            return
        ours = found["limber"]["times"]
        final = found["limber"]["final"]
        row["share"] = {i: share_at(ours, final, min(i, len(ours)) - 1)
                        for i in (1, EARLY)}
        peers = [found[p]["times"] for p in self.context.peers if p in found]
        if not peers:
            return
        row["r"] = min(map(sum, peers)) / sum(ours)
        best = np.min(peers, axis=0)
        self.points.setdefault(model.name, []).extend(
            (1e3 * float(a), 1e3 * b) for a, b in zip(best, ours))

    def summary(self):
        ratios = [row["r"] for row in self.rows if "r" in row]
        mean = stats.geomean(ratios)
        print(f"\ngoal: {self.goal}")
        if ratios:
            print(f"total, the better peer's / ours: geomean {mean:.2f}, worst "
                  f"{min(ratios):.2f}")
        if self.context.plot and self.points:
            Path(self.context.plot).write_text(plot.scatter(
                "Every request at a new shape",
                ("the better of ONNX Runtime and OpenVINO, ms", "Limber, ms"),
                self.points, diagonal=True))
        return {"goal": self.goal, "rows": self.rows, "failed": self.failed,
                "geomean": mean}

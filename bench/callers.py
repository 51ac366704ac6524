"""Suite `callers`: several threads share one session, or have one each."""

import numpy as np

import fleet as fleets
import report
import stats


class Callers:
    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        names = [("model", 8), ("sessions", 8), ("callers", 7)]
        for engine in context.engines:
            names += [(f"{fleets.NAMES[engine]}/s", 15), ("p99 ms", 8)]
        names += [(f"runs/s, ours/{fleets.NAMES[e]}", 28)
                  for e in context.peers]
        self.table = report.Table(names, numbers=1)

    def run(self):
        for model in self.context.models:
            self.run_model(model)
        return {"rows": self.rows, "failed": self.failed}

    def run_model(self, model):
        settings = self.context.settings
        threads = max(settings.threads)
        dims = model.fixed[0]
        with fleets.Fleet(self.context.engines, model.name, threads,
                          self.context.environments) as fleet:
            fleet.all("feed", dims=dims, seed=1)
            fleet.all("time", warm=0, count=1)
            for engine in ("limber", *fleets.BESIDES):
                fleet.ask(engine, "settle", seconds=600, timeout=900)
            for several in (False, True):
                for callers in settings.callers:
                    if several and callers == 1:
                        continue
                    self.run_point(fleet, model, callers,
                                   callers if several else 1)
            for engine, why in fleet.failed.items():
                self.failed.append({"model": model.name, "engine": engine,
                                    "failed": why})
                print(f"{model.name:8}  {fleets.NAMES[engine]} failed: {why}")

    def run_point(self, fleet, model, callers, sessions):
        settings = self.context.settings
        waits, latencies = {}, {}  # seconds a run; seconds of each run
        for _ in range(settings.rounds):
            for engine in list(fleet.workers):
                got = fleet.run_one(engine, "callers", callers=callers,
                                 sessions=sessions,
                                 seconds=settings.caller_seconds)
                if got:
                    waits.setdefault(engine, []).append(
                        got["seconds"] / len(got["times"]))
                    latencies.setdefault(engine, []).extend(got["times"])
        waits = {e: w for e, w in waits.items() if len(w) == settings.rounds}
        self.print_point(model, callers, sessions, waits, latencies)

    def print_point(self, model, callers, sessions, waits, latencies):
        cells = [model.name, str(sessions), str(callers)]
        row = {"model": model.name, "sessions": sessions, "callers": callers,
               "dims": model.fixed[0], "per_second": {}, "p99": {},
               "ratio": {}}
        for engine in self.context.engines:
            if engine not in waits:
                cells += ["-", "-"]
                continue
            rate = 1 / stats.median(waits[engine])
            p99 = float(np.percentile(latencies[engine], 99))
            row["per_second"][engine], row["p99"][engine] = rate, p99
            cells += [f"{rate:.1f}", report.ms(p99)]
        for peer in self.context.peers:
            ratio = None
            if peer in waits and "limber" in waits:
                ratio = stats.Ratio([waits[peer]], waits["limber"])
                row["ratio"][peer] = ratio.as_json()
            cells.append(report.ratio_text(ratio))
        self.rows.append(row)
        self.table.row(*cells)

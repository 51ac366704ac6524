"""Suite `start`: load time and first run, each in a fresh process."""

import fleet as fleets
import report
import stats
import suite

# measure: (title, factor, unit); smaller is better
MEASURES = {
    "open": ("open", 1e3, "ms"),
    "first": ("first run", 1e3, "ms"),
    "peak": ("peak RSS", 2.0**-20, "MB"),
    "anon": ("RssAnon", 2.0**-20, "MB"),
}


def one_start(engine, model, threads, environment):
    """All measures of one process; RssAnon is what loading the model added."""
    worker = fleets.Worker(engine, model.name, threads, environment)
    try:
        opened = worker("open")
        worker("feed", dims=model.fixed[0], seed=1)
        first = worker("time", warm=0, count=1)["times"][0]
        memory = worker("memory")
        extra = worker("stats")["stats"]
        return {"open": opened["seconds"], "first": first,
                "peak": memory["VmHWM"],
                "anon": memory["RssAnon"] - opened["before"]["RssAnon"],
                "packed": extra.get("packed_bytes")}
    finally:
        worker.close()


def notes(what, row, ours):
    """Remarks about the goal for this row."""
    theirs = row["ratio"].get("onnxruntime")
    if what != "anon":
        return ["ABOVE"] if theirs and theirs["value"] > 1.3 else []
    packed = ours.get("packed", [None])[0]
    if packed is None:
        return []
    row["packed_bytes"] = packed
    above = stats.median(ours["anon"]) > packed + 2**24
    return [f"packed {packed / 2**20:.1f} MB", "ABOVE" if above else ""]


class Start(suite.ByModel):
    goal = "open <= 0.6, first run <= 1.0, peak RSS <= 1.0 of ONNX Runtime's " \
           "(geomean), none > 1.3; RssAnon <= packed bytes + 16 MB"

    def __init__(self, context):
        self.context = context
        self.ratios = {}  # (measure, peer) -> [Ratio of ours / theirs]
        self.rows, self.failed = [], []
        names = [("model", 8), ("thr", 3), ("what", 13)]
        names += [(fleets.NAMES[e], 13) for e in context.engines]
        names += [(f"ours/{fleets.NAMES[e]}", 20) for e in context.peers]
        self.table = report.Table(names, numbers=3)

    def run_model(self, model, threads):
        found = {}  # engine -> measure -> [one per round]
        gone = set()
        for _ in range(self.context.settings.rounds):
            for engine in self.context.engines:
                if engine in gone:
                    continue
                try:
                    got = one_start(engine, model, threads,
                                    self.context.environments[engine])
                except fleets.Failed as failure:
                    gone.add(engine)
                    self.note_failure(model, threads, engine, str(failure))
                    continue
                for what, value in got.items():
                    found.setdefault(engine, {}).setdefault(
                        what, []).append(value)
        found = {e: m for e, m in found.items() if e not in gone}
        for what in MEASURES:
            self.print_measure(model, threads, what, found)

    def note_failure(self, model, threads, engine, why):
        self.failed.append({"model": model.name, "threads": threads,
                            "engine": engine, "failed": why})
        print(f"{model.name:8}  {threads:3}  {fleets.NAMES[engine]} failed: "
              f"{why}", flush=True)

    def print_measure(self, model, threads, what, found):
        title, factor, unit = MEASURES[what]
        cells = [model.name, str(threads), f"{title}, {unit}"]
        row = {"model": model.name, "threads": threads, "what": what,
               "unit": unit, "median": {}, "interval": {}, "ratio": {}}
        for engine in self.context.engines:
            if engine not in found:
                cells.append("-")
                continue
            values = [factor * v for v in found[engine][what]]
            row["median"][engine] = stats.median(values)
            row["interval"][engine] = stats.interval(
                stats.drawn_medians(values))
            cells.append(f"{stats.median(values):.4g}")
        for peer in self.context.peers:
            ratio = None
            if peer in found and "limber" in found:
                ratio = stats.Ratio([found["limber"][what]], found[peer][what])
                self.ratios.setdefault((what, peer), []).append(ratio)
                row["ratio"][peer] = ratio.as_json()
            cells.append(report.ratio_text(ratio))
        cells += notes(what, row, found.get("limber", {}))
        self.rows.append(row)
        self.table.row(*cells)

    def summary(self):
        print(f"\ngoal: {self.goal}")
        out = {"goal": self.goal, "rows": self.rows, "failed": self.failed,
               "geomean": {}}
        for (what, peer), ratios in self.ratios.items():
            mean = stats.geomean_of(ratios)
            out["geomean"][f"{what} / {peer}"] = mean
            worst = max(r.value for r in ratios)
            print(f"{MEASURES[what][0]}, ours/{fleets.NAMES[peer]}: geomean "
                  f"{report.ratio_text(mean)}, worst {worst:.2f}")
        return out

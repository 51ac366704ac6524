"""Suite `first_run`: how much slower the first run at a shape is than the next
ones, on the same kernels: nothing is compiled meanwhile. Each shape counts with
its minimum over several fresh processes, which removes noise of the machine.
Each process begins with another shape, because the first run of a process also
pays for starting it."""

from pathlib import Path

import numpy as np

import fleet as fleets
import plot
import report
import suite


class FirstRun(suite.ByModel):
    goal = "first / steady, p99 over all models and shapes <= 1.25; raw p50 " \
           "and p99 not above ONNX Runtime's"

    def __init__(self, context):
        self.context = context
        self.rows, self.failed = [], []
        names = [("model", 8), ("thr", 3), ("shapes", 6)]
        for engine in context.engines:
            names += [(f"{fleets.NAMES[engine]} p50", 16), ("p99", 6),
                      ("p99 ms", 7)]
        self.table = report.Table(names, numbers=2)

    def run_model(self, model, threads):
        shapes = model.stream_draws(
            self.context.settings.first_run_shapes, seed=2)
        first, steady = {}, {}  # engine -> [process][shape]
        processes = self.context.settings.processes
        for i in range(processes):
            begin = i * len(shapes) // processes
            for engine in self.context.engines:
                self.run_process(engine, model, threads,
                                 np.roll(np.arange(len(shapes)), -begin),
                                 shapes, first, steady)
        row = {"model": model.name, "threads": threads, "shapes": shapes,
               "first": first, "steady": steady, "ratio": {}}
        cells = [model.name, str(threads), str(len(shapes))]
        for engine in self.context.engines:
            if engine not in first:
                cells += ["-"] * 3
                continue
            ratio = np.min(np.divide(first[engine], steady[engine]), axis=0)
            row["ratio"][engine] = ratio.tolist()
            raw = np.percentile(np.min(first[engine], axis=0), 99)
            cells += [f"{np.percentile(ratio, 50):.2f}",
                      f"{np.percentile(ratio, 99):.2f}", report.ms(raw)]
        self.rows.append(row)
        self.table.row(*cells)

    def run_process(self, engine, model, threads, order, shapes, first, steady):
        worker = fleets.Worker(engine, model.name, threads,
                               self.context.environments[engine])
        try:
            worker("open")
            got = worker("first_runs", timeout=3600, seed=2,
                         shapes=[shapes[i] for i in order])
            back = np.argsort(order)
            for times, found in ((first, "first"), (steady, "steady")):
                times.setdefault(engine, []).append(
                    np.array(got[found])[back].tolist())
        except fleets.Failed as failure:
            self.failed.append({"model": model.name, "threads": threads,
                                "engine": engine, "failed": str(failure)})
            print(f"{model.name:8}  {threads:3}  {fleets.NAMES[engine]} "
                  f"failed: {failure}", flush=True)
        finally:
            worker.close()

    def points(self, engine):
        """(milliseconds of the next runs, first / next) for all shapes."""
        return [(1e3 * steady, ratio) for row in self.rows
                if engine in row["ratio"]
                for steady, ratio in zip(np.min(row["steady"][engine], axis=0),
                                         row["ratio"][engine])]

    def summary(self):
        if self.context.plot and self.rows:
            Path(self.context.plot).write_text(plot.scatter(
                "The first run at a new shape",
                ("ms of the next runs", "first run / the next ones"),
                {fleets.NAMES[engine]: self.points(engine)
                 for engine in self.context.engines}))
        out = {"goal": self.goal, "rows": self.rows, "failed": self.failed,
               "p50": {}, "p99": {}}
        print(f"\ngoal: {self.goal}")
        for engine in self.context.engines:
            ratios = [r for row in self.rows
                      for r in row["ratio"].get(engine, [])]
            if ratios:
                out["p50"][engine] = float(np.percentile(ratios, 50))
                out["p99"][engine] = float(np.percentile(ratios, 99))
                print(f"{fleets.NAMES[engine]}: first / steady, p50 "
                      f"{out['p50'][engine]:.2f}, p99 {out['p99'][engine]:.2f}")
        return out

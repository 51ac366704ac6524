"""Suite `fusion`: requests of padded sequences with live fusion against static.

One process holds the same model twice, with LIMBER_FUSION=static and =live.
Each request is run by both, one right after the other, in changing order; no
shape repeats. Lengths are log-normal, so that the wanted share of positions is
padding. The live session sees 100 requests and one settle first.

Run as a program, this file is that process.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np

ENCODERS = ("minilm-pooled", "bert", "distilbert")
BATCHES = (8, 16, 32)
PADDING = (0.5, 0.25, 0.0)
GOALS = {0.5: 1.5, 0.25: 1.15, 0.0: 0.99}
WARM, PAIRS, QUICK_PAIRS = 100, 300, 40
MEDIAN_LENGTH = 36
SPREAD = {0.5: 0.75, 0.25: 0.25, 0.0: 0.0}  # of the logarithms of lengths
TOLERANCE = 0.03


def lengths(rng, batch, padding):
    """Lengths of a batch with that share of padding."""
    if padding == 0:
        return np.full(batch, rng.integers(20, 60))
    while True:
        drawn = np.exp(rng.normal(np.log(MEDIAN_LENGTH), SPREAD[padding],
                                  batch))
        drawn = np.clip(drawn, 4, 256).astype(int)
        share = 1 - drawn.sum() / (batch * drawn.max())
        if abs(share - padding) < TOLERANCE:
            return drawn


def request(rng, batch, padding, names):
    count = lengths(rng, batch, padding)
    seq = int(count.max())
    mask = np.arange(seq) < count[:, None]
    feeds = {"input_ids": rng.integers(5, 900, [batch, seq]),
             "attention_mask": mask.astype(np.int64),
             "token_type_ids": np.zeros([batch, seq], np.int64)}
    return {name: feeds[name] for name in names}


def timed(model, outputs, feeds):
    began = time.perf_counter()
    model.run(outputs, feeds)
    return time.perf_counter() - began


def serve(path, threads, batch, padding, pairs):
    """The process: prints times of pairs as JSON."""
    import limber

    models = []
    for fusion in ("static", "live"):
        os.environ["LIMBER_FUSION"] = fusion
        models.append(limber.load(path, threads=threads))
    names = [value.name for value in models[0].inputs]
    outputs = [models[0].outputs[-1].name]
    rng = np.random.default_rng(1)
    for i in range(WARM):
        feeds = request(rng, batch, padding, names)
        for model in models:
            model.run(outputs, feeds)
        if i == WARM // 2:
            for model in models:
                model.settle(600)
    before = models[1].stats().ragged_runs
    times = []
    for i in range(pairs):
        feeds = request(rng, batch, padding, names)
        pair = [0, 0]
        for k in (0, 1) if i % 2 else (1, 0):
            pair[k] = timed(models[k], outputs, feeds)
        times.append(pair)
    print(json.dumps({"times": times,
                      "ragged": models[1].stats().ragged_runs - before}))


class Fusion:
    goal = ("static / live >= 1.5 with half of the positions padding, >= 1.15 "
            "with a quarter, >= 0.99 without")

    def __init__(self, context):
        self.context = context
        self.rows = []

    def measure(self, name, threads, batch, padding):
        pairs = QUICK_PAIRS if self.context.settings.shapes < 1000 else PAIRS
        path = self.context.build / "models" / f"{name}.onnx"
        done = subprocess.run(
            [sys.executable, __file__, str(path), str(threads), str(batch),
             str(padding), str(pairs)], capture_output=True, text=True,
            env=self.context.environments["limber"], check=False)
        if done.returncode:
            return {"failed": done.stderr.strip()[-300:]}
        return json.loads(done.stdout)

    def run(self):
        import report

        table = report.Table(
            [("model", 13), ("thr", 3), ("batch", 5), ("padding", 7),
             ("static ms", 9), ("live ms", 9), ("static / live", 18),
             ("ragged", 6), ("goal", 4)], numbers=2)
        for name in ENCODERS:
            for threads in self.context.settings.threads:
                for batch in BATCHES:
                    for padding in PADDING:
                        self.row(table, name, threads, batch, padding)
        print(f"goal: {self.goal}")
        return {"goal": self.goal, "rows": self.rows}

    def row(self, table, name, threads, batch, padding):
        import report
        import stats

        found = self.measure(name, threads, batch, padding)
        row = {"model": name, "threads": threads, "batch": batch,
               "padding": padding, **found}
        self.rows.append(row)
        if "failed" in found:
            table.row(name, threads, batch, padding,
                      f"failed: {found['failed']}")
            return
        static, live = np.array(found["times"]).T
        draws = stats.drawn_medians(static / live)
        row["ratio"] = {"value": stats.median(static / live),
                        "interval": stats.interval(draws)}
        met = row["ratio"]["value"] >= GOALS[padding]
        table.row(name, threads, batch, f"{padding:.2f}",
                  report.ms(stats.median(static)), report.ms(stats.median(live)),
                  report.ratio_text(row["ratio"]),
                  f"{found['ragged'] / len(live):.2f}", "yes" if met else "no")


if __name__ == "__main__":
    model, *numbers = sys.argv[1:]
    serve(model, int(numbers[0]), int(numbers[1]), float(numbers[2]),
          int(numbers[3]))

"""Suite `priority`: requests to several models in one process while kernels are
compiled: in order of priority, against first in, first out. The measure is the
area between the latency of requests and their final latency."""

import random

import fleet as fleets
import report
import stats

MIX = {"minilm": 5, "ocr-rec": 3, "magika": 2, "vad": 2, "ocr-cls": 2,
       "yolo": 1, "ocr-det": 1}  # relative frequency of requests
SHAPES = 3    # per model, the first as often as all others together
GAP = 0.004   # seconds between two requests


def trace(models, count, seed):
    """(model, shape) of every request."""
    rng = random.Random(seed)
    known = {m.name: m for m in models if m.name in MIX}
    drawn = {name: m.draws(SHAPES, seed=seed) for name, m in known.items()}
    names = list(known)
    weights = [MIX[name] for name in names]
    found = []
    for _ in range(count):
        name = rng.choices(names, weights)[0]
        shapes = drawn[name]
        i = 0 if rng.random() < 0.5 else rng.randrange(len(shapes))
        found.append((name, shapes[i]))
    return found


def area(found):
    """Sum over all requests of the seconds above the final latency."""
    return sum(max(0, a - b) for a, b in zip(found["times"], found["final"]))


class Priority:
    goal = "area above the final latency at least 10 % smaller than with FIFO"

    def __init__(self, context):
        self.context = context
        self.rows = []
        self.table = report.Table(
            [("trace", 5), ("thr", 3), ("requests", 8), ("final s", 7),
             ("prio s", 7), ("fifo s", 7), ("ratio", 5)], numbers=1)

    def run(self):
        for threads in self.context.settings.threads:
            for seed in range(1, self.context.settings.processes + 1):
                self.run_trace(threads, seed)
        return self.summary()

    def process(self, threads, order, requests):
        environment = {**self.context.environments["limber"],
                       "LIMBER_COMPILE_ORDER": order}
        worker = fleets.Worker("limber", requests[0][0], threads, environment)
        try:
            return worker("trace", timeout=3600, requests=requests, gap=GAP)
        finally:
            worker.close()

    def run_trace(self, threads, seed):
        requests = trace(self.context.models, self.context.settings.shapes,
                         seed)
        orders = ["priority", "fifo"] if seed % 2 else ["fifo", "priority"]
        found = {order: self.process(threads, order, requests)
                 for order in orders}
        areas = {order: area(got) for order, got in found.items()}
        row = {"seed": seed, "threads": threads, "areas": areas,
               "found": found, "requests": requests,
               "ratio": areas["priority"] / areas["fifo"]}
        self.rows.append(row)
        self.table.row(str(seed), str(threads), str(len(requests)),
                       f"{sum(found['priority']['final']):.2f}",
                       f"{areas['priority']:.2f}", f"{areas['fifo']:.2f}",
                       f"{row['ratio']:.2f}")

    def summary(self):
        ratio = stats.geomean([row["ratio"] for row in self.rows])
        print(f"\ngoal: {self.goal}")
        print(f"area, priority / FIFO: geomean {ratio:.2f}")
        return {"goal": self.goal, "rows": self.rows, "ratio": ratio}

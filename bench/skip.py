"""Suite `skip`: what it saves that nodes that do nothing at the shapes of a run
are skipped, and what deciding it costs. Each model runs with LIMBER_SKIP=on and
with off, interleaved. callgrind counts the instructions that planning takes for
a new signature with and without, and for chains of skippable nodes by length.
The last table lists the nodes that could be skipped at other shapes, but were
executed here."""

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import fleet as fleets
import models
import report
import stats

ON, OFF = "limber", "skip=off"
PLANS = 10  # that callgrind counts per signature
MOST_PLANNING = 1.05  # instructions with skips / without
CHAIN = (1000, 10000)  # nodes
MOST_GROWTH = 1.1  # of the instructions per node, from the first to the second
# Models that must have skips, and at which dims; {}: at every shape.
MUST_SKIP = [("minilm", {"batch": 1}), ("minilm", {"seq": 1}), ("yolo", {}),
             ("ocr-rec", {}), ("vad", {})]
# What an operator does, if it is executed at some shape.
EXECUTED = ("launched", "fused", "called", "copied")
# The condition of the rule (docs/skipping.md) that did not hold.
WHY = {
    "Transpose": "dims above 1 change their order",
    "Slice": "its steps or the dtype of its data need a copy",
    "Gather": "its indices are not consecutive, or not known when planning",
    "Concat": "several inputs have elements",
    "Expand": "a reader needs the repeated elements in memory",
    "Resize": "a scale is not 1", "Pad": "a pad is not 0",
    "Tile": "a repeat is not 1", "Cast": "the dtypes differ",
    "Where": "the condition is not the same everywhere, or not known",
    "Dropout": "its mask is read", "Unfold": "rows of its input are not adjacent in memory",
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow"),
                    "no operand is neutral, or the dims differ"),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), "it has several inputs"),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                     "ReduceProd", "CumSum", "CumProd"),
                    "an axis that it works along is longer than 1"),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalMaxPool",
                     "GlobalAveragePool"), "the window has several elements"),
    **dict.fromkeys(("ScatterND", "ScatterElements"), "there are updates"),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"),
                    "a reader needs other memory or other strides"),
}


def count_instructions(build, model, inputs, skip, plans=PLANS):
    """Instructions of planning a new signature; None without valgrind."""
    if not shutil.which("valgrind"):
        return None
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         "--collect-atstart=no", "--toggle-collect=bench_count_plans",
         str(build / "bench" / "plan"), model, str(plans), *inputs],
        capture_output=True, text=True,
        env={"LIMBER_SKIP": skip, "LIMBER_JIT": "off", "LIMBER_LOG": "error"})
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return int(re.search(r"Collected : (\d+)", done.stderr)[1]) / plans


def save_chain(path, ops, n):
    """n nodes that do nothing where the dims a and b are 1, in a row."""
    from onnx import TensorProto, helper, numpy_helper, save
    node, value = helper.make_node, helper.make_tensor_value_info
    constants = {"zero": 0, "first": [0]}
    nodes = []
    for i in range(n):
        x, y = f"v{i}" if i else "x", f"v{i + 1}" if i < n - 1 else "y"
        op = ops[i % len(ops)]
        if op == "Slice":  # equal ends would be merged
            constants[f"end{i}"] = [1000000 - i]
        more = {"CumSum": ["zero"], "Slice": ["first", f"end{i}"]}
        perm = {"perm": [0, 2, 1]} if op == "Transpose" else {}
        nodes.append(node(op, [x, *more.get(op, [])], [y], **perm))
    graph = helper.make_graph(
        nodes, "chain", [value("x", TensorProto.FLOAT, ["a", "b", "c"])],
        [value("y", TensorProto.FLOAT, ["d", "e", "f"])],
        [numpy_helper.from_array(np.array(value, np.int64), name)
         for name, value in constants.items()])
    save(helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17)]), str(path))


def shapes_of(model, settings):
    """The fixed shapes, the smallest one, and one of a single item: quick runs
    take the last two."""
    found = [*model.fixed[:settings.fixed], model.draws(2, seed=1)[1],
             model.smallest()]
    if settings.rounds < 9:
        found = found[-2:]
    return [dims for i, dims in enumerate(found) if dims not in found[:i]]


class Skip:
    goal = f"planning instructions on / off <= {MOST_PLANNING}; planning a " \
           "chain is linear in its length; skips in MiniLM at batch 1 and at " \
           "length 1, YOLO, OCR recognition and VAD"

    def __init__(self, context):
        self.context, self.rows, self.failed = context, [], []
        self.quick = context.settings.rounds < 9
        self.executed = Counter()

    def run(self):
        print("kernels: " + ("reusable ones only" if self.quick else "all")
              + "; nodes, steps and MB: with skips / without")
        self.table = report.Table(
            [("model", 8), ("shape", 32), ("skipped", 7), ("launches", 9),
             ("calls", 7), ("copies", 7), ("MB moved", 15), ("on ms", 7),
             ("off / on [95 %]", 18), ("plan instr.", 11), ("on / off", 8)],
            numbers=2)
        with tempfile.TemporaryDirectory() as store:
            for model in self.context.models:
                self.run_model(model, store)
        chains = self.measure_chains()
        return self.summary(chains)

    def environments(self, store):
        """Both have the same kernels, each of which is compiled once."""
        found = dict(self.context.environments["limber"],
                     LIMBER_CACHE_DIR=store)
        if self.quick:
            found["LIMBER_PREFER_REUSABLE_KERNELS"] = "1"
        return {ON: {**found, "LIMBER_SKIP": "on"},
                OFF: {**found, "LIMBER_SKIP": "off"}}

    def run_model(self, model, store):
        settings = self.context.settings
        with fleets.Fleet([ON, OFF], model.name, settings.threads[0],
                          self.environments(store)) as fleet:
            for dims in shapes_of(model, settings):
                point = models.Point(model.name, settings.threads[0], dims, 1)
                self.prepare(fleet, dims)
                found = fleet.all("explain")
                models.measure(fleet, point, settings)
                if len(fleet.workers) == 2:
                    self.add_row(model, point, found)
            self.failed += [f"{model.name}, {engine}: {why}"
                            for engine, why in fleet.failed.items()]

    def prepare(self, fleet, dims):
        fleet.all("feed", dims=dims, seed=1)
        fleet.all("time", warm=0, count=1)
        fleet.all("settle", seconds=models.SETTLE_SECONDS, timeout=900)
        fleet.all("time", warm=0, count=1)

    def add_row(self, model, point, found):
        inputs = report.inputs_text(model, point.dims)
        with ThreadPoolExecutor(2) as pool:
            planning = list(pool.map(
                lambda skip: count_instructions(
                    self.context.build, model.path, inputs, skip),
                ("on", "off")))
        ratio = stats.Ratio([point.times[OFF]], point.times[ON])
        row = {"model": model.name, "dims": point.dims, "on": found[ON],
               "off": found[OFF], "time": ratio.as_json(),
               "planning": planning, "seconds": point.times}
        self.rows.append(row)
        for op, disposition, reason, n in found[ON]["executed"]:
            self.executed[op, disposition, reason] += n
        self.print_row(row, ratio)

    def print_row(self, row, ratio):
        on, off, planning = row["on"], row["off"], row["planning"]

        def both(key):
            return f"{on[key]}/{off[key]}"
        moved = "/".join(f"{x['bytes'] / 1e6:.3g}" for x in (on, off))
        skipped = "/".join(str(sum(x["skipped"].values())) for x in (on, off))
        cells = [row["model"], report.dims_text(row["dims"]), skipped,
                 both("launches"), both("calls"), both("copies"), moved,
                 report.ms(stats.median(row["seconds"][ON])),
                 report.ratio_text(ratio)]
        if planning[0]:
            cells += [f"{planning[0]:.0f}", f"{planning[0] / planning[1]:.3f}"]
        self.table.row(*cells)

    def measure_chains(self):
        """Instructions per node of chains, at shapes where all nodes are
        skipped and where few are."""
        if not shutil.which("valgrind"):
            return []
        rows = []
        for ops in (["CumSum"], ["Slice"], ["Transpose", "CumSum"],
                    ["Relu", "Transpose", "CumSum"]):
            with tempfile.TemporaryDirectory() as directory:
                paths = [str(Path(directory) / f"{n}.onnx") for n in CHAIN]
                for path, n in zip(paths, CHAIN):
                    save_chain(path, ops, n)
                for shape in ("1x1x4", "3x4x5"):
                    rows.append(self.measure_chain(ops, paths, shape))
        return rows

    def measure_chain(self, ops, paths, shape):
        with ThreadPoolExecutor(2) as pool:
            counts = list(pool.map(
                lambda path: count_instructions(
                    self.context.build, path, [f"x={shape}"], "on", 1), paths))
        per_node = [count / n for count, n in zip(counts, CHAIN)]
        return {"ops": ops, "shape": shape, "instructions": counts,
                "growth": per_node[1] / per_node[0], "per_node": per_node}

    # -- results --------------------------------------------------------------

    def summary(self, chains):
        print()
        self.print_chains(chains)
        self.print_executed()
        planning = [row["planning"][0] / row["planning"][1]
                    for row in self.rows if row["planning"][0]]
        costly = [p for p in planning if p > MOST_PLANNING]
        bent = [c for c in chains if c["growth"] > MOST_GROWTH]
        without = self.without_skips()
        ratios = [row["time"]["value"] for row in self.rows]
        print(f"\ngoal: {self.goal}")
        print(f"time off / on: geometric mean {stats.geomean(ratios):.3f} over "
              f"{len(ratios)} points" if ratios else "no points")
        print("planning instructions on / off: "
              + (f"at most {max(planning):.3f}, {len(costly)} points above "
                 f"{MOST_PLANNING}" if planning else "no valgrind"))
        print(f"chains that are not linear: {len(bent)} of {len(chains)}")
        print("models without the skips that they must have: "
              + (", ".join(without) or "none"))
        for line in self.failed:
            print(f"failed: {line}")
        return {"goal": self.goal, "points": self.rows, "chains": chains,
                "executed": [[*key, n] for key, n in self.executed.items()],
                "failed": self.failed, "without_skips": without,
                "planning_above_goal": len(costly), "bent_chains": len(bent)}

    def print_chains(self, chains):
        table = report.Table(
            [("chain", 26), ("x", 6)]
            + [(f"instr./node, n={n}", 20) for n in CHAIN] + [("growth", 7)],
            numbers=2)
        for c in chains:
            table.row(", ".join(c["ops"]), c["shape"],
                      *(f"{x:.0f}" for x in c["per_node"]),
                      f"{c['growth']:.3f}")

    def print_executed(self):
        """By operator: how the nodes are executed that may do nothing at other
        shapes, and the condition that does not hold."""
        print("\nexecuted, although skippable at other shapes:")
        table = report.Table(
            [("operator", 18), *((d, 8) for d in EXECUTED)], numbers=1)
        for op in sorted({op for op, _, _ in self.executed}):
            def total(disposition):
                return sum(n for (o, d, _), n in self.executed.items()
                           if (o, d) == (op, disposition))
            reasons = Counter()
            for (o, d, reason), n in self.executed.items():
                if o == op and d in ("called", "copied"):
                    reasons[reason] += n
            text = WHY.get(op, "")
            if reasons:
                text += " (" + ", ".join(f"{r} {n}" for r, n in
                                         reasons.most_common()) + ")"
            table.row(op, *(str(total(d)) for d in EXECUTED), text)

    def without_skips(self):
        found = []
        for name, dims in MUST_SKIP:
            points = [row for row in self.rows if row["model"] == name
                      and dims.items() <= row["dims"].items()]
            if name in {m.name for m in self.context.models} and not (
                    points and all(sum(p["on"]["skipped"].values())
                                   for p in points)):
                found.append(" ".join([name, report.dims_text(dims)]).strip())
        return found

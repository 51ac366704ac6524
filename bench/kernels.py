"""Suite `kernels`: every kernel of a model against what one core can do."""

import json
import os
import subprocess

import report

# Share of its line that a kernel must reach: products and rows, and those that
# do nothing but move and map elements.
GOOD, GOOD_MAP = 0.9, 0.7


class Kernels:
    goal = "85 % of kernel time at >= 90 % of the line (elementwise and " \
           "movement: 70 %)"

    def __init__(self, context):
        self.context = context
        self.program = context.build / "bench" / "kernels"
        self.environment = dict(
            os.environ, LIMBER_JIT="process", LIMBER_COMPILE="settle",
            LIMBER_JIT_PATH=str(context.build / "limber-jit"))

    def run(self):
        shapes = [self.run_shape(model, dims)
                  for model in self.context.models
                  for dims in model.fixed[:self.context.settings.fixed]]
        print(f"goal: {self.goal}")
        for model in self.context.models:
            some = [s["share_good"] for s in shapes
                    if s["model"] == model.name and s["kernels"]]
            if some:
                print(f"{model.name}: " + ", ".join(
                    f"{100 * share:.0f} %" for share in some))
        return {"goal": self.goal, "shapes": shapes}

    def run_shape(self, model, dims):
        print(f"{model.name}, {report.dims_text(dims)}")
        answer = subprocess.run(
            [str(self.program), model.path, *report.inputs_text(model, dims)],
            capture_output=True, text=True, env=self.environment)
        lines = [json.loads(line) for line in answer.stdout.splitlines()]
        kernels = [line for line in lines if "spec" in line]
        out = {"model": model.name, "dims": dims, "kernels": kernels,
               "share_good": 0.0}
        if answer.returncode:
            out["failed"] = answer.stderr.strip()[-300:]
            print(f"  failed: {out['failed']}")
        if kernels:
            judge(kernels)
            out["share_good"] = sum(k["share"] for k in kernels if k["good"])
            print_kernels(kernels)
        if lines and "launches" in lines[-1]:
            out["model_facts"] = lines[-1]
            print_total(out)
        print()
        return out


def judge(kernels):
    """Adds share of the time, fraction of the line, and whether it is good."""
    total = sum(k["count"] * k["best"] for k in kernels)
    for k in kernels:
        k["share"] = k["count"] * k["best"] / total
        k["fraction"] = k["line"] / k["best"]
        k["good"] = k["fraction"] >= (GOOD_MAP if k["form"] == "map"
                                      else GOOD)


def print_kernels(kernels):
    table = report.Table(
        [("form", 9), ("dims", 28), ("count", 5), ("us", 8), ("median", 8),
         ("share", 6), ("GFLOP/s", 8), ("GB/s", 7), ("bound", 9),
         ("of line", 7)], numbers=2)
    for k in sorted(kernels, key=lambda k: -k["share"]):
        dims = [*map(str, k["loops"]), "x".join(map(str, k["dims"].values()))]
        bound = k["bound"] if k["bound"] == "fma" else k["level"]
        table.row(k["form"], " ".join(dims), str(k["count"]),
                  f"{1e6 * k['best']:.1f}", f"{1e6 * k['median']:.1f}",
                  f"{100 * k['share']:.1f} %",
                  f"{1e-9 * k['flops'] / k['best']:.1f}",
                  f"{1e-9 * k['bytes'] / k['best']:.1f}", bound,
                  f"{100 * k['fraction']:.0f} %",
                  "" if k["good"] else "below",
                  f"{k['spec']} [{k['facts']}]")


def print_total(out):
    facts = out["model_facts"]
    total = sum(k["count"] * k["best"] for k in out["kernels"])
    line = sum(k["count"] * k["line"] for k in out["kernels"])
    print(f"{facts['launches']} launches of {len(out['kernels'])} kernels, "
          f"{1e3 * total:.3g} ms, line {1e3 * line:.3g} ms; "
          f"{facts['host_steps']} steps by the host's operators are not here"
          + ("; stages that data decides are not here"
             if facts["later_stages"] else ""))
    print(f"share of kernel time that is good: {100 * out['share_good']:.0f} %")

"""Suite `tune`: the tiles that src/spec/choose.c takes against all others."""

import json
import os
import subprocess

import report


class Tune:
    goal = "the tiles chosen within 3 % of the fastest ones, over all kernels"

    def __init__(self, context):
        self.context = context
        self.program = context.build / "bench" / "tune"
        self.environment = dict(
            os.environ, LIMBER_JIT="process", LIMBER_COMPILE="settle",
            LIMBER_CACHE_DIR="off", LIMBER_LOG="error",
            LIMBER_JIT_PATH=str(context.build / "limber-jit"))

    def run(self):
        shapes = [self.run_shape(model, dims)
                  for model in self.context.models
                  for dims in model.fixed[:self.context.settings.fixed]]
        print(f"goal: {self.goal}")
        for shape in shapes:
            if shape["kernels"]:
                print(f"{shape['model']}, {report.dims_text(shape['dims'])}: "
                      f"{100 * shape['loss']:.1f} % slower than the fastest")
        return {"goal": self.goal, "shapes": shapes}

    def run_shape(self, model, dims):
        print(f"{model.name}, {report.dims_text(dims)}")
        answer = subprocess.run(
            [str(self.program), model.path, *report.inputs_text(model, dims)],
            capture_output=True, text=True, env=self.environment)
        kernels = [json.loads(line) for line in answer.stdout.splitlines()]
        out = {"model": model.name, "dims": dims, "kernels": kernels}
        if answer.returncode:
            out["failed"] = answer.stderr.strip()[-300:]
            print(f"  failed: {out['failed']}")
        for kernel in kernels:
            judge(kernel)
        if kernels:
            print_kernels(kernels)
            out["loss"] = sum(k["count"] * k["taken"] for k in kernels) / \
                sum(k["count"] * k["fastest"]["best"] for k in kernels) - 1
        print()
        return out


def judge(kernel):
    """The tile chosen was measured first and last: its time is the lesser, and
    how far apart they are is the noise."""
    first, *others, last = kernel["tiles"]
    kernel["taken"] = min(first["best"], last["best"])
    kernel["noise"] = max(first["best"], last["best"]) / kernel["taken"] - 1
    kernel["fastest"] = min([dict(first, best=kernel["taken"]), *others],
                            key=lambda tile: tile["best"])


def tile_text(tile):
    return f"{tile['rows']}x{tile['cols'] or '*'}"


def print_kernels(kernels):
    table = report.Table(
        [("form", 9), ("dims", 28), ("count", 5), ("tiles", 5),
         ("chosen", 7), ("us", 8), ("noise", 6), ("fastest", 7), ("us", 8),
         ("slower", 7)], numbers=2)
    for k in sorted(kernels, key=lambda k: -k["count"] * k["taken"]):
        dims = [*map(str, k["loops"]), "x".join(map(str, k["dims"].values()))]
        table.row(k["form"], " ".join(dims), str(k["count"]),
                  str(len(k["tiles"]) - 1), tile_text(k["tiles"][0]),
                  f"{1e6 * k['taken']:.1f}", f"{100 * k['noise']:.0f} %",
                  tile_text(k["fastest"]), f"{1e6 * k['fastest']['best']:.1f}",
                  f"{100 * (k['taken'] / k['fastest']['best'] - 1):.0f} %")

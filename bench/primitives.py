"""Suite `primitives`: one primitive per family at many shapes, with and without
preferring reusable kernels: how many kernels are compiled, how many of them are
specialised (not reusable in the store), and the ratio of run times."""

import os
import random
import re
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import report
import stats

# family: (how a shape is drawn, the case at that shape)
FAMILIES = {
    "convolution": (
        lambda draw: (draw(3, 64), draw(3, 64)),
        "convolution in=f32:1x32x?{}x?{}:last,f32:64x32x3x3:const,f32:64:const "
        "pads=1x1x1x1 post=relu"),
    "fully connected": (
        lambda draw: (draw(1, 2000),),
        "matmul in=f32:?{}x256,f32:256x256:const,f32:256:const post=relu"),
    "matmul": (
        lambda draw: (lambda m, k, n: (m, k, k, n))(
            draw(1, 200), draw(1, 200), draw(1, 200)),
        "matmul in=f32:?{}x?{},f32:?{}x?{}"),
    "softmax": (
        lambda draw: (draw(1, 100), draw(1, 1000)),
        "softmax in=f32:?{}x?{} axis=-1"),
    "layer norm": (
        lambda draw: (lambda r, c: (r, c, c, c))(draw(1, 100), draw(1, 1000)),
        "normalization alg=layer_norm in=f32:?{}x?{},f32:?{},f32:?{} axis=-1"),
    "eltwise": (
        lambda draw: (draw(1, 100), draw(1, 1000)),
        "eltwise alg=gelu in=f32:?{}x?{}"),
}


def cases_of(family, count):
    draw, case = FAMILIES[family]
    source = random.Random(family)
    drawn = set()
    while len(drawn) < count:
        drawn.add(draw(source.randint))
    return [case.format(*dims) for dims in sorted(drawn)]


class Primitives:
    def __init__(self, context):
        self.context = context
        self.table = report.Table([
            ("family", 16), ("shapes", 7), ("kernels off", 12),
            ("kernels on", 11), ("on/off", 7), ("90 % of shapes", 16)],
            numbers=1)

    def command(self, cases, milliseconds, store="off"):
        with tempfile.NamedTemporaryFile("w", suffix=".cases") as batch:
            batch.write("".join(case + "\n" for case in cases))
            batch.flush()
            done = subprocess.run(
                [self.context.build / "limber", "primitive",
                 "--mode=performance", "--time", str(milliseconds),
                 "--batch", batch.name],
                capture_output=True, text=True,
                env=dict(os.environ, LIMBER_CACHE_DIR=store))
        if done.returncode:
            raise RuntimeError(done.stdout[-500:] + done.stderr)
        return done.stdout

    def kernels(self, cases, knob):
        """The number of kernels in the store, and how many are specialised."""
        with tempfile.TemporaryDirectory() as directory:
            store = Path(directory, "store")
            self.command([f"{c} reusable={knob}" for c in cases], 0, store)
            with closing(sqlite3.connect(store / "kernels.db")) as database:
                return database.execute(
                    "SELECT count(*), count(*) - sum(reusable) FROM kernel"
                ).fetchone()

    def ratios(self, cases):
        """on/off for each shape, the two measured one after the other."""
        both = [f"{c} reusable={knob}" for c in cases for knob in (0, 1)]
        text = self.command(both, 4)
        times = [float(t) for t in re.findall(r"min +([\d.]+) ", text)]
        return [on / off for off, on in zip(times[::2], times[1::2])]

    def row(self, family):
        cases = cases_of(family, self.context.settings.shapes)
        (off, off_specialised), (on, on_specialised) = (
            self.kernels(cases, knob) for knob in (0, 1))
        ratios = sorted(self.ratios(cases))
        low, high = (ratios[int(len(ratios) * q)] for q in (0.05, 0.95))
        row = {"family": family, "shapes": len(cases), "kernels_off": off,
               "kernels_on": on, "specialised_off": off_specialised,
               "specialised_on": on_specialised,
               "ratio": stats.geomean(ratios), "low": low, "high": high}
        self.table.row(family, str(len(cases)), f"{off} ({off_specialised})",
                       f"{on} ({on_specialised})",
                       f"{row['ratio']:.3f}", f"{low:.2f} to {high:.2f}")
        return row

    def run(self):
        rows = [self.row(family) for family in FAMILIES]
        print("kernels: in the store (of these specialised)")
        return {"rows": rows}

"""Reads bench/shapes.def, the inputs and shapes of the public models, or the
same from bench/heldout.def, bench/int8.def and bench/decoder.def.

    model = shapes.load()["minilm"]
    for dims in model.draws(10, seed=1):    # {"batch": 1, "seq": 17}, ...
        feeds = model.feeds(dims, seed=1)   # {"input_ids": array, ...}

Equal seeds give equal draws and equal feeds.
"""

import random
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"f32": np.float32, "i64": np.int64, "i32": np.int32}


def parse_range(text):
    """All numbers of `n`, `{a..b}`, `{a..b/step}` or `{a,b}`."""
    inner = text[1:-1] if text[0] == "{" and text[-1] == "}" else text
    if m := re.fullmatch(r"(\d+)\.\.(\d+)(?:/(\d+))?", inner):
        first, last, step = (int(g or 1) for g in m.groups())
        return range(first, last + 1, step)
    return [int(n) for n in inner.split(",")]


class Input:
    """One line: name, dtype, dims (numbers or symbols), values."""

    def __init__(self, line):
        m = re.fullmatch(r"(\S+)\s+(\w+)\[(.*?)\]\s+(\S+)", line)
        self.name, dtype, dims, self.values = m.groups()
        self.dtype = DTYPES[dtype]
        self.dims = [d for d in dims.split(",") if d]

    def array(self, dims, rng):
        shape = [dims[d] if d in dims else int(d) for d in self.dims]
        return np.asarray(self.fill(shape, dims, rng)).astype(self.dtype)

    def fill(self, shape, dims, rng):
        if self.values in dims:
            return np.full(shape, dims[self.values])
        if self.values == "normal":
            return rng.standard_normal(shape)
        if self.values == "mask":
            ones = rng.integers(1, shape[-1] + 1, [*shape[:-1], 1])
            return np.arange(shape[-1]) < ones
        low, high = map(int, self.values.split(".."))
        if self.dtype is np.float32:
            return rng.uniform(low, high, shape)
        return rng.integers(low, high + 1, shape)


def distinct(families, count, rng):
    """Up to `count` distinct draws: fewer if the families have fewer."""
    found = {}
    for _ in range(50 * count):
        family = rng.choice(families)
        dims = {s: rng.choice(r) for s, r in family.items()}
        found.setdefault(tuple(sorted(dims.items())), dims)
        if len(found) == count:
            break
    return list(found.values())


class Model:
    def __init__(self, name, directory):
        self.name = name
        self.path = str(directory / f"{name}.onnx")
        self.inputs = []
        self.families = []  # each: symbol -> numbers
        self.bench_families = []  # for benchmarks; empty: `families`
        self.stream_families = []  # additional ones for streams
        self.fixed = []  # fixed shapes of benchmarks: symbol -> number

    def smallest(self):
        return {s: min(r) for s, r in self.families[0].items()}

    def largest(self):
        """The largest shape of each family."""
        return [{s: max(r) for s, r in f.items()} for f in self.families]

    def two_smallest(self):
        """The smallest shape, and the next one in all symbols."""
        family = self.families[0]
        next_up = {s: sorted(r)[:2][-1] for s, r in family.items()}
        return [self.smallest(), next_up]

    def draws(self, count, seed):
        """The smallest shape, one of batch 1, then any. Shapes repeat only if
        the families have too few."""
        rng = random.Random(f"{self.name} {seed}")
        found = [self.smallest()]
        while len(found) < count:
            for _ in range(50):
                dims = self.draw(rng, single=len(found) == 1)
                if dims not in found:
                    break
            found.append(dims)
        return found[:count]

    def draw(self, rng, single):
        families = self.families
        if single:
            families = [f | {"batch": [1]} for f in families
                        if 1 in f.get("batch", [])] or families
        family = rng.choice(families)
        return {s: rng.choice(r) for s, r in family.items()}

    def bench_draws(self, count, seed):
        """Shapes of benchmarks in addition to `fixed`: distinct, so fewer if
        the families have fewer."""
        families = self.bench_families or self.families
        rng = random.Random(f"bench {self.name} {seed}")
        return distinct(families, count, rng)

    def stream_draws(self, count, seed):
        """Distinct shapes of all families."""
        rng = random.Random(f"stream {self.name} {seed}")
        return distinct(self.families + self.bench_families +
                        self.stream_families, count, rng)

    def feeds(self, dims, seed):
        words = [seed, *self.name.encode(), *dims.values()]
        rng = np.random.default_rng(words)
        return {i.name: i.array(dims, rng) for i in self.inputs}


def load(group=""):
    """name -> Model, in the file's order: the public ones, or a group."""
    path = ROOT / "bench" / f"{group or 'shapes'}.def"
    directory = ROOT / "build" / "models" / group
    models = {}
    for line in Path(path).read_text().splitlines():
        word, _, rest = line.split("#")[0].strip().partition(" ")
        rest = rest.strip()
        if word == "model":
            model = models[rest] = Model(rest, directory)
        elif word == "input":
            model.inputs.append(Input(rest))
        elif word in ("dims", "bench", "stream", "at"):
            pairs = (pair.split("=") for pair in rest.split())
            family = {s: parse_range(r) for s, r in pairs}
            if word == "at":
                model.fixed.append({s: r[0] for s, r in family.items()})
            elif word == "dims":
                model.families.append(family)
            elif word == "bench":
                model.bench_families.append(family)
            else:
                model.stream_families.append(family)
        elif word:
            raise ValueError(f"{path}: unknown line '{line.strip()}'")
    return models


def find(name):
    """A model of any file."""
    groups = ("", "heldout", "int8", "decoder")
    return {n: m for g in groups for n, m in load(g).items()}[name]

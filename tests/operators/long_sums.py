"""Accuracy of long sums: every reduction, in every layout, at some tiers.

    long_sums.py [--tiers TIER[/THREADS],...] [--cases NAME,...] [--n N,...]
                 [--seeds A:B]

prints, as JSON, for each tier the worst relative error of each case and length
over the seeds, of Limber or of ONNX Runtime (tier `onnxruntime`), against the
same computed by numpy in float64. All data is positive, so that the relative
error of a sum does not depend on cancellation.

For an operator that reduces, the measure is the relative error of its results.
One that keeps the shape (softmax, normalisation) also rounds each element,
which is not an error of its sums: the measure is, along each reduced line, the
common shift (the mean of the differences) and the common scaling (the
projection of the differences on the result), relative to the result.

Each tier has its own process, because the environment selects it. All get the
same inputs, as files, so that the exact result is computed once.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]

# Splits a sum of n elements for operators that have two axes.
SIDES = {49: (7, 7), 1000: (25, 40), 60_000: (240, 250),
         1 << 20: (1024, 1024), 10**7: (2500, 4000)}
MOST = 2 * 10**7  # elements of an input
SETTLE = 600  # seconds
SHARED = "/dev/shm" if os.path.isdir("/dev/shm") else None  # for files

# tier -> environment, options of the session, whether it settles
OFF = {"LIMBER_JIT": "off"}
ON = {"LIMBER_JIT": "process", "LIMBER_COMPILE": "settle"}
V2, V3, NATIVE = ({"LIMBER_ISA": isa}
                  for isa in ("x86-64-v2", "x86-64-v3", "native"))
REUSABLE = {"prefer_reusable_kernels": True}
TIERS = {
    "onnxruntime": ({}, {}, False),
    "reference": ({**OFF, **V2}, {}, False),
    "pack-v3": ({**OFF, **V3}, {}, False),
    "pack": ({**OFF, **NATIVE}, {}, False),
    "reusable-v3": ({**ON, **V3}, REUSABLE, True),
    "reusable": ({**ON, **NATIVE}, REUSABLE, True),
    "specialised-v3": ({**ON, **V3}, {}, True),
    "specialised": ({**ON, **NATIVE}, {}, True),
}

# -- models -------------------------------------------------------------------


def model(nodes, rank, consts=(), opset=21):
    """One input x of that rank, of any dims; one output y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in (("x", [f"d{i}" for i in range(rank)]),
                               ("y", None)))
    weights = [numpy_helper.from_array(np.asarray(v), k)
               for k, v in dict(consts).items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    made = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset)])
    return made.SerializeToString()


class Case:
    """`build(n)` returns the model, `shape(n)` the dims of x, `exact(x)` the
    result in float64. For a result that keeps the shape, `axes` are those
    that are summed; None: the result is reduced."""

    def __init__(self, build, shape, exact, axes=None):
        self.build, self.shape, self.exact = build, shape, exact
        self.axes = axes


def channels(n):
    """One and a half vectors of the widest kind; fewer for the longest sums."""
    return 24 if n <= 60_000 else min(8, MOST // n)


LAYOUTS = {  # name -> dims of x, reduced axes
    "rows": (lambda n: (channels(n), n), (1,)),
    "cols": (lambda n: (n, channels(n)), (0,)),
    "axis1": (lambda n: (2, n, channels(n) // 2), (1,)),
    "middle": (lambda n: (SIDES[n][0], channels(n), SIDES[n][1]), (0, 2)),
    "outer": (lambda n: (*SIDES[n], channels(n)), (0, 1)),
    "inner": (lambda n: (channels(n), *SIDES[n]), (1, 2)),
    "all": (lambda n: (n,), (0,)),
    "all3": (lambda n: (1, *SIDES[n]), (0, 1, 2)),
}

REDUCTIONS = {
    "ReduceSum": lambda x, axes: x.sum(axes),
    "ReduceMean": lambda x, axes: x.mean(axes),
    "ReduceL1": lambda x, axes: x.sum(axes),
    "ReduceL2": lambda x, axes: np.sqrt((x * x).sum(axes)),
    "ReduceSumSquare": lambda x, axes: (x * x).sum(axes),
    "ReduceLogSum": lambda x, axes: np.log(x.sum(axes)),
    "ReduceLogSumExp": lambda x, axes: np.log(np.exp(x).sum(axes)),
}


def reduction(op, layout):
    shape, axes = LAYOUTS[layout]
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
    built = model([node], len(shape(49)), {"axes": np.int64(axes)})
    return Case(lambda n: built, shape,
                lambda x: REDUCTIONS[op](x, axes))


def transposed(op):
    """Rows of a transposed input."""
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
             helper.make_node(op, ["t", "axes"], ["y"], keepdims=0)]
    built = model(nodes, 2, {"axes": np.int64([1])})
    return Case(lambda n: built, LAYOUTS["cols"][0],
                lambda x: REDUCTIONS[op](x, 0))


# After a convolution a feature map is channels last.
SPACE = (2, 3)


def weights(n):
    rng = np.random.default_rng(0)
    return rng.random((channels(n), 3, 1, 1), dtype=np.float32)


def image(n):
    return (1, 3, *SIDES[n])


def conv(x):
    w = weights(x.shape[2] * x.shape[3])[:, :, 0, 0]
    flat = np.float64(w) @ x.reshape(3, -1)
    return flat.reshape(1, len(w), *x.shape[2:])


def hard_swish(x):
    return x * np.clip(x / 6 + 0.5, 0, 1)


def behind_conv(nodes, exact, consts=(), axes=None):
    first = [helper.make_node("Conv", ["x", "w"], ["c"]),
             helper.make_node("HardSwish", ["c"], ["h"])]

    def build(n):
        rest = nodes(n) if callable(nodes) else nodes
        more = consts(n) if callable(consts) else dict(consts)
        return model(first + rest, 4, {"w": weights(n), **more})

    return Case(build, image, lambda x: exact(hard_swish(conv(x))), axes)


def plain(node, rank, shape, exact, consts=(), axes=None):
    def build(n):
        more = consts(n) if callable(consts) else consts
        return model([node(n) if callable(node) else node], rank, more)

    return Case(build, shape, exact, axes)


def pool(op, **attrs):
    """One window over the whole feature map."""
    return lambda n, name: helper.make_node(
        op, [name], ["y"], kernel_shape=SIDES[n], **attrs)


def normal(x, axes):
    d = x - x.mean(axes, keepdims=True)
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5)


def root_mean(x, axes):
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def planes(n):
    return (1, channels(n), *SIDES[n])


def reduced():
    out = {f"{op}-{layout}": reduction(op, layout)
           for op in REDUCTIONS for layout in LAYOUTS}
    for op in REDUCTIONS:
        out[f"Transpose-{op}"] = transposed(op)
        for name, axes in ((f"Conv-{op}", SPACE),
                           (f"Conv-{op}-all", (0, 1, 2, 3))):
            out[name] = behind_conv(
                [helper.make_node(op, ["h", "axes"], ["y"], keepdims=0)],
                lambda x, op=op, axes=axes: REDUCTIONS[op](x, axes),
                {"axes": np.int64(axes)})
    for layout, rule, axis in (("rows", "ij->i", 1), ("cols", "ij->j", 0)):
        out[f"Einsum-{layout}"] = plain(
            helper.make_node("Einsum", ["x"], ["y"], equation=rule), 2,
            LAYOUTS[layout][0], lambda x, axis=axis: x.sum(axis))
    for kind, exact in (("sum", lambda x: -x[:, 0].sum()),
                        ("mean", lambda x: -x[:, 0].mean())):
        out[f"NegativeLogLikelihoodLoss-{kind}"] = plain(
            helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"],
                             reduction=kind), 2, lambda n: (n, 2), exact,
            lambda n: {"t": np.zeros(n, np.int64)})
    return out


def pooled():
    mean = lambda x: x.mean(SPACE, keepdims=True)
    norm1 = lambda x: x.sum(SPACE, keepdims=True)
    norm2 = lambda x: np.sqrt((x * x).sum(SPACE, keepdims=True))
    out = {}
    for name, op, exact, window, attrs in (
            ("GlobalAveragePool", "GlobalAveragePool", mean, False, {}),
            ("AveragePool", "AveragePool", mean, True, {}),
            ("GlobalLpPool", "GlobalLpPool", norm2, False, {"p": 2}),
            ("LpPool", "LpPool", norm2, True, {"p": 2}),
            ("LpPool-1", "LpPool", norm1, True, {"p": 1})):
        node = (pool(op, **attrs) if window else
                lambda n, name, op=op, attrs=attrs:
                helper.make_node(op, [name], ["y"], **attrs))
        out[name] = plain(lambda n, node=node: node(n, "x"), 4, planes, exact)
        out[f"Conv-{name}"] = behind_conv(
            lambda n, node=node: [node(n, "h")], exact)
    return out


def params(n):
    ones = np.ones(channels(n), np.float32)
    return {"s": ones, "b": 0 * ones, "m": 0 * ones, "v": ones}


def normalised():
    """Over the spatial axes, or over them and the channels or the batch."""
    def node(op, *more, **attrs):
        return lambda name: helper.make_node(op, [name, *more], ["y"], **attrs)

    out = {}
    for name, make, axes in (
            ("InstanceNormalization",
             node("InstanceNormalization", "s", "b"), SPACE),
            ("GroupNormalization",
             node("GroupNormalization", "s", "b", num_groups=1), (1, 2, 3)),
            ("MeanVarianceNormalization",
             node("MeanVarianceNormalization"), (0, 2, 3))):
        exact = lambda x, axes=axes: normal(x, axes)
        out[name] = plain(make("x"), 4, planes, exact, params, axes)
        out[f"Conv-{name}"] = behind_conv([make("h")], exact, params, axes)
    batch = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"],
                             ["y", "rm", "rv"], training_mode=1)
    out["BatchNormalization"] = plain(
        batch, 4, planes, lambda x: normal(x, (0, 2, 3)), params, (0, 2, 3))
    # LayerNormalization of short rows exceeds the bound: docs/roadmap.md.
    out["RMSNormalization"] = Case(
        lambda n: model(
            [helper.make_node("RMSNormalization", ["x", "s"], ["y"])], 2,
            {"s": np.ones(n, np.float32)}, 23),
        LAYOUTS["rows"][0], lambda x: root_mean(x, (1,)), (1,))
    return out


def along_axis():
    """Operators that keep the shape and sum along one axis."""
    out = {}
    norm = lambda p: lambda x, axis: x / np.linalg.norm(x, p, axis,
                                                        keepdims=True)
    for name, op, exact, attrs in (
            ("Softmax", "Softmax", softmax, {}),
            ("LogSoftmax", "LogSoftmax",
             lambda x, axis: np.log(softmax(x, axis)), {}),
            ("LpNormalization-1", "LpNormalization", norm(1), {"p": 1}),
            ("LpNormalization-2", "LpNormalization", norm(2), {"p": 2})):
        for layout in ("rows", "cols", "axis1"):
            shape, (axis,) = LAYOUTS[layout]
            out[f"{name}-{layout}"] = plain(
                helper.make_node(op, ["x"], ["y"], axis=axis, **attrs),
                len(shape(49)), shape,
                lambda x, axis=axis, exact=exact: exact(x, axis), (), (axis,))
    return out


def cases():
    return {**reduced(), **pooled(), **normalised(), **along_axis()}


# -- measuring ----------------------------------------------------------------


def error_of(case, y, exact):
    d = np.float64(y) - exact
    if case.axes is None:
        return float(np.max(np.abs(d) / np.abs(exact)))
    moved = np.abs(d.mean(case.axes)) / np.abs(exact).mean(case.axes)
    scaled = np.abs((d * exact).sum(case.axes)) / (exact**2).sum(case.axes)
    return float(max(moved.max(), scaled.max()))


def data_of(case, name, n, seed):
    rng = np.random.default_rng([seed, n, *name.encode()])
    return rng.random(case.shape(n), dtype=np.float32)


def runner_of(tier, built, x):
    """A function of x; None if ONNX Runtime does not know the operator."""
    tier, _, threads = tier.partition("/")
    threads = int(threads or 1)
    if tier == "onnxruntime":
        import onnxruntime
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            session = onnxruntime.InferenceSession(built, options)
        except Exception:
            return None
        return lambda x: session.run(["y"], {"x": x})[0]
    import limber
    _, options, settles = TIERS[tier]
    session = limber.load(built, threads=threads, **options)
    if settles:
        session.run(None, {"x": x})
        session.settle(SETTLE)
    return lambda x: session.run(None, {"x": x})[0]


def serve(tier, pipe):
    """The process of a tier: runs cases on request. A request has a case name,
    a length and two files, of the input and for the result."""
    known, present = cases(), None
    for name, n, source, target in iter(pipe.recv, None):
        x = np.load(source)
        if present != (name, n):
            run, present = runner_of(tier, known[name].build(n), x), (name, n)
        if run:
            np.save(target, run(x))
        pipe.send(run is not None)


class Tier:
    def __init__(self, name, directory):
        os.environ.update({**NATIVE, **ON, **TIERS[name.split("/")[0]][0]})
        context = multiprocessing.get_context("spawn")
        self.file = str(Path(directory) / name.replace("/", "-")) + ".npy"
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(name, other))
        self.process.start()
        other.close()  # so that recv fails if the process does

    def begin(self, *run):
        self.pipe.send((*run, self.file))

    def end(self):
        """The result of the run; None: the engine does not have the
        operator."""
        return np.load(self.file, "r") if self.pipe.recv() else None

    def stop(self):
        self.pipe.send(None)
        self.process.join()


def errors_of(tiers, case, name, n, seed, directory):
    """{tier: error} of one input."""
    x = data_of(case, name, n, seed)
    source = str(Path(directory) / "x.npy")
    np.save(source, x)
    for tier in tiers.values():
        tier.begin(name, n, source)
    exact, out = case.exact(np.float64(x)), {}
    for key, tier in tiers.items():
        y = tier.end()
        error = 0.0 if y is None else error_of(case, y, exact)
        out[key] = 1e9 if math.isnan(error) else error
    return out


def measure(names, lengths, seeds, wanted):
    """{tier: {case: {n: (worst error, the first seed that has it)}}}"""
    known = cases()
    out = {tier: {} for tier in wanted}
    with tempfile.TemporaryDirectory(dir=SHARED) as directory:
        tiers = {tier: Tier(tier, directory) for tier in wanted}
        for name in names or known:
            for n in lengths:
                found = [(errors_of(tiers, known[name], name, n, seed,
                                    directory),
                          seed) for seed in seeds]
                for tier in wanted:
                    worst = max(((e[tier], -seed) for e, seed in found))
                    out[tier].setdefault(name, {})[n] = worst[0], -worst[1]
        for tier in tiers.values():
            tier.stop()
    return out


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tiers", default="specialised")
    parser.add_argument("--cases", default="")
    parser.add_argument("--n", type=numbers, default=list(SIDES))
    parser.add_argument("--seeds", default="0:20")
    args = parser.parse_args()
    os.environ.setdefault("LIMBER_JIT_PATH", str(ROOT / "build/limber-jit"))
    os.environ.setdefault("LIMBER_CACHE_DIR", "off")
    first, last = args.seeds.split(":")
    found = measure(args.cases.split(",") if args.cases else [], args.n,
                    range(int(first), int(last)), args.tiers.split(","))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

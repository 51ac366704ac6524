"""How exact long sums are: every reduction, in every layout, at one tier.

    long_sums.py [--tier TIER] [--cases NAME,...] [--n N,...] [--seeds A:B]

prints, as JSON, the worst relative error of each case and length over the
seeds, of Limber at that tier or of ONNX Runtime (tier `onnxruntime`), against
the same computed by numpy in float64. All data is positive, so that the
relative error of a sum does not depend on what cancels.

An operator that reduces is measured by the relative error of its results. One
that keeps the shape (softmax, normalisation) rounds each element besides,
which says nothing about its sums: it is measured along each line by how far
all elements together are moved (the mean of the differences) and scaled (the
differences' share of the result), relative to the result.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]

# What a sum of n elements is cut into where its operator has two axes.
SIDES = {49: (7, 7), 1000: (25, 40), 60_000: (240, 250),
         1 << 20: (1024, 1024), 10**7: (2500, 4000)}
MOST = 2 * 10**7  # elements of an input
SETTLE = 600  # seconds

# tier -> environment, options of the session, whether it settles
OFF = {"LIMBER_JIT": "off"}
ON = {"LIMBER_JIT": "process", "LIMBER_COMPILE": "settle"}
V3, NATIVE = {"LIMBER_ISA": "x86-64-v3"}, {"LIMBER_ISA": "native"}
TIERS = {
    "onnxruntime": ({}, {}, False),
    "reference": ({**OFF, "LIMBER_ISA": "x86-64-v2"}, {}, False),
    "pack-v3": ({**OFF, **V3}, {}, False),
    "pack": ({**OFF, **NATIVE}, {}, False),
    "reusable-v3": ({**ON, **V3}, {"prefer_reusable_kernels": True}, True),
    "reusable": ({**ON, **NATIVE}, {"prefer_reusable_kernels": True}, True),
    "specialised-v3": ({**ON, **V3}, {}, True),
    "specialised": ({**ON, **NATIVE}, {}, True),
    "threads": ({**ON, **NATIVE}, {"threads": 2}, True),
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
    """`build(n)` makes the model, `shape(n)` the dims of x, `exact(x)` the
    result in float64. Elements that belong to one sum lie along `axes` of a
    result that keeps the shape; None: the result is reduced."""

    def __init__(self, build, shape, exact, axes=None):
        self.build, self.shape, self.exact = build, shape, exact
        self.axes = axes


def channels(n):
    return max(1, min(8, MOST // n))


LAYOUTS = {  # name -> rank, dims of x, reduced axes
    "rows": (2, lambda n: (channels(n), n), (1,)),
    "cols": (2, lambda n: (n, channels(n)), (0,)),
    "middle": (3, lambda n: (SIDES[n][0], channels(n), SIDES[n][1]), (0, 2)),
    "outer": (3, lambda n: (SIDES[n][0], SIDES[n][1], channels(n)), (0, 1)),
    "all": (1, lambda n: (n,), (0,)),
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
    rank, shape, axes = LAYOUTS[layout]
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=0)
    built = model([node], rank, {"axes": np.int64(axes)})
    return Case(lambda n: built, shape,
                lambda x: REDUCTIONS[op](x, axes))


# Behind a convolution an image lies with channels last.
WEIGHTS = np.random.default_rng(0).random((2, 3, 1, 1), dtype=np.float32)
SPACE = (2, 3)


def image(n):
    return (1, 3, *SIDES[n])


def conv(x):
    return np.einsum("nchw,oc->nohw", x, np.float64(WEIGHTS[:, :, 0, 0]))


def hard_swish(x):
    return x * np.clip(x / 6 + 0.5, 0, 1)


def behind_conv(nodes, exact, consts=(), axes=None):
    first = [helper.make_node("Conv", ["x", "w"], ["c"]),
             helper.make_node("HardSwish", ["c"], ["h"])]
    consts = {"w": WEIGHTS, **dict(consts)}

    def build(n):
        rest = nodes(n) if callable(nodes) else nodes
        return model(first + rest, 4, consts)

    return Case(build, image, lambda x: exact(hard_swish(conv(x))), axes)


def plain(node, rank, shape, exact, consts=(), axes=None):
    def build(n):
        return model([node(n) if callable(node) else node], rank, consts)

    return Case(build, shape, exact, axes)


def pool(op, **attrs):
    """One window over the whole image."""
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


def cases():
    out = {f"{op}-{layout}": reduction(op, layout)
           for op in REDUCTIONS for layout in LAYOUTS}
    make = helper.make_node
    for op in REDUCTIONS:
        out[f"Conv-{op}"] = behind_conv(
            [make(op, ["h", "axes"], ["y"], keepdims=0)],
            lambda x, op=op: REDUCTIONS[op](x, SPACE),
            {"axes": np.int64(SPACE)})

    mean = lambda x: x.mean(SPACE, keepdims=True)
    norm2 = lambda x: np.sqrt((x * x).sum(SPACE, keepdims=True))
    for op, exact, window, attrs in (
            ("GlobalAveragePool", mean, False, {}),
            ("AveragePool", mean, True, {}),
            ("GlobalLpPool", norm2, False, {"p": 2}),
            ("LpPool", norm2, True, {"p": 2})):
        node = (pool(op, **attrs) if window else
                lambda n, name, op=op, attrs=attrs:
                make(op, [name], ["y"], **attrs))
        out[op] = plain(lambda n, node=node: node(n, "x"), 4, planes, exact)
        out[f"Conv-{op}"] = behind_conv(
            lambda n, node=node: [node(n, "h")], exact)

    one, zero = np.ones(2, np.float32), np.zeros(2, np.float32)
    two = lambda n: (1, 2, *SIDES[n])
    params = {"s": one, "b": zero}
    instance = lambda name: make("InstanceNormalization", [name, "s", "b"],
                                 ["y"])
    over_space = lambda x: normal(x, SPACE)
    out["InstanceNormalization"] = plain(instance("x"), 4, two, over_space,
                                         params, SPACE)
    out["Conv-InstanceNormalization"] = behind_conv(
        [instance("h")], over_space, params, SPACE)
    group = lambda name: make("GroupNormalization", [name, "s", "b"], ["y"],
                              num_groups=1)
    over_all = lambda x: normal(x, (1, 2, 3))
    out["GroupNormalization"] = plain(group("x"), 4, two, over_all, params,
                                      (1, 2, 3))
    out["Conv-GroupNormalization"] = behind_conv([group("h")], over_all,
                                                 params, (1, 2, 3))
    batch = make("BatchNormalization", ["x", "s", "b", "m", "v"],
                 ["y", "rm", "rv"], training_mode=1)
    out["BatchNormalization"] = plain(
        batch, 4, two, lambda x: normal(x, (0, 2, 3)),
        {**params, "m": zero, "v": one}, (0, 2, 3))

    def line_norm(op, exact):
        def build(n):
            scale = {"s": np.ones(n, np.float32)}
            return model([make(op, ["x", "s"], ["y"])], 2, scale,
                         23 if op.startswith("RMS") else 21)
        return Case(build, LAYOUTS["rows"][1], exact, (1,))

    out["LayerNormalization"] = line_norm("LayerNormalization",
                                          lambda x: normal(x, (1,)))
    out["RMSNormalization"] = line_norm("RMSNormalization",
                                        lambda x: root_mean(x, (1,)))
    for p in (1, 2):
        out[f"LpNormalization-{p}"] = plain(
            make("LpNormalization", ["x"], ["y"], p=p, axis=1), 2,
            LAYOUTS["rows"][1],
            lambda x, p=p: x / np.linalg.norm(x, p, 1, keepdims=True),
            (), (1,))
    out["MeanVarianceNormalization"] = plain(
        make("MeanVarianceNormalization", ["x"], ["y"]), 4, two,
        lambda x: normal(x, (0, 2, 3)), (), (0, 2, 3))
    for axis, layout in ((1, "rows"), (0, "cols")):
        shape = LAYOUTS[layout][1]
        out[f"Softmax-{layout}"] = plain(
            make("Softmax", ["x"], ["y"], axis=axis), 2, shape,
            lambda x, axis=axis: softmax(x, axis), (), (axis,))
        out[f"LogSoftmax-{layout}"] = plain(
            make("LogSoftmax", ["x"], ["y"], axis=axis), 2, shape,
            lambda x, axis=axis: np.log(softmax(x, axis)), (), (axis,))
    return out


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
    if tier == "onnxruntime":
        import onnxruntime
        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(built, options)
        except Exception:
            return None
        return lambda x: session.run(["y"], {"x": x})[0]
    import limber
    _, options, settles = TIERS[tier]
    session = limber.load(built, **{"threads": 1, **options})
    if settles:
        session.run(None, {"x": x})
        session.settle(SETTLE)
    return lambda x: session.run(None, {"x": x})[0]


def measure(tier, names, lengths, seeds):
    """{case: {n: worst error}}; the first seed that has it beside it."""
    known, out = cases(), {}
    for name in names or known:
        case = known[name]
        out[name] = {}
        for n in lengths:
            worst, built, run = (0.0, None), case.build(n), None
            for seed in seeds:
                x = data_of(case, name, n, seed)
                run = run or runner_of(tier, built, x)
                if run is None:
                    break
                error = error_of(case, run(x), case.exact(np.float64(x)))
                if not error <= worst[0]:  # NaN is worst of all
                    worst = (error, seed)
            out[name][n] = worst if not math.isnan(worst[0]) else (1e9, seed)
    return out


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tier", choices=TIERS, default="specialised")
    parser.add_argument("--cases", default="")
    parser.add_argument("--n", type=numbers, default=list(SIDES))
    parser.add_argument("--seeds", default="0:20")
    args = parser.parse_args()
    os.environ.setdefault("LIMBER_JIT_PATH", str(ROOT / "build/limber-jit"))
    os.environ.setdefault("LIMBER_CACHE_DIR", "off")
    os.environ.update(TIERS[args.tier][0])
    first, last = args.seeds.split(":")
    found = measure(args.tier, args.cases.split(",") if args.cases else [],
                    args.n, range(int(first), int(last)))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()

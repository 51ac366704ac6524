"""LIMBER_PASSES: each pass over graphs can be switched off by its name in
src/graph/passes.def, and results stay the same but for rounding."""

import os
import re
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import ROOT

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BOOL = TensorProto.BOOL
NAMES = re.findall(r'^LB_PASS\(\w+, "(\w+)"',
                   (ROOT / "src/graph/passes.def").read_text(), re.M)
PROGRAM = ROOT / "build" / "limber"

# Runs every model of a directory on its inputs and writes the outputs.
RUN = """
import sys
from pathlib import Path
import numpy as np
import limber
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    model = limber.load(str(path))
    inputs = dict(np.load(path.with_suffix(".npz")))
    outputs = model.run(None, inputs)
    np.savez(Path(sys.argv[2]) / path.stem, *outputs)
"""

class Graph:
    """A graph under construction, with weights drawn from a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs = [], [], {}

    def input(self, name, dims, array):
        self.inputs[name] = (dims, array)
        return name

    def floats(self, *dims):
        return self.rng.standard_normal(dims).astype(np.float32)

    def const(self, array):
        name = f"c{len(self.initializers)}"
        self.initializers.append(
            numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, *inputs, n_out=1, **attrs):
        outputs = [f"v{len(self.nodes)}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, **attrs))
        return outputs[0] if n_out == 1 else outputs

    def model(self, outputs, opset=17):
        def info(name, dims, array):
            dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
            return helper.make_tensor_value_info(name, dtype, dims)
        graph = helper.make_graph(
            self.nodes, "small",
            [info(n, d, a) for n, (d, a) in self.inputs.items()],
            [helper.make_empty_tensor_value_info(o) for o in outputs],
            self.initializers)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)],
            ir_version=8)


def convolutions(g):
    """Convolutions, batch norms, decomposed activations, pooling."""
    x = g.input("x", ["n", 3, "h", "w"], g.floats(2, 3, 20, 24))
    for channels, groups, dims in ((8, 1, (3, 3)), (8, 8, (3, 3)),
                                   (16, 1, (1, 1)), (16, 1, (1, 5))):
        inner = (3 if not g.nodes else 8 if channels == 8 else
                 8 if dims == (1, 1) else 16) // groups
        pads = [d // 2 for d in dims] * 2
        x = g.add("Conv", x, g.const(g.floats(channels, inner, *dims)),
                  group=groups, pads=pads)
        x = g.add("BatchNormalization", x,
                  *[g.const(np.abs(g.floats(channels)) + 0.5)
                    for _ in range(4)])
        x = g.add("Mul", x, g.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        x = g.add("Mul", x, g.const(np.float32(0.5)))
        x = g.add("Add", x, g.const(np.float32(0.1)))
    x = g.add("MaxPool", x, kernel_shape=[9, 9], strides=[1, 1],
              pads=[4, 4, 4, 4])
    x = g.add("ConvTranspose", x, g.const(g.floats(16, 4, 4, 4)),
              strides=[2, 2], pads=[1, 1, 1, 1])
    shape = g.add("Shape", x)
    sizes = g.add("Concat",
                  g.add("Slice", shape, g.const([0]), g.const([2])),
                  g.const(np.array([30, 34])), axis=0)
    x = g.add("Resize", x, "", "", sizes, mode="linear")
    x = g.add("InstanceNormalization",
              g.add("Reshape", x, g.const([0, 2, -1])),
              g.const(np.ones(2, np.float32)), g.const(np.zeros(2, np.float32)))
    x = g.add("Reshape", x, g.const([0, 4, 30, 34]))
    x = g.add("BatchNormalization", g.add("Relu", x),
              *[g.const(np.abs(g.floats(4)) + 0.5) for _ in range(4)])
    return g.model([x])


def transformer(g):
    """Attention, layer norm and GELU as exporters write them."""
    rows, heads, wide = 6, 4, 32
    ids = g.input("ids", ["n", "s"], g.rng.integers(0, 10, (2, rows)))
    x = g.add("Gather", g.const(g.floats(10, wide)), ids)

    def norm(x):
        mean = g.add("ReduceMean", x, axes=[-1])
        centred = g.add("Sub", x, mean)
        var = g.add("ReduceMean",
                    g.add("Pow", centred, g.const(np.float32(2))), axes=[-1])
        root = g.add("Sqrt", g.add("Add", var, g.const(np.float32(1e-5))))
        x = g.add("Mul", g.add("Div", centred, root), g.const(g.floats(wide)))
        return g.add("Add", x, g.const(g.floats(wide)))

    def split(x):
        x = g.add("MatMul", x, g.const(g.floats(wide, wide) / 6))
        x = g.add("Reshape", x, g.const([0, 0, heads, wide // heads]))
        return g.add("Transpose", x, perm=[0, 2, 1, 3])

    h = norm(g.add("Identity", x))
    q, k, v = split(h), split(h), split(h)
    scores = g.add("Einsum", q, k, equation="bhid,bhjd->bhij")
    scores = g.add("Mul", scores, g.const(np.float32(8 ** -0.5)))
    y = g.add("MatMul", g.add("Softmax", scores, axis=-1), v)
    y = g.add("Transpose", y, perm=[0, 2, 1, 3])
    x = g.add("Add", x, g.add("Reshape", y, g.const([0, 0, wide])))
    h = g.add("MatMul", norm(x), g.const(g.floats(wide, 48) / 6))
    erf = g.add("Erf", g.add("Div", h, g.const(np.float32(2 ** 0.5))))
    h = g.add("Mul", g.add("Mul", h, g.add("Add", erf, g.const(np.float32(1)))),
              g.const(np.float32(0.5)))
    return g.model([g.add("MatMul", h, g.const(g.floats(48, wide) / 6))])


def quantised(g):
    """QDQ convolutions, dynamic and integer matmuls. Scales are powers of two:
    float sums are as exact as integer ones and round to the same int8."""
    x = g.input("x", ["n", 8, 12, 12], g.floats(2, 8, 12, 12))
    scale, zero = g.const(np.float32(2 ** -6)), g.const(np.uint8(128))
    weights = g.rng.integers(-90, 90, (16, 8, 3, 3)).astype(np.int8)
    x = g.add("DequantizeLinear", g.add("QuantizeLinear", x, scale, zero),
              scale, zero)
    w = g.add("DequantizeLinear", g.const(weights),
              g.const(np.float32(2 ** -8)), g.const(np.int8(0)))
    x = g.add("Relu", g.add("Conv", x, w, pads=[1, 1, 1, 1]))
    x = g.add("DequantizeLinear", g.add("QuantizeLinear", x, scale, zero),
              scale, zero)
    x = g.add("GlobalAveragePool", g.add("MaxPool", x, kernel_shape=[2, 2]))
    x = g.add("Flatten", x)
    q, s, z = g.add("DynamicQuantizeLinear", x, n_out=3)
    w = g.rng.integers(0, 255, (16, 24)).astype(np.uint8)
    y = g.add("MatMulInteger", q, g.const(w), z, g.const(np.uint8(120)))
    y = g.add("Mul", g.add("Cast", y, to=FLOAT), s)
    return g.model([g.add("Mul", y, g.const(np.float32(0.01)))])


def control(g):
    """An If decided by a shape, one decided by data, a Loop that carries its
    weights, an LSTM, one-hot rows."""
    x = g.input("x", ["s", "n", 8], g.floats(5, 2, 8))
    flag = g.input("flag", [], np.array(True))

    def branch(op, of):
        out = helper.make_empty_tensor_value_info(op)
        return helper.make_graph([helper.make_node(op, [of], [op])], op, [],
                                 [out])
    last = g.add("Gather", g.add("Shape", x), g.const(np.int64(2)))
    x = g.add("If", g.add("Equal", last, g.const(np.int64(8))),
              then_branch=branch("Tanh", x), else_branch=branch("Neg", x))
    x = g.add("If", flag, then_branch=branch("Sigmoid", x),
              else_branch=branch("Squeeze", x))
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["b"]),
         helper.make_node("Identity", ["go"], ["on"]),
         helper.make_node("Identity", ["w"], ["same"])], "body",
        [value("i", INT64, []), value("go", BOOL, []),
         value("a", FLOAT, None), value("w", FLOAT, None)],
        [value("on", BOOL, []), value("b", FLOAT, None),
         value("same", FLOAT, None)])
    x, w = g.add("Loop", g.const(np.int64(3)), g.const(np.array(True)), x,
                 g.const(g.floats(8, 8) / 4), n_out=2, body=body)
    y, h, c = g.add("LSTM", x, g.const(g.floats(1, 24, 8) / 4),
                    g.const(g.floats(1, 24, 6) / 4),
                    g.const(g.floats(1, 48) / 4), n_out=3, hidden_size=6)
    best = g.add("ArgMax", y, axis=-1)
    hot = g.add("Cast", g.add("Equal", best, g.const(np.arange(6))), to=FLOAT)
    z = g.add("MatMul", hot, g.const(g.floats(6, 4)))
    return g.model([z, h, g.add("Relu", w)])


def float16(g):
    """float16 with the same sum computed twice."""
    x = g.input("x", ["n", 16], g.floats(3, 16).astype(np.float16))
    w = g.const((g.floats(16, 8) / 4).astype(np.float16))
    a, b = g.add("MatMul", x, w), g.add("MatMul", x, w)
    g.add("Exp", a)
    return g.model([g.add("Add", g.add("Tanh", a), g.add("Sigmoid", b))])


def rotary(g):
    """RotaryEmbedding and a causal Attention with past keys, of opset 23."""
    x = g.input("x", ["n", 2, "s", 8], g.floats(1, 2, 5, 8))
    past = g.input("past", ["n", 2, "p", 8], g.floats(1, 2, 3, 8))
    angle = np.arange(10)[:, None] * 0.3 ** np.arange(4)
    cache = [g.const(f(angle).astype(np.float32)) for f in (np.cos, np.sin)]
    at = g.input("at", ["n", "s"], np.arange(3, 8)[None])
    r = g.add("RotaryEmbedding", x, *cache, at)
    y, k, v = g.add("Attention", r, r, x, "", past, past, n_out=3, is_causal=1)
    return g.model([y, k, v], opset=23)


GRAPHS = [convolutions, transformer, quantised, control, float16, rotary]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    for seed, make in enumerate(GRAPHS):
        g = Graph(seed)
        model = make(g)
        path = directory / f"{make.__name__}.onnx"
        path.write_bytes(model.SerializeToString())
        np.savez(path.with_suffix(".npz"),
                 **{n: a for n, (_, a) in g.inputs.items()})
    return directory


def run(*command, passes=""):
    done = subprocess.run(list(map(str, command)), capture_output=True,
                          text=True, env={**os.environ, "LIMBER_PASSES": passes})
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def dump(model, passes):
    """The graph as Limber runs it, and what it writes to standard error."""
    done = run(PROGRAM, "inspect", model, "--dump", passes=passes)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def expected(models):
    """graph -> outputs of ONNX Runtime without graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    found = {}
    for path in models.glob("*.onnx"):
        session = onnxruntime.InferenceSession(str(path), options)
        found[path.stem] = session.run(
            None, dict(np.load(path.with_suffix(".npz"))))
    return found


def agrees(directory, expected):
    for name, outputs in expected.items():
        with np.load(directory / f"{name}.npz") as got:
            assert len(got.files) == len(outputs)
            for i, want in enumerate(outputs):
                half = want.dtype == np.float16
                np.testing.assert_allclose(
                    got[f"arr_{i}"], want, err_msg=f"{name}, output {i}",
                    rtol=2e-3 if half else 1e-4, atol=2e-3 if half else 1e-4)


@pytest.mark.parametrize("name", NAMES + [None])
def test_without_a_pass_results_are_the_same(name, models, expected, tmp_path):
    off = [name] if name else NAMES
    done = run(sys.executable, "-c", RUN, models, tmp_path,
               passes=",".join("-" + n for n in off))
    assert done.stderr == ""
    agrees(tmp_path, expected)


def test_a_pass_that_is_off_changes_nothing(models):
    path = models / "transformer.onnx"
    assert "Gelu" in dump(path, "")[0]
    for passes in ("-match", "-sink,-match"):
        text, told = dump(path, passes)
        assert "Gelu" not in text and "Erf" in text and told == ""


@pytest.mark.parametrize("passes, entry", [
    ("-match,-matches", "-matches"), ("-match,match", "match"),
    ("-match,", ""), ("-match,-", "-")])
def test_an_unknown_name_is_one_warning_that_lists_the_names(models, passes,
                                                             entry):
    text, told = dump(models / "transformer.onnx", passes)
    assert told.count("LIMBER_PASSES") == 1 and told.count("\n") == 1
    assert f"'{entry}' is ignored" in told and ", ".join(NAMES) in told
    assert "Erf" in text  # the other entry is obeyed

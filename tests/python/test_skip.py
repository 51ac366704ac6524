"""Operators that do nothing at the shapes or contents of a run are skipped: the
steps of runs with skipping on and off, and the proofs of the skips."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import limber

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
F32, I64 = np.float32, np.int64


class Builder:
    """A graph of small operators; input x has the dims [n, h, s, d]."""

    def __init__(self, dims=("n", "h", "s", "d")):
        self.nodes, self.weights = [], []
        self.inputs = [helper.make_tensor_value_info("x", FLOAT, dims)]

    def node(self, op, *inputs, name=None, n_out=1, **attributes):
        outputs = [f"v{len(self.nodes)}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(
            op, [i or "" for i in inputs], outputs, name or outputs[0],
            **attributes))
        return outputs[0] if n_out == 1 else outputs

    def const(self, array, dtype=I64):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(array, dtype),
                                                    name))
        return name

    def input(self, name, dtype, dims):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes, "small", self.inputs,
            [helper.make_empty_tensor_value_info(o) for o in outputs],
            self.weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)],
            ir_version=8).SerializeToString()


class Sessions:
    """The same model with skipping on and off; each run compares both."""

    def __init__(self, model):
        self.on, self.off = (limber.load(model, skip=how, deterministic=True)
                             for how in ("on", "off"))

    def run(self, feeds):
        got, want = (s.run(None, feeds) for s in (self.on, self.off))
        for a, b in zip(got, want):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()
        return got

    def saved(self, feeds):
        """Steps fewer than without skipping."""
        self.run(feeds)
        return len(steps(self.off, feeds)) - len(steps(self.on, feeds))

    def skip_of(self, name, feeds):
        """The proof of the node's skip, or None if it runs."""
        self.run(feeds)
        rows = [r for r in self.on.explain(None, feeds) if r["name"] == name]
        assert len(rows) == 1, f"{name}: {rows}"
        if not rows[0]["skipped"]:
            return None
        assert rows[0]["proof"] or rows[0]["pass"], rows[0]
        return rows[0]["proof"] or rows[0]["pass"]


def steps(session, feeds):
    return session.profile(None, feeds)


def floats(*dims):
    """Values of both signs, with a -0.0."""
    x = np.random.default_rng(sum(dims)).standard_normal(dims).astype(F32)
    if x.size:
        x.flat[0] = -0.0
    return x


# -- each operator: a proof that holds, and one that does not -------------------
#
# name -> (function that adds the node OP to a value, feeds at which it does
# nothing, feeds at which it runs)


def x_only(*shapes):
    return [{"x": floats(*shape)} for shape in shapes]


def with_input(name, dtype, *pairs):
    return [{"x": floats(*shape), name: np.array(value, dtype)}
            for shape, value in pairs]


ONE, TWO = (5, 1, 4, 3), (5, 2, 4, 3)


def permute(g, a):
    return g.node("Transpose", a, name="OP", perm=[0, 2, 1, 3])


def gather(axis):
    def add(g, a):
        g.input("i", INT64, ["k"])
        return g.node("Gather", a, "i", name="OP", axis=axis)
    return add


def gather_one(g, a):
    g.input("i", INT64, [])
    return g.node("Gather", a, "i", name="OP", axis=0)


def reshape(g, a):
    g.input("i", INT64, [2])
    return g.node("Reshape", a, "i", name="OP")


def slice_rows(g, a):
    starts, ends = (g.input(n, INT64, [1]) for n in ("i", "j"))
    return g.node("Slice", a, starts, ends, g.const([0]), name="OP")


def expand(g, a):
    g.input("i", INT64, [4])
    return g.node("Expand", a, "i", name="OP")


def scatter_nd(g, a):
    g.input("i", INT64, ["k", 1])
    g.input("u", FLOAT, ["k", "h", "s", "d"])
    return g.node("ScatterND", a, "i", "u", name="OP")


def scatter_elements(g, a):
    g.input("i", INT64, ["k", "h", "s", "d"])
    g.input("u", FLOAT, ["k", "h", "s", "d"])
    return g.node("ScatterElements", a, "i", "u", name="OP", axis=0)


def scatter_feeds(count, elements):
    rest = ONE[1:]
    index = np.full((count, *rest), 2) if elements else np.full((count, 1), 2)
    return {"x": floats(*ONE), "i": index.astype(I64),
            "u": floats(count, *rest)}


def resize(g, a):
    g.input("i", INT64, [4])
    return g.node("Resize", a, "", "", "i", name="OP", mode="nearest")


def concat(g, a):
    g.input("u", FLOAT, ["m", "h", "s", "d"])
    return g.node("Concat", a, "u", name="OP", axis=0)


def pad(g, a):
    g.input("i", INT64, [8])
    return g.node("Pad", a, "i", name="OP")


def tile(g, a):
    g.input("i", INT64, [4])
    return g.node("Tile", a, "i", name="OP")


def reduction(op, keep):
    def add(g, a):
        return g.node(op, a, g.const([1]), name="OP", keepdims=keep)
    return add


def cumsum(g, a):
    return g.node("CumSum", a, g.const(1), name="OP")


def algebra(op, first=False):
    """With a tensor of one element for each of the last axis."""
    def add(g, a):
        g.input("u", FLOAT, ["d"])
        return g.node(op, *(["u", a] if first else [a, "u"]), name="OP")
    return add


def numbers(neutral, broken):
    pairs = [[neutral] * 3, [neutral, broken, neutral]]
    return tuple([f] for f in with_input("u", F32, *((ONE, p) for p in pairs)))


def where(g, a):
    g.input("u", BOOL, ["d"])
    return g.node("Where", "u", a, g.const(7, F32), name="OP")


CASES = {
    "Transpose": (permute, x_only(ONE, (5, 4, 1, 3), (1, 1, 1, 1)), []),
    "Gather all": (gather(0), with_input("i", I64, (ONE, [0, 1, 2, 3, 4]),
                                         ((1, 2, 3, 4), [0])),
                   with_input("i", I64, (ONE, [0, 1, 3, 2, 4]))),
    "Gather all of axis 2": (
        gather(2), with_input("i", I64, (ONE, [0, 1, 2, 3])),
        with_input("i", I64, (ONE, [0, 1, 2, 2]), (ONE, [0, 3, 2, 1]))),
    "Gather range": (gather(0), with_input("i", I64, (ONE, [1, 2, 3])),
                     with_input("i", I64, (ONE, [1, 2, 4]))),
    "Gather one": (gather_one, with_input("i", I64, (ONE, 3), (ONE, -1)), []),
    "Reshape": (reshape, with_input("i", I64, (ONE, [5, 12]), (TWO, [-1, 3])),
                []),
    "Slice": (slice_rows,
              [{"x": floats(*ONE), "i": np.array([i]), "j": np.array([j])}
               for i, j in ((0, 5), (0, 2**62), (2, 4), (-2, -1))], []),
    "Expand": (expand, with_input("i", I64, (ONE, ONE), (ONE, [1] * 4)), []),
    "ScatterND": (scatter_nd, [scatter_feeds(0, False)],
                  [scatter_feeds(1, False)]),
    "ScatterElements": (scatter_elements, [scatter_feeds(0, True)],
                        [scatter_feeds(1, True)]),
    "Resize": (resize, with_input("i", I64, (TWO, TWO)),
               with_input("i", I64, (TWO, [5, 2, 4, 4]))),
    "Concat": (concat, [{"x": floats(*ONE), "u": floats(0, *ONE[1:])}], []),
    "Pad": (pad, with_input("i", I64, (ONE, [0] * 8)),
            with_input("i", I64, (ONE, [0] * 7 + [1]))),
    "Tile": (tile, with_input("i", I64, (ONE, [1] * 4)),
             with_input("i", I64, (ONE, [1, 1, 1, 2]))),
    **{f"{op} keepdims={k}": (reduction(op, k), x_only(ONE), x_only(TWO))
       for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                  "ReduceProd") for k in (0, 1)},
    "CumSum": (cumsum, x_only(ONE), x_only(TWO)),
    "Mul": (algebra("Mul"), *numbers(1, 2)),
    "Mul, first": (algebra("Mul", True), *numbers(1, 2)),
    "Div": (algebra("Div"), *numbers(1, 2)),
    "Sub": (algebra("Sub"), *numbers(0, -1)),
    "Sub -0.0": (algebra("Sub"), *numbers(0.0, -0.0)),
    "Add": (algebra("Add"), *numbers(-0.0, 0.0)),
    "Pow": (algebra("Pow"), *numbers(1, 2)),
    "Where": (where, [{"x": floats(*ONE), "u": np.array([True] * 3)}],
              [{"x": floats(*ONE), "u": np.array([True, True, False])}]),
}


def inside(add):
    """The operator between two others that cannot be fused with it."""
    g = Builder()
    a = g.node("CumSum", "x", g.const(3))
    return g.model(g.node("CumSum", add(g, a), g.const(-1)))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_that_does_nothing_is_skipped(name):
    add, holds, _ = CASES[name]
    both = Sessions(inside(add))
    for feeds in holds:
        assert both.skip_of("OP", feeds)
        assert both.saved(feeds) >= (name != "Reshape")  # it never runs


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[2]])
def test_an_operator_that_does_something_runs(name):
    add, holds, broken = CASES[name]
    both = Sessions(inside(add))
    for feeds in broken:
        assert both.skip_of("OP", feeds) is None
        assert both.saved(feeds) == 0
    for feeds in holds + broken + holds:  # the same session, again
        both.run(feeds)


@pytest.mark.parametrize("name", CASES)
def test_alternating_contents_and_shapes(name):
    add, holds, broken = CASES[name]
    both = Sessions(inside(add))
    both.on.settle(60)
    feeds = holds + broken
    want = [both.off.run(None, f) for f in feeds]
    rng = np.random.default_rng(1)
    for k in rng.integers(0, len(feeds), 100):
        for a, b in zip(both.on.run(None, feeds[k]), want[k]):
            assert a.tobytes() == b.tobytes()


# -- what is not skipped ---------------------------------------------------------


def l2(g, a):
    return g.node("ReduceL2", a, g.const([1]), name="OP")


def exclusive(g, a):
    return g.node("CumSum", a, g.const(1), name="OP", exclusive=1)


def resize_slightly(g, a):
    return g.node("Resize", a, "", g.const([1, 1, 1, 1.1], F32), name="OP",
                  mode="linear")


def half(g, a):
    wide = g.node("Cast", a, to=TensorProto.FLOAT16, name="OP")
    return g.node("Cast", wide, to=FLOAT)


@pytest.mark.parametrize("add, x", [
    (l2, floats(*ONE)), (exclusive, floats(*ONE)),
    (resize_slightly, floats(2, 1, 3, 5)), (half, floats(*ONE)),
    (lambda g, a: g.node("Add", a, g.const(0, F32), name="OP"), floats(*ONE)),
    (lambda g, a: g.node("Sub", a, g.const(-0.0, F32), name="OP"),
     floats(*ONE))], ids=["ReduceL2", "exclusive", "scale 1.1", "float16",
                          "+0", "-(-0)"])
def test_what_changes_a_bit_runs(add, x):
    both = Sessions(inside(add))
    assert both.skip_of("OP", {"x": x}) is None
    assert both.saved({"x": x}) == 0


def test_l2_over_one_element_is_the_absolute_value():
    g = Builder()
    [y] = Sessions(g.model(l2(g, "x"))).run({"x": floats(*ONE)})
    np.testing.assert_array_equal(y, np.abs(floats(*ONE)))


def test_a_scale_near_one_interpolates():
    """5 * 1.1 is 5 elements, at other positions."""
    g = Builder()
    x = floats(2, 1, 3, 5)
    [y] = Sessions(g.model(resize_slightly(g, "x"))).run({"x": x})
    assert y.shape == x.shape and not np.array_equal(x, y)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_over_one_element(op):
    g = Builder()
    y = g.node(op, "x", axis=1)
    both = Sessions(g.model(y))
    x = np.array([0.0, -0.0, 1e30, np.nan, np.inf, -np.inf], F32)
    [got] = [s.run(None, {"x": x.reshape(1, 1, 2, 3)})[0]
             for s in (both.on,)]
    with np.errstate(invalid="ignore"):
        want = x - x + (1 if op == "Softmax" else 0)
    np.testing.assert_array_equal(got.ravel(), want)


# -- the seed's example ----------------------------------------------------------


def transposed(shape):
    return np.arange(np.prod(shape), dtype=F32).reshape(shape) - 7


@pytest.mark.parametrize("where", ["inside", "input", "output"])
def test_the_example_of_a_transpose(where):
    """[128, 1, 32, 64] moves nothing, [128, 2, 32, 64] runs."""
    g = Builder()
    a = "x" if where == "input" else g.node("Relu", "x")
    y = permute(g, a)
    both = Sessions(g.model(y if where == "output" else g.node("Neg", y)))
    one, two = ({"x": transposed((128, h, 32, 64))} for h in (1, 2))
    assert "dim 1 is 1" in both.skip_of("OP", one)
    names = [s["op"] for s in steps(both.on, one)]
    assert "Transpose" not in names and "Copy" not in names
    ran = [s["op"] for s in steps(both.on, two)]
    if where == "output":
        assert ran[-1] in ("Transpose", "Copy") and len(ran) == 2
    want = [both.off.run(None, f)[0] for f in (one, two)]
    for k in range(1000):
        [y] = both.on.run(None, (one, two)[k % 2])
        assert y.tobytes() == want[k % 2].tobytes(), k


def test_nothing_but_a_skip_is_one_copy():
    g = Builder()
    both = Sessions(g.model(permute(g, "x")))
    feeds = {"x": transposed((128, 1, 32, 64))}
    both.run(feeds)
    [step] = steps(both.on, feeds)
    assert step["reason"] == "result" and step["op"] in ("Transpose", "Copy")


# -- chains, and places --------------------------------------------------------


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("place", ["input", "inside", "output"])
def test_a_chain_of_skips_costs_nothing(length, place):
    g = Builder()
    links = [permute, cumsum, reduction("ReduceMax", 1), permute]
    a = "x" if place == "input" else g.node("Relu", "x")
    for k, link in enumerate(links[:length - 1]):
        a = link(g, a)
        g.nodes[-1].name = f"OP{k}"
    a = g.node("ReduceSum", a, g.const([1]), keepdims=1, name="last")
    if place != "output":
        a = g.node("CumSum", a, g.const(0))
    both = Sessions(g.model(a))
    feeds = {"x": floats(5, 1, 1, 3)}
    both.run(feeds)
    assert len(steps(both.on, feeds)) == (2 if place == "inside" else 1)
    assert both.skip_of("last", feeds)
    for shape in (TWO, (5, 1, 1, 3), (5, 3, 1, 2), (5, 1, 1, 3), (5, 1, 4, 3)):
        both.run({"x": floats(*shape)})


READERS = {
    "a generated kernel": lambda g, a: g.node("Tanh", a),
    "a reference operator": lambda g, a: g.node("CumSum", a, g.const(0)),
    "a matmul": lambda g, a: g.node(
        "MatMul", a, g.node("Transpose", a, perm=[0, 1, 3, 2])),
    "a concat": lambda g, a: g.node("Concat", a, g.node("Neg", a), axis=0),
    "a branch": lambda g, a: branch(g, a),
    "a loop": lambda g, a: loop(g, a),
    "the next stage": lambda g, a: next_stage(g, a),
}


def branch(g, a):
    def body(op):
        out = helper.make_empty_tensor_value_info(op)
        return helper.make_graph([helper.make_node(op, [a], [op])], op, [],
                                 [out])
    flag = g.input("flag", BOOL, [])
    return g.node("If", flag, then_branch=body("Neg"), else_branch=body("Abs"))


def loop(g, a, nodes=None):
    value = helper.make_tensor_value_info
    nodes = nodes or [helper.make_node("Add", ["state", a], ["sum"])]
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), *nodes], "body",
        [value("i", INT64, []), value("go", BOOL, []),
         value("state", FLOAT, None)],
        [value("on", BOOL, []), value("sum", FLOAT, None)])
    return g.node("Loop", g.const(3), "", a, body=body)


def next_stage(g, a):
    """Rows that data selects, and a, which was skipped a stage earlier."""
    flat = g.node("ReduceMax", a, g.const([1, 2, 3]), keepdims=0)
    rows = g.node("Compress", a, g.node("Greater", flat, g.const(-9, F32)),
                  axis=0)
    return g.node("Concat", rows, a, axis=0)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", ["input", "inside"])
@pytest.mark.parametrize("name", ["Transpose", "Gather all", "CumSum", "Mul",
                                  "Slice"])
def test_a_view_is_read_right(name, place, reader):
    add, holds, broken = CASES[name]
    g = Builder()
    a = "x" if place == "input" else g.node("Relu", "x")
    y = READERS[reader](g, add(g, a))
    both = Sessions(g.model(y))
    flag = {"flag": np.array(True)} if reader == "a branch" else {}
    for feeds in holds + broken + holds:
        both.run({**feeds, **flag})
    if name != "Mul":  # it may be fused with its reader, where it is free
        assert both.skip_of("OP", {**holds[0], **flag})
        assert both.saved({**holds[0], **flag}) >= 1


def test_a_skip_in_the_body_of_a_loop():
    g = Builder()
    a = g.node("Relu", "x")
    y = loop(g, a, [
        helper.make_node("Transpose", ["state"], ["t"], "OP",
                         perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", [a], ["u"], perm=[0, 2, 1, 3]),
        helper.make_node("Add", ["t", "u"], ["w"]),
        helper.make_node("Transpose", ["w"], ["sum"], perm=[0, 2, 1, 3])])
    both = Sessions(g.model(y))
    assert both.saved({"x": floats(*ONE)}) >= 3 * 3
    for shape in (TWO, ONE, (1, 1, 1, 1), TWO):
        both.run({"x": floats(*shape)})


@pytest.mark.parametrize("name", ["Transpose", "CumSum", "Mul", "Gather all"])
def test_two_readers_one_of_which_writes_in_place(name):
    """The view and its input are both read after the other was."""
    add, holds, broken = CASES[name]
    g = Builder()
    a = g.node("Relu", "x")
    y = add(g, a)
    u = g.node("ScatterND", y, g.const([[0]]), g.node(
        "Gather", g.node("Neg", y), g.const([-1]), axis=0))
    both = Sessions(g.model(u, g.node("Add", y, g.const(1, F32)),
                            g.node("Neg", a)))
    for feeds in holds + broken + holds:
        both.run(feeds)


def test_one_value_as_two_outputs():
    g = Builder()
    a = g.node("Relu", "x")
    both = Sessions(g.model(a, permute(g, a), g.node("Identity", a)))
    for shape in (ONE, TWO, ONE):
        first = both.run({"x": floats(*shape)})
        for y in first:
            y[...] = 5
        both.run({"x": floats(*shape)})
        assert all(np.all(y == 5) for y in first)


def test_inputs_are_never_written():
    g = Builder()
    y = g.node("ScatterND", permute(g, "x"), g.const([[0, 0, 0]]),
               g.const([[9, 9, 9]], F32))
    both = Sessions(g.model(y))
    x = floats(*ONE)
    before = x.copy()
    both.run({"x": x})
    assert x.tobytes() == before.tobytes()


# -- only dims, and nothing at all -----------------------------------------------


@pytest.mark.parametrize("reads", ["Shape", "Size"])
def test_what_only_shape_reads_does_not_run(reads):
    g = Builder()
    a = g.node("Tanh", permute(g, g.node("CumSum", "x", g.const(0))))
    n = g.node("Cast", g.node(reads, a), to=FLOAT)
    if reads == "Shape":
        n = g.node("ReduceMax", n, keepdims=0)
    model = limber.load(g.model(g.node("Neg", g.node("Add", "x", n))))
    names = [s["op"] for s in model.profile(None, {"x": floats(*TWO)})]
    assert not {"CumSum", "Transpose", "Tanh"} & set(names)


def test_an_empty_output_has_no_step():
    g = Builder()
    a = g.node("CumSum", "x", g.const(0), name="SUM")
    both = Sessions(g.model(g.node("Neg", permute(g, g.node("Tanh", a)))))
    [y] = both.run({"x": floats(0, 2, 4, 3)})
    assert y.shape == (0, 4, 2, 3)
    assert steps(both.on, {"x": floats(0, 2, 4, 3)}) == []
    assert both.skip_of("SUM", {"x": floats(0, 2, 4, 3)})


# -- the option ---------------------------------------------------------------


def test_the_option_precedes_the_environment(monkeypatch):
    model = inside(permute)
    feeds = {"x": floats(*ONE)}
    monkeypatch.setenv("LIMBER_SKIP", "off")
    executed = len(limber.load(model, threads=1).profile(None, feeds))
    on = limber.load(model, threads=1, skip="on").profile(None, feeds)
    assert len(on) < executed
    options = limber.SessionOptions()
    options.intra_op_num_threads = 1
    options.skip = "on"
    session = limber.InferenceSession(model, options)
    assert len(session.profile(None, feeds)) == len(on)
    with pytest.raises(ValueError, match="skip"):
        limber.load(model, skip="maybe")

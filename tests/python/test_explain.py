"""`limber explain`, model.explain and model.nodes: which nodes do nothing at the
shapes of a run, and the proof."""

import json
import os
import re
import subprocess
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import ROOT, make_model

PROGRAM = ROOT / "build" / "limber"
PROOF = "Transpose [0,2,1,3] of [128,1,32,64]: dim 1 is 1, the others keep " \
        "their order"


def limber_(*arguments, code=0, **environment):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True,
                          text=True, env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def explain(model, *arguments, **environment):
    return json.loads(limber_("explain", model, *arguments, "--json",
                              **environment))


def by_name(rows):
    return {row["name"]: row for row in rows}


@pytest.fixture
def model(tmp_path):
    """y = CumSum(Transpose(Relu(x))), z = Transpose(Softmax(Abs(x)))"""
    path = tmp_path / "model.onnx"
    float_, dims = TensorProto.FLOAT, ["a", "b", "c", "d"]
    node = helper.make_node
    path.write_bytes(make_model(
        [node("Relu", ["x"], ["r"], "relu"),
         node("Transpose", ["r"], ["t"], "swap", perm=[0, 2, 1, 3]),
         node("Constant", [], ["axis"], value_int=0),
         node("CumSum", ["t", "axis"], ["y"], "sum"),
         node("Abs", ["x"], ["m"], "abs"),
         node("Softmax", ["m"], ["s"], "softmax", axis=1),
         node("Identity", ["s"], ["i"], "same"),
         node("CumSum", ["i", "axis"], ["j"], "last"),
         node("Transpose", ["j"], ["z"], "out", perm=[0, 2, 1, 3])],
        {"x": (float_, dims)},
        {"y": (float_, ["a", "c", "b", "d"]),
         "z": (float_, ["a", "c", "b", "d"])}).SerializeToString())
    return path


def test_a_skip_has_its_proof(model):
    found = explain(model, "--shapes", "x=128x1x32x64")
    step = by_name(found["steps"])["swap"]
    assert step["skipped"] and step["proof"] == PROOF
    assert (step["tier"], step["kind"], step["reason"]) == ("", "", "view")
    node = by_name(found["nodes"])["swap"]
    assert node["optimized"] and node["runtime_skippable"]
    assert (node["skipped"], node["proof"]) == (True, PROOF)
    assert (node["disposition"], node["step"]) == ("view", None)
    assert f"  swap: {PROOF}\n" in limber_("explain", model, "--shapes",
                                          "x=128x1x32x64")


def test_what_is_executed_is_not_skipped(model):
    for arguments in (["x=4x2x3x5"], ["x=4x1x3x5", "--skip", "off"]):
        found = explain(model, "--shapes", *arguments)
        for row in found["steps"] + found["nodes"]:
            if row["name"] in ("swap", "out"):
                assert not row["skipped"] and row["proof"] == ""
                assert row["runtime_skippable"]
    off = explain(model, "--shapes", "x=4x1x3x5", LIMBER_SKIP="off")
    assert off["counts"]["skipped"] == 0
    on = explain(model, "--shapes", "x=4x1x3x5", "--skip", "on",
                 LIMBER_SKIP="off")
    assert on["counts"]["skipped"] == 2
    assert on["counts"]["steps"] < off["counts"]["steps"]


def test_readers_that_permute_do_the_work_of_a_transpose(model):
    found = explain(model, "--shapes", "x=4x2x3x5")
    swap = by_name(found["nodes"])["swap"]
    if swap["disposition"] == "view":
        row = by_name(found["steps"])["swap"]
        assert (row["reason"], row["skipped"], row["tier"]) \
            == ("strided", False, "")
        assert row["proof"] == ""


def test_a_copy_names_the_node_whose_elements_it_moves(model):
    found = explain(model, "--shapes", "x=4x2x3x5")
    copies = [s for s in found["steps"] if s["kind"] == "copy"]
    assert [(s["name"], s["op"], s["reason"]) for s in copies
            if s["name"] == "out"] == [("out", "Transpose", "result")]
    counts = found["counts"]
    assert counts["copies"] == len(copies)
    assert counts["copied_bytes"] == sum(s["bytes"] for s in copies) // 2
    assert counts["copied_bytes"] >= 4 * 4 * 2 * 3 * 5
    out = by_name(found["nodes"])["out"]
    assert (out["disposition"], out["reason"]) == ("copied", "result")
    assert found["steps"][out["step"]]["name"] == "out"


def test_counts_agree_with_the_steps(model):
    found = explain(model, "--shapes", "x=4x2x3x5")
    kinds = [s["kind"] for s in found["steps"] if s["kind"]]
    assert found["counts"]["steps"] == len(kinds)
    for kind, count in [("launch", "launches"), ("call", "calls"),
                        ("copy", "copies")]:
        assert found["counts"][count] == kinds.count(kind)


def test_each_node_names_the_step_that_computes_it(model):
    found = explain(model, "--shapes", "x=4x2x3x5", "--settle", "600")
    steps = [s for s in found["steps"] if s["kind"]]
    computed = {"launched", "fused", "called", "copied"}
    for node in found["nodes"]:
        assert (node["step"] is not None) == (node["disposition"] in computed)
        if node["disposition"] in ("called", "launched"):
            assert steps[node["step"]]["reason"] == node["reason"] or \
                node["disposition"] == "launched"
    nodes = by_name(found["nodes"])
    assert steps[nodes["sum"]["step"]]["name"] == "sum"
    assert steps[nodes["softmax"]["step"]]["kind"] == "launch"
    assert nodes["abs"]["step"] == nodes["softmax"]["step"]
    assert "fused" in {nodes["abs"]["disposition"],
                       nodes["softmax"]["disposition"]}


def test_a_removed_node_keeps_its_proof(model):
    text = "Identity of [?,?,?,?]: it returns input 0 unchanged"
    for rows in (explain(model, "--shapes", "x=4x2x3x5")["nodes"],
                 limber.load(model).nodes()):
        same = by_name(rows)["same"]
        assert (same["pass"], same["proof"]) == ("noop", text)
        assert same["optimized"] and not same["runtime_skippable"]
        assert same["skipped"] and same["disposition"] == "removed"


def test_several_shapes_are_a_list(model):
    found = explain(model, "--dims", "a=3 b={1,2} c=3 d=5")
    assert [f["shapes"]["x"] for f in found] == [[3, 1, 3, 5], [3, 2, 3, 5]]
    assert [by_name(f["nodes"])["swap"]["skipped"] for f in found] \
        == [True, False]
    text = limber_("explain", model, "--dims", "a=3 b={1,2} c=3 d=5")
    assert re.findall(r"^x=(.*)$", text, re.M) == ["3x1x3x5", "3x2x3x5"]
    assert len(re.findall(r"^steps \d+, launches \d+, calls \d+, copies \d+ "
                          r"\(\d+ bytes\), skipped nodes \d+$", text,
                          re.M)) == 2


def test_inputs_can_be_given(model):
    found = explain(model, "--input", "x=random:f32[128,1,32,64]")
    assert by_name(found["nodes"])["swap"]["proof"] == PROOF


def test_missing_and_excessive_shapes_are_errors(model):
    assert "--input 'x=random:f32[" in limber_("explain", model, code=1)
    many = limber_("explain", model, "--dims", "a={1..40} b={1..40} c=1 d=1",
                   code=2)
    assert "describe 1600 shapes; at most 1000" in many
    assert "--skip maybe" in limber_("explain", model, "--skip", "maybe", code=2)


def test_inspect_shows_the_flags(model):
    found = json.loads(limber_("inspect", model, "--json"))
    nodes = by_name(found["nodes"])
    assert found["node_count"] == sum(not n["pass"] for n in found["nodes"])
    assert (nodes["swap"]["optimized"], nodes["swap"]["runtime_skippable"],
            nodes["swap"]["skipped"]) == (True, True, False)
    assert (nodes["relu"]["optimized"], nodes["relu"]["runtime_skippable"]) \
        == (False, False)
    dump = limber_("inspect", model, "--dump")
    assert re.search(r"= Transpose\(.*\}  # optimized, runtime_skippable$", dump,
                     re.M)
    assert not re.search(r"= Relu\(.*#", dump)


@pytest.mark.parametrize("open_model", [limber.load, limber.InferenceSession])
def test_python_has_the_same(open_model, model):
    session = open_model(model)
    x = {"x": np.ones((128, 1, 32, 64), np.float32)}
    step = by_name(session.explain(None, x))["swap"]
    assert step["skipped"] and step["proof"] == PROOF and step["kind"] == ""
    steps = session.profile(None, x)
    assert {s["kind"] for s in steps} <= {"launch", "call", "copy"}
    assert not any(s["skipped"] for s in steps)
    load, run = by_name(session.nodes()), by_name(session.nodes(None, x))
    assert set(load) == set(run)
    assert not load["swap"]["skipped"] and run["swap"]["proof"] == PROOF
    assert load["swap"]["disposition"] == load["swap"]["reason"] == ""
    assert steps[run["sum"]["step"]]["name"] == "sum"
    assert run["swap"]["step"] is None
    some = by_name(session.nodes(["z"], x))
    assert (some["sum"]["disposition"], some["sum"]["step"]) \
        == ("not_needed", None)


def test_python_can_switch_it_off(model):
    x = {"x": np.ones((4, 1, 3, 5), np.float32)}
    off = by_name(limber.load(model, skip="off").nodes(None, x))
    assert not off["swap"]["skipped"] and off["swap"]["proof"] == ""
    with pytest.raises(ValueError, match="skip must be"):
        limber.load(model, skip="maybe")


def test_nodes_in_loops_and_branches_are_listed(tmp_path):
    """A Loop that doubles its state, after an If that negates or not."""
    value, node = helper.make_tensor_value_info, helper.make_node
    float_, int_, bool_ = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"], "go_on"),
         node("Add", ["s", "s"], ["twice"], "double")], "body",
        [value("i", int_, []), value("go", bool_, []), value("s", float_, ["n"])],
        [value("on", bool_, []), value("twice", float_, ["n"])])
    branches = [helper.make_graph([node(op, ["x"], ["b"], op.lower())], op, [],
                                  [value("b", float_, ["n"])])
                for op in ("Neg", "Exp")]
    path = tmp_path / "control.onnx"
    path.write_bytes(make_model(
        [node("If", ["c"], ["v"], "if", then_branch=branches[0],
              else_branch=branches[1]),
         node("Loop", ["times", "", "v"], ["y"], "loop", body=body)],
        {"x": (float_, ["n"]), "c": (bool_, []), "times": (int_, [])},
        {"y": (float_, ["n"])}).SerializeToString())
    model = limber.load(path)
    feeds = {"x": np.ones(3, np.float32), "c": np.array(True),
             "times": np.array(2)}
    nodes = by_name(model.nodes(None, feeds))
    steps = model.profile(None, feeds)
    assert nodes["exp"]["disposition"] == "not_taken"
    assert nodes["loop"]["disposition"] == "loop"
    assert nodes["double"]["disposition"] == "body"
    assert steps[nodes["double"]["step"]]["name"] == "double"
    assert steps[nodes["neg"]["step"]]["name"] == "neg"
    assert nodes["exp"]["step"] is nodes["loop"]["step"] is None


def test_a_concat_whose_inputs_are_written_in_place_is_skipped(tmp_path):
    """y = CumSum(Concat(Relu(x), Exp(x)))"""
    node, float_ = helper.make_node, TensorProto.FLOAT
    path = tmp_path / "concat.onnx"
    path.write_bytes(make_model(
        [node("Relu", ["x"], ["r"], "relu"), node("Exp", ["x"], ["e"], "exp"),
         node("Concat", ["r", "e"], ["c"], "join", axis=0),
         node("Constant", [], ["axis"], value_int=1),
         node("CumSum", ["c", "axis"], ["y"], "sum")],
        {"x": (float_, ["n", 4])}, {"y": (float_, ["m", 4])},
    ).SerializeToString())
    session = limber.load(path)
    feeds = {"x": np.ones((3, 4), np.float32)}
    join = by_name(session.nodes(None, feeds))["join"]
    assert (join["disposition"], join["skipped"], join["step"]) \
        == ("in_place", True, None)
    assert "its inputs are written straight into its output" in join["proof"]
    row = by_name(session.explain(None, feeds))["join"]
    assert (row["kind"], row["skipped"], row["proof"]) \
        == ("", True, join["proof"])


def test_planning_time_grows_linearly_with_a_chain(tmp_path):
    """Time per node of 8,000 skippable nodes against 1,000; quadratic planning
    would take eight times as long. scripts/bench skip counts instructions."""
    float_, node = TensorProto.FLOAT, helper.make_node
    best = {}
    for n in (1000, 8000):
        names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
        path = tmp_path / f"{n}.onnx"
        path.write_bytes(make_model(
            [node("Constant", [], ["axis"], value_int=0),
             *(node("CumSum", [a, "axis"], [b])
               for a, b in zip(names, names[1:]))],
            {"x": (float_, ["a", "b"])}, {"y": (float_, ["a", "b"])},
        ).SerializeToString())
        session = limber.load(path, load_warmup=False)
        skipped = [row["skipped"] for row in
                   session.nodes(None, {"x": np.ones((1, 2), np.float32)})
                   if row["op"] == "CumSum"]
        assert sum(skipped) >= n - 1
        times = []
        for size in range(3, 10):
            start = time.perf_counter()
            session.plan({"x": (1, size)})
            times.append(time.perf_counter() - start)
        best[n] = min(times) / n
    assert best[8000] < 3 * best[1000]

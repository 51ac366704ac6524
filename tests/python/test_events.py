"""Decisions of the engine and their reasons: explanations, traces, listeners,
and the documented lists of events and reasons."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import ROOT, make_model

PROGRAM = ROOT / "build" / "limber"
DEF = (ROOT / "src/base/events.def").read_text()
DOC = (ROOT / "docs/deployment.md").read_text()


def run(*arguments, code=0, **environment):
    done = subprocess.run([PROGRAM, "run", *arguments], capture_output=True,
                          text=True, env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def model(tmp_path):
    """y = Relu(Reshape(x @ x) + 1), z = CumSum(x), n = Shape(x) + 0"""
    path = tmp_path / "model.onnx"
    float_, int_ = TensorProto.FLOAT, TensorProto.INT64
    path.write_bytes(make_model(
        [helper.make_node("MatMul", ["x", "x"], ["p"], "product"),
         helper.make_node("Constant", [], ["one"], value_float=1.0),
         helper.make_node("Constant", [], ["axis"], value_int=0),
         helper.make_node("Constant", [], ["flat"], value_ints=[-1]),
         helper.make_node("Add", ["p", "one"], ["q"], "plus"),
         helper.make_node("Relu", ["q"], ["r"], "relu"),
         helper.make_node("Reshape", ["r", "flat"], ["y"], "reshape"),
         helper.make_node("CumSum", ["x", "axis"], ["z"], "sum"),
         helper.make_node("Shape", ["x"], ["s"], "shape"),
         helper.make_node("Add", ["s", "s"], ["n"], "twice")],
        {"x": (float_, ["k", "k"])},
        {"y": (float_, ["m"]), "z": (float_, ["k", "k"]), "n": (int_, [2])},
    ).SerializeToString())
    return path


def explain(model, **environment):
    steps = json.loads(run(model, "--dims", "k=24", "--explain", "--json",
                           **environment))["steps"]
    return {step["name"]: step for step in steps}


def test_each_step_has_a_tier_and_a_reason(model):
    steps = explain(model)
    assert {"name", "op", "tier", "kernel", "reason", "skipped"} \
        <= set(steps["product"])
    assert steps["product"]["tier"] in ("pack", "reusable", "specialised")
    assert not steps["product"]["skipped"] and steps["product"]["kernel"]
    assert (steps["sum"]["tier"], steps["sum"]["reason"]) \
        == ("reference", "reference_only")
    for name, reason in [("reshape", "view"), ("shape", "known"),
                         ("twice", "known")]:
        assert steps[name]["tier"] == steps[name]["kind"] == ""
        assert steps[name]["reason"] == reason
        assert steps[name]["skipped"] == (reason == "view")
    if "relu" in steps:  # the pack has no kernel for the fused partition
        assert steps["product"]["reason"] == "pending"
        assert steps["relu"]["reason"] == "pending"
    assert set(step["reason"] for step in steps.values()) <= reasons()


def test_compiled_kernels_are_reported(model):
    steps = json.loads(run(model, "--dims", "k=24", "--settle", "600",
                           "--explain", "--json"))["steps"]
    product = next(step for step in steps if step["name"] == "product")
    assert product["reason"] == "compiled"
    assert not any(step["name"] == "relu" for step in steps)
    assert product["tier"] in ("reusable", "specialised")


@pytest.mark.parametrize("open_model", [limber.load, limber.InferenceSession])
def test_python_explains(open_model, model):
    session = open_model(model)
    feeds = {"x": np.ones((4, 4), np.float32)}
    steps = {s["name"]: s for s in session.explain(["n"], feeds)}
    assert not steps["twice"]["kind"] and steps["twice"]["reason"] == "known"
    assert steps["sum"]["reason"] == "not_requested"
    steps = session.profile(["z"], feeds)
    assert [(s["name"], s["reason"], s["skipped"]) for s in steps] \
        == [("sum", "reference_only", False)]


@pytest.fixture
def wordy(tmp_path):
    """y = x * sigmoid(x), z = exp(1) + x, through an Identity"""
    path = tmp_path / "wordy.onnx"
    float_ = TensorProto.FLOAT
    path.write_bytes(make_model(
        [helper.make_node("Identity", ["x"], ["i"], "same"),
         helper.make_node("Sigmoid", ["i"], ["s"], "sigmoid"),
         helper.make_node("Mul", ["i", "s"], ["y"], "swish"),
         helper.make_node("Constant", [], ["one"], value_float=1.0),
         helper.make_node("Exp", ["one"], ["e"], "exp"),
         helper.make_node("Add", ["x", "e"], ["z"], "plus")],
        {"x": (float_, ["k"])}, {"y": (float_, ["k"]), "z": (float_, ["k"])},
    ).SerializeToString())
    return path


REMOVED = {"same": ("Identity", "noop"), "sigmoid": ("Sigmoid", "match"),
           "exp": ("Exp", "fold")}


def test_removed_nodes_name_the_pass(wordy):
    steps = explain(wordy)
    for name, (op, by) in REMOVED.items():
        step = steps[name]
        assert (step["op"], step["reason"], step["pass"]) \
            == (op, "removed", by)
        assert step["tier"] == step["kernel"] == step["kind"] == ""
        assert step["skipped"] == (name == "same")
    assert {name for name, s in steps.items() if s["pass"]} == set(REMOVED)
    kept = explain(wordy, LIMBER_PASSES="-noop")["same"]
    assert (kept["reason"], kept["pass"]) == ("view", None)
    text = run(wordy, "--dims", "k=24", "--explain")
    assert re.search(r"^- +removed +by noop +Identity +same$", text, re.M)
    steps = limber.load(wordy).explain(None, {"x": np.ones(4, np.float32)})
    assert {s["name"]: (s["op"], s["pass"]) for s in steps if s["pass"]} \
        == REMOVED


def test_an_explanation_is_readable(model):
    text = run(model, "--dims", "k=24", "--explain")
    assert re.search(r"^reference +reference_only +CumSum +sum$", text, re.M)
    assert re.search(r"^- +view +Reshape +reshape$", text, re.M)
    assert re.search(r"^ +2 known +its value follows from the shapes$", text, re.M)


def test_a_trace_has_requests_steps_and_compile_jobs(model, tmp_path):
    path = tmp_path / "trace.json"
    run(model, "--dims", "k=24", "--settle", "600", "--repeat", "3", "--trace",
        path)
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events
              if e["name"] == "thread_name"}
    assert {"requests", "compile jobs", "decisions", "steps: reference",
            "steps: pack"} <= set(tracks.values())

    def on(name):
        return [e for e in events if e["ph"] != "M"
                and tracks[e["tid"]] == name]
    requests = [e for e in on("requests") if e["name"] == "run_ended"]
    assert len(requests) == 3
    assert all(e["ph"] == "X" and e["dur"] > 0 and e["args"]["of"] == "x=24x24"
               for e in requests)
    sums = [e for e in on("steps: reference") if e["args"]["step"] == "sum"]
    assert len(sums) == 3
    for step, request in zip(sums, requests):
        assert request["ts"] <= step["ts"]
        assert step["ts"] + step["dur"] <= request["ts"] + request["dur"]
    jobs = [e for e in on("compile jobs") if e["name"] == "kernel_compiled"]
    published = [e for e in on("decisions") if e["name"] == "kernel_published"]
    assert len(jobs) == len(published) > 0
    assert all(e["ph"] == "X" for e in jobs)
    assert {"kernel_requested", "kernel_queued", "worker_started"} \
        <= {e["name"] for e in on("decisions")}
    built = [e for e in on("decisions") if e["name"] == "plan_built"]
    assert [e["args"]["reason"] for e in built] == ["new_shapes"]
    assert set(e["args"]["reason"] for e in events if "cat" in e) <= reasons()


def test_a_trace_that_cannot_be_written_is_an_error(model):
    assert "cannot write" in run(model, "--dims", "k=2", "--trace",
                                 "/no/such/directory/trace", code=1)


def reasons():
    return set(re.findall(r'^LB_REASON\(\w+, *"(\w+)"', DEF, re.M))


def rows(text, title):
    """First cells of the table under a heading."""
    part = text.split(f"### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.M)


@pytest.mark.parametrize("title, row", [("Events", "LB_EVENT"),
                                        ("Reasons", "LB_REASON")])
def test_the_lists_are_documented(title, row):
    found = re.findall(rf'^{row}\(\w+, *"(\w+)", *"(.*)"\)', DEF, re.M)
    assert len(found) > 10
    assert rows(DOC, title) == found


# -- listeners in Python -----------------------------------------------------

def test_a_listener_receives_decisions(model):
    heard = []
    loaded = limber.load(model, event=heard.append)
    loaded.run(None, {"x": np.ones((5, 5), np.float32)})
    loaded.flush_events()
    ended = [e for e in heard if e.name == "run_ended"]
    assert isinstance(ended[0], limber.Event)
    assert ended[0].reason == "done" and "x=5x5" in ended[0].text
    assert ended[0].end_ns > ended[0].start_ns > 0
    del loaded
    assert all(e.name and e.reason and e.reason_text for e in heard)


def test_options_of_a_session_have_a_listener(model):
    heard = []
    options = limber.SessionOptions()
    options.event = heard.append
    session = limber.InferenceSession(model, options)
    session.run(None, {"x": np.ones((3, 3), np.float32)})
    session.flush_events()
    assert "run_ended" in {e.name for e in heard}
    options.event = 3
    with pytest.raises(TypeError, match="event must be callable"):
        limber.InferenceSession(model, options)


SCRIPT = """
import os, sys, time
import numpy, limber
def listen(event):
    {body}
model = limber.load(sys.argv[1], event=listen)
for n in range(1, 200):
    model.run(None, {{"x": numpy.ones((n, n), numpy.float32)}})
{end}
"""


@pytest.mark.parametrize("body, end, says", [
    ("pass", "", ""),
    ("time.sleep(0.0005)", "", ""),
    ("raise ValueError('heard')", "model.flush_events()", "heard"),
    ("pass", "pid = os.fork()\nif pid: assert os.waitpid(pid, 0)[1] == 0", ""),
])
def test_programs_with_a_listener_end(model, body, end, says):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(body=body, end=end), model],
        capture_output=True, text=True, timeout=1200,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0 and says in done.stderr, done.stderr

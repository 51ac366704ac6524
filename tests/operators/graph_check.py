"""Runs a random graph on both engines: Limber's passes on and off, on the host
and on kernels."""

import onnx
import onnxruntime
from onnx import helper

import limber
from case import Failure, reference_options
from compare import raw_disagreement
from graphs import GraphCase
from kernels import LIMITS, load_on_host, settle

# What ONNX Runtime refuses, and why Limber does not.
REFUSALS = {
    "Subgraph must have the shape set": "Scan's bodies need shapes in theirs",
    "size != 0 && (input_shape_size % size) == 0": "-1 beside a dim of 0",
}


def refused(got, want):
    return isinstance(want, Failure) and not isinstance(got, Failure) and \
        any(text in want.text for text in REFUSALS)


def has_empty(case, feed):
    """Is there a dim of 0? ONNX Runtime's Concat and reductions then have
    rules of their own (quirks.py)."""
    names = [v.name for v in case.graph.values]
    graph = onnx.load_from_string(case.bytes)
    made = {o for node in graph.graph.node for o in node.output}
    del graph.graph.output[:]
    graph.graph.output.extend(helper.make_empty_tensor_value_info(n)
                              for n in names if n in made)
    model = load_on_host(graph.SerializeToString(), optimize=False)
    for name in (o.name for o in graph.graph.output):
        result = attempts(lambda _, f: model.run([name], f), [feed])[0]
        if not isinstance(result, Failure) and result[0].size == 0:
            return True
    return any(x.size == 0 for x in feed.values())


def attempts(run, feeds):
    """The result of each run, or how it failed."""
    results = []
    for feed in feeds:
        try:
            results.append(run(None, feed))
        except Exception as error:
            results.append(Failure(error))
    return results


def on_host(model, feeds, optimize):
    try:
        loaded = load_on_host(model, optimize=optimize)
    except limber.Error as error:
        return [Failure(error)] * len(feeds)
    return attempts(loaded.run, feeds)


def on_kernels(model, feeds):
    """Runs that plan each shape, settle, runs that use the kernels."""
    try:
        loaded = limber.load(model, **LIMITS)
    except limber.Error as error:
        return [Failure(error)] * len(feeds)
    attempts(loaded.run, feeds)
    settle(loaded)
    return attempts(loaded.run, feeds)


def theirs(model, feeds):
    try:
        session = onnxruntime.InferenceSession(model, reference_options(),
                                               ["CPUExecutionProvider"])
    except Exception as error:
        return [Failure(error)] * len(feeds)
    return attempts(session.run, feeds)


def check_graph(seed):
    """(case, how the engines, or kernels and host, disagree or None)"""
    case = GraphCase(seed)
    want = theirs(case.bytes, case.feeds)
    host = on_host(case.bytes, case.feeds, True)
    for how, got in (("", host),
                     (", passes off", on_host(case.bytes, case.feeds, False))):
        for i, (a, b) in enumerate(zip(got, want)):
            text = raw_disagreement("graph", a, b)
            if text and not refused(a, b) and \
                    not has_empty(case, case.feeds[i]):
                return case, f"run {i}{how}: {text}"
    got = on_kernels(case.bytes, case.feeds)
    for i, (a, b) in enumerate(zip(got, host)):
        text = raw_disagreement("graph", a, b)
        if text:
            return case, f"run {i}, settled: {text} (the host's)"
    return case, None

"""Runs a random graph on both engines: Limber with passes on and off, on
reference kernels and on generated kernels."""

import onnx
import onnxruntime
from onnx import helper

import limber
from case import Failure, Results, reference_options, run_named
from compare import REJECTED, raw_disagreement
from graphs import GraphCase
from kernels import LIMITS, load_reference, run_model, settle

# Errors of ONNX Runtime, and why Limber accepts the graph.
REFUSALS = {
    "Subgraph must have the shape set": "Scan's bodies need shapes in theirs",
    "size != 0 && (input_shape_size % size) == 0": "-1 beside a dim of 0",
}


def rejected(got, want):
    return isinstance(want, Failure) and not isinstance(got, Failure) and \
        any(text in want.text for text in REFUSALS)


def names_read(node):
    """Names that a node and its subgraphs read."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names |= names_read(inner)
    return names


def after_empty(case, feed):
    """Names of values that are empty, or computed from empty ones: for these
    ONNX Runtime's Concat and reductions behave differently (quirks.py)."""
    graph = onnx.load_from_string(case.bytes)
    nodes = list(graph.graph.node)
    made = {o for node in nodes for o in node.output}
    names = [v.name for v in case.graph.values if v.name in made]
    del graph.graph.output[:]
    graph.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    model = load_reference(graph.SerializeToString(), optimize=False)
    found = {name for name, x in feed.items() if x.size == 0}
    for name in names:
        result = attempts(lambda f: model.run([name], f), [feed])[0]
        if not isinstance(result, Failure) and result[0].size == 0:
            found.add(name)
    for node in nodes:  # in topological order
        if names_read(node) & found:
            found |= set(node.output)
    return found


def without(names, result):
    """A result without the outputs of these names."""
    if isinstance(result, Failure):
        return result
    kept = [n for n in result.names if n not in names]
    return Results(kept, [x for n, x in zip(result.names, result) if n in kept])


def excused(case, feed, got, want):
    """Does every difference depend on an empty value? Limber may also reject
    such a run."""
    names = after_empty(case, feed)
    if isinstance(got, Failure) or isinstance(want, Failure):
        return bool(names) and getattr(got, "rejects", True)
    return raw_disagreement("graph", without(names, got),
                            without(names, want)) is None


def attempts(run, feeds):
    """The result of each run, or how it failed."""
    results = []
    for feed in feeds:
        try:
            results.append(run(feed))
        except Exception as error:
            results.append(Failure(error))
    return results


def on_reference(model, feeds, optimize):
    try:
        loaded = load_reference(model, optimize=optimize)
    except limber.Error as error:
        return [Failure(error)] * len(feeds)
    return attempts(lambda feed: run_model(loaded, feed), feeds)


def on_kernels(model, feeds):
    """Plans each shape by a run, settles, and runs on the kernels."""
    try:
        loaded = limber.load(model, **LIMITS)
    except limber.Error as error:
        return [Failure(error)] * len(feeds)
    attempts(lambda feed: run_model(loaded, feed), feeds)
    settle(loaded)
    return attempts(lambda feed: run_model(loaded, feed), feeds)


def theirs(model, feeds):
    try:
        session = onnxruntime.InferenceSession(model, reference_options(),
                                               ["CPUExecutionProvider"])
    except Exception as error:
        return [Failure(error)] * len(feeds)
    outputs = session.get_outputs()
    return attempts(lambda feed: run_named(session, outputs, feed), feeds)


def runs_one_way(case, i, plain, ref):
    """Is this a graph with an empty value that runs only with passes, or only
    without? A 0 among the dims of a Reshape copies a dim, which is an error
    beyond the input's rank; if passes know the dims, none is copied."""
    return (isinstance(plain, Failure) or isinstance(ref, Failure)) and \
        excused(case, case.feeds[i], plain, ref)


def check_graph(seed):
    """(case, how the engines, or Limber's configurations, disagree; REJECTED if
    both engines reject it at the sizes it was drawn at; or None)"""
    case = GraphCase(seed)
    want = theirs(case.bytes, case.feeds)
    ref = on_reference(case.bytes, case.feeds, True)
    plain = on_reference(case.bytes, case.feeds, False)
    for i, (a, b) in enumerate(zip(ref, want)):
        text = raw_disagreement("graph", a, b)
        if text not in (None, REJECTED) and not rejected(a, b) and \
                not excused(case, case.feeds[i], a, b):
            return case, f"run {i}: {text}"
    kernels = on_kernels(case.bytes, case.feeds)
    for how, got in (("passes off", plain), ("settled", kernels)):
        for i, (a, b) in enumerate(zip(got, ref)):
            text = raw_disagreement("graph", a, b, "the reference")
            if text not in (None, REJECTED) and not (
                    got is plain and runs_one_way(case, i, a, b)):
                return case, f"run {i}, {how}: {text} (the reference's)"
    first = raw_disagreement("graph", ref[0], want[0])
    return case, REJECTED if first == REJECTED else None

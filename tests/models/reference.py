"""The reference of all comparisons: ONNX Runtime, and the tolerances."""

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, shape_inference

# Agreement of final outputs: |a - b| <= ATOL + RTOL * |b|.
ATOL, RTOL = 1e-4, 1e-3


def session(model, optimised=True):
    """An ONNX Runtime session for a path or for a model in memory."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return onnxruntime.InferenceSession(model, options,
                                        ["CPUExecutionProvider"])


def assert_close(name, got, want, atol=ATOL, rtol=RTOL):
    assert got.dtype == want.dtype, f"{name}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{name}: {got.shape}, not {want.shape}"
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol, atol, err_msg=name)
    else:
        np.testing.assert_array_equal(got, want, err_msg=name)


def relative_error(got, want):
    """|got - want| / |want| in the L2 norm. Infinities must be equal and are
    then left out; if `want` is zero everywhere, `got` must be, too."""
    got, want = np.float64(got), np.float64(want)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return np.inf
    error = np.linalg.norm(got[finite] - want[finite])
    norm = np.linalg.norm(want[finite])
    return 0.0 if error == 0 else error / norm if norm else np.inf


def with_all_values(path):
    """A copy of the model, as bytes, all of whose values are outputs.

    A value inside an If becomes an output of every enclosing If; the branch
    that is not taken returns a zero of the same type instead.
    """
    model = shape_inference.infer_shapes(onnx.load(path))
    declared = {output.name for output in model.graph.output}
    for name, dtype in expose(model.graph):
        if name not in declared:
            info = helper.make_empty_tensor_value_info(name)
            info.type.tensor_type.elem_type = dtype
            model.graph.output.append(info)
    return model.SerializeToString()


def expose(graph):
    """Makes every value computed in `graph`, and in its nested branches, a
    value of `graph` itself. Returns (name, dtype) of each."""
    dtypes = {v.name: v.type.tensor_type.elem_type
              for v in (*graph.value_info, *graph.output)}
    values = []
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        values += [(o, dtypes[o]) for o in node.output if dtypes.get(o)]
        if node.op_type == "If":
            values += expose_branches(node)
    return values


def expose_branches(node):
    branches = [a.g for a in node.attribute if a.type == a.GRAPH]
    prefix = node.output[0]
    passed_out = []
    for i, values in enumerate([expose(branch) for branch in branches]):
        for name, dtype in values:
            outer = f"{prefix}/{i}/{name}"
            for j, branch in enumerate(branches):
                inside = name if i == j else add_zero(branch, outer, dtype)
                branch_output(branch, inside, f"{outer}@{j}", dtype)
            node.output.append(outer)
            passed_out.append((outer, dtype))
    return passed_out


def add_zero(branch, outer, dtype):
    zero = np.zeros([], helper.tensor_dtype_to_np_dtype(dtype))
    tensor = numpy_helper.from_array(zero)
    name = outer + "/absent"
    branch.node.append(helper.make_node("Constant", [], [name], value=tensor))
    return name


def branch_output(branch, inside, name, dtype):
    """An Identity gives each branch output a unique name: a value may already
    be an output, and names must not repeat."""
    branch.node.append(helper.make_node("Identity", [inside], [name]))
    info = helper.make_empty_tensor_value_info(name)
    info.type.tensor_type.elem_type = dtype
    branch.output.append(info)


def with_exact_sigmoids(model, names, values, feeds):
    """The values, with results of Sigmoid recomputed in float64 from the same
    inputs, after checking that they were correct to 1e-6."""
    known = dict(feeds) | dict(zip(names, values))
    for node in onnx.load_from_string(model).graph.node:
        if node.op_type == "Sigmoid" and node.output[0] in known:
            x = np.float64(known[node.input[0]])
            exact = 1 / (1 + np.exp(-x))
            np.testing.assert_allclose(known[node.output[0]], exact, 0, 1e-6)
            known[node.output[0]] = np.float32(exact)
    return [known[name] for name in names]


def flops(path, feeds):
    """Multiplications and additions of all contractions in one run."""
    run = session(with_all_values(path), optimised=False)
    names = [o.name for o in run.get_outputs()]
    computed = dict(zip(names, run.run(names, feeds)))
    return graph_flops(onnx.load(path).graph, feeds, computed, "")


def graph_flops(graph, outer, computed, prefix):
    """The same for one graph: `outer` are the values of enclosing graphs,
    `prefix` is what with_all_values prepends to its own names."""
    values = dict(outer)
    values.update({i.name: numpy_helper.to_array(i)
                   for i in graph.initializer})
    total = 0
    for node in graph.node:
        if node.op_type == "Constant":
            values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            continue
        values.update({o: computed[prefix + o] for o in node.output
                       if prefix + o in computed})
        total += node_flops(node, values)
        branches = [a.g for a in node.attribute if a.type == a.GRAPH]
        for i, branch in enumerate(branches):
            inner = f"{prefix}{node.output[0]}/{i}/"
            total += graph_flops(branch, values, computed, inner)
    return total


def node_flops(node, values):
    if np.ndim(values.get(node.output[0], 0)) == 0:
        return 0  # in a branch that was not taken
    shapes = [values[n].shape if n in values else () for n in node.input]
    out = values[node.output[0]].size
    if node.op_type == "Conv":
        return 2 * out * int(np.prod(shapes[1][1:]))
    if node.op_type == "ConvTranspose":
        return 2 * int(np.prod(shapes[0])) * int(np.prod(shapes[1][1:]))
    if node.op_type == "MatMul":
        return 2 * out * shapes[0][-1]
    if node.op_type == "LSTM":
        steps = shapes[0][0] * shapes[0][1]
        return 2 * steps * int(np.prod(shapes[1]) + np.prod(shapes[2]))
    return 0

"""Builds ONNX graphs node for node and name for name as PyTorch's exporter
writes them, shape arithmetic included."""

import numpy as np
from onnx import helper, numpy_helper


class Graph:
    """Nodes and initializers, named as the exporter names them. `weights`:
    name -> array. Initializers are `prefix` and the name of the weight."""

    def __init__(self, weights, prefix=""):
        self.weights, self.prefix = weights, prefix
        self.nodes = []
        self.params = []  # in the order of first use
        self.matmuls = []  # transposed weights, after all others
        self.seen = {}  # (scope, op) -> count so far

    def name(self, scope, op):
        n = self.seen.get((scope, op), 0)
        self.seen[scope, op] = n + 1
        return f"{scope}/{op}_{n}" if n else f"{scope}/{op}"

    def op(self, scope, op, *inputs, out=None, **attributes):
        name = self.name(scope, op)
        out = out or name + "_output_0"
        node = helper.make_node(op, inputs, [out], name, **attributes)
        self.nodes.append(node)
        return out

    def const(self, scope, value, dtype=np.int64, out=None):
        tensor = numpy_helper.from_array(np.array(value, dtype))
        if out is None:
            return self.op(scope, "Constant", value=tensor)
        self.nodes.append(helper.make_node("Constant", [], [out], out,
                                           value=tensor))
        return out

    def param(self, name):
        full = self.prefix + name
        self.params.append(
            numpy_helper.from_array(np.array(self.weights[name]), full))
        return full

    def linear_weight(self, name, number):
        full = f"onnx::MatMul_{number}"
        array = np.ascontiguousarray(self.weights[name].T)
        self.matmuls.append(numpy_helper.from_array(array, full))
        return full

    def dim(self, scope, x, axis):
        shape = self.op(scope, "Shape", x)
        return self.op(scope, "Gather", shape, self.const(scope, axis), axis=0)

    def unsqueeze(self, scope, x, axis, const_name=None):
        axes = self.const(scope, [axis], out=const_name)
        return self.op(scope, "Unsqueeze", x, axes)

    def reshape(self, scope, x, shape):
        return self.op(scope, "Reshape", x, shape, allowzero=0)

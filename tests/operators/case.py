"""Test cases of one node: inputs and attributes, the model that contains it,
and the result of running a model in ONNX Runtime."""

import re
from dataclasses import dataclass, field

import numpy as np
import onnxruntime
from onnx import AttributeProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)

IR_VERSION = 10


class Const(np.ndarray):
    """An array that must be an initializer of the model."""


def const(array):
    return None if array is None else np.asarray(array).view(Const)


@dataclass
class Case:
    """A node with its inputs: arrays, or None for an input that is omitted."""

    op: str
    opset: int
    inputs: list
    attrs: dict = field(default_factory=dict)
    n_out: int = 1
    skipped: tuple = ()  # indices of outputs that the node omits
    constants: tuple = ()  # indices of inputs that are initializers
    shapes: dict = field(default_factory=dict)  # declared shapes by input index

    def feeds(self):
        return {f"x{i}": np.asarray(x) for i, x in enumerate(self.inputs)
                if x is not None and i not in self.constants}

    def model(self):
        names = [f"x{i}" if x is not None else ""
                 for i, x in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        outputs = ["" if i in self.skipped else f"y{i}"
                   for i in range(self.n_out)]
        node = helper.make_node(self.op, names, outputs, "node")
        node.attribute.extend(attribute(k, v) for k, v in self.attrs.items())
        graph = helper.make_graph(
            [node], "case",
            [self.declare(i, x) for i, x in enumerate(self.inputs)
             if x is not None and i not in self.constants],
            [helper.make_empty_tensor_value_info(y) for y in outputs if y],
            [numpy_helper.from_array(np.asarray(self.inputs[i]), f"x{i}")
             for i in self.constants])
        return seal(graph, self.opset)

    def declare(self, i, x):
        return helper.make_tensor_value_info(
            f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), self.shapes[i])

    def __str__(self):
        inputs = ", ".join(
            "-" if x is None else
            f"{x.dtype}{list(x.shape)}{'c' if i in self.constants else ''}"
            for i, x in enumerate(self.inputs))
        attrs = "".join(f" {k}={v!r}" for k, v in self.attrs.items())
        return f"{self.op}-{self.opset}({inputs}){attrs}"


def attribute(name, value):
    if value == []:
        return helper.make_attribute(name, value,
                                     attr_type=AttributeProto.INTS)
    return helper.make_attribute(name, value)


def seal(graph, opset):
    """The bytes of the model that consists of `graph`."""
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)],
        ir_version=IR_VERSION).SerializeToString()


def single(draw, inputs, n_out=1, skipped=(), **attrs):
    """Returns a case of the drawn operator. Draws which inputs are constants,
    and which shapes the model declares for the others."""
    attrs = {k: v for k, v in attrs.items() if v is not None}
    present = [i for i, x in enumerate(inputs) if x is not None]
    p = draw.pick([0.0, 0.0, 0.3, 1.0])
    constants = tuple(i for i in present
                      if isinstance(inputs[i], Const) or draw.chance(p))
    shapes = {i: declared(draw, i, inputs[i].shape) for i in present}
    return Case(draw.op, draw.version, list(inputs), attrs, n_out,
                tuple(skipped), constants, shapes)


def declared(draw, i, shape):
    """Draws the declared shape of an input: None, or symbols and sizes."""
    style = draw.int(0, 9)
    if i and len(shape) == 1 and draw.chance(0.7):
        return shape  # a list of sizes or axes: models declare its length
    if style == 0:
        return None
    fixed = 0.5 if style < 3 else 0.0
    return [size if draw.chance(fixed) else f"d{i}_{k}"
            for k, size in enumerate(shape)]


# -- running ------------------------------------------------------------------

# Errors of ONNX Runtime when it has no kernel, or one that supports less than
# the schema allows.
NO_KERNEL = re.compile(
    r"NOT_IMPLEMENTED|not implemented|Type Error|does not support|"
    r"not supported|unsupported|layout_ == 0 was false", re.I)


# What Limber raises when it rejects a model or its inputs. Any other exception
# is a bug in Limber.
REFUSALS = ("InvalidModel", "InvalidArgument", "Unsupported")


class Failure:
    """The exception that an engine raised instead of returning a result."""

    def __init__(self, error):
        self.kind = type(error).__name__
        self.text = str(error) or self.kind
        self.unsupported = bool(NO_KERNEL.search(self.text))
        self.rejects = self.kind in REFUSALS

    def __str__(self):
        return f"fails: {self.kind}: " + " ".join(self.text.split())[:300]


class Results(list):
    """The outputs of a run, with their names."""

    def __init__(self, names, arrays):
        super().__init__(arrays)
        self.names = list(names)


def run_named(session, outputs, feeds, *options):
    """All outputs of a session of either engine; `outputs` describes them."""
    return Results([o.name for o in outputs],
                   session.run(None, feeds, *options))


def reference_options():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    return options


def run_theirs(model, feeds):
    """The results of ONNX Runtime, or a Failure."""
    try:
        session = onnxruntime.InferenceSession(model, reference_options(),
                                               ["CPUExecutionProvider"])
        run = onnxruntime.RunOptions()
        run.log_severity_level = 4
        return run_named(session, session.get_outputs(), feeds, run)
    except Exception as error:  # its errors have no common base class
        return Failure(error)

"""Small models for the tests of the Python package, and the public ones."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

# Kernels of earlier runs would hide failures; tests of the store set their own.
os.environ.setdefault("LIMBER_CACHE_DIR", "off")

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "build" / "models"


class GraphBuilder:
    """Collects nodes v0, v1, ... and initializers w0, w1, ... of a graph; draws
    numbers from its own generator."""

    def __init__(self, seed):
        self.nodes, self.weights = [], []
        self.draw = np.random.default_rng(seed)

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def const(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def make_model(nodes, inputs, outputs, **keywords):
    """A model as bytes. Inputs and outputs: name -> (dtype, dims)."""
    def infos(values):
        return [helper.make_tensor_value_info(name, dtype, dims)
                for name, (dtype, dims) in values.items()]
    graph = helper.make_graph(nodes, "small", infos(inputs), infos(outputs))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        **keywords)
    return model


def add_model(dtype=TensorProto.FLOAT):
    """sum = a + b, twice = sum + sum"""
    return make_model(
        [helper.make_node("Add", ["a", "b"], ["sum"]),
         helper.make_node("Add", ["sum", "sum"], ["twice"])],
        {"a": (dtype, ["n", 3]), "b": (dtype, ["n", 3])},
        {"sum": (dtype, ["n", 3]), "twice": (dtype, ["n", 3])},
    ).SerializeToString()


def sub_model():
    """y = a - b, of scalars"""
    scalar = (TensorProto.DOUBLE, [])
    return make_model([helper.make_node("Sub", ["a", "b"], ["y"])],
                      {"a": scalar, "b": scalar}, {"y": scalar},
                      ).SerializeToString()


def identity_model(dtype=TensorProto.FLOAT, dims=("n",)):
    """y = x"""
    return make_model([helper.make_node("Identity", ["x"], ["y"])],
                      {"x": (dtype, dims)}, {"y": (dtype, dims)},
                      ).SerializeToString()


def negate_model(dtype=TensorProto.FLOAT, dims=("n",)):
    """y = -x"""
    return make_model([helper.make_node("Neg", ["x"], ["y"])],
                      {"x": (dtype, dims)}, {"y": (dtype, dims)},
                      ).SerializeToString()


def slow_model(count):
    """y = x through `count` matmuls."""
    loop = [helper.make_node("MatMul", [f"v{i}", "x"], [f"v{i + 1}"])
            for i in range(1, count)]
    first = helper.make_node("MatMul", ["x", "x"], ["v1"])
    return make_model([first, *loop],
                      {"x": (TensorProto.FLOAT, ["n", "n"])},
                      {f"v{count}": (TensorProto.FLOAT, ["n", "n"])},
                      ).SerializeToString()


@pytest.fixture
def models():
    return MODELS


@pytest.fixture
def same_onnxruntime():
    """For tests that install limber.compat: ONNX Runtime's modules come back,
    which cannot be imported twice."""
    before = {n: m for n, m in sys.modules.items()
              if n.split(".")[0] == "onnxruntime"}
    yield
    for name in [n for n in sys.modules if n.split(".")[0] == "onnxruntime"]:
        del sys.modules[name]
    sys.modules.update(before)


sys.path.insert(0, str(Path(__file__).parent))

"""limber.load, and the methods of a model."""

import os
import pathlib

import numpy as np
import pytest
from onnx import TensorProto, helper

import limber
from conftest import add_model, make_model, negate_model

ONES = np.ones((2, 3), np.float32)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "modèle.onnx"
    path.write_bytes(add_model())
    return path


@pytest.mark.parametrize("form", [str, pathlib.Path, os.fsencode])
def test_a_model_loads_from_any_kind_of_path(path, form):
    if form is os.fsencode:
        path = path.read_bytes()
    else:
        path = form(path)
    assert len(limber.load(path).inputs) == 2


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
def test_a_model_loads_from_bytes_that_are_then_freed(form):
    data = form(add_model())
    model = limber.load(data)
    del data
    assert model(ONES, ONES)[0].tolist() == [[2] * 3] * 2


@pytest.mark.parametrize("form", [str, pathlib.Path])
def test_external_data_of_a_model_in_bytes_is_in_a_directory(tmp_path, form):
    model = make_model([helper.make_node("Neg", ["w"], ["y"])], {},
                       {"y": (TensorProto.FLOAT, [2])})
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2],
                          data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="weights")
    model.graph.initializer.append(weights)
    np.array([1, 2], np.float32).tofile(tmp_path / "weights")
    loaded = limber.load(model.SerializeToString(), directory=form(tmp_path))
    assert loaded().tolist() == [-1, -2]


def test_inputs_are_given_by_position_or_name():
    model = limber.load(add_model())
    for got in (model(ONES, 2 * ONES), model(ONES, b=2 * ONES),
                model(b=2 * ONES, a=ONES),
                model.run(None, {"b": 2 * ONES, "a": ONES}),
                model.run([], {"a": ONES, "b": 2 * ONES})):
        assert [y[0, 0] for y in got] == [3, 6]


def test_a_model_of_one_output_returns_an_array():
    assert limber.load(negate_model())([1]).tolist() == [-1]


def test_inputs_and_outputs_are_described():
    model = limber.load(add_model())
    assert model.inputs[0] == ("a", "float32", ["n", 3])
    assert model.inputs[0].type == "tensor(float)"
    assert [o.name for o in model.outputs] == ["sum", "twice"]
    assert model.outputs[1].shape == ["n", 3]


def test_sizes_without_a_name_are_none():
    data = negate_model(dims=[None, "?", -1])
    assert limber.load(data).inputs[0].shape == [None, None, None]


def test_stats_count_runs_and_plans():
    model = limber.load(negate_model())
    for n in (1, 2, 3, 2, 1):
        model(np.ones(n, np.float32))
    stats = model.stats()
    assert stats.runs == 5 and stats.plans_built == 3 and stats.plans == 3
    assert stats.plans_evicted == 0 and stats.plan_bytes > 0


def test_info_reports_the_files_metadata():
    data = make_model([helper.make_node("Neg", ["x"], ["y"])],
                      {"x": (TensorProto.FLOAT, [1])},
                      {"y": (TensorProto.FLOAT, [1])},
                      producer_name="test", producer_version="7",
                      doc_string="words", model_version=3)
    helper.set_model_props(data, {"key": "välue"})
    info = limber.load(data.SerializeToString()).info()
    assert info["producer_name"] == "test" and info["version"] == 3
    assert info["description"] == "words" and info["graph_name"] == "small"
    assert info["custom_metadata_map"] == {"key": "välue"}
    assert info["opset"] == 17 and info["nodes"] == 1


def test_a_dump_names_every_node():
    assert limber.load(add_model()).dump().count("Add") == 2


def test_a_plain_graph_computes_the_same(models):
    path = models / "ocr-cls.onnx"
    x = np.random.default_rng(1).standard_normal((1, 3, 48, 50)).astype("f")
    plain = limber.load(path, optimize=False)
    simple = limber.load(path)
    assert plain.info()["nodes"] > simple.info()["nodes"]
    np.testing.assert_allclose(plain(x), simple(x), 1e-4, 1e-5)


def test_copied_weights_survive_the_file(models, tmp_path):
    path = tmp_path / "model.onnx"
    data = (models / "ocr-cls.onnx").read_bytes()
    path.write_bytes(data)
    model = limber.load(path, copy_weights=True)
    x = np.ones((1, 3, 48, 20), np.float32)
    want = model(x)
    path.write_bytes(b"")
    assert np.array_equal(model(x), want)


def packed_bytes(path):
    """Bytes of the constant operands of matmuls, which are packed."""
    import onnx
    graph = onnx.load(path).graph
    size = {w.name: len(w.raw_data) for w in graph.initializer}
    return sum(size.get(n.input[1], 0) for n in graph.node
               if n.op_type in ("MatMul", "Gemm"))


def test_loading_copies_only_weights_of_matmuls(models):
    """In its own process: nothing else may change the memory."""
    import subprocess
    import sys
    code = """
import sys, limber
def anonymous():
    line = [l for l in open("/proc/self/status") if l.startswith("RssAnon")]
    return int(line[0].split()[1])
before = anonymous()
model = limber.load(sys.argv[1])
print(anonymous() - before, model.info()["weight_bytes"])
"""
    done = subprocess.run([sys.executable, "-c", code, models / "minilm.onnx"],
                          capture_output=True, text=True, check=True)
    grown_kb, weight_bytes = map(int, done.stdout.split())
    assert weight_bytes > 80_000_000
    packed = packed_bytes(models / "minilm.onnx")
    assert packed < weight_bytes / 2
    assert grown_kb <= 16 * 1024 + packed / 1024

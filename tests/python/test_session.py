"""InferenceSession is compatible with that of ONNX Runtime."""

import warnings

import numpy as np
import onnxruntime
import pytest

import limber
from conftest import add_model

ONES = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("name", ["minilm", "ocr-rec", "vad-seq", "magika"])
def test_inputs_are_described_as_onnx_runtime_does(models, name):
    path = str(models / f"{name}.onnx")
    ours = limber.InferenceSession(path)
    theirs = onnxruntime.InferenceSession(path)
    for a, b in zip(ours.get_inputs(), theirs.get_inputs(), strict=True):
        assert (a.name, a.type) == (b.name, b.type)
        assert len(a.shape) == len(b.shape)
        for x, y in zip(a.shape, b.shape):
            assert x == y or (x is None and not isinstance(y, int))
    for a, b in zip(ours.get_outputs(), theirs.get_outputs(), strict=True):
        assert (a.name, a.type) == (b.name, b.type)


def test_metadata_is_onnx_runtimes(models):
    path = str(models / "ocr-rec.onnx")
    ours = limber.InferenceSession(path).get_modelmeta()
    theirs = onnxruntime.InferenceSession(path).get_modelmeta()
    for field in ("producer_name", "graph_name", "domain", "description",
                  "custom_metadata_map"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.graph_description == ""


def test_run_takes_onnx_runtimes_arguments():
    session = limber.InferenceSession(add_model(), None,
                                      ["CPUExecutionProvider"])
    feeds = {"a": ONES, "b": ONES}
    for got in (session.run(["twice"], feeds),
                session.run(["twice"], feeds, limber.RunOptions()),
                session.run(output_names=["twice"], input_feed=feeds,
                            run_options=None)):
        assert got[0][0, 0] == 4
    assert len(session.run(None, feeds)) == 2


def test_an_output_may_be_requested_twice():
    session = limber.InferenceSession(add_model())
    feeds = {"a": ONES, "b": ONES}
    got = session.run(["twice", "sum", "twice", "twice"], feeds)
    assert [y[0, 0] for y in got] == [4, 2, 4, 4]
    got[0][:] = 7  # each is a separate array
    got[2][:] = 8
    assert [y[0, 0] for y in got] == [7, 2, 8, 4]
    assert len(session.profile(["sum", "sum"], feeds)) == 1


def test_supported_options_are_accepted():
    options = limber.SessionOptions()
    options.intra_op_num_threads = 3
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False
    level = limber.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_DISABLE_ALL
    options.execution_mode = limber.ExecutionMode.ORT_SEQUENTIAL
    spin = "session.intra_op.allow_spinning"
    options.add_session_config_entry(spin, "0")
    session = limber.InferenceSession(add_model(), options)
    assert session.run(None, {"a": ONES, "b": ONES})[0][0, 0] == 2
    assert session.get_session_options() is options
    assert options.get_session_config_entry(spin) == "0"


def test_a_wrong_severity_is_an_error():
    options = limber.SessionOptions()
    options.log_severity_level = 9
    with pytest.raises(ValueError, match="log_severity_level"):
        limber.InferenceSession(add_model(), options)


def test_no_warning_without_a_reason():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limber.InferenceSession(add_model(),
                                providers=["CPUExecutionProvider"])


def test_a_subclass_may_have_another_constructor():
    class Session(limber.InferenceSession):
        def __init__(self, factor):
            super().__init__(add_model())
            self.factor = factor
    assert len(Session(3).get_inputs()) == 2

"""limber.compat is ONNX Runtime's interface: the same program gives the same
values with both."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import limber
from conftest import ROOT, add_model, make_model, negate_model, slow_model
from limber import compat
from limber.compat import _errors, _warn

A = np.arange(6, dtype=np.float32).reshape(2, 3)
FEEDS = {"a": A, "b": A + 1}
BOTH = pytest.mark.parametrize("ort", [onnxruntime, compat],
                               ids=["onnxruntime", "limber"])


@pytest.fixture(autouse=True)
def fresh_warnings():
    _warn.given.clear()


def weight_model(shape=(2, 3), inputs=()):
    """y = x + w"""
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])],
                       {"x": (TensorProto.FLOAT, ["n", 3])},
                       {"y": (TensorProto.FLOAT, ["n", 3])})
    model.graph.initializer.append(
        numpy_helper.from_array(np.zeros(shape, np.float32), "w"))
    model.graph.input.extend(inputs)
    return model


# -- sessions -----------------------------------------------------------------

@BOTH
def test_run_takes_arrays_lists_and_values(ort):
    session = ort.InferenceSession(add_model())
    value = ort.OrtValue.ortvalue_from_numpy(A)
    for a in (A, A.tolist(), value):
        got = session.run(["sum"], {"a": a, "b": A})
        assert np.array_equal(got[0], A + A)
    assert len(session.run([], FEEDS)) == 2


@BOTH
def test_values_go_in_and_out(ort):
    session = ort.InferenceSession(add_model())
    feeds = {n: ort.OrtValue.ortvalue_from_numpy(x) for n, x in FEEDS.items()}
    [y] = session.run_with_ort_values(["sum"], feeds)
    assert np.array_equal(y.numpy(), A + A + 1)
    assert (y.shape(), y.data_type(), y.element_type(), y.device_name()) == (
        [2, 3], "tensor(float)", 1, "cpu")
    assert y.has_value() and y.is_tensor() and not y.is_sparse_tensor()
    assert y.tensor_size_in_bytes() == 24


@BOTH
def test_a_value_shares_the_arrays_memory(ort):
    x = A.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert value.data_ptr() == x.ctypes.data
    x[0, 0] = 7
    assert value.numpy()[0, 0] == 7
    value.update_inplace(np.zeros((2, 3), np.float32))
    assert x[0, 0] == 0
    with pytest.raises(Exception):
        value.update_inplace(np.zeros(5, np.float32))


def test_values_are_copied():
    other = compat.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    compat.copy_tensors([compat.OrtValue.ortvalue_from_numpy(A)], [other])
    assert np.array_equal(other.numpy(), A)


@BOTH
def test_bfloat16_values_are_made_of_their_bits(ort):
    bits = np.array([0x3FC0, 0xC000], np.uint16)
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
        bits, TensorProto.BFLOAT16)
    assert value.element_type() == TensorProto.BFLOAT16
    assert value.data_type() == "tensor(bfloat16)"


@BOTH
def test_binding_arrays_and_addresses(ort):
    session = ort.InferenceSession(add_model())
    binding = session.io_binding()
    y = np.zeros((2, 3), np.float32)
    binding.bind_cpu_input("a", A)
    binding.bind_input("b", "cpu", 0, np.float32, A.shape, A.ctypes.data)
    binding.bind_output("sum", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("twice")
    session.run_with_iobinding(binding)
    assert np.array_equal(y, A + A)
    outputs = binding.get_outputs()
    assert outputs[0].data_ptr() == y.ctypes.data
    assert np.array_equal(outputs[1].numpy(), 4 * A)
    copies = binding.copy_outputs_to_cpu()
    assert not np.shares_memory(copies[0], y)
    binding.synchronize_inputs()
    binding.synchronize_outputs()
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError, match="output"):
        session.run_with_iobinding(binding)


@BOTH
def test_binding_values(ort):
    session = ort.InferenceSession(add_model())
    binding = session.io_binding()
    make = ort.OrtValue.ortvalue_from_numpy
    y = make(np.zeros((2, 3), np.float32))
    binding.bind_ortvalue_input("a", make(A))
    binding.bind_ortvalue_input("b", make(A))
    binding.bind_ortvalue_output("sum", y)
    session.run_with_iobinding(binding, ort.RunOptions())
    assert np.array_equal(y.numpy(), A + A)


@BOTH
def test_the_objects_inside_of_wrappers_can_be_used(ort):
    """Programs use these private attributes of ONNX Runtime's classes."""
    session = ort.InferenceSession(add_model())
    value = ort.OrtValue(ort.OrtValue.ortvalue_from_numpy(A)._ortvalue)
    assert value.shape() == [2, 3]
    binding = session.io_binding()
    binding.bind_ortvalue_input("a", value)
    binding.bind_ortvalue_input("b", value)
    binding.bind_output("sum")
    session._sess.run_with_iobinding(binding._iobinding, None)
    assert len(binding._iobinding.get_outputs()) == 1


@BOTH
def test_binding_memory_of_no_elements(ort):
    session = ort.InferenceSession(add_model())
    binding = session.io_binding()
    for name in ("a", "b"):
        binding.bind_input(name, "cpu", 0, np.float32, (0, 3), 0)
    binding.bind_output("sum")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].shape() == [0, 3]


@BOTH
def test_asynchronous_runs_call_back(ort):
    session = ort.InferenceSession(add_model())
    for b, good in ((A, True), (A[:, :2], False)):
        done, got = threading.Event(), []

        def callback(results, user_data, error):
            got.append((results, user_data, error))
            done.set()
        session.run_async(["sum"], {"a": A, "b": b}, callback, "mine")
        assert done.wait(60)
        results, user_data, error = got[0]
        assert user_data == "mine" and (error == "") == good
        assert np.array_equal(results, [A + A] if good else [])


@BOTH
def test_descriptions(ort):
    session = ort.InferenceSession(add_model())
    first = session.get_inputs()[0]
    assert (first.name, first.type, first.shape) == ("a", "tensor(float)",
                                                     ["n", 3])
    assert str(first) == \
        "NodeArg(name='a', type='tensor(float)', shape=['n', 3])"
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options()["CPUExecutionProvider"] == {}
    assert session.get_tuning_results() == []
    assert len(session.get_input_memory_infos()) == 2
    assert session.get_input_epdevices()[0].ep_name == "CPUExecutionProvider"
    session.set_providers(["CPUExecutionProvider"])
    session.disable_fallback()
    session.enable_fallback()


@BOTH
def test_overridable_initializers(ort):
    extra = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3])
    session = ort.InferenceSession(
        weight_model(inputs=[extra]).SerializeToString())
    assert [x.name for x in session.get_inputs()] == ["x"]
    [found] = session.get_overridable_initializers()
    assert (found.name, found.type, found.shape) == ("w", "tensor(float)",
                                                     [2, 3])


@BOTH
def test_nodes_are_listed_on_request(ort):
    options = ort.SessionOptions()
    with pytest.raises(Exception, match="record_ep_graph"):
        ort.InferenceSession(
            add_model(), options).get_provider_graph_assignment_info()
    options.add_session_config_entry(
        "session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(add_model(), options)
    graphs = session.get_provider_graph_assignment_info()
    assert {g.ep_name for g in graphs} == {"CPUExecutionProvider"}
    assert [n.op_type for g in graphs for n in g.get_nodes()] == ["Add"] * 2


# -- options ------------------------------------------------------------------

@BOTH
@pytest.mark.parametrize("how", ["name", "denotation"])
def test_free_dimensions_are_fixed(ort, how):
    model = make_model([helper.make_node("Neg", ["x"], ["y"])],
                       {"x": (TensorProto.FLOAT, ["n", "m"])},
                       {"y": (TensorProto.FLOAT, ["n", "m"])})
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "ROWS"
    options = ort.SessionOptions()
    if how == "name":
        options.add_free_dimension_override_by_name("n", 2)
    else:
        options.add_free_dimension_override_by_denotation("ROWS", 2)
    session = ort.InferenceSession(model.SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, "m"]
    assert session.run(None, {"x": A})[0].shape == (2, 3)
    errors = onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, \
        compat._errors.InvalidArgument
    with pytest.raises(errors, match="x"):
        session.run(None, {"x": A[:1]})


@BOTH
def test_initializers_are_replaced(ort):
    w = ort.OrtValue.ortvalue_from_numpy(A)
    options = ort.SessionOptions()
    options.add_initializer("w", w)
    session = ort.InferenceSession(weight_model().SerializeToString(), options)
    assert np.array_equal(session.run(None, {"x": A})[0], A + A)


def external_model(directory, name="weights.bin"):
    """y = x + w with w of ones in a file, as a path."""
    model = weight_model()
    [w] = model.graph.initializer
    ones = np.ones((2, 3), np.float32).tobytes()
    external_data_helper.set_external_data(w, name, 8, len(ones))
    w.ClearField("raw_data")
    (directory / name).write_bytes(b"\0" * 8 + ones)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@BOTH
def test_external_initializers_are_given_as_values(ort, tmp_path):
    path = external_model(tmp_path)
    (tmp_path / "weights.bin").unlink()
    options = ort.SessionOptions()
    w = ort.OrtValue.ortvalue_from_numpy(A)
    options.add_external_initializers(["w"], [w])
    session = ort.InferenceSession(str(path), options)
    assert np.array_equal(session.run(None, {"x": A})[0], A + A)


@BOTH
def test_external_files_are_given_as_buffers(ort, tmp_path):
    path = external_model(tmp_path)
    content = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").unlink()
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(
        ["weights.bin"], [content], [len(content)])
    session = ort.InferenceSession(path.read_bytes(), options)
    assert np.array_equal(session.run(None, {"x": A})[0], A + 1)


@BOTH
def test_the_directory_of_external_data_is_a_configuration_entry(ort, tmp_path):
    path = external_model(tmp_path)
    options = ort.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(tmp_path))
    session = ort.InferenceSession(path.read_bytes(), options)
    assert np.array_equal(session.run(None, {"x": A})[0], A + 1)


def test_a_replacement_that_does_not_exist_is_a_warning():
    options = compat.SessionOptions()
    make = compat.OrtValue.ortvalue_from_numpy
    options.add_external_initializers(["w", "v"], [make(A), make(A)])
    with pytest.warns(compat.CompatibilityWarning, match="no initializer 'v'"):
        session = compat.InferenceSession(weight_model().SerializeToString(),
                                          options)
    assert np.array_equal(session.run(None, {"x": A})[0], A + A)


@BOTH
def test_profiles_are_traces_with_node_events(ort, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ort.InferenceSession(add_model(), options)
    assert session.get_profiling_start_time_ns() > 0
    got = session.run(["twice"], FEEDS)
    assert np.array_equal(got[0], 2 * (A + A + 1))
    name = session.end_profiling()
    assert name.startswith(str(tmp_path / "trace_")) and name.endswith(".json")
    with open(name) as file:
        events = json.load(file)
    nodes = [e for e in events if e["cat"] == "Node"]
    assert [e["args"]["op_name"] for e in nodes][-1] == "Add"
    assert all(e["name"].endswith("_kernel_time") and e["dur"] >= 0 and
               e["args"]["provider"] == "CPUExecutionProvider" for e in nodes)
    assert any(e["name"] == "model_run" for e in events)
    assert session.end_profiling() == ""
    session.run(None, FEEDS)


def test_a_profiled_run_warns_that_it_has_no_timeout(tmp_path):
    options = compat.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = compat.InferenceSession(add_model(), options)
    with pytest.warns(compat.CompatibilityWarning, match="no timeout"):
        session.run(None, FEEDS, timeout=5)
    stopped = compat.RunOptions()
    stopped.terminate = True
    with pytest.raises(limber.Cancelled):
        session.run(None, FEEDS, stopped)


def test_profiles_of_bindings_and_of_closed_sessions(tmp_path):
    options = compat.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    with compat.InferenceSession(add_model(), options) as session:
        binding = session.io_binding()
        y = np.zeros((3, 3), np.float32)
        binding.bind_cpu_input("a", A)
        binding.bind_cpu_input("b", A)
        binding.bind_ortvalue_output(
            "sum", compat.OrtValue.ortvalue_from_numpy(y))
        session.run_with_iobinding(binding)
        assert np.array_equal(y[:2], A + A)
        assert binding.get_outputs()[0].shape() == [2, 3]
    [path] = tmp_path.iterdir()
    assert "Node" in path.read_text()
    with pytest.raises(RuntimeError, match="closed"):
        session.run(None, FEEDS)


def test_the_loaded_model_is_written_with_a_warning(tmp_path):
    options = compat.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    with pytest.warns(compat.CompatibilityWarning, match="as it was loaded"):
        compat.InferenceSession(add_model(), options)
    again = onnxruntime.InferenceSession(str(tmp_path / "optimized.onnx"))
    assert np.array_equal(again.run(["sum"], FEEDS)[0], A + A + 1)


@pytest.mark.parametrize("name,value", [
    ("intra_op_thread", 2), ("enable_profilling", True), ("wonder", 1)])
def test_an_unknown_option_warns_once(name, value):
    options = compat.SessionOptions()
    with pytest.warns(compat.CompatibilityWarning, match=name) as caught:
        setattr(options, name, value)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(compat.SessionOptions(), name, value)
    assert getattr(options, name) == value
    compat.InferenceSession(add_model(), options)


def test_a_misspelt_option_suggests_the_nearest():
    with pytest.warns(UserWarning, match="'enable_profiling'"):
        compat.SessionOptions().enable_profilling = True


@pytest.mark.parametrize("use", [
    lambda o: o.add_session_config_entry("session.wonder", "1"),
    lambda o: o.register_custom_ops_library("/lib/ops.so"),
    lambda o: o.add_provider("CUDAExecutionProvider", {}),
    lambda o: o.set_ep_context_data_read_func(print, 1),
    lambda o: compat.set_seed(1),
    lambda o: compat.set_global_thread_pool_sizes(2),
    lambda o: compat.enable_telemetry_events(),
    lambda o: compat.create_and_register_allocator(None, None),
    lambda o: compat.register_execution_provider_library("x", "y"),
    lambda o: compat.RunOptions().add_run_config_entry("wonder", "1"),
    lambda o: compat.RunOptions().add_active_adapter(None),
    lambda o: compat.InferenceSession(add_model(), wonder=1),
    lambda o: compat.InferenceSession(add_model(), o, [
        ("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]),
    lambda o: compat.InferenceSession(add_model()).set_tuning_results([]),
    lambda o: compat.InferenceSession(add_model()).set_ep_dynamic_options(
        {"x": "y"})])
def test_what_has_no_effect_warns_once_and_never_raises(use):
    options = compat.SessionOptions()
    with pytest.warns(compat.CompatibilityWarning) as caught:
        use(options)
        use(options)
    assert len(caught) == 1
    compat.InferenceSession(add_model(), options).run(None, FEEDS)


def test_options_of_speed_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = compat.SessionOptions()
        for name, option in compat._options.SESSION_OPTIONS.items():
            if not option.works:
                setattr(options, name, option.default)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_free_dimension_override_by_name("unknown", 3)
        compat.disable_telemetry_events()
        compat.set_default_logger_verbosity(1)
        compat.preload_dlls()
        compat.InferenceSession(add_model(), options, ["CPUExecutionProvider"],
                                [{"arena_extend_strategy": "kSameAsRequested"}])


@BOTH
def test_entries_are_returned(ort):
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.raises(RuntimeError, match="other"):
        options.get_session_config_entry("other")


def test_arena_shrinkage_trims_the_session():
    session = compat.InferenceSession(slow_model(3))
    options = compat.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage",
                                 "cpu:0")
    x = np.zeros((900, 900), np.float32)
    session.run(None, {"x": x})
    kept = session.stats().arena_bytes
    session.run(None, {"x": x}, options)
    assert session.stats().arena_bytes < kept


def test_the_default_severity_shares_threads():
    compat.set_default_logger_severity(3)
    try:
        compat.InferenceSession(add_model())
        before = len(os.listdir("/proc/self/task"))
        sessions = [compat.InferenceSession(add_model()) for _ in range(5)]
        assert len(os.listdir("/proc/self/task")) == before
        assert len(sessions) == 5
    finally:
        compat.set_default_logger_severity(-1)
    with pytest.raises(ValueError):
        compat.set_default_logger_severity(9)


def test_loading_can_be_cancelled_before_it_begins():
    options = compat.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(_errors.ModelLoadCanceled):
        compat.InferenceSession(add_model(), options)
    options.set_load_cancellation_flag(False)
    compat.InferenceSession(add_model(), options)


# -- exceptions ---------------------------------------------------------------

def outcome(ort, state, call):
    try:
        call(ort)
    except Exception as error:
        classes = {name for name in _errors.NAMES
                   if isinstance(error, getattr(state, name))}
        return classes | {c.__name__ for c in (ValueError, TypeError)
                          if isinstance(error, c)}
    return set()


def terminated(ort):
    options = ort.RunOptions()
    options.terminate = True
    ort.InferenceSession(add_model()).run(None, FEEDS, options)


@pytest.mark.parametrize("call", [
    lambda ort: ort.InferenceSession("/nothing.onnx"),
    lambda ort: ort.InferenceSession(b"garbage"),
    lambda ort: ort.InferenceSession(3),
    lambda ort: ort.InferenceSession(make_model(
        [helper.make_node("Add", ["x"], ["y"])],
        {"x": (1, ["n"])}, {"y": (1, ["n"])}).SerializeToString()),
    lambda ort: ort.InferenceSession(add_model()).run(None, {}),
    lambda ort: ort.InferenceSession(add_model()).run(None, {"a": A}),
    lambda ort: ort.InferenceSession(add_model()).run(None, {**FEEDS, "c": A}),
    lambda ort: ort.InferenceSession(add_model()).run(["z"], FEEDS),
    lambda ort: ort.InferenceSession(add_model()).run(
        None, {"a": A.astype("f8"), "b": A}),
    lambda ort: ort.InferenceSession(add_model()).run(
        None, {"a": A[0], "b": A}),
    lambda ort: ort.InferenceSession(add_model()).run(
        None, {"a": A[:, :2], "b": A}),
    terminated])
def test_exceptions_are_those_of_onnx_runtime(call):
    theirs = outcome(onnxruntime, onnxruntime.capi.onnxruntime_pybind11_state,
                     call)
    ours = outcome(compat, _errors, call)
    assert theirs and theirs <= ours


def test_exceptions_are_limbers_too(tmp_path):
    with pytest.raises(OSError):
        compat.InferenceSession(str(tmp_path / "nothing.onnx"))
    with pytest.raises(limber.InvalidModel):
        compat.InferenceSession(b"garbage")
    with pytest.raises(limber.Cancelled):
        terminated(compat)
    with pytest.raises(limber.InvalidArgument):
        limber.InferenceSession(add_model()).run(None, {})
    (tmp_path / "garbage.onnx").write_bytes(b"zzzz")
    with pytest.raises(_errors.InvalidProtobuf):
        compat.InferenceSession(tmp_path / "garbage.onnx")


def test_what_limber_does_not_have_can_be_named_but_not_used():
    assert not isinstance(A, compat.SparseTensor)
    with pytest.raises(_errors.NotImplemented, match="dense"):
        compat.SparseTensor.sparse_coo_from_numpy([2], A, A)
    with pytest.raises(_errors.NotImplemented, match="ModelCompiler"):
        compat.ModelCompiler(None, b"")
    with pytest.raises(_errors.InvalidArgument, match="'cuda'"):
        compat.OrtValue.ortvalue_from_numpy(A, "cuda", 0)


# -- install ------------------------------------------------------------------

def python(*arguments, isolated=False, **environment):
    """Runs Python, without an installed onnxruntime if `isolated`."""
    flags = ["-I", "-S"] if isolated else []
    done = subprocess.run(
        [sys.executable, *flags, *arguments], capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=120)
    return done.returncode, done.stdout, done.stderr


PROGRAM = """
import sys
import onnxruntime as ort
from onnxruntime import InferenceSession
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
import onnxruntime.capi.onnxruntime_inference_collection
import onnxruntime.backend
import importlib.metadata, importlib.util
assert "Limber" in ort.get_build_info()
assert C.get_available_providers() == ["CPUExecutionProvider"]
assert importlib.util.find_spec("onnxruntime").name == "onnxruntime"
print(ort.__version__, importlib.metadata.version("onnxruntime"),
      __name__, sys.argv[1:])
sys.exit(3)
"""


def test_a_program_runs_unchanged(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    version = onnxruntime.__version__
    want = f"{version} {version} __main__ ['--x', 'y']\n"
    assert python("-m", "limber.compat", path, "--x", "y")[:2] == (3, want)
    assert python("-m", "limber.compat", "-m", "program", "--x", "y",
                  PYTHONPATH=str(tmp_path))[:2] == (3, want)
    code, out, _ = python("-m", "limber.compat", "-c", PROGRAM, "--x", "y")
    assert (code, out) == (3, want)


def test_onnx_runtime_need_not_be_installed(tmp_path):
    site = tmp_path / "site"  # numpy and limber alone
    site.mkdir()
    for module in (np, limber):
        source = os.path.dirname(module.__file__)
        (site / os.path.basename(source)).symlink_to(source)
    libraries = os.path.dirname(np.__file__) + ".libs"
    if os.path.isdir(libraries):
        (site / "numpy.libs").symlink_to(libraries)
    run = f"import sys; sys.path.insert(0, {str(site)!r})\n" \
        "from limber import compat\ncompat.install()\n" + PROGRAM
    code, out, errors = python("-c", run, isolated=True)
    assert code == 3, errors
    assert out.split()[:2] == [compat.__version__] * 2


def test_wrong_usage_of_the_launcher(tmp_path):
    for words, text in ((["--wonder"], "no option --wonder"),
                        (["-m"], "needs an argument"),
                        ([str(tmp_path / "no.py")], "no such file")):
        code, _, errors = python("-m", "limber.compat", *words)
        assert code == 2 and text in errors
    code, out, _ = python("-m", "limber.compat", "--help")
    assert code == 0 and "program.py" in out


def test_installing_after_an_import_warns_and_can_be_undone(same_onnxruntime):
    with pytest.warns(compat.CompatibilityWarning, match="before"):
        compat.install()
    compat.install()  # again: nothing
    import onnxruntime as installed
    assert installed.InferenceSession is limber.InferenceSession
    compat.uninstall()
    assert importlib.util.find_spec("onnxruntime").origin == \
        onnxruntime.__file__


QUANTIZE = """
import sys
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
quantize_dynamic(sys.argv[1], sys.argv[2], weight_type=QuantType.QUInt8)
assert "Limber" in onnxruntime.get_build_info()
session = onnxruntime.InferenceSession(sys.argv[2])
"""


def test_python_code_of_an_installed_onnx_runtime_is_used(tmp_path):
    w = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                       {"x": (TensorProto.FLOAT, ["n", 8])},
                       {"y": (TensorProto.FLOAT, ["n", 4])})
    model.graph.initializer.append(numpy_helper.from_array(w, "w"))
    paths = [str(tmp_path / n) for n in ("model.onnx", "small.onnx")]
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    code, _, errors = python("-m", "limber.compat", "-c", QUANTIZE, *paths)
    assert code == 0, errors
    x = np.ones((3, 8), np.float32)
    np.testing.assert_allclose(
        compat.InferenceSession(paths[1]).run(None, {"x": x})[0],
        onnxruntime.InferenceSession(paths[1]).run(None, {"x": x})[0],
        rtol=1e-5, atol=1e-5)


def test_the_backend_interface_runs_models():
    from limber.compat import _backend
    assert _backend.supports_device("CPU") and not \
        _backend.supports_device("CUDA:0")
    [y] = _backend.run(negate_model(), [np.ones(2, np.float32)])
    assert y.tolist() == [-1, -1]


# -- the page -----------------------------------------------------------------

def test_the_page_lists_every_name_and_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "onnxruntime_table.py", "--check"],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_that_is_missing_or_stale_is_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import onnxruntime_table as script
    monkeypatch.setattr(onnxruntime, "brand_new", lambda: 0, raising=False)
    with pytest.raises(script.Missing, match="brand_new"):
        script.tables()
    monkeypatch.delattr(onnxruntime, "brand_new")
    page = tmp_path / "onnxruntime.md"
    page.write_text(script.PAGE.read_text().replace("get_device", "gone"))
    monkeypatch.setattr(script, "PAGE", page)
    assert script.main(check=True) == 1
    assert script.main(check=False) == 0 and script.main(check=True) == 0


def test_enumerations_have_onnx_runtimes_values():
    state = onnxruntime.capi.onnxruntime_pybind11_state
    compared = 0
    for name in dir(state):
        members = getattr(getattr(state, name), "__members__", None)
        if isinstance(getattr(state, name), type) and members:
            ours = getattr(compat, name).__members__
            assert {n: int(v) for n, v in members.items()} == \
                {n: int(v) for n, v in ours.items()}, name
            compared += 1
    assert compared > 10
    assert importlib.metadata.version("onnxruntime") == compat.__version__

"""SessionOptions and RunOptions."""

from __future__ import annotations

import difflib
from typing import Any, Callable, Iterable, NamedTuple

from limber import _limber
from limber.compat._devices import check_providers
from limber.compat._enums import (ExecutionMode, ExecutionOrder,
                                  GraphOptimizationLevel)
from limber.compat._warn import warn_once


class Option(NamedTuple):
    default: Any
    effect: str  # what Limber does; docs/onnxruntime.md prints it
    works: bool = True  # False: the option has no effect


SPEED = "No effect; it can only change speed or memory."
NAMES = "No effect; it names the session in ONNX Runtime's log."

SESSION_OPTIONS = {
    "intra_op_num_threads": Option(
        0, "The session gets a thread pool of this size; 0: it shares that of "
        "the process."),
    "inter_op_num_threads": Option(
        0, "No effect: nodes run one after the other, each on all threads.",
        False),
    "use_per_session_threads": Option(
        True, "False: the session shares the pool of the process."),
    "graph_optimization_level": Option(
        GraphOptimizationLevel.ORT_ENABLE_ALL,
        "ORT_DISABLE_ALL leaves the graph unchanged; all others run Limber's "
        "passes."),
    "execution_mode": Option(ExecutionMode.ORT_SEQUENTIAL, SPEED, False),
    "execution_order": Option(ExecutionOrder.DEFAULT, SPEED, False),
    "log_severity_level": Option(
        -1, "0 (verbose) to 4 (fatal) for this session; -1: as "
        "set_default_logger_severity or LIMBER_LOG says."),
    "log_verbosity_level": Option(0, "No effect.", False),
    "logid": Option("", NAMES, False),
    "enable_cpu_mem_arena": Option(True, SPEED, False),
    "enable_mem_pattern": Option(True, SPEED, False),
    "enable_mem_reuse": Option(True, SPEED, False),
    "use_deterministic_compute": Option(
        False, "True: results are bitwise identical whichever kernels compute "
        "them."),
    "enable_profiling": Option(
        False, "True: every run is profiled, and cannot be cancelled once it "
        "has begun; end_profiling writes the trace."),
    "profile_file_prefix": Option(
        "onnxruntime_profile_", "The beginning of the trace file's name."),
    "optimized_model_filepath": Option(
        "", "The model is written there as it was loaded, with a warning: "
        "Limber's own graph has no ONNX form."),
}

# Options that only Limber has, as in limber.load.
LIMBER_OPTIONS = {
    "prefer_reusable_kernels": None, "memory_limit": 0, "loop_limit": 0,
    "event": None, "load_warmup": True, "compile": None, "compile_ops": None,
    "copy_weights": False, "directory": None, "reference": False, "skip": None,
}

RUN_OPTIONS = {
    "log_severity_level": Option(-1, "No effect; the session's applies.",
                                 False),
    "log_verbosity_level": Option(0, "No effect.", False),
    "logid": Option("", NAMES, False),
    "only_execute_path_to_fetches": Option(
        False, "No effect: only nodes that requested outputs need ever run.",
        False),
    "terminate": Option(
        False, "True, on any thread, cancels the runs that have these options; "
        "False lets later ones run."),
}

# Configuration entries that Limber obeys or whose only effect would be speed;
# a key that is not here is a warning.
DATA_DIRECTORY = "session.model_external_initializers_file_folder_path"
ASSIGNMENT = "session.record_ep_graph_assignment_info"
SHRINK = "memory.enable_memory_arena_shrinkage"
SESSION_ENTRIES = {
    DATA_DIRECTORY: "The directory of external data of a model given as bytes.",
    ASSIGNMENT: "1: get_provider_graph_assignment_info lists the nodes.",
    "session.intra_op.allow_spinning": SPEED,
    "session.inter_op.allow_spinning": SPEED,
    "session.force_spinning_stop": SPEED,
    "session.disable_prepacking": SPEED,
    "session.dynamic_block_base": SPEED,
    "session.use_env_allocators": SPEED,
    "session.use_device_allocator_for_initializers": SPEED,
    "session.intra_op_thread_affinities": SPEED,
    "session.use_ort_model_bytes_directly": SPEED,
    "session.save_model_format": "No effect; see optimized_model_filepath.",
    "session.load_model_format": "No effect; models are ONNX files.",
    "optimization.enable_gelu_approximation": SPEED,
    "optimization.minimal_build_optimizations": SPEED,
    "optimization.disable_specified_optimizers": SPEED,
}
RUN_ENTRIES = {
    SHRINK: "The session frees the memory that no run uses after the run "
            "(trim).",
    "disable_synchronize_execution_providers": "No effect on the CPU.",
    "gpu_graph_id": "No effect on the CPU.",
}


class OrtExternalInitializerInfo(NamedTuple):
    """Where in a file an initializer is."""

    filepath: str
    file_offset: int
    byte_size: int


class Options:
    """Attributes of a table. Others can be set and read too, with a warning:
    they have no effect."""

    table: dict[str, Option] = {}
    own: dict[str, Any] = {}
    entries: dict[str, str] = {}
    _entries: dict[str, str]

    def __init__(self) -> None:
        self.__dict__.update({n: o.default for n, o in self.table.items()})
        self.__dict__.update(self.own)
        self.__dict__["_entries"] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.table and name not in self.own:
            known = [*self.table, *self.own]
            near = difflib.get_close_matches(name, known, 1)
            warn_once(f"{type(self).__name__} has no '{name}', which has no "
                      "effect" + (f"; did you mean '{near[0]}'?" if near
                                  else ""))
        object.__setattr__(self, name, value)

    def _add_entry(self, key: str, value: str) -> None:
        if key not in self.entries:
            warn_once(f"Limber does not know the configuration entry '{key}', "
                      "which has no effect")
        self._entries[key] = str(value)

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} has no configuration "
                               f"entry '{key}'")
        return self._entries[key]


class SessionOptions(Options):
    """Options of an InferenceSession. Besides ONNX Runtime's it has
    prefer_reusable_kernels, memory_limit, loop_limit, event, load_warmup,
    compile, compile_ops, copy_weights, directory, reference and skip, as in
    limber.load.

        >>> options = SessionOptions()
        >>> options.intra_op_num_threads = 2
        >>> options.add_session_config_entry(
        ...     "session.intra_op.allow_spinning", "0")
    """

    table = SESSION_OPTIONS
    own = LIMBER_OPTIONS
    entries = SESSION_ENTRIES

    intra_op_num_threads: int
    inter_op_num_threads: int
    use_per_session_threads: bool
    graph_optimization_level: GraphOptimizationLevel
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    use_deterministic_compute: bool
    enable_profiling: bool
    profile_file_prefix: str
    optimized_model_filepath: str
    prefer_reusable_kernels: bool | None
    memory_limit: int
    loop_limit: int
    event: Callable[..., Any] | None
    load_warmup: bool
    compile: str | None
    compile_ops: str | None
    copy_weights: bool
    directory: str | None
    reference: bool
    skip: str | None
    _dims_by_name: dict[str, int]
    _dims_by_denotation: dict[str, int]
    _initializers: dict[str, Any]
    _files: dict[str, memoryview]
    _providers: list[str]
    _load_cancelled: bool

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.update(
            _dims_by_name={}, _dims_by_denotation={}, _initializers={},
            _files={}, _providers=[], _load_cancelled=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Obeys the entries that "Configuration entries" lists, and warns
        about others."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Returns the value that was set; RuntimeError if none was."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """get_inputs() shows the size, and a run with another one is
        InvalidArgument."""
        self._dims_by_name[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str,
                                                  size: int) -> None:
        """Does what add_free_dimension_override_by_name does for the dims with
        a denotation."""
        self._dims_by_denotation[denotation] = int(size)

    def add_initializer(self, name: str, ort_value: Any) -> None:
        """The session uses the value in place of the model's initializer; it
        is copied when the session is made."""
        self._initializers[name] = ort_value

    def add_external_initializers(self, names: Iterable[str],
                                  values: Iterable[Any]) -> None:
        """Does what add_initializer does for several initializers."""
        self._initializers.update(zip(names, values))

    def add_external_initializers_from_files_in_memory(
            self, names: Iterable[str], buffers: Iterable[Any],
            sizes: Iterable[int]) -> None:
        """Initializers whose external data is in these files are read from the
        buffers."""
        for name, buffer, size in zip(names, buffers, sizes):
            self._files[name] = memoryview(buffer).cast("B")[:int(size)]

    def add_provider(self, name: str, options: Any = None) -> None:
        """Warns about any provider but CPUExecutionProvider."""
        check_providers([name])
        self._providers.append(name)

    def add_provider_for_devices(self, devices: Iterable[Any],
                                 options: Any = None) -> None:
        """Warns about any provider but CPUExecutionProvider."""
        for device in devices:
            self.add_provider(device.ep_name)

    def has_providers(self) -> bool:
        """Returns whether a provider was added."""
        return bool(self._providers)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """No effect: there is one provider to select."""

    def set_provider_selection_policy_delegate(
            self, delegate: Callable[..., Any]) -> None:
        """No effect: there is one provider to select."""

    def register_custom_ops_library(self, path: str) -> None:
        """Warns: a model that uses an operator of the library fails to load,
        and the error names the operator."""
        warn_once("Limber cannot call the operators of custom-operator "
                  "libraries; a model that uses one fails to load, and the "
                  "error names the operator")

    def set_ep_context_data_read_func(self, read_func: Callable[..., Any],
                                      max_data_size: int = 0) -> None:
        """Warns: Limber has no EP contexts."""
        warn_once("Limber does not read EP contexts; the function is not "
                  "called")

    def clear_ep_context_data_read_func(self) -> None:
        """No effect."""

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """True: making a session is ModelLoadCanceled. It does not stop a
        session that is being made."""
        self.__dict__["_load_cancelled"] = bool(cancel)


class RunOptions(Options):
    """Options of a run. Any thread may set `terminate`.

        >>> options = RunOptions()
        >>> options.terminate = True
    """

    table = RUN_OPTIONS
    entries = RUN_ENTRIES

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool
    _cancel: _limber.Cancel

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_cancel"] = _limber.Cancel()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate":
            (self._cancel.trigger if value else self._cancel.reset)()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Obeys the entries that "Configuration entries" lists, and warns
        about others."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Returns the value that was set; RuntimeError if none was."""
        return self._entry(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Warns: Limber cannot load LoRA adapters."""
        warn_once("Limber cannot load LoRA adapters; the model's own weights "
                  "are used")

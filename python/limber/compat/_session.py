"""InferenceSession, with ONNX Runtime's interface."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from limber import _limber
from limber._errors import InvalidArgument
from limber._model import (TYPES, Stats, preference, skip_option, source_of,
                           value_infos, warm)
from limber.compat import _errors, _wire
from limber.compat._devices import (CPU, PROVIDERS, OrtEpAssignedNode,
                                    OrtEpAssignedSubgraph, OrtEpDevice,
                                    OrtMemoryInfo, check_providers, cpu_memory)
from limber.compat._options import (ASSIGNMENT, DATA_DIRECTORY, SHRINK,
                                    RunOptions, SessionOptions)
from limber.compat._profile import Profile
from limber.compat._values import (ONNX_TYPES, IOBinding, OrtValue,
                                   OrtValueVector)
from limber.compat._warn import warn_once

# ONNX Runtime's severities 0 (verbose) to 4 (fatal) as limber_log_level.
LOG_LEVELS = [4, 3, 2, 1, 1]
default_severity = -1  # of sessions without one; -1: as LIMBER_LOG says

run_unchecked = _limber.Session.run


class NodeArg(NamedTuple):
    """The name, type ("tensor(float)") and shape of an input or an output."""

    name: str
    type: str
    shape: list[Any]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, " \
               f"shape={self.shape!r})"


class ModelMetadata(NamedTuple):
    """What the model file says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def log_level(severity: int) -> int:
    """limber_log_level of ONNX Runtime's severity; 0: the default."""
    if severity == -1:
        severity = default_severity
    if not -1 <= severity < len(LOG_LEVELS):
        raise ValueError(f"log_severity_level must be -1 to 4, not {severity}")
    return 0 if severity < 0 else LOG_LEVELS[severity]


def set_default_severity(severity: int) -> None:
    global default_severity
    log_level(severity)
    default_severity = severity


def keywords_of(options: SessionOptions) -> dict[str, Any]:
    threads = max(0, options.intra_op_num_threads)
    return {
        "threads": threads if options.use_per_session_threads else 0,
        "log_level": log_level(options.log_severity_level),
        "optimize": int(options.graph_optimization_level) != 0,
        "memory_limit": options.memory_limit,
        "loop_limit": options.loop_limit,
        "deterministic": bool(options.use_deterministic_compute),
        "prefer_reusable_kernels": preference(options.prefer_reusable_kernels),
        "event": options.event,
        "load_warmup": bool(options.load_warmup),
        "compile": options.compile,
        "compile_ops": options.compile_ops,
        "copy_weights": bool(options.copy_weights),
        "reference": bool(options.reference),
        "skip": skip_option(options.skip),
        "errors": (_errors.MODEL, _errors.RUN),
    }


class Source:
    """A model file or a model in memory."""

    def __init__(self, path_or_bytes: Any, options: SessionOptions):
        if not isinstance(path_or_bytes, (str, bytes, bytearray, memoryview,
                                          os.PathLike)):
            raise TypeError("a model is a path or bytes, not "
                            f"{type(path_or_bytes).__name__}")
        self.source, self.in_memory = source_of(path_or_bytes)
        directory = options.directory or options._entries.get(DATA_DIRECTORY)
        self.directory = os.fsdecode(directory) if directory else None
        self.change(options)

    def bytes(self) -> bytes:
        if self.in_memory:
            return self.source
        try:
            with open(self.source, "rb") as file:
                return file.read()
        except OSError:
            return b""

    def change(self, options: SessionOptions) -> None:
        """Puts initializers of the options into the model."""
        if not options._initializers and not options._files:
            return
        model = self.bytes()
        if not self.in_memory:
            self.directory = os.path.dirname(os.path.abspath(
                os.fsdecode(self.source)))
        values = {name: (value.element_type(), value.numpy())
                  for name, value in options._initializers.items()}
        try:
            model = _wire.with_files(model, options._files)
            model = _wire.with_values(model, values)
        except KeyError as error:
            warn_once(f"the model has no initializer {error}, which was to be "
                      "replaced")
            present = set(values) - set(error.args[0].split(", "))
            model = _wire.with_values(model, {n: values[n] for n in present})
        self.source, self.in_memory = model, True

    def error(self, error: Exception) -> Exception:
        """The exception as ONNX Runtime distinguishes it."""
        path = None if self.in_memory else os.fsdecode(self.source)
        if isinstance(error, _errors.FileFailure) and path and \
                not os.path.exists(path):
            return _errors.NoSuchFile(str(error))
        if isinstance(error, _errors.InvalidGraph) and \
                not _wire.is_message(self.bytes()):
            return _errors.InvalidProtobuf(str(error))
        return error


class InferenceSession(_limber.Session):
    """A loaded model. Any number of threads may run it at once. Providers other
    than CPUExecutionProvider are a warning.

        >>> session = InferenceSession(model_bytes)
        >>> [x.name for x in session.get_inputs()], session.get_providers()
        (['x'], ['CPUExecutionProvider'])
        >>> session.run(["y"], {"x": np.ones(3, np.float32)})
        [array([-1., -1., -1.], dtype=float32)]
    """

    warm = warm

    def __init__(self, path_or_bytes: Any,
                 sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None,
                 provider_options: Sequence[Any] | None = None, *,
                 disabled_optimizers: Any = None, enable_fallback: Any = None,
                 **others: Any):
        for name in others:
            warn_once(f"InferenceSession has no argument '{name}', which has "
                      "no effect")
        check_providers(providers)
        options = sess_options or SessionOptions()
        if options._load_cancelled:
            raise _errors.ModelLoadCanceled("set_load_cancellation_flag(True) "
                                            "was called on the options")
        self._profile = Profile(options.profile_file_prefix) \
            if options.enable_profiling else None
        self._options = options
        self._source = Source(path_or_bytes, options)
        # Optimum reads these attributes of ONNX Runtime's session.
        self._model_path = None if self._source.in_memory \
            else os.fsdecode(self._source.source)
        self._model_bytes = self._source.source if self._source.in_memory \
            else None
        try:
            super().__init__(self._source.source, self._source.in_memory,
                             directory=self._source.directory,
                             **keywords_of(options))
        except (_errors.FileFailure, _errors.InvalidGraph) as error:
            raise self._source.error(error) from None
        self._fixed = self._fixed_dims()
        self._hooked = self._profile is not None or bool(self._fixed)
        self._pool: ThreadPoolExecutor | None = None
        if options.optimized_model_filepath:
            self._write_model(options.optimized_model_filepath)
        if self._profile:
            self._profile.add_load()

    def _write_model(self, path: Any) -> None:
        warn_once("optimized_model_filepath: the model is written as it was "
                  "loaded, because Limber's graph has no ONNX form")
        with open(path, "wb") as file:
            file.write(self._source.bytes())

    def _fixed_dims(self) -> dict[str, dict[int, int]]:
        """Dims of inputs that free-dimension overrides fix."""
        names = self._options._dims_by_name
        denoted = self._options._dims_by_denotation
        if not names and not denoted:
            return {}
        found: dict[str, dict[int, int]] = {}
        labels = _wire.denotations(self._source.bytes()) if denoted else {}
        for value in value_infos(self._input_rows()):
            fixed = {i: names[dim] for i, dim in enumerate(value.shape or [])
                     if dim in names}
            fixed.update({i: denoted[label] for i, label
                          in enumerate(labels.get(value.name, []))
                          if label in denoted})
            if fixed:
                found[value.name] = fixed
        return found

    @property
    def _sess(self) -> InferenceSession:
        return self

    # -- descriptions ---------------------------------------------------------

    def _node_args(self, rows: Any) -> list[NodeArg]:
        names = self._options._dims_by_name
        out = []
        for value in value_infos(rows):
            fixed = self._fixed.get(value.name, {})
            shape = [fixed.get(i, names.get(dim, dim))
                     for i, dim in enumerate(value.shape or [])]
            out.append(NodeArg(value.name, value.type, shape))
        return out

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs; sizes that overrides fix are numbers."""
        return self._node_args(self._input_rows())

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs."""
        return self._node_args(self._output_rows())

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the initializers that are inputs of the graph too. A run
        cannot replace them; SessionOptions.add_initializer can."""
        return [NodeArg(found.name, "tensor(" + TYPES.get(
                            ONNX_TYPES.get(found.data_type, "?"),
                            ONNX_TYPES.get(found.data_type, "?")) + ")",
                        found.dims)
                for found in _wire.overridable(self._source.bytes())]

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the model's metadata; graph_description is always empty."""
        info = self._model_info()
        return ModelMetadata(graph_description="", **{
            name: info[name] for name in ModelMetadata._fields
            if name != "graph_description"})

    def get_providers(self) -> list[str]:
        """Returns ["CPUExecutionProvider"]."""
        return list(PROVIDERS)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns no options for CPUExecutionProvider."""
        return {name: {} for name in PROVIDERS}

    def set_providers(self, providers: Sequence[Any] | None = None,
                      provider_options: Sequence[Any] | None = None) -> None:
        """Warns about any provider but CPUExecutionProvider."""
        check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        """Returns the options that the session was made with."""
        return self._options

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the CPU's memory for each input."""
        return [cpu_memory() for _ in self._input_rows()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the CPU's memory for each output."""
        return [cpu_memory() for _ in self._output_rows()]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Returns the CPU for each input."""
        return [OrtEpDevice() for _ in self._input_rows()]

    def get_provider_graph_assignment_info(self
                                           ) -> list[OrtEpAssignedSubgraph]:
        """Returns each node of the file, on CPUExecutionProvider; Fail unless
        session.record_ep_graph_assignment_info is "1", as in ONNX Runtime."""
        if self._options._entries.get(ASSIGNMENT) != "1":
            raise _errors.Fail(f"set the configuration entry '{ASSIGNMENT}' to "
                               "'1' to list the nodes")
        return [OrtEpAssignedSubgraph(CPU, [OrtEpAssignedNode(*node)])
                for node in _wire.nodes(self._source.bytes())]

    def get_tuning_results(self) -> list[Any]:
        """Returns an empty list: what Limber measured is in its kernel
        store."""
        return []

    def set_tuning_results(self, results: Any, *,
                           error_on_invalid: bool = False) -> None:
        """Warns: Limber measures by itself."""
        warn_once("Limber ignores tuning results; it measures its kernels "
                  "while they run")

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Warns: Limber's provider has no options."""
        warn_once("Limber has no dynamic options of execution providers, which "
                  f"have no effect: {', '.join(options)}")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """No effect: no graphs are captured on the CPU."""

    def enable_fallback(self) -> None:
        """No effect: there is one provider."""

    def disable_fallback(self) -> None:
        """No effect: there is one provider."""

    def stats(self) -> Stats:
        """Returns Limber's statistics of the session, as limber.Stats."""
        return Stats(**self._counters())

    # -- running --------------------------------------------------------------

    def run(self, output_names: Sequence[str] | None,
            input_feed: Mapping[str, Any],
            run_options: RunOptions | None = None, *,
            timeout: float | None = None, cancel: _limber.Cancel | None = None
            ) -> list[np.ndarray]:
        """Runs the model and returns a list of arrays. Inputs that are
        contiguous are not copied; lists and OrtValue objects are accepted
        too."""
        if run_options is None and not self._hooked:
            return run_unchecked(self, output_names, input_feed, None,
                                 timeout=timeout, cancel=cancel)
        return self._run_hooked(output_names, input_feed, run_options,
                                timeout=timeout, cancel=cancel)

    def _check_fixed(self, feeds: Mapping[str, Any]) -> None:
        for name, fixed in self._fixed.items():
            shape = np.shape(feeds[name]) if name in feeds else ()
            for i, size in fixed.items():
                if i < len(shape) and shape[i] != size:
                    raise InvalidArgument(
                        f"input '{name}': dim {i} is {shape[i]}, but a "
                        f"free-dimension override fixes it at {size}")

    def _run_hooked(self, names: Sequence[str] | None, feeds: Mapping[str, Any],
                    options: RunOptions | None, **limits: Any
                    ) -> list[np.ndarray]:
        self._check_fixed(feeds)
        if self._profile and not (options and options.terminate):
            if any(limit is not None for limit in limits.values()):
                warn_once("a run of a profiled session has no timeout and "
                          "cannot be cancelled")
            start = time.monotonic_ns()
            results, steps = self._profile_run(names, feeds)
            self._profile.add_run(start, steps)
        else:
            results = run_unchecked(self, names, feeds, options, **limits)
        if options is not None and SHRINK in getattr(options, "_entries", ()):
            self.trim()
        return results

    def run_async(self, output_names: Sequence[str] | None,
                  input_feed: Mapping[str, Any],
                  callback: Callable[[list[Any], Any, str], None],
                  user_data: Any,
                  run_options: RunOptions | None = None) -> None:
        """Runs the model on a thread of the session and calls
        callback(results, user_data, error); error is "" for a run that
        succeeded."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(os.cpu_count(),
                                            thread_name_prefix="limber-async")

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed,
                                          run_options), ""
            except Exception as raised:
                results, error = [], str(raised)
            callback(results, user_data, error)

        self._pool.submit(work)

    def run_with_ort_values(self, output_names: Sequence[str],
                            input_dict_ort_values: dict[str, OrtValue],
                            run_options: RunOptions | None = None
                            ) -> list[OrtValue]:
        """Does the same as run with OrtValue objects, without copies."""
        feeds = {name: value.numpy()
                 for name, value in input_dict_ort_values.items()}
        return [OrtValue(array)
                for array in self.run(output_names, feeds, run_options)]

    def run_with_ortvaluevector(self, run_options: RunOptions | None,
                                feed_names: Sequence[str],
                                feeds: Sequence[OrtValue],
                                fetch_names: Sequence[str],
                                fetches: OrtValueVector,
                                fetch_devices: Sequence[Any]) -> None:
        """Does the same with vectors; `fetches` receives the results."""
        fetches[:] = self.run_with_ort_values(
            fetch_names, dict(zip(feed_names, feeds)), run_options)

    def io_binding(self) -> IOBinding:
        """Returns an IOBinding of the session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding,
                           run_options: RunOptions | None = None) -> None:
        """Runs on the bound memory. While the session is profiled, results are
        copied there."""
        if iobinding._session is not self:
            raise ValueError("the IOBinding belongs to another session")
        if self._hooked:
            iobinding._run_on_copies(
                lambda names, feeds: self.run(names, feeds, run_options))
            return
        iobinding._run(run_options._cancel if run_options else None)
        if run_options and SHRINK in run_options._entries:
            self.trim()

    def create_ortvalue_from_shape_and_type(
            self, shape: Sequence[int], element_type: Any, device_type: str,
            device_id: int = 0, vendor_id: int = -1) -> OrtValue:
        """Returns a value with memory that is not initialised."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type,
                                                     device_type, device_id)

    # -- profiling ------------------------------------------------------------

    def end_profiling(self) -> str:
        """Writes the trace of all runs so far, in ONNX Runtime's form, and
        returns the file's name; "" if the session is not profiled."""
        profile, self._profile = self._profile, None
        self._hooked = bool(self._fixed)
        return profile.write() if profile else ""

    def get_profiling_start_time_ns(self) -> int:
        """Returns the monotonic clock when profiling began; 0: it did not."""
        return self._profile.start_ns if self._profile else 0

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Writes the profile if there is one, and frees the model."""
        if self._pool:
            self._pool.shutdown(wait=False)
        self.end_profiling()
        super().close()

    def __del__(self) -> None:
        if getattr(self, "_profile", None) and hasattr(self, "_hooked"):
            self.end_profiling()



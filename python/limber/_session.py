"""ONNX Runtime's interface: InferenceSession and related classes."""

import enum
import warnings
from typing import NamedTuple

from limber import _limber
from limber._model import (Stats, preference, skip_option, source_of,
                           value_infos, warm)

PROVIDERS = ["CPUExecutionProvider"]

# ONNX Runtime's severities 0 (verbose) to 4 (fatal) as limber_log_level.
LOG_LEVELS = [4, 3, 2, 1, 1]


class GraphOptimizationLevel(enum.IntEnum):
    """Limber either runs its graph passes or does not: all levels but
    ORT_DISABLE_ALL mean the same."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted without effect: Limber runs one node after the other, each on
    all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class Options:
    """Only the fields listed in `known` can be set."""

    known = {}

    def __init__(self):
        for name, default in self.known.items():
            object.__setattr__(self, name, default)

    def __setattr__(self, name, value):
        if name not in self.known:
            raise AttributeError(
                f"Limber's {type(self).__name__} has no '{name}'; it has: "
                + ", ".join(self.known))
        object.__setattr__(self, name, value)


class SessionOptions(Options):
    """Options of an InferenceSession.

    intra_op_num_threads: the session gets a thread pool of this size; 0: it
    shares the pool of the process. log_severity_level: 0 (verbose) to 4
    (fatal); -1: as LIMBER_LOG says. graph_optimization_level: ORT_DISABLE_ALL
    leaves the graph unchanged. memory_limit, loop_limit, event, load_warmup, skip
    and prefer_reusable_kernels: as in limber.load. use_deterministic_compute:
    `deterministic` of limber.load. All other options, and configuration
    entries, are accepted without effect."""

    known = {
        "intra_op_num_threads": 0,
        "inter_op_num_threads": 0,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "use_deterministic_compute": False,
        "prefer_reusable_kernels": None,
        "memory_limit": 0,
        "loop_limit": 0,
        "event": None,
        "load_warmup": True,
        "skip": None,
    }

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "_entries", {})

    def add_session_config_entry(self, key, value):
        self._entries[key] = value

    def get_session_config_entry(self, key):
        return self._entries[key]


class RunOptions(Options):
    """Options of a run. Setting terminate = True, on any thread, cancels the
    runs that have these options. All other options are accepted without
    effect."""

    known = {"log_severity_level": -1, "log_verbosity_level": 0, "logid": "",
             "terminate": False}

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "_cancel", _limber.Cancel())

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "terminate":
            (self._cancel.trigger if value else self._cancel.reset)()


class ModelMetadata(NamedTuple):
    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict


def get_available_providers():
    return list(PROVIDERS)


def get_device():
    return "CPU"


def check_providers(providers):
    for provider in providers or []:
        name = provider if isinstance(provider, str) else provider[0]
        if name not in PROVIDERS:
            warnings.warn(f"Limber has no {name}; it runs on "
                          f"{', '.join(PROVIDERS)}", stacklevel=3)


def session_keywords(options):
    severity = options.log_severity_level
    if not -1 <= severity < len(LOG_LEVELS):
        raise ValueError(f"log_severity_level must be -1 to 4, not {severity}")
    return {
        "threads": max(0, options.intra_op_num_threads),
        "log_level": 0 if severity < 0 else LOG_LEVELS[severity],
        "optimize": int(options.graph_optimization_level) != 0,
        "memory_limit": options.memory_limit,
        "loop_limit": options.loop_limit,
        "deterministic": bool(options.use_deterministic_compute),
        "prefer_reusable_kernels": preference(options.prefer_reusable_kernels),
        "event": options.event,
        "load_warmup": bool(options.load_warmup),
        "skip": skip_option(options.skip),
    }


class InferenceSession(_limber.Session):
    """A loaded model with ONNX Runtime's interface. Providers other than
    CPUExecutionProvider cause a warning; provider_options, disabled_optimizers
    and enable_fallback are accepted without effect."""

    warm = warm

    def __init__(self, path_or_bytes, sess_options=None, providers=None,
                 provider_options=None, *, disabled_optimizers=None,
                 enable_fallback=0):
        check_providers(providers)
        source, in_memory = source_of(path_or_bytes)
        options = sess_options or SessionOptions()
        super().__init__(source, in_memory, **session_keywords(options))
        self._options = options

    def get_inputs(self):
        return value_infos(self._input_rows())

    def get_outputs(self):
        return value_infos(self._output_rows())

    def get_modelmeta(self):
        info = self._model_info()
        return ModelMetadata(graph_description="", **{
            name: info[name] for name in ModelMetadata._fields
            if name != "graph_description"})

    def get_providers(self):
        return list(PROVIDERS)

    def get_provider_options(self):
        return {name: {} for name in PROVIDERS}

    def get_session_options(self):
        return self._options

    def stats(self):
        return Stats(**self._counters())

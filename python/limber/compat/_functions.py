"""The functions of the module onnxruntime."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from limber._limber import version as limber_version
from limber.compat import _session
from limber.compat._devices import (PROVIDERS, OrtEpDevice, OrtHardwareDevice,
                                    processor)
from limber.compat._enums import OrtCompiledModelCompatibility
from limber.compat._errors import NotImplemented as NotSupported
from limber.compat._options import SessionOptions
from limber.compat._warn import warn_once

# The version of ONNX Runtime whose interface this is. Programs compare it.
__version__ = "1.31.1"


def get_available_providers() -> list[str]:
    """Returns ["CPUExecutionProvider"]."""
    return list(PROVIDERS)


def get_all_providers() -> list[str]:
    """Returns ["CPUExecutionProvider"]."""
    return list(PROVIDERS)


def get_device() -> str:
    """Returns "CPU"."""
    return "CPU"


def get_version_string() -> str:
    """Returns the version of ONNX Runtime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Returns a text that names Limber and its version."""
    return f"Limber {limber_version}, as ONNX Runtime {__version__}"


def get_ep_devices() -> list[OrtEpDevice]:
    """Returns the processor."""
    return [OrtEpDevice()]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """Returns the processor."""
    return [processor()]


def get_hardware_device_ep_incompatibility_details(
        ep_name: str, device: OrtHardwareDevice) -> dict[str, Any]:
    """Returns that there is no incompatibility."""
    return {"reasons_bitmask": 0, "notes": "", "error_code": 0}


def get_compatibility_info_from_model(path: str, ep_name: str) -> None:
    """Returns None: Limber reads no models that a provider compiled."""


def get_compatibility_info_from_model_bytes(model: bytes, ep_name: str) -> None:
    """Returns None: Limber reads no models that a provider compiled."""


def get_model_compatibility_for_ep_devices(
        devices: list[OrtEpDevice], info: str
        ) -> OrtCompiledModelCompatibility:
    """Returns EP_NOT_APPLICABLE."""
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def has_collective_ops() -> bool:
    """Returns False."""
    return False


def get_default_session_options() -> SessionOptions:
    """Returns options with nothing set."""
    return SessionOptions()


def get_session_initializer() -> None:
    """Returns None."""


def disable_telemetry_events() -> None:
    """No effect: Limber sends nothing."""


def enable_telemetry_events() -> None:
    """Warns: Limber sends nothing."""
    warn_once("Limber has no telemetry; nothing is sent")


def set_default_logger_severity(severity: int) -> None:
    """Sets the severity, 0 (verbose) to 4 (fatal), of later sessions whose
    options have none."""
    _session.set_default_severity(int(severity))


def set_default_logger_verbosity(level: int) -> None:
    """No effect."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0,
                                 inter_op_num_threads: int = 0) -> None:
    """Warns: LIMBER_THREADS sets the size of the process's pool."""
    if intra_op_num_threads:
        warn_once("set_global_thread_pool_sizes has no effect; set the "
                  "environment variable LIMBER_THREADS to "
                  f"{intra_op_num_threads} before the first session")


def set_seed(seed: int) -> None:
    """Warns: random operators have seeds as attributes, or draw anew."""
    warn_once("set_seed has no effect; give the random operators of the model "
              "the attribute 'seed'")


def create_and_register_allocator(memory_info: Any, arena: Any) -> None:
    """Warns: sessions do not share an allocator of ONNX Runtime's kind."""
    warn_once("create_and_register_allocator has no effect; Limber's sessions "
              "manage their memory themselves")


def create_and_register_allocator_v2(provider: str, memory_info: Any,
                                     options: Any, arena: Any) -> None:
    """Warns: sessions do not share an allocator of ONNX Runtime's kind."""
    create_and_register_allocator(memory_info, arena)


def register_execution_provider_library(name: str, path: str) -> None:
    """Warns: Limber does not load execution providers."""
    warn_once(f"Limber does not load execution providers; '{name}' is not "
              "used")


def unregister_execution_provider_library(name: str) -> None:
    """No effect."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True,
                 directory: Any = None) -> None:
    """No effect: Limber needs no other libraries."""


def print_debug_info() -> None:
    """Prints the versions of Limber, Python and the system."""
    print(get_build_info())
    print(f"Python {platform.python_version()} on {platform.platform()}")
    print(f"providers: {', '.join(PROVIDERS)}")


def is_dlpack_uint8_tensor(capsule: Any) -> bool:
    """Returns whether a DLPack capsule has elements of type uint8."""
    class Holder:
        def __dlpack__(self, **_: Any) -> Any:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0
    return np.from_dlpack(Holder()).dtype == np.uint8


def get_all_operator_schema() -> Any:
    """Not supported: use the package onnx."""
    raise NotSupported("Limber has no operator schemas; use "
                       "onnx.defs.get_all_schemas()")


def get_all_opkernel_def() -> Any:
    """Not supported: `limber inspect MODEL` lists the operators of a model."""
    raise NotSupported("Limber has no kernel definitions; `limber inspect "
                       "MODEL` says which operators of a model it implements")


def get_registered_ep_kernel_defs(name: str) -> Any:
    """Not supported: `limber inspect MODEL` lists the operators of a model."""
    get_all_opkernel_def()


def quantize(*_: Any) -> Any:
    """Not supported: quantise with ONNX Runtime; Limber runs the result."""
    raise NotSupported("Limber does not quantise weights; quantise with ONNX "
                       "Runtime, whose results Limber runs")


"""ONNX Runtime's interface, so that programs written for it run on Limber:

    python -m limber.compat program.py [ARGUMENT...]

or, before the program imports onnxruntime:

    from limber import compat
    compat.install()

docs/onnxruntime.md says what each name of ONNX Runtime does here.
"""

from __future__ import annotations

from limber.compat._devices import (OrtArenaCfg, OrtDevice, OrtEpAssignedNode,
                                    OrtEpAssignedSubgraph, OrtEpDevice,
                                    OrtHardwareDevice, OrtMemoryInfo)
from limber.compat._enums import (
    ArenaExtendStrategy, ExecutionMode, ExecutionOrder, GraphOptimizationLevel,
    OrtAllocatorType, OrtCompileApiFlags, OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason, OrtDeviceMemoryType, OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy, OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType, OrtMemType, OrtSparseFormat)
from limber.compat._functions import (
    __version__, create_and_register_allocator,
    create_and_register_allocator_v2, disable_telemetry_events,
    enable_telemetry_events, get_all_operator_schema, get_all_opkernel_def,
    get_all_providers, get_available_providers, get_build_info,
    get_compatibility_info_from_model, get_compatibility_info_from_model_bytes,
    get_default_session_options, get_device, get_ep_devices,
    get_hardware_device_ep_incompatibility_details, get_hardware_devices,
    get_model_compatibility_for_ep_devices, get_registered_ep_kernel_defs,
    get_session_initializer, get_version_string, has_collective_ops,
    is_dlpack_uint8_tensor, preload_dlls, print_debug_info, quantize,
    register_execution_provider_library, set_default_logger_severity,
    set_default_logger_verbosity, set_global_thread_pool_sizes, set_seed,
    unregister_execution_provider_library)
from limber.compat._install import install, uninstall
from limber.compat._options import (OrtExternalInitializerInfo, RunOptions,
                                    SessionOptions)
from limber.compat._session import InferenceSession, ModelMetadata, NodeArg
from limber.compat._unsupported import (
    AdapterFormat, LoraAdapter, ModelCompiler, OrtEpContextData,
    OrtEpContextDataBuffer, OrtSyncStream, SessionObjectInitializer,
    SparseBlockSparseView, SparseCooView, SparseCsrView, SparseTensor, opkernel,
    schemadef)
from limber.compat._values import (IOBinding, OrtValue, OrtValueVector,
                                   SessionIOBinding, copy_tensors)
from limber.compat._warn import CompatibilityWarning, warn_once

pack_fp4_weights_for_cuda_moe_gemm = quantize_matmul_2bits = quantize
quantize_matmul_4bits = quantize_matmul_8bits = quantize
quantize_matmul_bnb4 = quantize_qdq_matmul_2bits = quantize
quantize_qdq_matmul_4bits = quantize
kNextPowerOfTwo = ArenaExtendStrategy.kNextPowerOfTwo
kSameAsRequested = ArenaExtendStrategy.kSameAsRequested

__all__ = [
    "CompatibilityWarning", "__version__", "install", "uninstall",
    "warn_once", "AdapterFormat", "ArenaExtendStrategy", "copy_tensors",
    "create_and_register_allocator", "create_and_register_allocator_v2",
    "disable_telemetry_events", "enable_telemetry_events", "ExecutionMode",
    "ExecutionOrder", "get_all_operator_schema", "get_all_opkernel_def",
    "get_all_providers", "get_available_providers", "get_build_info",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "get_default_session_options", "get_device", "get_ep_devices",
    "get_hardware_device_ep_incompatibility_details",
    "get_hardware_devices", "get_model_compatibility_for_ep_devices",
    "get_registered_ep_kernel_defs", "get_session_initializer",
    "get_version_string", "GraphOptimizationLevel", "has_collective_ops",
    "InferenceSession", "IOBinding", "is_dlpack_uint8_tensor",
    "kNextPowerOfTwo", "kSameAsRequested", "LoraAdapter", "ModelCompiler",
    "ModelMetadata", "NodeArg", "opkernel", "OrtAllocatorType",
    "OrtArenaCfg", "OrtCompileApiFlags", "OrtCompiledModelCompatibility",
    "OrtDevice", "OrtDeviceEpIncompatibilityReason", "OrtDeviceMemoryType",
    "OrtDeviceVendorId", "OrtEpAssignedNode", "OrtEpAssignedSubgraph",
    "OrtEpContextData", "OrtEpContextDataBuffer", "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy", "OrtExternalInitializerInfo",
    "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType", "OrtMemType", "OrtSparseFormat",
    "OrtSyncStream", "OrtValue", "OrtValueVector",
    "pack_fp4_weights_for_cuda_moe_gemm", "preload_dlls",
    "print_debug_info", "quantize_matmul_2bits", "quantize_matmul_4bits",
    "quantize_matmul_8bits", "quantize_matmul_bnb4",
    "quantize_qdq_matmul_2bits", "quantize_qdq_matmul_4bits",
    "register_execution_provider_library", "RunOptions", "schemadef",
    "SessionIOBinding", "SessionObjectInitializer", "SessionOptions",
    "set_default_logger_severity", "set_default_logger_verbosity",
    "set_global_thread_pool_sizes", "set_seed", "SparseBlockSparseView",
    "SparseCooView", "SparseCsrView", "SparseTensor",
    "unregister_execution_provider_library",
]

OWN = __all__[:5]  # names that ONNX Runtime does not have

# Names of onnxruntime.capi.onnxruntime_pybind11_state that the module
# onnxruntime does not have; and the other way round.
STATE_ONLY = [
    "ArenaExtendStrategy", "OrtCompiledModelCompatibility",
    "OrtDeviceEpIncompatibilityReason", "OrtValueVector",
    "SessionObjectInitializer", "SparseBlockSparseView", "SparseCooView",
    "SparseCsrView", "get_all_operator_schema", "get_all_opkernel_def",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "get_default_session_options",
    "get_hardware_device_ep_incompatibility_details",
    "get_hardware_devices", "get_model_compatibility_for_ep_devices",
    "get_registered_ep_kernel_defs", "get_session_initializer",
    "is_dlpack_uint8_tensor", "kNextPowerOfTwo", "kSameAsRequested",
    "pack_fp4_weights_for_cuda_moe_gemm", "quantize_matmul_2bits",
    "quantize_matmul_4bits", "quantize_matmul_8bits",
    "quantize_matmul_bnb4", "opkernel", "quantize_qdq_matmul_2bits",
    "quantize_qdq_matmul_4bits", "schemadef",
]
TOP_ONLY = ["IOBinding", "OrtDeviceVendorId", "preload_dlls",
            "print_debug_info"]
TOP = [name for name in __all__ if name not in (*OWN, *STATE_ONLY)]
STATE = [name for name in __all__ if name not in (*OWN, *TOP_ONLY)]

"""Limber runs ONNX models whose input shapes change from request to request.

    import limber
    model = limber.load("model.onnx")       # a path, or bytes
    y = model(x)                            # or model.run(["y"], {"x": x})

InferenceSession is the same model with ONNX Runtime's interface; limber.compat
runs programs that import onnxruntime.
"""

import atexit

from limber._errors import (Cancelled, DeviceError, Error, FileError,
                            InternalError, InvalidArgument, InvalidModel,
                            OutOfMemory, Unsupported)
from limber._events import Event
from limber._limber import (Cancel, cache_stats, explain_miss,
                            get_cache_capacity, metrics, set_cache_capacity)
from limber._limber import _stop_events
from limber._limber import version as __version__
from limber._binding import Binding
from limber._futures import RunFuture
from limber._limber import to_dlpack
from limber._model import Model, Stats, ValueInfo, load
from limber._primitive import Operand, Primitive, PrimitiveInfo
from limber.compat import (ExecutionMode, GraphOptimizationLevel,
                           InferenceSession, ModelMetadata, RunOptions,
                           SessionOptions, get_available_providers,
                           get_device)

atexit.register(_stop_events)

__all__ = [
    "load", "Model", "Stats", "ValueInfo", "Cancel", "Event", "Binding",
    "RunFuture", "Primitive", "PrimitiveInfo", "Operand", "to_dlpack",
    "InferenceSession", "SessionOptions", "RunOptions", "ModelMetadata",
    "GraphOptimizationLevel", "ExecutionMode",
    "get_available_providers", "get_device",
    "get_cache_capacity", "set_cache_capacity", "cache_stats", "metrics",
    "explain_miss",
    "Error", "InvalidModel", "InvalidArgument", "Unsupported", "OutOfMemory",
    "FileError", "DeviceError", "Cancelled", "InternalError",
]

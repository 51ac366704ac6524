"""ONNX Runtime's exceptions, of which each is also the exception that Limber
raises for the same problem."""

from __future__ import annotations

from limber._errors import (Cancelled, DeviceError, Error, FileError,
                            InternalError, InvalidArgument, InvalidModel,
                            OutOfMemory, Unsupported)


class Fail(Error):
    """Limber raises it for cancelled runs and for files that cannot be read."""


class RuntimeException(Error):
    """Limber raises it if memory is exhausted, and for a bug in Limber."""


class NoSuchFile(FileError, Fail):
    """Limber raises it for a model file that does not exist."""


class InvalidGraph(InvalidModel, Fail):
    """Limber raises it for a model that is invalid."""


class InvalidProtobuf(InvalidGraph):
    """Limber raises it for a model that is not a protobuf message of ONNX."""


class NotImplemented(Unsupported):
    """Limber raises it for what it does not support; the text says what."""


class EPFail(DeviceError):
    """Limber raises it if a device fails."""


class NotFound(Error):
    """Limber does not raise it."""


class NoModel(Error):
    """Limber does not raise it."""


class ModelLoaded(Error):
    """Limber does not raise it."""


class ModelLoadCanceled(Error):
    """Limber raises it if set_load_cancellation_flag(True) was called."""


class ModelRequiresCompilation(Error):
    """Limber does not raise it."""


class EngineError(Error):
    """Limber does not raise it."""


class DeviceReset(Error):
    """Limber does not raise it."""


class RunCancelled(Cancelled, Fail):
    """A run that its RunOptions or its time limit ended."""


class MemoryExhausted(OutOfMemory, RuntimeException):
    """The memory for a model or a run is exhausted."""


class FileFailure(FileError, Fail):
    """A file cannot be read or written."""


class InternalFailure(InternalError, RuntimeException):
    """A bug in Limber."""


# Exception classes by limber_status, as limber._errors has them.
OTHERS = (NotImplemented, MemoryExhausted, FileFailure, EPFail, RunCancelled,
          InternalFailure)
MODEL = (None, InvalidGraph, *OTHERS)
RUN = (None, InvalidArgument, *OTHERS)

NAMES = ["DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument",
         "InvalidGraph", "InvalidProtobuf", "ModelLoadCanceled", "ModelLoaded",
         "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
         "NotImplemented", "RuntimeException"]

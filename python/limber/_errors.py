"""The exceptions of Limber: subclasses of Error, each of which is also a
subclass of the built-in exception for the same problem."""

from __future__ import annotations


class Error(Exception):
    """The base class; `code` is the name of the C interface's status."""

    code: str | None = None


class InvalidModel(Error, ValueError):
    """The model is invalid."""

    code = "invalid"


class InvalidArgument(Error, ValueError):
    """An input, a name or an option does not fit the model."""

    code = "invalid"


class Unsupported(Error, NotImplementedError):
    """The model or the argument is valid, but Limber does not support it."""

    code = "unsupported"


class OutOfMemory(Error, MemoryError):
    code = "oom"


class FileError(Error, OSError):
    """A file cannot be read or written."""

    code = "io"


class DeviceError(Error, RuntimeError):
    code = "device"


class Cancelled(Error, RuntimeError):
    code = "cancelled"


class InternalError(Error, RuntimeError):
    """A bug in Limber."""

    code = "internal"


# Exception classes by limber_status: while loading a model, and afterwards.
_OTHERS = (Unsupported, OutOfMemory, FileError, DeviceError, Cancelled,
           InternalError)
MODEL = (None, InvalidModel, *_OTHERS)
RUN = (None, InvalidArgument, *_OTHERS)

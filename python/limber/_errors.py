"""What Limber raises: subclasses of Error, each also what Python would raise.
"""


class Error(Exception):
    """Base of all; `code` is the status of the C interface."""

    code = None


class InvalidModel(Error, ValueError):
    """The model is not sound."""

    code = "invalid"


class InvalidArgument(Error, ValueError):
    """An input, a name or an option does not fit the model."""

    code = "invalid"


class Unsupported(Error, NotImplementedError):
    """Sound, but not something Limber does."""

    code = "unsupported"


class OutOfMemory(Error, MemoryError):
    code = "oom"


class FileError(Error, OSError):
    """A file cannot be read."""

    code = "io"


class DeviceError(Error, RuntimeError):
    code = "device"


class Cancelled(Error, RuntimeError):
    code = "cancelled"


class InternalError(Error, RuntimeError):
    """A bug of Limber's."""

    code = "internal"


# By limber_status: while loading a model, and afterwards.
_OTHERS = (Unsupported, OutOfMemory, FileError, DeviceError, Cancelled,
           InternalError)
MODEL = (None, InvalidModel, *_OTHERS)
RUN = (None, InvalidArgument, *_OTHERS)

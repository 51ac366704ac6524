"""The C interface by ctypes, for what the Python package does not offer:
several runtimes in one process, each with its own environment, inputs and
outputs that are windows of larger buffers, outputs in the caller's memory."""

import contextlib
import ctypes
import functools
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("LIMBER_LIBRARY", ROOT / "build" / "liblimber.so")
MAX_RANK = 12

# In the order of limber_dtype; bfloat16 has no numpy dtype.
DTYPES = [None, "float32", "float64", "float16", None, "int8", "int16",
          "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
NUMBER_OF = {np.dtype(name): number for number, name in enumerate(DTYPES)
             if name}
DTYPE_OF = [name and np.dtype(name) for name in DTYPES]

c = ctypes


class Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_int),
                ("dims", c.c_int64 * MAX_RANK), ("data", c.c_void_p),
                ("bytes", c.c_size_t), ("strides", c.POINTER(c.c_int64)),
                ("owner", c.c_void_p), ("reserved", c.c_uint64 * 4)]


class RuntimeOptions(c.Structure):  # fields after these are not set
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int),
                ("log_level", c.c_int)]


class SessionOptions(c.Structure):  # likewise
    _fields_ = [("size", c.c_size_t), ("copy_weights", c.c_int),
                ("plan_bytes", c.c_uint64), ("memory_limit", c.c_uint64),
                ("loop_limit", c.c_int64), ("directory", c.c_char_p),
                ("optimize", c.c_int), ("deterministic", c.c_int),
                ("prefer_reusable_kernels", c.c_int), ("compile", c.c_int),
                ("compile_ops", c.c_int), ("load_warmup", c.c_int),
                ("reference", c.c_int)]


class ValueInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_int),
                ("dims", c.POINTER(c.c_char_p))]


@functools.cache
def library():
    """Loads the library at first use, which a process without it need not."""
    lib = c.CDLL(str(LIBRARY))
    lib.limber_last_error.restype = c.c_char_p
    for name in ("inputs", "outputs"):
        function = getattr(lib, f"limber_session_{name}")
        function.restype = c.c_size_t
        function.argtypes = [c.c_void_p, c.POINTER(c.POINTER(ValueInfo))]
    lib.limber_session_open_memory.argtypes = [
        c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p, c.c_void_p]
    lib.limber_session_run.argtypes = [
        c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p, c.c_size_t, c.c_void_p]
    lib.limber_session_settle.argtypes = [c.c_void_p, c.c_double]
    lib.limber_session_close.argtypes = [c.c_void_p]
    lib.limber_tensor_free.argtypes = [c.c_void_p]
    return lib


class Error(Exception):
    pass


def check(status):
    if status:
        raise Error(library().limber_last_error().decode())


@contextlib.contextmanager
def environment(values):
    """Sets variables inside the `with` block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Runtime:
    """A runtime that was created in this environment. It lives as long as the
    process, because others may still use its kernels."""

    def __init__(self, threads=1, **variables):
        self.handle = c.c_void_p()
        options = RuntimeOptions(c.sizeof(RuntimeOptions), threads)
        with environment(variables):
            check(library().limber_runtime_create(c.byref(options),
                                            c.byref(self.handle)))


def fill(tensor, name, array):
    """Describes the memory of an array; returns what must be kept alive."""
    tensor.name = name
    tensor.dtype = NUMBER_OF[array.dtype]
    tensor.rank = array.ndim
    tensor.dims[:array.ndim] = array.shape
    tensor.data = array.ctypes.data
    tensor.bytes = 0
    if array.flags.c_contiguous:
        tensor.strides = None
        return None
    strides = (c.c_int64 * MAX_RANK)(*(s // array.itemsize
                                       for s in array.strides))
    tensor.strides = c.cast(strides, c.POINTER(c.c_int64))
    return strides


class Outputs:
    """The outputs of a run in Limber's memory, which it owns until close."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.arrays = [self.view(t) for t in tensors]

    @staticmethod
    def view(t):
        dtype, shape = DTYPE_OF[t.dtype], tuple(t.dims[:t.rank])
        size = int(np.prod(shape)) * dtype.itemsize
        memory = (c.c_char * size).from_address(t.data) if size else b""
        return np.frombuffer(memory, dtype).reshape(shape)

    def close(self):
        for t in self.tensors:
            library().limber_tensor_free(c.byref(t))
        self.tensors = ()


class Session:
    def __init__(self, runtime, model, deterministic=False, reference=False,
                 optimize=True):
        self.handle, self.model = c.c_void_p(), model
        options = SessionOptions(
            c.sizeof(SessionOptions), loop_limit=1000, load_warmup=-1,
            deterministic=deterministic, reference=reference,
            optimize=0 if optimize else -1)
        check(library().limber_session_open_memory(
            runtime.handle, model, len(model), c.byref(options),
            c.byref(self.handle)))
        self.inputs = self.names(library().limber_session_inputs)
        self.outputs = self.names(library().limber_session_outputs)

    def names(self, function):
        infos = c.POINTER(ValueInfo)()
        n = function(self.handle, c.byref(infos))
        return [infos[i].name for i in range(n)]

    def close(self):
        library().limber_session_close(self.handle)

    def settle(self, seconds=600):
        check(library().limber_session_settle(self.handle, seconds))

    def run(self, feeds, wanted=None, buffers=None):
        """Runs on arrays of any strides by input name. `wanted` are indices of
        outputs, all by default. Without `buffers` the result is Outputs; else
        the outputs are written to these arrays, one for each wanted output."""
        wanted = range(len(self.outputs)) if wanted is None else wanted
        ins, outs = (Tensor * len(self.inputs))(), (Tensor * len(wanted))()
        kept = [fill(t, name, feeds[name.decode()])
                for t, name in zip(ins, self.inputs)]
        for i, k in enumerate(wanted):
            if buffers is not None:
                kept.append(fill(outs[i], None, buffers[i]))
                outs[i].bytes = span(buffers[i])
            outs[i].name = self.outputs[k]
        check(library().limber_session_run(self.handle, ins, len(ins), outs,
                                     len(outs), None))
        if buffers is None:
            return Outputs(outs)
        for t, array in zip(outs, buffers):
            got = DTYPE_OF[t.dtype], tuple(t.dims[:t.rank])
            if got != (array.dtype, array.shape):
                raise Error(f"wrote {got[0]}{list(got[1])} to a buffer of "
                            f"{array.dtype}{list(array.shape)}")
        return None


def span(array):
    """Bytes from the first element of an array to the end of its last one."""
    if array.size == 0:
        return 0
    return array.itemsize + sum((n - 1) * s for n, s
                                in zip(array.shape, array.strides))

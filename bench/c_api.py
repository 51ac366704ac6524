"""Limber's C interface through ctypes: tensors with strides as outputs, and
runs that allocate nothing.

    library = Library("build/liblimber.so")
    session = library.open("model.onnx", threads=1)
    session.run([Tensor.of("x", x)], [Tensor.of("y", y)])
"""

import ctypes
from ctypes import (CFUNCTYPE, POINTER, byref, c_char_p, c_double, c_int,
                    c_int64, c_size_t, c_uint64, c_void_p)

import numpy as np

MAX_RANK = 12
DTYPES = {"float32": 1, "float64": 2, "float16": 3, "int8": 5, "int16": 6,
          "int32": 7, "int64": 8, "uint8": 9, "uint16": 10, "uint32": 11,
          "uint64": 12, "bool": 13}


class Tensor(ctypes.Structure):
    """limber_tensor on the memory of an array, which the caller keeps."""

    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_int),
                ("dims", c_int64 * MAX_RANK), ("data", c_void_p),
                ("bytes", c_size_t), ("strides", POINTER(c_int64)),
                ("owner", c_void_p), ("reserved", c_uint64 * 4)]

    @classmethod
    def of(cls, name, array):
        t = cls(name=name.encode(), dtype=DTYPES[array.dtype.name],
                rank=array.ndim, data=array.ctypes.data)
        t.dims[:array.ndim] = array.shape
        if not array.flags.c_contiguous:
            steps = [s // array.itemsize for s in array.strides]
            t.strides = (c_int64 * array.ndim)(*steps)
        reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides))
        t.bytes = reach + array.itemsize if array.size else 0
        return t


class RuntimeOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("log_level", c_int),
                ("log", c_void_p), ("log_user", c_void_p),
                ("allocator", c_void_p), ("cache_capacity", c_uint64),
                ("event", c_void_p), ("event_user", c_void_p),
                ("compile", c_int), ("compile_ops", c_int),
                ("compile_threshold", c_int)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("copy_weights", c_int),
                ("plan_bytes", c_uint64), ("memory_limit", c_uint64),
                ("loop_limit", c_int64), ("directory", c_char_p),
                ("optimize", c_int), ("deterministic", c_int),
                ("prefer_reusable_kernels", c_int), ("compile", c_int),
                ("compile_ops", c_int), ("load_warmup", c_int),
                ("reference", c_int)]


class Step(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("op", c_char_p),
                ("tier", c_char_p), ("kernel", c_char_p), ("rows", c_int64),
                ("cols", c_int64), ("k", c_int64), ("len", c_int64),
                ("outer", c_int64), ("bytes", c_uint64), ("flops", c_uint64),
                ("start_ns", c_int64), ("end_ns", c_int64),
                ("reason", c_char_p)]


STEP_FUNCTION = CFUNCTYPE(None, c_void_p, POINTER(Step))


class Error(Exception):
    """limber_last_error()"""


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.limber_last_error.restype = c_char_p
        self.c.limber_version.restype = c_char_p
        for name in ("run", "profile"):
            getattr(self.c, "limber_session_" + name).argtypes = [
                c_void_p, POINTER(Tensor), c_size_t, POINTER(Tensor), c_size_t,
                *([c_void_p] if name == "run" else [STEP_FUNCTION, c_void_p])]
        self.c.limber_session_settle.argtypes = [c_void_p, c_double]
        self.c.limber_session_close.argtypes = [c_void_p]
        self.c.limber_runtime_destroy.argtypes = [c_void_p]

    def version(self):
        return self.c.limber_version().decode()

    def check(self, status):
        if status:
            raise Error(self.c.limber_last_error().decode())

    def open(self, path, threads=0, deterministic=False):
        return Session(self, path, threads, deterministic)


class Session:
    def __init__(self, library, path, threads, deterministic):
        self.library, self.c = library, library.c
        self.runtime, self.session = c_void_p(), c_void_p()
        runtime = RuntimeOptions(threads=threads)
        runtime.size = ctypes.sizeof(runtime)
        options = SessionOptions(deterministic=deterministic)
        options.size = ctypes.sizeof(options)
        library.check(self.c.limber_runtime_create(
            byref(runtime), byref(self.runtime)))
        library.check(self.c.limber_session_open(
            self.runtime, str(path).encode(), byref(options),
            byref(self.session)))

    def close(self):
        self.c.limber_session_close(self.session)
        self.c.limber_runtime_destroy(self.runtime)
        self.session = self.runtime = c_void_p()

    def run(self, inputs, outputs):
        """Arrays of Tensor, or lists of it."""
        self.library.check(self.c.limber_session_run(
            self.session, tensors(inputs), len(inputs), tensors(outputs),
            len(outputs), None))

    def profile(self, inputs, outputs):
        """Runs; returns its steps as dicts."""
        steps = []

        def add(_, step):
            s = step.contents
            steps.append({"name": s.name.decode(), "op": s.op.decode(),
                          "tier": s.tier.decode(),
                          "reason": s.reason.decode(), "bytes": s.bytes,
                          "nanoseconds": s.end_ns - s.start_ns})
        self.library.check(self.c.limber_session_profile(
            self.session, tensors(inputs), len(inputs), tensors(outputs),
            len(outputs), STEP_FUNCTION(add), None))
        return steps

    def settle(self, seconds):
        self.library.check(self.c.limber_session_settle(self.session, seconds))


def tensors(items):
    if isinstance(items, ctypes.Array):
        return items
    return (Tensor * len(items))(*items)


def aligned(shape, dtype=np.float32, align=64):
    """An array of zeros whose memory is aligned, all pages of it in use."""
    count = int(np.prod(shape))
    raw = np.zeros(count * np.dtype(dtype).itemsize + align, np.uint8)
    raw.fill(0)
    first = -raw.ctypes.data % align
    return raw[first:first + count * np.dtype(dtype).itemsize] \
        .view(dtype).reshape(shape)

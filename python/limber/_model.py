"""limber.load and what it returns."""

import os
from typing import NamedTuple

from limber import _limber

# ONNX Runtime's names of tensor types, by Limber's names of dtypes.
TYPES = {"float32": "float", "float64": "double"}


class ValueInfo(NamedTuple):
    """An input or an output. `shape` has an int for each dim that is fixed, a
    str for a symbol or an expression, None for a size without a name; it is
    None where not even the number of dims is known before a run."""

    name: str
    dtype: str
    shape: list

    @property
    def type(self):
        """As ONNX Runtime writes it: tensor(float), tensor(int64)."""
        return f"tensor({TYPES.get(self.dtype, self.dtype)})"


class Stats(NamedTuple):
    """What a model did so far, and what it holds now."""

    runs: int
    plans_built: int
    plans_evicted: int
    plans: int
    plan_bytes: int
    arena_bytes: int
    kernels_requested: int  # of all sessions that share these threads
    kernels: int  # compiled, in this process
    packed_bytes: int  # of weights, laid out for kernels
    prefer_reusable_kernels: bool
    prefer_reusable_from: str  # "session", "environment" or "build"
    kernels_specialised: int  # of those wanted: they take more than divisibility
                          # of sizes for granted
    kernels_failed: int
    kernels_pending: int  # wanted, and none but the library's is there
    kernels_queued: int  # of these, those in the compiler's queue or hands
    worker_failures: int  # crashes, hangs and bad answers of limber-jit
    compile_us_on_callers: int  # in threads that run: 0, always
    kernels_on_trial: int  # to be timed against what they replaced
    kernels_kept: int  # after that
    kernels_demoted: int  # after that: slower, and not used

    @property
    def settled(self):
        """All that plans asked for is there, or cannot be had."""
        return self.kernels_pending == 0


def parse_dim(text):
    if text == "?":
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def value_infos(rows):
    return [ValueInfo(name, dtype, dims and [parse_dim(d) for d in dims])
            if dims is not None else ValueInfo(name, dtype, None)
            for name, dtype, dims in rows]


def source_of(path_or_bytes):
    """(bytes, whether they are the model itself or its path)"""
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes, True
    if isinstance(path_or_bytes, (bytearray, memoryview)):
        return bytes(path_or_bytes), True
    return os.fsencode(path_or_bytes), False


def preference(on):
    """As the C API has it: None leaves it to others."""
    return 0 if on is None else 1 if on else -1


def warm(session, shapes, seconds=60):
    """Plans the model at each of `shapes`, dicts as plan takes them, or those
    of a file that record_shapes made, and compiles what these plans need;
    waits at most `seconds` for that."""
    if isinstance(shapes, (str, bytes, os.PathLike)):
        session._warm_file(shapes, seconds)
        return
    for feeds in shapes:
        session.plan(feeds)
    session.settle(seconds)


class Model(_limber.Session):
    """A loaded model. Any number of threads may run it at once."""

    def __init__(self, path_or_bytes, *, threads=0, optimize=True,
                 copy_weights=False, memory_limit=0, loop_limit=0, folder=None,
                 deterministic=False, prefer_reusable_kernels=None,
                 compile=None, compile_ops=None, event=None, load_warmup=True,
                 reference=False):
        source, in_memory = source_of(path_or_bytes)
        if folder is not None:
            folder = os.fsdecode(folder)
        super().__init__(source, in_memory, threads=threads, optimize=optimize,
                         copy_weights=copy_weights, memory_limit=memory_limit,
                         loop_limit=loop_limit, folder=folder,
                         deterministic=deterministic,
                         prefer_reusable_kernels=preference(
                             prefer_reusable_kernels),
                         compile=compile, compile_ops=compile_ops,
                         event=event, load_warmup=load_warmup, reference=reference)
        self.inputs = value_infos(self._input_rows())
        self.outputs = value_infos(self._output_rows())

    warm = warm

    def stats(self):
        return Stats(**self._counters())

    def info(self):
        """What the file says of itself, as a dict."""
        return self._model_info()

    def __repr__(self):
        def names(values):
            return ", ".join(value.name for value in values)
        return f"<limber.Model ({names(self.inputs)}) -> " \
               f"({names(self.outputs)})>"


def load(path_or_bytes, **options):
    """Loads an ONNX model, from a path or from bytes.

    The weights are used where they lie: a file stays mapped, bytes are kept.

    threads: a pool of its own with that many; 0 shares one for the process.
    optimize=False leaves the graph as it is in the file.
    copy_weights=True reads the file, which may then change.
    memory_limit: bytes of values in one run; loop_limit: turns of a Loop
    or Scan, with those of the loops inside it.
    folder: where external data of a model in bytes lies.
    deterministic=True: the same bits whichever kernels compute a result; what
    needs a compiler to be fast may stay slow.
    prefer_reusable_kernels=True: few kernels that serve every shape; False:
    those that fit best; None: as the environment or the build says.
    compile: when better kernels are compiled, "background" (while requests
    run, beside them: the default) or "settle" (when settle asks for it).
    compile_ops: for what, "all" or "critical" (convolutions, products,
    softmax).
    event: is called with a limber.Event for every decision, by a thread of its
    own: no run waits for it. It must not use the model.
    load_warmup=False: loading plans and runs nothing. Otherwise it does so once,
    at small sizes and on zeros, so that the first request is a fast one, and
    kernels that serve any request can be compiled before it.
    reference=True: every operator runs by its reference implementation, in
    plain C, and no kernel is used or compiled: to compare with.

    Sessions of a process share kernels and the compiler, whatever their
    threads: each kernel is compiled once. The most eager session that wants a
    kernel decides when.

    A model is called with its inputs, by position or by name, and returns an
    array, or a list of arrays if it has several outputs. model.run(names,
    feeds) returns a list of the outputs asked for.
    """
    return Model(path_or_bytes, **options)

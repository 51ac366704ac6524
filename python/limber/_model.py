"""limber.load and the Model class."""

import os
from typing import NamedTuple

from limber import _limber

# ONNX Runtime's names of tensor types, by Limber's dtype names.
TYPES = {"float32": "float", "float64": "double"}


class ValueInfo(NamedTuple):
    """An input or an output of a model. `shape` is a list with an int for each
    fixed dim, a str for a symbol or an expression, and None for an unnamed
    size. It is None if the number of dims is not known before a run."""

    name: str
    dtype: str
    shape: list

    @property
    def type(self):
        """As ONNX Runtime writes it: tensor(float), tensor(int64)."""
        return f"tensor({TYPES.get(self.dtype, self.dtype)})"


class Stats(NamedTuple):
    """Statistics of a model, of its threads' runtime and of the process."""

    runs: int
    plans_built: int
    plans_evicted: int
    plans: int
    plan_bytes: int
    arena_bytes: int
    kernels_requested: int  # by all sessions that share these threads
    kernels: int  # kernels compiled in this process
    packed_bytes: int  # of weights packed for kernels
    prefer_reusable_kernels: bool
    prefer_reusable_from: str  # "session", "environment" or "build"
    kernels_specialised: int  # requested kernels that assume more about sizes
                              # than divisibility
    kernels_failed: int  # kernels that could not be compiled
    kernels_pending: int  # requested kernels that a built-in kernel or a cover
                          # still replaces
    kernels_queued: int  # those of them that are queued or being compiled
    worker_failures: int  # crashes, hangs and invalid responses of limber-jit
    compile_us_on_callers: int  # compile time on threads that run: always 0
    kernels_on_trial: int  # being timed against the code that they replaced
    kernels_kept: int  # kept after such a trial
    kernels_demoted: int  # slower in such a trial, and no longer used
    ragged_runs: int  # runs that left the padding of a batch out

    @property
    def settled(self):
        """Whether every requested kernel is compiled, or cannot be."""
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
    """Returns (bytes, True) for a model in memory, (path, False) for a file."""
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes, True
    if isinstance(path_or_bytes, (bytearray, memoryview)):
        return bytes(path_or_bytes), True
    return os.fsencode(path_or_bytes), False


def preference(on):
    """Returns the option of the C API: 1, -1, or 0 for None (unset)."""
    return 0 if on is None else 1 if on else -1


def skip_option(skip):
    """Returns the option of the C API: 1, -1, or 0 for None (unset)."""
    options = {None: 0, "on": 1, "off": -1}
    if skip not in options:
        raise ValueError(f"skip must be 'on', 'off' or None, not {skip!r}")
    return options[skip]


def warm(session, shapes, seconds=60):
    """Plans the model for each of `shapes`, then compiles the kernels that the
    plans need and waits at most `seconds` for them. `shapes` is a list of dicts
    as in plan(), or the path of a file written by record_shapes()."""
    if isinstance(shapes, (str, bytes, os.PathLike)):
        session._warm_file(shapes, seconds)
        return
    for feeds in shapes:
        session.plan(feeds)
    session.settle(seconds)


class Model(_limber.Session):
    """A loaded model. Any number of threads may run it at once."""

    def __init__(self, path_or_bytes, *, threads=0, optimize=True,
                 copy_weights=False, memory_limit=0, loop_limit=0, directory=None,
                 deterministic=False, prefer_reusable_kernels=None,
                 compile=None, compile_ops=None, event=None, load_warmup=True,
                 reference=False, skip=None):
        source, in_memory = source_of(path_or_bytes)
        if directory is not None:
            directory = os.fsdecode(directory)
        super().__init__(source, in_memory, threads=threads, optimize=optimize,
                         copy_weights=copy_weights, memory_limit=memory_limit,
                         loop_limit=loop_limit, directory=directory,
                         deterministic=deterministic,
                         prefer_reusable_kernels=preference(
                             prefer_reusable_kernels),
                         compile=compile, compile_ops=compile_ops,
                         event=event, load_warmup=load_warmup,
                         reference=reference, skip=skip_option(skip))
        self.inputs = value_infos(self._input_rows())
        self.outputs = value_infos(self._output_rows())

    warm = warm

    def stats(self):
        return Stats(**self._counters())

    def info(self):
        """Returns the metadata of the model file as a dict."""
        return self._model_info()

    def __repr__(self):
        def names(values):
            return ", ".join(value.name for value in values)
        return f"<limber.Model ({names(self.inputs)}) -> " \
               f"({names(self.outputs)})>"


def load(path_or_bytes, **options):
    """Loads an ONNX model from a path or from bytes.

    Weights are not copied: a file stays mapped, and bytes stay referenced.

    threads: the model gets a thread pool of this size; 0: it shares the pool
    of the process.
    optimize=False: do not run graph passes; keep the graph of the file.
    copy_weights=True: read the file into memory; the file may change then.
    memory_limit: maximum bytes for the values of one run.
    loop_limit: maximum number of iterations of a Loop or Scan, those of nested
    loops included.
    directory: the directory of external data, for a model given as bytes.
    deterministic=True: results are bitwise identical whichever kernels compute
    them; operators that are fast only when compiled may stay slow.
    prefer_reusable_kernels=True: use few kernels that serve every shape; False:
    use the fastest ones; None: as the environment or the build says.
    compile: when kernels are compiled: "background" (the default: in a separate
    process, while requests run) or "settle" (only when settle() is called).
    compile_ops: which kernels are compiled: "all" or "critical" (only
    convolution, matmul and softmax kernels).
    event: a callable that receives a limber.Event for every decision, on a
    thread of its own, so that no run waits for it. It must not use the model.
    load_warmup=False: do not warm up. Otherwise loading plans and runs the
    model once, with small guessed sizes and zeros, so that the first request is
    fast, and kernels that every request needs can be compiled before it.
    reference=True: every operator runs on its reference implementation in plain
    C, and no kernel is used or compiled; for comparing results.
    skip="off": run operators that do nothing at the shapes of a run instead of
    skipping them; "on": skip them; None: as LIMBER_SKIP says, else "on".

    All sessions of a process share kernels and the compiler, whatever their
    threads: each kernel is compiled once. The most eager session that needs a
    kernel decides when it is compiled.

    A model is called with its inputs, by position or by name. It returns an
    array, or a list of arrays if it has several outputs. model.run(names,
    feeds) returns a list of the requested outputs.
    """
    return Model(path_or_bytes, **options)

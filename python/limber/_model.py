"""limber.load and the Model class."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from limber import _limber
from limber._binding import Binding
from limber._futures import Runner, RunFuture

# ONNX Runtime's names of tensor types, by Limber's dtype names.
TYPES = {"float32": "float", "float64": "double"}


class ValueInfo(NamedTuple):
    """An input or an output of a model. `shape` is a list with an int for each
    fixed dim, a str for a symbol or an expression, and None for an unnamed
    size. It is None if the number of dims is not known before a run."""

    name: str
    dtype: str
    shape: list[Any] | None

    @property
    def type(self) -> str:
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
    def settled(self) -> bool:
        """Whether every requested kernel is compiled, or cannot be."""
        return self.kernels_pending == 0


def parse_dim(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if text.lstrip("-").isdigit() else text


def value_infos(rows: Iterable[tuple[str, str, list[str] | None]]
                ) -> list[ValueInfo]:
    return [ValueInfo(name, dtype, dims and [parse_dim(d) for d in dims])
            if dims is not None else ValueInfo(name, dtype, None)
            for name, dtype, dims in rows]


def source_of(path_or_bytes: Any) -> tuple[bytes, bool]:
    """Returns (bytes, True) for a model in memory, (path, False) for a file."""
    if isinstance(path_or_bytes, bytes):
        return path_or_bytes, True
    if isinstance(path_or_bytes, (bytearray, memoryview)):
        return bytes(path_or_bytes), True
    return os.fsencode(path_or_bytes), False


def preference(on: bool | None) -> int:
    """Returns the option of the C API: 1, -1, or 0 for None (unset)."""
    return 0 if on is None else 1 if on else -1


def skip_option(skip: str | None) -> int:
    """Returns the option of the C API: 1, -1, or 0 for None (unset)."""
    options = {None: 0, "on": 1, "off": -1}
    if skip not in options:
        raise ValueError(f"skip must be 'on', 'off' or None, not {skip!r}")
    return options[skip]


def warm(session: Any, shapes: Any, seconds: float = 60) -> None:
    """Plans the model for each of `shapes`, then compiles the kernels that the
    plans need and waits at most `seconds` for them. `shapes` is a list of dicts
    as in plan(), or the path of a file written by record_shapes().

        >>> model.warm([{"x": (1,)}, {"x": (64,)}])
    """
    if isinstance(shapes, (str, bytes, os.PathLike)):
        session._warm_file(shapes, seconds)
        return
    for feeds in shapes:
        session.plan(feeds)
    session.settle(seconds)


class Model(_limber.Session):
    """A loaded model. Any number of threads may run it at once.

        >>> with limber.load(model_bytes) as model:
        ...     model(np.ones(2, np.float32))
        array([-1., -1.], dtype=float32)
    """

    def __init__(self, path_or_bytes: Any, *, threads: int = 0,
                 optimize: bool = True, copy_weights: bool = False,
                 memory_limit: int = 0, loop_limit: int = 0,
                 directory: Any = None, deterministic: bool = False,
                 prefer_reusable_kernels: bool | None = None,
                 compile: str | None = None, compile_ops: str | None = None,
                 event: Callable[..., Any] | None = None,
                 load_warmup: bool = True, reference: bool = False,
                 skip: str | None = None):
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
        self._runner = Runner()

    warm = warm

    def run_async(self, output_names: Sequence[str] | None,
                  input_feed: Mapping[str, Any], *,
                  timeout: float | None = None,
                  cancel: _limber.Cancel | None = None) -> RunFuture:
        """Does the same as run on another thread. Returns a future, which
        asyncio can await; its cancel() ends the run before its next step. The
        timeout counts from when the run begins.

            >>> future = model.run_async(None, {"x": np.ones(2, np.float32)})
            >>> future.result()
            [array([-1., -1.], dtype=float32)]
            >>> async def negate(x):
            ...     [y] = await model.run_async(["y"], {"x": x})
            ...     return y
            >>> asyncio.run(negate(np.zeros(1, np.float32) + 3))
            array([-3.], dtype=float32)
        """
        return self._runner.start(
            lambda flag: self.run(output_names, input_feed, timeout=timeout,
                                  cancel=flag), cancel)

    def bind(self, inputs: Mapping[str, Any],
             outputs: Mapping[str, Any] | Iterable[str] | None = None
             ) -> Binding:
        """Returns a Binding: its run() uses these arrays, as they are then,
        and allocates nothing. `outputs` is a dict of names and arrays (or
        None: Limber allocates the result), a list of names, or None: all.

            >>> x, y = np.ones(2, np.float32), np.empty(2, np.float32)
            >>> model.bind({"x": x}, {"y": y}).run()
            (array([-1., -1.], dtype=float32),)
        """
        return Binding(self, inputs, outputs)

    def stats(self) -> Stats:
        """Returns statistics of the model and of its process.

            >>> model.stats().compile_us_on_callers
            0
        """
        return Stats(**self._counters())

    def info(self) -> dict[str, Any]:
        """Returns the metadata of the model file as a dict.

            >>> model.info()["opset"]
            17
        """
        return self._model_info()

    def close(self) -> None:
        """Frees the model once the calls that other threads are in have ended;
        later calls raise RuntimeError. Arrays that runs returned stay
        valid."""
        self._runner.stop()
        super().close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        def names(values: list[ValueInfo]) -> str:
            return ", ".join(value.name for value in values)
        return f"<limber.Model ({names(self.inputs)}) -> " \
               f"({names(self.outputs)})>"


def load(path_or_bytes: Any, **options: Any) -> Model:
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

        >>> model = limber.load(model_bytes)
        >>> model(np.zeros(2, np.float32) + 5)
        array([-5., -5.], dtype=float32)
        >>> model.run(["y"], {"x": [1.5]})
        [array([-1.5], dtype=float32)]
    """
    return Model(path_or_bytes, **options)

"""Graphs of skip_case.py with skipping on and off: a skip must never be seen.

In deterministic mode all sessions of a model give the same bits (a NaN is a NaN
whatever its payload):

  off        LIMBER_SKIP=off, the one that the others are compared with
  on         a random sequence of the feeds, so that a node is skipped in one run
             and executed in the next; again when all kernels are compiled
  poisoned   LIMBER_CHECK_MEMORY=poison: a value that is read after its memory
             was reused, or before it is written, is NaN
  separate   likewise, and no two values share memory
  compiling  kernels are compiled and replaced between the runs

In other mode the results agree with those of the reference (and so of another
implementation of every operator), and these with ONNX Runtime's, within the
tolerances of compare.py. Feeds with NaN, infinities and denormals are compared
by bits only, unless no kernel may round the output differently.

Every run may have inputs and outputs that are windows of larger buffers. No run
may write to its inputs, to the memory around its outputs, or to the outputs of
earlier runs.
"""

import functools
import os

import numpy as np
import onnxruntime

import capi
from case import reference_options
from compare import difference
from skip_case import SkipCase
from skip_graphs import FEEDS

os.environ.setdefault("LIMBER_CACHE_DIR", "off")  # kernels must be compiled
os.environ.setdefault("LIMBER_JIT", "process")
os.environ.setdefault("LIMBER_JIT_PATH", str(capi.ROOT / "build/limber-jit"))

SETTLED, COMPILING = 16, 16  # one of N seeds
REDZONE = 0xA5  # bytes of buffers around the elements

ENVIRONMENTS = {
    "off": {"LIMBER_SKIP": "off"},
    "on": {},
    "poisoned": {"LIMBER_CHECK_MEMORY": "poison"},
    "separate": {"LIMBER_CHECK_MEMORY": "poison,separate"},
    "compiling": {"LIMBER_COMPILE": "background",
                  "LIMBER_COMPILE_THRESHOLD": "1"},
    "fast": {},
    "fast poisoned": {"LIMBER_CHECK_MEMORY": "poison"},
    "reference": {"LIMBER_SKIP": "off"},
}


@functools.cache
def runtime(name):
    """The runtime of this process with that environment."""
    return capi.Runtime(**{"LIMBER_SKIP": "on", "LIMBER_COMPILE": "settle",
                           **ENVIRONMENTS[name]})


def kernels_are_compiled():
    return os.environ["LIMBER_JIT"] != "off"


class Wrong(Exception):
    """A difference, with what is needed to find it."""


# -- comparing ----------------------------------------------------------------


def bits_differ(got, want):
    """None, or where two arrays differ in their bits."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return (f"{got.dtype}{list(got.shape)}, not "
                f"{want.dtype}{list(want.shape)}")
    if got.tobytes() == want.tobytes():
        return None
    bits = np.dtype(f"u{got.itemsize}")
    same = np.ascontiguousarray(got).view(bits) == \
        np.ascontiguousarray(want).view(bits)
    if got.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(want)
    if np.all(same):
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return (f"{np.count_nonzero(~same)} of {same.size} values differ, first "
            f"{list(at)}: {got[at]!r}, not {want[at]!r}")


def compared_loosely(case, feed, value):
    return value.exact or case.styles[feed] != "special"


def loosely_differ(case, feed, got, want):
    for value, a, b in zip(case.outputs, got, want):
        if compared_loosely(case, feed, value):
            text = difference("graph", a, b)
            if text:
                return f"output {value.name}: {text}"
    return None


# -- memory of the caller ------------------------------------------------------


class Window:
    """An array inside a larger buffer, with gaps along any axis and its axes in
    any order; its strides are positive."""

    def __init__(self, rng, shape, dtype):
        order = rng.permutation(len(shape)) if rng.random() < 0.3 else \
            np.arange(len(shape))
        large = [shape[a] + int(rng.integers(0, 3)) for a in order]
        size = (int(np.prod(large)) + 2) * dtype.itemsize
        self.buffer = np.full(size, REDZONE, np.uint8)
        inner = self.buffer[dtype.itemsize:-dtype.itemsize].view(dtype)
        starts = [int(rng.integers(0, n - shape[a] + 1))
                  for n, a in zip(large, order)]
        window = inner.reshape(large)[(*(
            slice(s, s + shape[a]) for s, a in zip(starts, order)), ...)]
        self.array = window.transpose(np.argsort(order))

        self.begin()

    def begin(self):
        self.initial = self.buffer.copy()

    def restore(self):
        """The bytes that the buffer had in the beginning."""
        self.buffer[...] = self.initial

    def share(self, x, axis):
        """The first elements along an axis as a window of its own, with the
        elements of x."""
        part = self.array[(slice(None),) * axis + (slice(x.shape[axis]),)]
        part[...] = x
        self.begin()
        return part

    def outside(self):
        """The buffer without the elements."""
        kept, self.array[...] = self.array.copy(), 0
        rest, self.array[...] = self.buffer.copy(), kept
        return rest.tobytes()


class Dense(Window):
    """Dense elements with some bytes around them."""

    def __init__(self, rng, shape, dtype):
        size = int(np.prod(shape)) * dtype.itemsize
        self.buffer = np.full(size + 2 * 64, REDZONE, np.uint8)
        at = -self.buffer.ctypes.data % 64
        self.array = self.buffer[at:at + size].view(dtype).reshape(shape)
        self.begin()


def windowed(rng, x):
    """The same elements in other memory: a window, backwards, or repeated."""
    if x.size and rng.random() < 0.2:
        return np.ascontiguousarray(x[::-1])[::-1] if x.ndim else x
    window = Window(rng, x.shape, x.dtype)
    window.array[...] = x
    return window.array


# -- sessions -----------------------------------------------------------------


class Runner:
    """A session, the outputs of its last runs, and what they must stay."""

    def __init__(self, case, name, **options):
        self.case, self.name = case, name
        self.session = capi.Session(runtime(name), case.bytes,
                                    optimize=case.optimized, **options)
        self.held, self.count = [], 0

    def close(self):
        for outputs, _ in self.held:
            outputs.close()
        self.session.close()

    def fail(self, feed, text):
        raise Wrong(f"{self.name}, run {self.count}, feed {feed}: {text}")

    def plain(self, feed):
        """All outputs, from Limber's memory."""
        return self.checked(feed, self.case.feeds[feed],
                            range(len(self.case.outputs)), None)

    def hold(self, feed, outputs, copies):
        """Later runs must not change the outputs that Limber allocated."""
        for k, (before, were) in enumerate(self.held):
            for a, b in zip(before.arrays, were):
                if a.tobytes() != b.tobytes():
                    self.fail(feed, "changes an output of run "
                              f"{self.count - len(self.held) + k}")
        self.held.append((outputs, copies))
        if len(self.held) > 2:
            self.held.pop(0)[0].close()

    def same_bits(self, feeds, off, want):
        """Runs with inputs and outputs in any memory, where the session `off`
        gives the same bits. `want` are its outputs in memory of Limber."""
        rng = self.case.runs
        for feed in feeds:
            wanted, moved, buffers = self.draw_memory(rng, feed, want[feed])
            arrays = moved or self.case.feeds[feed]
            if moved or buffers:
                expected = off.checked(feed, arrays, wanted, buffers)
            else:
                expected = [want[feed][i] for i in wanted]
            got = self.checked(feed, arrays, wanted, buffers)
            for i, a, b in zip(wanted, got, expected):
                text = bits_differ(a, b)
                if text:
                    self.fail(feed, f"output {self.case.outputs[i].name}: "
                              f"{text} (skip=off)")

    def draw_memory(self, rng, feed, want):
        """The outputs that are requested; the inputs in other memory, or None;
        the caller's memory for the outputs, or None."""
        n, where = len(want), rng.random()
        wanted, moved, buffers = list(range(n)), None, None
        if rng.random() < 0.15:
            wanted = sorted(rng.permutation(n)[:rng.integers(1, n + 1)])
        if where < 0.25:
            moved = {name: windowed(rng, x) if rng.random() < 0.7 else x
                     for name, x in self.case.feeds[feed].items()}
        if 0.15 < where < 0.5:
            buffers = [rng.choice([Dense, Window])(
                rng, want[i].shape, want[i].dtype) for i in wanted]
        for cache in self.case.caches if buffers else ():
            moved = self.extended(feed, cache, wanted, buffers, moved)
        return wanted, moved, buffers

    def extended(self, feed, cache, wanted, buffers, moved):
        """The inputs, with that of a cache as the beginning of its output."""
        name, index, axis = cache
        feeds = moved or dict(self.case.feeds[feed])
        if index in wanted and self.case.runs.random() < 0.7:
            buffer = buffers[wanted.index(index)]
            feeds[name] = buffer.share(self.case.feeds[feed][name], axis)
        return feeds

    def checked(self, feed, feeds, wanted, buffers):
        """Copies of the outputs of a run that wrote nothing else."""
        self.count += 1
        before = {name: x.tobytes() for name, x in feeds.items()}
        for b in buffers or ():
            b.restore()
        outside = [b.outside() for b in buffers or ()]
        try:
            outputs = self.session.run(
                feeds, wanted, buffers and [b.array for b in buffers])
        except capi.Error as error:
            self.fail(feed, str(error))
        for name, x in feeds.items():
            if x.tobytes() != before[name]:
                self.fail(feed, f"writes to input {name}")
        for i, b, rest in zip(wanted, buffers or (), outside):
            if b.outside() != rest:
                self.fail(feed, f"writes around output "
                          f"{self.case.outputs[i].name}")
        copies = [a.copy() for a in
                  (outputs.arrays if outputs else [b.array for b in buffers])]
        if outputs:
            self.hold(feed, outputs, copies)
        return copies

    def close_to(self, feeds, want):
        for feed in feeds:
            text = loosely_differ(self.case, feed, self.plain(feed),
                                  want[feed])
            if text:
                self.fail(feed, f"{text} (the reference)")


def sequence(rng, count):
    """Feeds in random order, some of them alternating."""
    order = list(rng.permutation(FEEDS))
    while len(order) < count:
        a, b = rng.integers(0, FEEDS, 2)
        order += [a, b] * int(rng.integers(1, 4))
    return order[:count]


# -- one case -------------------------------------------------------------------


def drops_nan(case, outputs):
    """Whether NaN may have met ONNX Runtime's MaxPool, which ignores it where
    Limber and the standard return it."""
    return b"MaxPool" in case.bytes and any(
        o.dtype.kind == "f" and np.isnan(o).any() for o in outputs)


def onnx_runtime_differs(case, ref):
    """None, or how ONNX Runtime's results differ from the reference's. Where
    it rejects a graph or a feed, or a value is empty, it is not asked."""
    try:
        session = onnxruntime.InferenceSession(
            case.bytes, reference_options(), ["CPUExecutionProvider"])
    except Exception:
        return None
    for feed in range(FEEDS):
        if case.styles[feed] == "special" or case.is_apart(feed):
            continue
        try:
            want = session.run(None, case.feeds[feed])
        except Exception:
            continue
        if drops_nan(case, ref[feed]):
            continue
        counts["ONNX Runtime"] += 1
        text = loosely_differ(case, feed, ref[feed], want)
        if text:
            return f"reference, feed {feed}: {text} (ONNX Runtime)"
    return None


counts = {"cases": 0, "runs": 0, "ONNX Runtime": 0}


def compare_sessions(case, seed, opened):
    def runner(name, **options):
        opened.append(Runner(case, name, **options))
        return opened[-1]

    def all_of(session):
        return [session.plain(feed) for feed in range(FEEDS)]

    rng = case.runs
    off = runner("off", deterministic=True)
    want = all_of(off)
    on = runner("on", deterministic=True)
    on.same_bits(sequence(rng, 20), off, want)
    checked = runner(["poisoned", "separate"][seed % 2], deterministic=True)
    checked.same_bits(sequence(rng, 12), off, want)
    ref = all_of(runner("reference", reference=True))
    fast = runner("fast poisoned" if seed % 4 == 0 else "fast")
    fast.close_to(sequence(rng, 8), ref)
    if kernels_are_compiled() and seed % SETTLED == 0:
        for session in (on, checked, fast):
            session.session.settle()
        on.same_bits(sequence(rng, 16), off, want)
        checked.same_bits(sequence(rng, 12), off, want)
        fast.close_to(sequence(rng, 8), ref)
    if kernels_are_compiled() and seed % COMPILING == COMPILING // 2:
        runner("compiling", deterministic=True).same_bits(
            sequence(rng, 60), off, want)
    return onnx_runtime_differs(case, ref)


def check_skips(seed, steps=None):
    """(case, None or how its runs differ)"""
    case = SkipCase(seed, steps)
    opened = []
    try:
        text = compare_sessions(case, seed, opened)
    except (Wrong, capi.Error) as error:
        text = str(error)
    except Exception as error:  # a result that is no array
        text = repr(error)
    finally:
        counts["cases"] += 1
        counts["runs"] += sum(r.count for r in opened)
        for runner in opened:
            runner.close()
    return case, text


def shrink(seed):
    """(case, how it fails) with the fewest steps that fail."""
    case, text = check_skips(seed)
    for steps in range(1, case.steps if text else 0):
        smaller, found = check_skips(seed, steps)
        if found:
            return smaller, found
    return case, text

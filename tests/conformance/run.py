"""Runs the ONNX backend node tests of the installed `onnx` through Limber.

expected.txt lists the cases that are known to fail, in sections: how they fail,
then the reason. They run nevertheless: the run fails if an unlisted case fails,
or if a listed one passes, fails in another way or does not exist.

  [Unsupported "text"] reason   this error of Limber, whose message has the text
  [values] reason               it runs; only values are wrong
  [values 0.01] reason          values differ by at most 0.01 * (1 + |expected|)

Nothing else can be listed: a crash, a hang, an internal error, an output of
another dtype or shape and any other exception are always failures.

Every case runs without compiled kernels and, with --kernels on, again after
settling: both results count.

Prints `node: N passed, N failed, N skipped`; a case is skipped when it is
listed and did not pass. Cases run in worker processes, so that a crash or a
hang costs one case only.
"""

import argparse
import os
import re
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper
from workers import run_isolated

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected.txt"
SECONDS = 60  # a case that takes longer has failed


def load_cases(pattern):
    from onnx.backend.test.loader import load_model_tests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases overflow intentionally
        cases = load_model_tests(kind="node")
    return {c.name: c for c in cases if re.search(pattern, c.name)}


# What Limber may raise in a listed case.
ERRORS = ("InvalidModel", "InvalidArgument", "Unsupported")
SECTION = re.compile(r'\[(?:(\w+) "([^"]+)"|values(?: ([0-9.e-]+))?)\] (.+)')


class Section(NamedTuple):
    """How some cases fail, and why."""

    error: str  # the class, or None: values differ
    text: str  # in the error's message
    bound: float  # of the difference of values
    reason: str

    def fits(self, failure):
        """Does a case fail as expected? Its failure is what run_case raised, or
        how its process ended."""
        if self.error:
            return failure.startswith(self.error + ": ") and \
                self.text in failure
        found = DIFFERENCE.match(failure)
        return bool(found) and float(found[1]) <= self.bound


def read_section(line):
    found = SECTION.fullmatch(line)
    if not found or found[1] and found[1] not in ERRORS:
        sys.exit(f"expected.txt: not a section: {line}")
    error, text, bound, reason = found.groups()
    return Section(error, text, float(bound or "inf"), reason)


def read_expected(text):
    """name -> Section"""
    expected, section = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            section = read_section(line)
        elif line.strip() and not line.startswith("#"):
            expected[line.strip()] = section
    return expected


# -- one case, in a worker ----------------------------------------------------


def to_numpy(value):
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if value is None or isinstance(value, list):
        return value
    return np.asarray(value)


# How run_case reports the largest difference, which Section.bound limits.
DIFFERENCE = re.compile(r"values differ by (\S+) ")


def kind_of(error):
    """The name of Limber's exception, of which a session raises the subclass
    with ONNX Runtime's name."""
    import limber
    own = [c for c in type(error).__mro__ if getattr(limber, c.__name__, 0) is c]
    return (own or [type(error)])[0].__name__


def run_case(case):
    """Raises with a message if the case does not pass. If values differ, the
    case still runs on compiled kernels: the larger difference counts, and any
    other failure takes precedence."""
    import limber
    found = []
    try:
        session = limber.InferenceSession(case.model.SerializeToString())
        run_data_sets(session, case, found)
        if os.environ["LIMBER_JIT"] == "process":
            settle(session)
            run_data_sets(session, case, found)
    except limber.Error as error:
        raise AssertionError(f"{kind_of(error)}: {error}") from error
    if found:
        raise AssertionError(max(found)[1])


left_out = 0  # kernels, in this process so far


def settle(session):
    """All kernels that the session requests must be compiled at the end."""
    global left_out
    session.settle(SECONDS)
    stats = session.stats()
    before, left_out = left_out, stats.kernels_requested - stats.kernels
    check(left_out <= before, "%d kernels are left out", left_out - before)


def run_data_sets(session, case, found):
    """Appends (largest difference, what differs) of outputs to `found`."""
    names = [i.name for i in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        feeds = {n: to_numpy(v) for n, v in zip(names, inputs)}
        results = session.run(None, feeds)
        check(len(results) == len(outputs), "%d outputs, not %d",
              len(results), len(outputs))
        for got, want in zip(results, outputs):
            compare(got, to_numpy(want), case, found)


def check(condition, message, *values):
    if not condition:
        raise AssertionError(message % values)


def compare(got, want, case, found):
    if want is None or isinstance(want, list):
        check(type(got) is type(want), "a %s, not a %s", type(got).__name__,
              type(want).__name__)
        check(len(got) == len(want), "%d elements", len(got))
        for a, b in zip(got, want):
            compare(a, to_numpy(b), case, found)
        return
    check(got.dtype == want.dtype, "dtype %s, not %s", got.dtype, want.dtype)
    check(got.shape == want.shape, "shape %s, not %s", got.shape, want.shape)
    if want.dtype.kind in "OUS":
        check(np.array_equal(got, want), "strings differ")
        return
    if want.dtype.kind not in "biufc":  # bfloat16 and smaller
        got, want = got.astype(np.float32), want.astype(np.float32)
    close = np.isclose(got, want, case.rtol, case.atol, equal_nan=True)
    if not close.all():
        at = tuple(int(i) for i in np.argwhere(~close)[0])
        largest = largest_difference(got[~close], want[~close])
        found.append((largest, f"values differ by {largest:.3g} of 1 + |wanted|"
                      f" in {np.count_nonzero(~close)} of {close.size}, first "
                      f"{list(at)}: {got[at]}, not {want[at]}"))


def largest_difference(got, want):
    """The maximum of |got - want| / (1 + |want|); infinite if only one side is
    NaN."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(got - want) / (1 + np.abs(want))
    return float(np.nan_to_num(apart, nan=np.inf).max())


# -- all cases ----------------------------------------------------------------


def first_line(error):
    return error.strip().splitlines()[0][:160] if error.strip() else "?"


def section_of(error):
    """The header of a section for a failure that is not listed yet."""
    kind, _, text = first_line(error).partition(": ")
    if kind in ERRORS:
        return f'[{kind} "{text}"] ?'
    return "[values] ?" if DIFFERENCE.match(error) else f"[{first_line(error)}]"


def print_failing(errors, expected):
    """Prints an up-to-date expected.txt: sections that still fit are kept; a
    new section has `?` in place of its reason."""
    heads = header_lines(EXPECTED.read_text())
    sections = {}
    for name, error in sorted(errors.items()):
        if error is not None:
            section = expected.get(name)
            head = heads[section] if section and section.fits(error) \
                else section_of(error)
            sections.setdefault(head, []).append(name)
    for head, names in sorted(sections.items()):
        print("\n".join(["", head, *names]))


def header_lines(text):
    """Section -> its line"""
    return {read_section(line): line for line in text.splitlines()
            if line.startswith("[")}


def report(errors, expected, whole):
    """Prints unexpected results, then the summary line."""
    passed = skipped = failed = 0
    for name, error in sorted(errors.items()):
        if error is None and name in expected:
            failed += 1
            print(f"PASSES {name}, but expected.txt lists it")
        elif error is None:
            passed += 1
        elif name in expected and expected[name].fits(error):
            skipped += 1
        else:
            failed += 1
            other = " (not as expected.txt says)" if name in expected else ""
            print(f"FAILS  {name}: {first_line(error)}{other}")
    for name in sorted(set(expected) - set(errors)) if whole else []:
        failed += 1
        print(f"ABSENT {name}: expected.txt lists it, onnx has no such case")
    print(f"node: {passed} passed, {failed} failed, {skipped} skipped")
    return passed > 0 and failed == 0


def main():
    parser = argparse.ArgumentParser(prog="scripts/conformance",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="only cases whose name matches")
    parser.add_argument("--update", action="store_true",
                        help="print the expected.txt that holds now")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--kernels", choices=["on", "off"], default="on",
                        help="compile kernels by build/limber-jit; default on")
    parser.add_argument("--every", type=int, default=1, metavar="N",
                        help="only every Nth case")
    options = parser.parse_args()
    os.environ["LIMBER_JIT"] = "process" if options.kernels == "on" else "off"
    os.environ.setdefault("LIMBER_CACHE_DIR", "off")
    os.environ["LIMBER_COMPILE"] = "settle"  # compiles on settle
    os.environ.setdefault("LIMBER_JIT_PATH", str(ROOT / "build/limber-jit"))
    cases = load_cases(options.filter)
    cases = {name: cases[name] for name in sorted(cases)[::options.every]}
    errors = run_isolated(run_case, cases, options.jobs, SECONDS)
    expected = read_expected(EXPECTED.read_text())
    if options.update:
        print_failing(errors, expected)
        return True
    whole = not options.filter and options.every == 1
    return report(errors, expected, whole)


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

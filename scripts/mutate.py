"""Plants bugs and reports which suites find them: scripts/mutate [N] [SEED].

Draw K of a seed is one mutant of one source under src/ or jit/ (mutants.py):
the file is drawn by its lines of code, then the kind of change, then the
position. A draw that does not compile, or whose object code equals the
original, is discarded; draws continue until N mutants have run. A mutant is
built and run against the suites of SUITES in their order, until one of them
fails.

Everything runs in a copy of the tree, build/mutate/tree, made from the files
that git lists when the seed's first mutant is drawn; results are in
build/mutate/SEED/results.jsonl, a line for each draw, and the next call
continues them. --up-to SUITE stops each mutant after that suite; one that has
survived until then is `open`, and a later call with a later suite continues
after it. Remove build/mutate to start again after the sources have changed.

The unmutated copy runs each suite before the first mutant does: a suite that
fails there is an error, and three times its time is the limit after which a
mutant counts as killed by a timeout.

The pack. Its kernels are compiled at build time by code of jit/, src/spec and
src/partition, under a hash of these sources which is also in every key. The
copy hashes the unmutated sources (build/mutate/pristine), so the pack is built
once and a mutant of these directories runs with the pack of the original:
limber-jit and the library contain the bug, the pack's kernels do not. This is
valid for mutants killed by kernels of limber-jit and by unit tests. It is not
for a mutant that would change pack and library alike, such as another constant
in a hash: it may be killed because the two differ. And a survivor may be one
that only the pack would reveal. --rebuild-pack compiles the pack again for each
mutant of these directories (minutes); the report marks those that ran without
it with a `*`.

Warnings are errors in the copy, too: tests need not find bugs that a compiler
finds. Warnings about code that a mutation leaves unused (unused variables, a
case that falls through) are ignored. Swapped arguments have equal types as far
as -Wconversion distinguishes them. Memory orders are not mutated: no test on
x86 could detect it.
"""

import argparse
import collections
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mutants import apply, mutants_of

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "mutate"
TREE, PRISTINE = HOME / "tree", HOME / "pristine"
BUILD = TREE / "build"
FACTOR, FLOOR = 3, 60  # a suite's limit: 3 times the baseline, at least 60 s
MODULE_LIMIT = 300
JOBS = "2"
PYTEST = ["build/venv/bin/pytest", "-q", "-x", "-p", "no:cacheprovider"]
PACK_INPUTS = re.compile(r"jit/|src/spec/|src/partition/|src/device/cpu/elf\.c")
# Pragmas that disable warnings in a mutated source. They precede its first
# line, so that compiler flags, and with them the keys of ccache, do not change.
LEFT_OVER = " ".join(
    f'_Pragma("GCC diagnostic ignored \\"-W{w}\\"")' for w in (
        "unused-variable", "unused-but-set-variable", "unused-parameter",
        "unused-function", "unused-value", "unused-label",
        "implicit-fallthrough", "type-limits", "empty-body", "parentheses"))


class Suite(NamedTuple):
    name: str
    targets: tuple  # of ninja; (): all
    command: list


def python(name, *files):
    return Suite(name, (), [*PYTEST, *files])


# In the order in which they run: by cost, and by the bugs found for it. Before
# them run the tests of the mutated file's module (`module_suite`), for which
# only these are built. test_bench.py tests scripts/bench, and life and zero
# take long: they are left out, as are checks, docs, sanitizers, fuzz and soak.
SUITES = [
    Suite("unit", (), ["ctest", "--test-dir", "build", "-j", JOBS,
                       "--output-on-failure", "--timeout", "300"]),
    python("operators", "tests/operators/test_operators.py",
           "tests/operators/test_graphs.py", "--cases", "8"),
    Suite("conformance", (), ["build/venv/bin/python",
                              "tests/conformance/run.py", "--every", "2"]),
    python("quantized", "tests/operators/test_quantized.py",
           "tests/operators/test_contrib.py"),
    python("python", "tests/python", *(
        f"--ignore=tests/python/test_{n}.py"
        for n in ("bench", "life", "zero"))),
    python("models", "tests/models", "--shapes", "2"),
    python("badinput", "tests/badinput"),
]


ORDER = ["module", *(s.name for s in SUITES)]


def say(text):
    print(text, flush=True)


# -- the copy -----------------------------------------------------------------


def tracked():
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True,
        check=True, capture_output=True).stdout.split("\n")
    return [n for n in names if n and (ROOT / n).is_file()]


def copy_tree():
    """Both copies of the sources, and links into the original build/."""
    say("mutate: copying the sources to build/mutate")
    for to in (TREE, PRISTINE):
        for name in tracked():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    BUILD.mkdir(exist_ok=True)
    for name in ("venv", "models"):
        if not (BUILD / name).is_symlink():
            (BUILD / name).symlink_to(ROOT / "build" / name)
    for name in ("generator", "pack"):  # hash the unmutated sources
        path = TREE / "cmake" / f"{name}.cmake"
        path.write_text(re.sub(
            r"\$\{PROJECT_SOURCE_DIR\}/(jit|src)/", rf"{PRISTINE}/\1/",
            path.read_text()))


def configure():
    options = [f"-DLIMBER_PACK_DIR={HOME / 'pack'}", "-DLIMBER_PYTHON=ON",
               "-DLIMBER_BENCH=OFF"]
    if shutil.which("ccache"):
        options.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
    if not (HOME / "pack").exists() and (ROOT / "build/pack").exists():
        shutil.copytree(ROOT / "build/pack", HOME / "pack",
                        copy_function=os.link)
    run_checked(["cmake", "--preset", "release", *options])
    run_checked(["ninja", "-C", "build", "-j", JOBS])
    site = BUILD / "site" / "limber"
    shutil.copytree(TREE / "python" / "limber", site, dirs_exist_ok=True)
    for name, target in (("_limber.abi3.so", "python/_limber.abi3.so"),
                         ("limber-jit", "limber-jit")):
        if not (site / name).is_symlink():
            (site / name).symlink_to(BUILD / target)


def run_checked(command):
    done = run(command, 7200)
    if done.status != 0:
        sys.exit(f"mutate: {' '.join(command)} failed:\n{done.output[-4000:]}")


class Done(NamedTuple):
    status: int  # None: timeout
    output: str
    seconds: float


def environment():
    own = {"LIMBER_CACHE_DIR": "off", "PYTHONDONTWRITEBYTECODE": "1",
           "LIMBER_SETUP_DONE": str(TREE), "CCACHE_BASEDIR": str(TREE),
           "PYTHONPATH": str(BUILD / "site")}
    return {**os.environ, **own}


def run(command, limit):
    """Runs a command in the copy; its whole process group ends with it."""
    start = time.monotonic()
    log = HOME / "output.log"
    with open(log, "w") as out:
        process = subprocess.Popen(command, cwd=TREE, env=environment(),
                                   stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    return Done(status, log.read_text(errors="replace"),
                time.monotonic() - start)


# -- drawing ------------------------------------------------------------------


class Draw(NamedTuple):
    number: int
    file: str
    line: int
    mutant: object
    before: str


def code_lines(source):
    return sum(1 for line in source.split("\n")
               if line.strip() and not line.strip().startswith("//"))


def sources(root):
    """name -> text of the sources that are mutated"""
    names = [p.relative_to(root).as_posix() for directory in ("src", "jit")
             for p in (root / directory).rglob("*.c")]
    return {n: (root / n).read_text() for n in sorted(names)
            if not re.search(r"_test\.c$|/test[a-z_]*\.c$", n)}


def draw(seed, number, texts):
    """Equal sources and arguments give equal mutants."""
    dice = random.Random(f"{seed} {number}")
    names = list(texts)
    weights = [code_lines(text) for text in texts.values()]
    while True:
        name = dice.choices(names, weights)[0]
        kinds = collections.defaultdict(list)
        for mutant in mutants_of(texts[name]):
            kinds[mutant.operator].append(mutant)
        if kinds:
            mutant = dice.choice(kinds[dice.choice(sorted(kinds))])
            text = texts[name]
            return Draw(number, name, text.count("\n", 0, mutant.start) + 1,
                        mutant, text[mutant.start:mutant.end])


def short(text, most=40):
    text = " ".join(text.split()) or "nothing"
    return text if len(text) <= most else text[:most - 3] + "..."


def describe(d):
    return (f"{d.number:3} {d.file}:{d.line} {d.mutant.operator}: "
            f"{short(d.before)} -> {short(d.mutant.text)}")


# -- one mutant ---------------------------------------------------------------


def compiled():
    """(source, object) of all compilations of the copy, as ninja names them."""
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    return [(Path(c["file"]).relative_to(TREE),
             re.search(r" -o (\S+)", c["command"])[1]) for c in commands]


def objects(name):
    """The objects of a source."""
    return [output for source, output in compiled() if source == Path(name)]


def digest(outputs):
    """Of the objects without debug information."""
    total = hashlib.sha256()
    for output in outputs:
        stripped = HOME / "stripped.o"
        subprocess.run(["strip", "-d", "-o", stripped, BUILD / output],
                       check=True)
        total.update(stripped.read_bytes())
    return total.hexdigest()


def module_suite(name):
    """The tests in a source's directory, or in its parent."""
    tests = [(source.parent, re.search(r"CMakeFiles/test_(\w+)\.dir/", output))
             for source, output in compiled()
             if source.name.endswith("_test.c")]
    for directory in (Path(name).parent, Path(name).parent.parent):
        names = [found[1] for parent, found in tests
                 if parent == directory and found]
        if names:
            return Suite("module", tuple(f"test_{n}" for n in names),
                         ["ctest", "--test-dir", "build", "-j", JOBS,
                          "--output-on-failure", "--timeout", "300",
                          "-R", f"^({'|'.join(names)})$"])
    return Suite("module", ("limber",), ["true"])


def culprit(output):
    """The first test that failed."""
    for pattern in (r"\d+ - (\w+) \((?:Failed|Timeout|SEGFAULT|Subprocess|ILL)",
                    r"^(?:FAILED|ERROR) (\S+)", r"^FAILS  (\S+)"):
        found = re.search(pattern, output, re.M)
        if found:
            return found[1].split("/")[-1].rstrip(":")
    return "?"


class Lab:
    """The copy, its baseline, and the results of one seed."""

    def __init__(self, seed, rebuild_pack, last):
        self.rebuild_pack, self.last = rebuild_pack, last
        self.directory = HOME / str(seed)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.results = self.read(self.directory / "results.jsonl")
        if not (HOME / "ready").exists():
            copy_tree()
            configure()
            (HOME / "ready").touch()
        self.texts = sources(PRISTINE)
        path = HOME / "baseline.json"
        self.baseline = json.loads(path.read_text()) if path.exists() else {}
        self.restore()

    @staticmethod
    def read(path):
        """number -> the last result of the draw"""
        lines = path.read_text().splitlines() if path.exists() else []
        rows = map(json.loads, lines)
        return {row["number"]: row for row in rows}

    def restore(self):
        """Removes the mutation of an interrupted call."""
        for name, text in self.texts.items():
            if (TREE / name).read_text() != text:
                (TREE / name).write_text(text)

    def limit(self, suite, d):
        """Seconds that a suite may take. Before the first mutant runs it, it
        runs on the original."""
        if suite.name == "module":  # a part of `unit`
            return max(MODULE_LIMIT, FACTOR * self.baseline.get("unit", 0))
        if suite.name not in self.baseline:
            (TREE / d.file).write_text(self.texts[d.file])
            self.renew_pack(d)
            run_checked(["ninja", "-C", "build", "-j", JOBS])
            done = run(suite.command, 7200)
            if done.status != 0:
                sys.exit(f"mutate: {suite.name} fails without a mutant:\n"
                         f"{done.output[-4000:]}")
            say(f"mutate: baseline of {suite.name}: {done.seconds:.0f} s")
            self.baseline[suite.name] = done.seconds
            (HOME / "baseline.json").write_text(json.dumps(self.baseline))
            self.plant(d)
            self.renew_pack(d)
        return max(FLOOR, FACTOR * self.baseline[suite.name])

    def plant(self, d):
        text = apply(self.texts[d.file], d.mutant)
        (TREE / d.file).write_text(f"{LEFT_OVER} {text}")

    def record(self, d, status, suite="", test="", seconds=0.0):
        row = {"number": d.number, "file": d.file, "line": d.line,
               "operator": d.mutant.operator, "before": short(d.before, 90),
               "after": short(d.mutant.text, 90), "status": status,
               "suite": suite, "test": test, "seconds": round(seconds),
               "pack": "kept" if PACK_INPUTS.match(d.file)
                       and not self.rebuild_pack else ""}
        self.results[d.number] = row
        with open(self.directory / "results.jsonl", "a") as out:
            out.write(json.dumps(row) + "\n")
        say(f"{describe(d)}\n      {status} {suite} {test}".rstrip())

    def try_draw(self, d):
        start = time.monotonic()
        outputs = objects(d.file)
        if not outputs:
            return self.record(d, "not built")
        path, text = TREE / d.file, self.texts[d.file]
        run_checked(["ninja", "-C", "build", *outputs])
        original = digest(outputs)
        self.plant(d)
        try:
            built = run(["ninja", "-C", "build", *outputs], 600)
            if built.status != 0:
                return self.record(d, "no compile")
            if digest(outputs) == original:
                return self.record(d, "equivalent")
            status, suite, test = self.run_suites(d)
            self.record(d, status, suite, test, time.monotonic() - start)
        finally:
            path.write_text(text)
            self.renew_pack(d)

    def suites_for(self, d):
        """The suites that have not run yet, in order, up to the last one."""
        suites = [module_suite(d.file), *SUITES]
        names = [s.name for s in suites]
        before = self.results.get(d.number, {})
        first = names.index(before["suite"]) + 1 \
            if before.get("status") == "open" else 0
        return suites[first:names.index(self.last) + 1]

    def waits(self, number):
        """Is there a suite that a draw has not run yet?"""
        row = self.results.get(number)
        if not row or row["status"] != "open":
            return not row
        return ORDER.index(row["suite"]) < ORDER.index(self.last)

    def run_suites(self, d):
        """(killed, timeout, open or survived; suite; test)"""
        self.renew_pack(d)
        for suite in self.suites_for(d):
            limit = self.limit(suite, d)
            run_checked(["ninja", "-C", "build", "-j", JOBS, *suite.targets])
            done = run(suite.command, limit)
            if done.status is None:
                return "timeout", suite.name, ""
            if done.status != 0:
                shutil.copy(HOME / "output.log",
                            self.directory / f"{d.number}.log")
                return "killed", suite.name, culprit(done.output)
        if self.last == ORDER[-1]:
            return "survived", "", ""
        return "open", self.last, ""

    def renew_pack(self, d):
        """With --rebuild-pack, the next build compiles the pack again."""
        if self.rebuild_pack and PACK_INPUTS.match(d.file):
            for path in (HOME / "pack").glob("*/*.o"):
                path.unlink()


# -- command ------------------------------------------------------------------

RAN = ("killed", "timeout", "survived", "open")


def report(rows):
    rows = sorted(rows, key=lambda r: r["number"])
    for r in rows:
        if r["status"] in RAN:
            mark = "*" if r["pack"] else ""
            by = f"{r['suite']} {r['test']}".strip()
            by = f"after {by}" if r["status"] == "open" else by
            say(f"{r['number']:3} {r['status']:8} {by:36} {r['seconds']:5} s  "
                f"{r['file']}:{r['line']}{mark} {r['operator']}: "
                f"{r['before']} -> {r['after']}")
    count = collections.Counter(r["status"] for r in rows)
    ran = sum(count[s] for s in RAN)
    dead = count["killed"] + count["timeout"]
    by = collections.Counter(r["suite"] for r in rows
                             if r["status"] in ("killed", "timeout"))
    say("killed by: " + (", ".join(f"{name} {n}" for name, n
                                   in by.most_common()) or "none"))
    say(f"mutants: {ran} ran, {dead} killed ({count['timeout']} by timeout), "
        f"{count['survived']} survived, {count['open']} open; "
        f"discarded: {count['no compile']} that "
        f"do not compile, {count['equivalent']} of the same object code, "
        f"{count['not built']} in sources that are not built")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/mutate",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("n", nargs="?", type=int, default=20, metavar="N",
                        help="mutants that run; default 20")
    parser.add_argument("seed", nargs="?", type=int, default=1, metavar="SEED")
    parser.add_argument("--list", action="store_true",
                        help="print the first N draws and run nothing")
    parser.add_argument("--only", type=int, metavar="K", help="run draw K")
    parser.add_argument("--report", action="store_true",
                        help="print the results of the seed")
    parser.add_argument("--budget", type=float, default=float("inf"),
                        metavar="SECONDS", help="stop after the mutant that "
                        "passes it; the next call continues")
    parser.add_argument("--up-to", choices=ORDER, default=ORDER[-1],
                        help="the last suite that a mutant runs")
    parser.add_argument("--rebuild-pack", action="store_true",
                        help="recompile the pack for mutants of its sources")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends children
    if options.list:
        root = PRISTINE if (HOME / "ready").exists() else ROOT
        texts = sources(root)
        for number in range(options.n):
            say(describe(draw(options.seed, number, texts)))
        return
    if options.report:
        report(Lab.read(HOME / str(options.seed) / "results.jsonl").values())
        return
    start = time.monotonic()
    lab = Lab(options.seed, options.rebuild_pack, options.up_to)
    number = ran = 0
    while options.only is None and ran < options.n and \
            time.monotonic() - start < options.budget:
        if lab.waits(number):
            lab.try_draw(draw(options.seed, number, lab.texts))
        ran += lab.results[number]["status"] in RAN
        number += 1
    if options.only is not None:
        lab.results.pop(options.only, None)
        lab.try_draw(draw(options.seed, options.only, lab.texts))
    report(lab.results.values())


if __name__ == "__main__":
    main()

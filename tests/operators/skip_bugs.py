"""tests/operators/skip_bugs.py [NAME...] -- plants bugs that skipping can have,
one at a time, and reports in which case skip_runs.py finds each of them.

A bug is a replacement of source text. It is built in a copy of the tree,
build/planted, together with a library of its own. The unchanged copy must pass
the same cases.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build" / "planted"
# In a mutated source, before its first line: what a bug leaves unused.
UNUSED = '_Pragma("GCC diagnostic ignored \\"-Wunused-function\\"") '
RUNS = int(os.environ.get("LIMBER_SKIP_RUNS", 200_000))  # until it survives


class Bug(NamedTuple):
    kind: str
    file: str
    old: str  # occurs once
    new: str


BUGS = {
    "view-without-a-reader": Bug(
        "missing liveness: the buffer of a view ends with its first value",
        "src/plan/values.c",
        "if (--b->refs || b->storage", "b->refs--;\n  if (b->storage"),
    "view-counted-once-too-often": Bug(
        "missing liveness: a value that is read by two nodes ends at the first",
        "src/plan/values.c",
        "if (p->tally.uses[id] || !p->values.states[id])",
        "if (!p->values.states[id])"),
    "key-without-contents": Bug(
        "stale alias: contents that decide are not part of the key of a plan",
        "src/session/run.c",
        "lb_tensor_copy(t, &dense);\n    k->size",
        "memset(dense.data, 0, lb_tensor_bytes(t));\n    k->size"),
    "key-without-strides": Bug(
        "stale alias: strides are not part of the key of a plan",
        "src/session/run.c",
        "if (strided) put_strides(k, t->rank, t->strides);", ""),
    "plan-of-the-run-before": Bug(
        "view kept when the node runs again: the last plan serves other keys",
        "src/session/run.c",
        "if (c->last && c->last_size == k.size &&\n"
        "      !memcmp(c->last_key, k.data, k.size)) {",
        "if (c->last && c->last_size == k.size) {"),
    "load-knows-symbols": Bug(
        "rule different at load and plan: what is not known is true at load",
        "src/graph/skip_rules.c",
        "return sure ? IS_TRUE : IS_UNKNOWN;\n}\n\nstatic lb_skip "
        "lb_skip_transpose",
        "(void)sure;\n  return IS_TRUE;\n}\n\nstatic lb_skip "
        "lb_skip_transpose"),
    "plan-is-wider": Bug(
        "rule different at load and plan: neighbours may be swapped",
        "src/graph/skip_rules.c",
        "if (axis > last) {", "if (axis + 2 > last) {"),
    "view-of-a-view": Bug(
        "wrong view: it begins where its input's buffer does",
        "src/plan/skip.c",
        ".offset = from->offset + (known ? 0 : offset[i] * size),",
        ".offset = known ? 0 : offset[i] * size,"),
    "result-out-of-order": Bug(
        "wrong view: a producer writes the caller's memory in another order",
        "src/plan/skip.c",
        "return lb_tensor_is_dense(&at) && lb_tensor_count(&at) == count;",
        "return lb_tensor_count(&at) == count;"),
    "copy-ends-its-source": Bug(
        "missing liveness: a copied value takes other views of it along",
        "src/plan/skip.c",
        "lb_planner_leave(p, s->buffer);\n  return lb_planner_copy(p, from, to, "
        "lb_planner_moved_by(p, x), why);",
        "lb_planner_leave(p, s->buffer);\n  if (p->values.bufs[s->buffer].refs)"
        "\n    lb_planner_leave(p, s->buffer);\n  return lb_planner_copy(p, "
        "from, to, lb_planner_moved_by(p, x), why);"),
    "negative-index": Bug(
        "wrong view: a negative index counts from the start",
        "src/graph/skip_rules.c",
        "if (first < 0) first += dim.k;",
        "if (first < 0) first = -first - 1;"),
}


def sh(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True,
                          text=True, **options)
    if done.returncode:
        sys.exit(f"skip_bugs: {' '.join(map(str, command))}\n{done.stdout}"
                 f"{done.stderr}")
    return done.stdout


def refresh():
    """Copies the files that git lists, and configures the copy."""
    TREE.mkdir(parents=True, exist_ok=True)
    files = sh("git", "ls-files", "-co", "--exclude-standard", "--", "src",
               "jit", "include", "cmake", "CMakeLists.txt",
               "CMakePresets.json", "tools", "tests", "python", "scripts",
               cwd=ROOT)
    for name in files.split():
        if (ROOT / name).is_file():
            write(TREE / name, (ROOT / name).read_bytes())
    sh("cmake", "--preset", "release", f"-DLIMBER_PACK_DIR={ROOT}/build/pack",
       "-DLIMBER_BENCH=OFF", "-DLIMBER_PYTHON=OFF",
       "-DCMAKE_C_COMPILER_LAUNCHER=ccache", cwd=TREE)


def write(path, data):
    """Leaves a file alone that has these bytes."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def build():
    sh("ninja", "-C", "build", "limber", "limber-jit", cwd=TREE)


def find(runs):
    """(the first line of skip_runs.py, its last one, seconds)"""
    start = time.monotonic()
    done = subprocess.Popen(
        [sys.executable, ROOT / "tests/operators/skip_runs.py", str(runs)],
        stdout=subprocess.PIPE, text=True, env={
            **os.environ, "LIMBER_LIBRARY": str(TREE / "build/liblimber.so"),
            "LIMBER_JIT_PATH": str(TREE / "build/limber-jit")})
    first = done.stdout.readline().strip()
    done.terminate()
    done.wait()
    return first, time.monotonic() - start


def main():
    names = sys.argv[1:] or list(BUGS)
    refresh()
    build()
    line, _ = find(20_000)
    if not line.startswith("skips: 0 of"):
        sys.exit(f"skip_bugs: the tree without a bug fails: {line}")
    missed = 0
    for name in names:
        bug = BUGS[name]
        text = (ROOT / bug.file).read_text()
        if text.count(bug.old) != 1:
            sys.exit(f"skip_bugs: {name}: {bug.file} has changed: write the "
                     "bug anew")
        write(TREE / bug.file,
              (UNUSED + text.replace(bug.old, bug.new)).encode())
        try:
            build()
            line, seconds = find(RUNS)
        finally:
            write(TREE / bug.file, text.encode())
        seed = re.search(r"skip (\d+): (.*)", line)
        missed += not seed
        found = f"case {seed[1]}, {seconds:.0f} s: {seed[2]}" if seed else \
            f"NOT FOUND: {line}"
        print(f"{name}: {bug.kind}\n  {found}", flush=True)
    print(f"skip_bugs: {len(names) - missed} of {len(names)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

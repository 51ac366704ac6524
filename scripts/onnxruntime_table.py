"""Writes the tables of docs/onnxruntime.md: every public name of the installed
onnxruntime, with what limber.compat does. The texts are those of the package:
docstrings, and the tables of limber/compat/_options.py.

Usage: onnxruntime_table.py [--check]; --check fails if the page would change.
Either fails if a name is missing.
"""

import enum
import inspect
import sys
from pathlib import Path

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as theirs_state

from limber import compat
from limber.compat import _backend, _errors, _install, _options, _unsupported

PAGE = Path(__file__).resolve().parents[1] / "docs" / "onnxruntime.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"

# Python code of ONNX Runtime that install() leaves to the installed package.
SUBMODULES = ["quantization", "tools", "transformers", "datasets"]
KINDS = {"No effect": "no effect", "Warns": "warning",
         "Not supported": "error"}
DETAILED = ["SessionOptions", "RunOptions", "InferenceSession", "IOBinding",
            "OrtValue"]


class Missing(Exception):
    """Names that limber.compat does not have."""


def public(thing):
    return {n for n in dir(thing) if not n.startswith("_")}


def text_of(thing):
    """The first paragraph of a docstring."""
    doc = inspect.getdoc(thing) or ""
    return " ".join(doc.split("\n\n")[0].split())


def kind_of(text):
    return next((kind for begin, kind in KINDS.items()
                 if text.startswith(begin)), "yes")


def table(title, rows):
    lines = [f"### {title}", "", "| name | supported | what Limber does |",
             "|---|---|---|"]
    for name, text in rows:
        if not text:
            raise Missing(f"{title}: {name} has no docstring")
        cell = text.replace("|", "\\|")
        lines.append(f"| `{name}` | {kind_of(text)} | {cell} |")
    return "\n".join(lines) + "\n"


def need(where, names, ours):
    absent = sorted(n for n in names if not hasattr(ours, n))
    if absent:
        raise Missing(f"{where} does not have {', '.join(absent)}")


def module_rows(names):
    rows = []
    for name in sorted(names, key=str.lower):
        ours = getattr(compat, name)
        text = text_of(ours) if not isinstance(ours, enum.Enum) else \
            f"A member of {type(ours).__name__}."
        rows.append((name, text))
    return rows


def attribute_rows(name):
    """Rows of a class with options, which are data, or with methods only."""
    ours = getattr(compat, name)
    theirs = getattr(onnxruntime, name)
    options = getattr(ours, "table", {})
    names = public(theirs)
    absent = [n for n in names if n not in options and not hasattr(ours, n)]
    if absent:
        raise Missing(f"{name} does not have {', '.join(sorted(absent))}")
    return [(n, options[n].effect if n in options
             else text_of(getattr(ours, n))) for n in sorted(names)]


def check_members(name):
    """Other classes and enumerations have all the members."""
    ours, theirs = getattr(compat, name), getattr(onnxruntime, name)
    if isinstance(ours, _unsupported.Unsupported):
        return
    members = getattr(theirs, "__members__", None)
    if members is not None:
        ours_members = {n: int(v) for n, v in ours.__members__.items()}
        if ours_members != {n: int(v) for n, v in members.items()}:
            raise Missing(f"{name} has other members")
        return
    made = compat.OrtArenaCfg() if name == "OrtArenaCfg" else \
        compat.OrtEpDevice() if name == "OrtEpDevice" else \
        compat._devices.cpu_memory() if name == "OrtMemoryInfo" else ours
    need(name, public(theirs), made)


def exceptions():
    return {n for n in public(theirs_state)
            if inspect.isclass(getattr(theirs_state, n))
            and issubclass(getattr(theirs_state, n), BaseException)}


def state_names():
    return public(theirs_state) - exceptions()


def top_names():
    return {n for n in public(onnxruntime)
            if not inspect.ismodule(getattr(onnxruntime, n))}


def tables():
    plain = {n for n in top_names() if inspect.isclass(
        getattr(onnxruntime, n)) or callable(getattr(onnxruntime, n))}
    need("limber.compat", plain | state_names(), compat)
    need("limber.compat._errors", exceptions(), _errors)
    installed = {m.__name__: m for m in _install.modules()}
    need("the installed module", top_names(), installed["onnxruntime"])
    need("the installed state", state_names() | exceptions(),
         installed[_install.STATE])
    for name in plain:
        if inspect.isclass(getattr(onnxruntime, name)):
            check_members(name) if name not in DETAILED else None
    parts = [table("`onnxruntime`", module_rows(plain))]
    parts += [table(f"`{name}`", attribute_rows(name)) for name in DETAILED]
    parts.append(table("Configuration entries of `SessionOptions`",
                       sorted(_options.SESSION_ENTRIES.items())))
    parts.append(table("Configuration entries of `RunOptions`",
                       sorted(_options.RUN_ENTRIES.items())))
    parts.append(table(
        "Other names of `onnxruntime.capi.onnxruntime_pybind11_state`",
        module_rows(state_names() - plain)))
    parts.append(table(
        "Exceptions of `onnxruntime.capi.onnxruntime_pybind11_state`",
        [(n, text_of(getattr(_errors, n))) for n in sorted(exceptions())]))
    parts.append(table("Modules", [
        *((f"onnxruntime.backend.{n}", text_of(getattr(_backend, n)))
          for n in _backend.__all__),
        *((f"onnxruntime.{n}", "Loaded from an installed onnxruntime, if there "
           "is one; sessions that it makes are Limber's.")
          for n in SUBMODULES)]))
    return "\n".join(parts)


def page(text):
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def main(check):
    if onnxruntime.__version__ != compat.__version__:
        raise Missing(f"onnxruntime {onnxruntime.__version__} is installed, "
                      f"limber.compat is {compat.__version__}")
    text = PAGE.read_text()
    new = page(text)
    if check and new != text:
        print("onnxruntime-table: docs/onnxruntime.md is stale; run "
              "scripts/onnxruntime-table")
        return 1
    PAGE.write_text(new)
    print(f"onnxruntime-table: {new.count(chr(10) + '| `')} names")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main("--check" in sys.argv[1:]))
    except Missing as missing:
        sys.exit(f"onnxruntime-table: {missing}")

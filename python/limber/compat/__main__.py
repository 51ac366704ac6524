"""Runs a program whose `import onnxruntime` imports Limber:

    python -m limber.compat program.py [ARGUMENT...]
    python -m limber.compat -m module [ARGUMENT...]
    python -m limber.compat -c 'code' [ARGUMENT...]
"""

from __future__ import annotations

import os
import runpy
import sys

from limber.compat import install


def main(arguments: list[str]) -> int:
    kind = arguments[0] if arguments else "-h"
    if kind in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    if kind in ("-m", "-c") and len(arguments) < 2:
        print(f"limber.compat: {kind} needs an argument; see --help",
              file=sys.stderr)
        return 2
    if kind.startswith("-") and kind not in ("-m", "-c"):
        print(f"limber.compat: there is no option {kind}; see --help",
              file=sys.stderr)
        return 2
    if kind not in ("-m", "-c") and not os.path.exists(kind):
        print(f"limber.compat: {kind}: no such file", file=sys.stderr)
        return 2
    install()
    if kind == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec"),
             {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        runpy.run_path(kind, run_name="__main__")
    return 0


if __name__ == "__main__":
    if sys.path and sys.path[0] == os.getcwd():
        del sys.path[0]  # added by `python -m`
    sys.exit(main(sys.argv[1:]))

"""Builds the Python package for a build directory: its library with the Python
sources of the same commit.

`pip install .` would compile the library again, for one commit only. This
module compiles only the extension, against DIR/liblimber.so, so that several
builds can be measured in one run.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path


def source_of(build):
    """The source tree that a build directory belongs to."""
    cache = (build / "CMakeCache.txt").read_text()
    return Path(re.search(r"CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", cache)[1])


def prepare(build):
    """Builds the package; returns the directory for PYTHONPATH."""
    build = Path(build).resolve()
    if not (build / "liblimber.so").exists():
        raise SystemExit(f"bench: {build} has no liblimber.so; run "
                         "scripts/build")
    source = source_of(build)
    directory = build / "bench" / "package"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source / "python" / "limber", directory / "limber",
                    ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    extension = sorted(map(str, (source / "python/extension").glob("*.c")))
    subprocess.run(
        [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-std=gnu11",
         "-D_GNU_SOURCE", "-o", str(directory / "limber/_limber.abi3.so"),
         *extension, f"-I{source / 'include'}", f"-I{source / 'src'}",
         f"-I{sysconfig.get_paths()['include']}", f"-L{build}", "-llimber",
         f"-Wl,-rpath,{build}"], check=True)
    return directory

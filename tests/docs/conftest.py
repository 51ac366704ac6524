"""A copy of the tree with the patches of the pages in docs/ applied."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["kernels.md", "operators.md"]


def call(*command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def patches(page):
    """The page's diffs, in order."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```diff\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """The copy, built once for all pages, whose patches do not overlap."""
    tree = tmp_path_factory.mktemp("tree")
    names = call("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    for name in names.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    for page in PAGES:
        assert patches(page)
        for patch in patches(page):
            call("patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch",
                 cwd=tree, input=patch)
    call("cmake", "-S", tree, "-B", tree / "out", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Debug", "-DLIMBER_TESTS=OFF", "-DSKBUILD=ON",
         "-DLIMBER_COMPILE_KERNELS_FOR_ARCH=NONE",
         f"-DPython_EXECUTABLE={sys.executable}")
    call("ninja", "-C", tree / "out", "_limber", "limber-jit")
    package = tree / "package" / "limber"
    shutil.copytree(tree / "python" / "limber", package)
    shutil.copy(tree / "out" / "python" / "_limber.abi3.so", package)
    return tree

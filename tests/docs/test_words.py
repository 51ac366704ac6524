"""scripts/check-words is red when a retired word or a second type of one name
is planted, and green without; scripts/messages --check notices a stale page."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(root):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/check-words"), "--root", str(root)],
        capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "src/plan").mkdir(parents=True)
    (tmp_path / "src/plan/plan.c").write_text(
        "// Plans the steps.\ntypedef struct lb_step {\n  int n;\n} lb_step;\n")
    return tmp_path


def test_a_clean_tree_is_green(tree):
    done = check(tree)
    assert done.returncode == 0, done.stdout
    assert "0 wrong" in done.stdout


@pytest.mark.parametrize("text, word", [
    ("// The kernel is on the shelf.\n", "shelf"),
    ("int lb_shelf_count;\n", "shelf"),
    ('const char *text = "Products of bytes";\n', "Products of bytes"),
    ("static void turn_four(void);\n", "turn"),
])
def test_a_retired_word_is_red(tree, text, word):
    (tree / "src/plan/new.c").write_text(text)
    done = check(tree)
    assert done.returncode == 1
    assert f"src/plan/new.c:1: '{word}'" in done.stdout


def test_a_retired_word_in_a_document_is_red(tree):
    (tree / "README.md").write_text("A rehearsal comes first.\n")
    assert check(tree).returncode == 1


@pytest.mark.parametrize("text", [
    "typedef struct lb_step {\n  long m;\n} lb_step;\n",
    "typedef enum {\n  ONE\n} lb_step;\n",
    "typedef int lb_step(void *user);\n",
])
def test_a_type_that_is_defined_twice_is_red(tree, text):
    (tree / "src/session").mkdir()
    (tree / "src/session/run.c").write_text(text)
    done = check(tree)
    assert done.returncode == 1
    assert "type 'lb_step' is also defined in" in done.stdout


def test_a_test_may_define_its_own_types(tree):
    (tree / "src/plan/plan_test.c").write_text(
        "typedef struct lb_step {\n  int m;\n} lb_step;\n")
    assert check(tree).returncode == 0


def test_the_page_of_messages_has_errors_events_and_reasons():
    page = (ROOT / "docs/messages.md").read_text()
    for text in ("`kernel_published`", "`threshold_reached`", "## src/onnx",
                 "out of memory"):
        assert text in page

"""Failures that expected.txt cannot excuse."""

import pytest
import run

TEXT = """# a comment
[Unsupported "Foo (opset"] Foo is not done yet
test_foo

[values 0.01] rounds otherwise
test_half

[values] random
test_random
"""
EXPECTED = run.read_expected(TEXT)
FOO = "Unsupported: 1 operator is not supported: Foo (opset 1) x1"


def differs(by):
    return f"values differ by {by} of 1 + |wanted| in 1 of 2, first [0]: 1, not 2"


@pytest.mark.parametrize("name, failure, fits", [
    ("test_foo", FOO, True),
    ("test_foo", FOO.replace("Foo", "Bar"), False),
    ("test_foo", FOO.replace("Unsupported", "InternalError"), False),
    ("test_foo", differs(0.001), False),
    ("test_half", differs(0.01), True),
    ("test_half", differs(0.02), False),
    ("test_half", differs("inf"), False),
    ("test_half", FOO, False),
    ("test_random", differs(5), True),
    ("test_random", "dtype float32, not float64", False),
    ("test_random", "shape (1,), not (2,)", False),
    *((name, failure, False) for name in EXPECTED
      for failure in ("crashed: SIGSEGV", "no answer in 60 s",
                      "InternalError: a bug", "1 kernels are left out")),
])
def test_a_listed_case_may_only_fail_as_listed(name, failure, fits, capsys):
    assert run.report({name: failure, "test_other": None},
                      EXPECTED, False) == fits
    closing = "0 failed, 1 skipped" if fits else "1 failed, 0 skipped"
    assert f"node: 1 passed, {closing}" in capsys.readouterr().out


def test_a_listed_case_must_not_pass_and_must_exist():
    assert not run.report({"test_foo": None, "test_other": None}, EXPECTED,
                          False)
    assert not run.report({"test_foo": FOO, "test_other": None}, EXPECTED,
                          True)


@pytest.mark.parametrize("line", [
    '[InternalError "text"] why', '[crashed "SIGSEGV"] why', "[Unsupported] why",
    "[values]", "[anything] why"])
def test_other_sections_are_rejected(line):
    with pytest.raises(SystemExit):
        run.read_expected(line)

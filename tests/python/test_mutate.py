"""scripts/mutants.py: the mutations of C sources that scripts/mutate plants."""

import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import mutants  # noqa: E402
import mutate  # noqa: E402


def changes(body, name="f"):
    """operator -> {(text, replacement)} in a function with that body"""
    source = f"static int {name}(int a, int b) {{\n{body}\n}}\n"
    found = {}
    for m in mutants.mutants_of(source):
        old = source[m.start:m.end]
        found.setdefault(m.operator, set()).add((old, m.text))
        assert mutants.apply(source, m).count("\n") == source.count("\n")
    return found


def test_tokens_are_those_of_c():
    source = 'x->y <<= 0x1Fu; // a < b\n/* c */ s = "a\\"<b" \'\\\'\'; 1.5e-3f'
    assert [t.text for t in mutants.tokenize(source)] == [
        "x", "->", "y", "<<=", "0x1Fu", ";", "s", "=", '"a\\"<b"', "'\\''",
        ";", "1.5e-3f"]


def test_preprocessor_lines_are_not_tokens():
    source = "#define A(x) \\\n  (x < 1)\nint y;\n  # if X < 2\nint z;"
    assert [t.text for t in mutants.tokenize(source)] == [
        "int", "y", ";", "int", "z", ";"]


def test_relations_move_by_their_boundary():
    assert changes("return a < b;")["relation"] == {("<", "<=")}
    assert changes("return a == b;")["relation"] == {("==", "!=")}


def test_only_binary_operators_are_replaced():
    found = changes("int *p = &a; return *p + -b;")
    assert found["arithmetic"] == {("+", "-")}


def test_logic_conditions_and_constants():
    found = changes("while (a && b) a -= 10u;")
    assert found["logic"] == {("&&", "||")}
    assert found["condition"] == {("a && b", "!(a && b)")}
    assert found["constant"] == {("10u", "11u"), ("10u", "9u")}


def test_statements_are_deleted_but_no_declaration():
    found = changes("int c = a; g(c); c = b;\nfor (;;) break;\nreturn c;")
    assert found["statement"] == {("g(c);", "{}"), ("c = b;", "{}"),
                                  ("break;", "{}")}


def test_a_deleted_statement_keeps_its_lines():
    assert changes("g(a,\n  b);")["statement"] == {("g(a,\n  b);", "{}")}


def test_early_exits_are_removed():
    found = changes("if (a) return 1;\nif (b) goto done;\nreturn 2;")
    assert found["early exit"] == {("return 1;", "{}"), ("goto done;", "{}")}


def test_neighbouring_arguments_are_swapped():
    found = changes("return g(a, h(b, 1), a);")
    assert found["arguments"] == {
        ("a, h(b, 1)", "h(b, 1), a"), ("b, 1", "1, b"),
        ("h(b, 1), a", "a, h(b, 1)")}
    assert "arguments" not in changes("return g(a, a);")


def test_parts_of_keys_are_removed():
    found = changes("add(&h, a); return a == b && same(a[1], b[1]);",
                    "key_hash")
    assert found["key"] == {("add(&h, a);", "{}"),
                            ("&& same(a[1], b[1])", "")}


def test_asserts_messages_and_tables_are_not_mutated():
    assert not changes('assert(a < 1);\nlb_log("x %d", a + 1);')
    assert not mutants.mutants_of("static const int t[] = {1, 2, 3};\n"
                                  "struct s { int x[4]; };\n"
                                  "enum { A = 1 };\n")


def test_a_draw_depends_on_seed_and_sources_only():
    texts = mutate.sources(ROOT)
    assert texts and not [n for n in texts if n.endswith("_test.c")]
    some = {n: texts[n] for n in list(texts)[::40]}
    first = [mutate.draw(7, k, some) for k in range(8)]
    assert first == [mutate.draw(7, k, some) for k in range(8)]
    assert len(set(first)) > 4
    assert first != [mutate.draw(8, k, some) for k in range(8)]
    for d in first:
        assert mutants.apply(some[d.file], d.mutant) != some[d.file]


def test_a_report_counts_what_ran(capsys):
    row = {"file": "src/a.c", "line": 1, "operator": "logic", "before": "&&",
           "after": "||", "suite": "", "test": "", "seconds": 1, "pack": ""}
    mutate.report([{**row, "number": n, "status": status} for n, status in
                   enumerate(("killed", "timeout", "survived", "open",
                              "no compile", "equivalent"))])
    closing = capsys.readouterr().out.splitlines()[-1]
    assert "4 ran, 2 killed (1 by timeout), 1 survived, 1 open" in closing

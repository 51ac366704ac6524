"""The mutants of a C source: a tokenizer, and the possible mutations.

A mutant replaces one range of the text and keeps the number of lines, so that
the line numbers in error messages, and with them unrelated object code, do not
change. Mutants are drawn inside function bodies. Comments, strings,
preprocessor lines, asserts and arguments of error and log calls are not
mutated.
"""

import re
from typing import NamedTuple

TOKEN = re.compile(r"""
    (?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
  | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>[uUL]?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9a-zA-Z_.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<mark>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=
      |\#\#|[^\s])
""", re.X | re.S)
DIRECTIVE = re.compile(r"[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.S)
INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)([uUlL]*)")

# Calls whose arguments are messages, or checks of internal errors.
QUIET = re.compile(r"assert|static_assert|_Static_assert|lb_error(_at)?|lb_fail"
                   r"|lb_status_\w+|lb_log\w*|lb_warn\w*|lb_event_emit\w*|f?printf"
                   r"|fputs|perror|UINT64_C|INT64_C|sizeof|_Alignof|offsetof")
# Functions that compute or compare keys.
KEYED = re.compile(r"hash|key|equal|same|compare|cmp|match|digest")
NOT_CALLS = {"if", "while", "for", "switch", "return", "sizeof", "defined"}
RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=",
              "-=": "+=", "*=": "+=", "++": "--", "--": "++", "<<": ">>",
              ">>": "<<", "&": "|", "|": "&"}
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=",
               ">>="}
OPENS, CLOSES = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class Mutant(NamedTuple):
    operator: str
    start: int
    end: int
    text: str  # in place of source[start:end]


def tokenize(source):
    """Tokens without comments and preprocessor lines."""
    tokens, at = [], 0
    fresh = True  # at the start of a line
    while at < len(source):
        directive = fresh and DIRECTIVE.match(source, at)
        if directive:
            at = directive.end()
            continue
        if source[at].isspace():
            fresh = fresh or source[at] == "\n"
            at += 1
            continue
        found = TOKEN.match(source, at)
        fresh = False
        at = found.end()
        if found.lastgroup != "comment":
            tokens.append(Token(found.lastgroup, found[0], found.start(), at))
    return tokens


def apply(source, mutant):
    """The mutated source, with the same number of lines."""
    gone = source[mutant.start:mutant.end]
    lines = "\n" * (gone.count("\n") - mutant.text.count("\n"))
    return source[:mutant.start] + mutant.text + lines + source[mutant.end:]


class File:
    """The tokens of a source with their brackets and functions."""

    def __init__(self, source):
        self.source = source
        self.tokens = tokenize(source)
        self.pair = {}  # index of a bracket -> index of its partner
        self.function = [None] * len(self.tokens)  # enclosing function
        self.quiet = [False] * len(self.tokens)
        self.match_brackets()
        self.find_functions()
        self.find_quiet()

    def match_brackets(self):
        stack = []
        for i, t in enumerate(self.tokens):
            if t.text in OPENS and t.kind == "mark":
                stack.append(i)
            elif t.text in CLOSES and t.kind == "mark" and stack:
                self.pair[i] = stack.pop()
                self.pair[self.pair[i]] = i

    def find_functions(self):
        i = 0
        while i < len(self.tokens):
            if self.tokens[i].text != "{" or i not in self.pair:
                i += 1
                continue
            end = self.pair[i]
            if i and self.tokens[i - 1].text == ")":
                opening = self.pair.get(i - 1, 1)
                name = self.tokens[opening - 1].text
                self.function[i:end] = [name] * (end - i)
            i = end + 1

    def find_quiet(self):
        for i, t in enumerate(self.tokens):
            if t.kind == "name" and QUIET.fullmatch(t.text) and \
                    self.text(i + 1) == "(" and i + 1 in self.pair:
                end = self.pair[i + 1]
                self.quiet[i + 1:end] = [True] * (end - i - 1)

    def text(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def spaced(self, i):
        """Has the token blanks on both sides, as binary operators have?"""
        t = self.tokens[i]
        return self.source[t.start - 1:t.start].isspace() and \
            self.source[t.end:t.end + 1].isspace()

    def span(self, first, last):
        """The text of tokens first..last"""
        return self.source[self.tokens[first].start:self.tokens[last].end]

    def replaced(self, operator, first, last, text):
        return Mutant(operator, self.tokens[first].start,
                      self.tokens[last].end, text)

    def operand_end(self, i):
        """The last token of the operand of && that begins at i."""
        while i + 1 < len(self.tokens):
            if self.text(i) in OPENS:
                i = self.pair[i]
            following = self.text(i + 1)
            if following in ("&&", "||", ";", ",", "?", ":") or \
                    following in CLOSES:
                return i
            i += 1
        return i

    def statement_end(self, i):
        """The index of the `;` that ends a statement, or None."""
        while i < len(self.tokens):
            text = self.text(i)
            if text == ";":
                return i
            if text == "{" or text in CLOSES:
                return None
            i = self.pair[i] + 1 if text in OPENS else i + 1
        return None

    def begins_statement(self, i):
        before = self.text(i - 1)
        if before in (";", "{", "}", "else"):
            return True
        return before == ")" and \
            self.text(self.pair.get(i - 1, 1) - 1) in ("if", "for", "while")

    # -- mutations ------------------------------------------------------------

    def mutants(self):
        found = []
        for i, t in enumerate(self.tokens):
            if self.function[i] and not self.quiet[i]:
                for make in (self.of_operator, self.of_constant,
                             self.of_condition, self.of_statement,
                             self.of_arguments, self.of_key):
                    found += make(i, t) or []
        return found

    def of_operator(self, i, t):
        if t.kind != "mark":
            return None
        if t.text in RELATIONS and self.spaced(i):
            return [self.replaced("relation", i, i, RELATIONS[t.text])]
        if t.text in ("&&", "||"):
            other = "||" if t.text == "&&" else "&&"
            return [self.replaced("logic", i, i, other)]
        if t.text in ARITHMETIC and (self.spaced(i)
                                     or t.text in ("++", "--")):
            return [self.replaced("arithmetic", i, i, ARITHMETIC[t.text])]
        return None

    def of_constant(self, i, t):
        found = INTEGER.fullmatch(t.text) if t.kind == "number" else None
        if not found:
            return None
        value = int(found[1], 0 if found[1][:2] in ("0x", "0X") else 10)
        others = [value + 1] + ([value - 1] if value else [])
        return [self.replaced("constant", i, i, f"{n}{found[2]}")
                for n in others]

    def of_condition(self, i, t):
        if t.text not in ("if", "while") or self.text(i + 1) != "(":
            return None
        first, last = i + 2, self.pair[i + 1] - 1
        return [self.replaced("condition", first, last,
                              f"!({self.span(first, last)})")]

    def of_statement(self, i, t):
        control = NOT_CALLS - {"return"}
        if t.kind != "name" or t.text in control or \
                not self.begins_statement(i):
            return None
        end = self.statement_end(i)
        if end is None:
            return None
        if t.text in ("return", "goto"):
            guard = self.pair.get(i - 1)
            if guard and self.text(i - 1) == ")" and \
                    self.text(guard - 1) == "if":
                return [self.replaced("early exit", i, end, "{}")]
            return None
        if t.text in ("break", "continue") or self.is_call(i, end) or \
                self.is_assignment(i, end):
            keyed = KEYED.search(self.function[i])
            return [self.replaced("key" if keyed else "statement", i, end,
                                  "{}")]
        return None

    def is_call(self, i, end):
        return self.text(i + 1) == "(" and self.pair[i + 1] == end - 1 and \
            not self.quiet[i + 2] and self.text(i) not in NOT_CALLS

    def is_assignment(self, i, end):
        """Not a declaration: no name follows a name before the `=`."""
        k = i
        while k < end and self.text(k) not in ASSIGNMENTS:
            after = self.tokens[k + 1]
            if self.tokens[k].kind == "name" and (
                    after.kind == "name" or after.text == "*"):
                return False
            k = self.pair[k] + 1 if self.text(k) in OPENS else k + 1
        return k < end

    def of_arguments(self, i, t):
        """Swaps adjacent arguments; the compiler rejects different types."""
        if t.kind != "name" or self.text(i + 1) != "(" or \
                t.text in NOT_CALLS or QUIET.fullmatch(t.text) or \
                t.text.isupper():
            return None
        parts, first, k = [], i + 2, i + 2
        end = self.pair[i + 1]
        while k < end:
            if self.text(k) == ",":
                parts.append((first, k - 1))
                first = k + 1
            k = self.pair[k] + 1 if self.text(k) in OPENS else k + 1
        parts.append((first, end - 1))
        return [self.replaced("arguments", a[0], b[1],
                              f"{self.span(*b)}, {self.span(*a)}")
                for a, b in zip(parts, parts[1:])
                if a[0] <= a[1] and b[0] <= b[1]
                and self.span(*a) != self.span(*b)]

    def of_key(self, i, t):
        """Removes a conjunct from a comparison of keys."""
        if t.text != "&&" or not KEYED.search(self.function[i]):
            return None
        return [self.replaced("key", i, self.operand_end(i + 1), "")]


def mutants_of(source):
    """All mutants of a source, in the order of the text."""
    return File(source).mutants()

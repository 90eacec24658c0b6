"""Small wrongs done to source text: every place where one is possible, and the text with one of them.

What tests/sim/mutants.py does to designs, for modules: a comparison off by one, a sign, a number, a condition turned round, a
statement or a part of a key left out. Python is changed where its syntax tree says, C++ by line.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Mutant:
    """A file's text with one wrong in it. `before` and `after` are the lines that differ, without their indentation."""

    file: str
    kind: str
    line: int
    before: str
    after: str
    text: str = attrs.field(repr=False)

    @property
    def difference(self) -> str:
        """As a diff shows it."""
        lines = [f"- {line}" for line in self.before.splitlines()] + [f"+ {line}" for line in self.after.splitlines()]
        return "\n".join([f"{self.file}:{self.line}: {self.kind}", *lines])


def mutant(file: str, kind: str, old: str, new: str) -> Mutant:
    """The mutant that `new` is of `old`."""
    was, now = old.splitlines(), new.splitlines()
    (_, i, j, k, m), *more = [code for code in difflib.SequenceMatcher(None, was, now, False).get_opcodes() if code[0] != "equal"]
    if more:
        j, m = more[-1][2], more[-1][4]
    before, after = ("\n".join(line.strip() for line in lines) for lines in (was[i:j], now[k:m]))
    return Mutant(file, kind, i + 1, before, after, new)


# -- Python --------------------------------------------------------------------------------------------

#: Operators and what becomes of them.
SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


class _Python:
    """The edits of one module: (kind, begin, end, new text), by character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0]
        for line in text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.lines = text.splitlines()
        self.edits: list[tuple[str, int, int, str]] = []

    def at(self, line: int, column: int) -> int:
        """Where a node's byte column is."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def between(self, kind: str, left: ast.AST, op: ast.AST, right: ast.AST) -> None:
        """The operator between two nodes, exchanged."""
        if type(op) not in SWAPS:
            return
        old, new = SWAPS[type(op)]
        begin, end = self.span(left)[1], self.span(right)[0]
        found = re.search(rf"(?<!\w){re.escape(old)}(?!\w)", self.text[begin:end])
        if found:
            self.edits.append((kind, begin + found.start(), begin + found.end(), new))

    def replace(self, kind: str, node: ast.AST, new: str) -> None:
        self.edits.append((kind, *self.span(node), new))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, ast.Raise):
            self.replace("no error", node, "pass")
            return
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Compare):
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
                self.between("comparison", left, op, right)
        elif isinstance(node, ast.BinOp):
            self.between("arithmetic", node.left, node.op, node.right)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                self.between("and, or", left, node.op, right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.replace("not", node, f"({ast.unparse(node.operand)})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            self.replace("truth", node, str(not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            self.replace("number", node, str(node.value + 1))
        elif isinstance(node, ast.Name) and node.id in NAMES:
            self.replace("function", node, NAMES[node.id])
        elif isinstance(node, ast.AugAssign) or (
            isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
        ) or (isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))):
            self.replace("statement left out", node, "pass")
        elif isinstance(node, (ast.Continue, ast.Break)):
            self.replace("statement left out", node, "pass")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "digest":
            self.parts(node.args)
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and isinstance(node.test, (ast.Name, ast.Attribute, ast.Call)):
            self.replace("condition", node.test, f"not {ast.unparse(node.test)}")
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "ctx"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def parts(self, items: list[ast.expr]) -> None:
        """Each part of a key left out, as are the parts of tuples in it."""
        for index, item in enumerate(items):
            if len(items) > 1:
                begin, end = self.span(item)
                if index + 1 < len(items):
                    end = self.span(items[index + 1])[0]
                else:
                    begin = self.span(items[index - 1])[1]
                self.edits.append(("key", begin, end, ""))
            for inner in ast.walk(item):
                if isinstance(inner, ast.Tuple) and len(inner.elts) > 2:
                    self.parts(inner.elts)


def python(file: str, text: str, lines: Collection[str] | None = None) -> Iterator[Mutant]:
    """Every mutant of a Python module, in the order of its text; with `lines` those that change one of these."""
    module = _Python(text)
    tree = ast.parse(text)
    module.visit(tree)
    meaning = ast.dump(tree)
    for kind, begin, end, new in sorted(set(module.edits), key=lambda edit: edit[1:]):
        touched = module.lines[text.count("\n", 0, begin) : text.count("\n", 0, end) + 1]
        if lines is not None and not any(line.strip() in lines for line in touched):
            continue
        changed = text[:begin] + new + text[end:]
        try:
            tree = ast.parse(changed)
        except SyntaxError:
            continue
        if ast.dump(tree) != meaning:
            yield mutant(file, kind, text, changed)


# -- C++ -----------------------------------------------------------------------------------------------

RULES: tuple[tuple[str, str, str], ...] = (
    ("comparison", r" < ", " <= "), ("comparison", r" <= ", " < "), ("comparison", r" > ", " >= "), ("comparison", r" >= ", " > "),
    ("comparison", r" == ", " != "), ("comparison", r" != ", " == "), ("arithmetic", r" \+ ", " - "), ("arithmetic", r" - ", " + "),
    ("arithmetic", r" \* ", " + "), ("arithmetic", r" / ", " * "), ("arithmetic", r" % ", " / "), ("and, or", r" && ", " || "),
    ("and, or", r" \|\| ", " && "), ("number", r"-INFINITY", "0.0f"), ("truth", r"\btrue\b", "false"), ("truth", r"\bfalse\b", "true"),
)  # fmt: skip
_STATEMENT = re.compile(
    r"^\s+(?!return|const|using|typedef|static|for|if|else|while|do|break|continue)([\w\[\].>+*-]+(?: [-+*/|&]?= |\().*;)$"
)
_NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
#: Code for processors that x86's compilers leave out, and for a sanitizer (tests/host/test_sanitizers.py).
_ELSEWHERE = ["aarch64", "ARM_NEON", "IRON_SDOT", "__SANITIZE_"]
_CPU = Path("/proc/cpuinfo")
if not _CPU.exists() or "avx512_vnni" not in _CPU.read_text():
    _ELSEWHERE.append("IRON_AVX512")


def _code(text: str) -> Iterator[tuple[int, str]]:
    """The lines with code for this machine, without their comments: (number from 0, code)."""
    conditions: list[str] = []
    for number, line in enumerate(text.splitlines()):
        code = line.split("//")[0].rstrip()
        word = code.strip()
        if word.startswith("#"):
            word = word.replace("!defined(IRON_AVX512)", "")
            if word.startswith("#if"):
                conditions.append(word)
            elif word.startswith(("#elif", "#else")):
                conditions[-1] = word
            elif word.startswith("#endif"):
                conditions.pop()
        elif word and not word.startswith(("typedef", "template <")) and not any(p in c for c in conditions for p in _ELSEWHERE):
            yield number, code


def cpp(file: str, text: str, only: Collection[str] | None = None) -> Iterator[Mutant]:
    """Every mutant of a C++ file, in the order of its text; with `only` those that change one of these lines."""
    lines = text.splitlines(keepends=True)

    def changed(number: int, line: str) -> str:
        return "".join([*lines[:number], line, *lines[number + 1 :]])

    for number, code in _code(text):
        if only is not None and lines[number].strip() not in only:
            continue
        rest = lines[number][len(code) :]
        for kind, pattern, new in RULES:
            for found in re.finditer(pattern, code):
                yield mutant(file, kind, text, changed(number, code[: found.start()] + new + code[found.end() :] + rest))
        for found in _NUMBER.finditer(code):
            more = str(int(found[1]) + 1)
            yield mutant(file, "number", text, changed(number, code[: found.start()] + more + code[found.end() :] + rest))
        found = _STATEMENT.match(code)
        if found:
            yield mutant(file, "statement left out", text, changed(number, code[: found.start(1)] + ";" + rest))


def mutants(file: str, text: str, lines: Collection[str] | None = None) -> list[Mutant]:
    """Every mutant of a file, or of `lines` of it, which are given without their indentation: a large file has thousands."""
    return list((python if file.endswith(".py") else cpp)(file, text, lines))

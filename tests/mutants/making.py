"""Makes the mutants of a module's source: each differs in one place, as a slip of the fingers would.

Left alone are words and formats (golden texts have them), annotations, what goes to the agent's log, and a module's
own numbers, such as `BEAT_S = 3.0`: a test of them could only say them again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
}
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_COMPOUND = (ast.If, ast.While, ast.For, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """`first` to `last` are the lines of the statement that is changed, none where it runs while it is imported."""

    before: str
    after: str
    line: int
    first: int
    last: int
    source: str

    def __str__(self) -> str:
        return f"{self.line}:\n  - {self.before}\n  + {self.after}"


class _Source:
    """The text by the offsets of ast, which count bytes."""

    def __init__(self, text: str) -> None:
        self.bytes = text.encode()
        self._starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, start: int, end: int) -> str:
        return self.bytes[start:end].decode()

    def of(self, node: ast.expr | ast.stmt) -> str:
        return self.text(self.start(node), self.end(node))


Change = tuple[int, int, str]
"""From an offset to another: what stands there instead."""


def mutants_of(text: str) -> list[Mutant]:
    """In the order of the text."""
    source = _Source(text)
    found = [
        _mutant(source, change, lines)
        for statement, runs_later in _statements(ast.parse(text).body, runs_later=False)
        for change in _changes(source, statement, runs_later)
        for lines in [_lines(statement) if runs_later else (0, -1)]
    ]
    return [mutant for mutant in found if mutant.before != mutant.after and _compiles(mutant.source)]


def _mutant(source: _Source, change: Change, lines: tuple[int, int]) -> Mutant:
    start, end, text = change
    changed = source.bytes[:start] + text.encode() + source.bytes[end:]
    line_start = source.bytes.rfind(b"\n", 0, start) + 1
    tail = source.bytes.find(b"\n", end)
    before = source.text(line_start, tail)
    after = source.text(line_start, start) + text + source.text(end, tail)
    number = source.bytes.count(b"\n", 0, start) + 1
    return Mutant(_one_line(before), _one_line(after), number, *lines, changed.decode())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _statements(body: list[ast.stmt], *, runs_later: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement, and whether it is in a function."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            continue
        if isinstance(statement, ast.FunctionDef) and statement.name == "__repr__":
            continue
        yield statement, runs_later
        inside = runs_later or isinstance(statement, ast.FunctionDef)
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, name, []), runs_later=inside)
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body, runs_later=inside)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Of a compound statement those of its head."""
    last = statement.end_lineno or statement.lineno
    if isinstance(statement, _COMPOUND):
        last = max(statement.lineno, statement.body[0].lineno - 1)
    return statement.lineno, last


def _changes(source: _Source, statement: ast.stmt, runs_later: bool) -> Iterator[Change]:
    if _is_only_told(statement):
        return
    if runs_later:
        yield from _of_statement(source, statement)
    for expression in _expressions(statement, runs_later):
        yield from _of_expression(source, expression)


def _is_only_told(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("log.")


def _of_statement(source: _Source, statement: ast.stmt) -> Iterator[Change]:
    start, end = source.start(statement), source.end(statement)
    if isinstance(statement, ast.Return) and statement.value is not None:
        if not (isinstance(statement.value, ast.Constant) and statement.value.value in (None, True, False)):
            yield source.start(statement.value), source.end(statement.value), "None"
    elif _may_go(statement):
        yield start, end, "pass"
    elif isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare | ast.UnaryOp):
        test = statement.test
        yield source.start(test), source.end(test), f"not ({source.of(test)})"


def _may_go(statement: ast.stmt) -> bool:
    """Without a local variable's value its function would only break."""
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    is_call = isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
    others = (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break, ast.Return)
    return is_call or isinstance(statement, others)


def _expressions(statement: ast.stmt, runs_later: bool) -> Iterator[ast.expr]:
    """Those of the statement itself, without the statements in it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return
    if isinstance(statement, ast.AnnAssign):
        roots = [statement.value] if statement.value is not None else []
    else:
        roots = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
    if isinstance(statement, ast.With):
        roots += [item.context_expr for item in statement.items]
    for root in roots:
        if runs_later or not _is_plain_number(root):
            yield from _within(root)


def _is_plain_number(node: ast.expr) -> bool:
    return all(isinstance(part, ast.Constant | ast.BinOp | ast.operator) for part in ast.walk(node))


def _within(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.JoinedStr):
        return  # before Python 3.12 nobody says where its parts are
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _within(child)


def _of_expression(source: _Source, node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare():
            left = node.left
            for operator, right in zip(node.ops, node.comparators, strict=True):
                old, instead = _COMPARISONS[type(operator)]
                yield from (_between(source, left, right, old, new) for new in instead)
                left = right
        case ast.BoolOp():
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield _between(source, left, right, old, new)
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node.left):
            yield _between(source, node.left, node.right, *_ARITHMETIC[type(node.op)])
        case ast.UnaryOp(op=ast.Not()):
            start, end = source.start(node), source.start(node.operand)
            yield start, end, source.text(start, end).replace("not", "", 1).lstrip()
        case ast.IfExp() if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield source.start(node.test), source.end(node.test), f"not ({source.of(node.test)})"
        case ast.Constant(value=bool() as value):
            yield source.start(node), source.end(node), str(not value)
        case ast.Constant(value=int() | float() as value):
            yield source.start(node), source.end(node), str(value + 1)
        case ast.Call():
            yield from _of_call(source, node)


def _of_call(source: _Source, node: ast.Call) -> Iterator[Change]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in _OPPOSITE:
        yield source.start(node.func), source.end(node.func), _OPPOSITE[name]
    if (
        name not in ("min", "max")
        and len(node.args) > 1
        and not any(isinstance(arg, ast.Starred) for arg in node.args[:2])
    ):
        one, other = node.args[:2]
        between = source.text(source.end(one), source.start(other))
        yield source.start(one), source.end(other), source.of(other) + between + source.of(one)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _between(source: _Source, left: ast.expr, right: ast.expr, old: str, new: str) -> Change:
    """The operator that stands there, whatever brackets and ends of lines are around it."""
    start, end = source.end(left), source.start(right)
    pattern = re.escape(old).replace(r"\ ", r"\s+")
    return start, end, re.sub(pattern, lambda _: new, source.text(start, end), count=1)

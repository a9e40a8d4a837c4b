"""Makes the mutants of a module's source: each differs in one place, as a slip of the fingers would.

Left alone are words and formats (golden texts have them), annotations, what goes to the agent's log, and a module's
own numbers, such as `BEAT_S = 3.0`: a test of them could only say them again.

mutmut and cosmic-ray do not take its place: the one skips properties and what stands outside of functions, the other
starts a Python for each mutant; neither keeps the reasons why a mutant changes nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_MAY_GO = (ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break, ast.Return)


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


Change = tuple[ast.AST, dict[str, Any]]
"""A node, and what its fields are in its place."""


def mutants_of(text: str) -> list[Mutant]:
    """In the order of the text."""
    tree = ast.parse(text)
    found = []
    for holder, field, index, runs_later in _statements(tree, runs_later=False):
        statement = getattr(holder, field)[index]
        before, lines = _head(statement), _lines(statement) if runs_later else (0, -1)
        for node, fields in _changes(holder, field, index, runs_later):
            usual = {name: getattr(node, name) for name in fields}
            vars(node).update(fields)
            after, source = _head(getattr(holder, field)[index]), ast.unparse(tree)
            vars(node).update(usual)
            found.append(Mutant(before, after, statement.lineno, *lines, source))
    return found


def _head(statement: ast.stmt) -> str:
    """Of a compound statement its first line."""
    text = ast.unparse(statement)
    return text.partition("\n")[0] if hasattr(statement, "body") else text


def _statements(holder: ast.AST, *, runs_later: bool) -> Iterator[tuple[ast.AST, str, int, bool]]:
    """Every statement by its place, and whether it is in a function."""
    inside = runs_later or isinstance(holder, ast.FunctionDef)
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(holder, field, [])
        for index, statement in enumerate(statements if isinstance(statements, list) else []):
            is_checked_only = isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
            if not is_checked_only and getattr(statement, "name", "") != "__repr__":
                yield holder, field, index, inside
                yield from _statements(statement, runs_later=inside)
    for handler in getattr(holder, "handlers", []):
        yield from _statements(handler, runs_later=inside)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Of a compound statement those of its head."""
    last = statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else last


def _changes(holder: ast.AST, field: str, index: int, runs_later: bool) -> Iterator[Change]:
    statements = getattr(holder, field)
    statement = statements[index]
    if isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("log."):
        return
    if runs_later:
        if isinstance(statement, ast.Return) and statement.value is not None:
            if not (isinstance(statement.value, ast.Constant) and statement.value.value in (None, True, False)):
                yield statement, {"value": ast.Constant(None)}
        elif _may_go(statement):
            yield holder, {field: [*statements[:index], ast.Pass(), *statements[index + 1 :]]}
        elif isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare | ast.UnaryOp):
            yield statement, {"test": _negated(statement.test)}
    for root in _expressions(statement):
        if runs_later or not all(isinstance(one, ast.Constant | ast.BinOp | ast.operator) for one in ast.walk(root)):
            for node in _within(root):
                yield from _of_expression(node)


def _may_go(statement: ast.stmt) -> bool:
    """Without a local variable's value its function would only break."""
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    is_call = isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
    return is_call or isinstance(statement, _MAY_GO)


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    """Those of the statement itself, without the statements in it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return []
    if isinstance(statement, ast.AnnAssign):
        return [statement.value] if statement.value is not None else []
    items = [item.context_expr for item in getattr(statement, "items", [])]
    return [*(node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)), *items]


def _within(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.JoinedStr) and getattr(node, "arg", "") != "strict":
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _within(child)


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                for new in _COMPARISONS[type(operator)]:
                    yield node, {"ops": [*node.ops[:index], new(), *node.ops[index + 1 :]]}
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            for index in range(1, len(node.values)):
                sides = [_joined(node.op, node.values[:index]), _joined(node.op, node.values[index:])]
                yield node, {"op": other, "values": sides}
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node.left):
            yield node, {"op": _ARITHMETIC[type(node.op)]()}
        case ast.UnaryOp(op=ast.Not()):
            yield node, {"operand": _negated(node.operand)}
        case ast.IfExp() if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield node, {"test": _negated(node.test)}
        case ast.Constant(value=bool() as value):
            yield node, {"value": not value}
        case ast.Constant(value=int() | float() as value):
            yield node, {"value": value + 1}
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[Change]:
    name = getattr(node.func, "id", "")
    if name in _OPPOSITE:
        yield node.func, {"id": _OPPOSITE[name]}
    first = node.args[:2]
    differ = len({ast.unparse(one) for one in first}) == 2
    if name not in ("min", "max") and differ and not any(isinstance(one, ast.Starred) for one in first):
        yield node, {"args": [*reversed(first), *node.args[2:]]}


def _negated(node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), node)


def _joined(operator: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.BoolOp(operator, values)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))

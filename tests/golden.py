"""Every sentence that a user may see, collected from the code, to be read in one sitting: `make golden`."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

HEAD = """\
Every sentence that a user may see: errors, hints, notes, tables, help, and the reasons of a run's events.
{} stands for what is filled in.
"""

UNSEEN = {
    "dtctl/config/reference.py",  # docs/cluster-yaml.md, which is read as a page
    "dtctl/transport/payload.py",
}
"""Files whose texts are no sentences, or are read elsewhere."""

NOT_SHOWN = {
    "cast",
    "compile",
    "in_log",
    "TypeVar",
    "getattr",
    "hasattr",
    "import_module",
    "find_spec",
    "AssertionError",
}
"""Functions whose arguments nobody sees."""

_FILL = "\N{SECTION SIGN}"
_FILLED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_WORD = re.compile(r"(?<![\w./@-])[A-Za-z]{2,}(?![\w/=@]|\.\w)")

_STYLE = re.compile(r"bold \w+")
"""Of rich."""

_PERCENT = re.compile(r"%(?:\((\w+)\))?[-#0 +]*[\d*]*(?:\.\d+)?[a-zA-Z]|%%")


@cache
def sentences() -> dict[str, list[str]]:
    """File -> its sentences, in the order of the code."""
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "dtctl").rglob("*.py"))}
    found = {name: list(dict.fromkeys(of_file(path))) for name, path in files.items() if name not in UNSEEN}
    return {name: texts for name, texts in found.items() if texts}


def page(found: dict[str, list[str]]) -> str:
    parts = [HEAD]
    for name, texts in found.items():
        parts.append(f"\n{name}\n" + "".join(f"    {_one_line(text)}\n" for text in texts))
    return "".join(parts)


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")


def of_file(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    for node in _seen(tree):
        text = _help(node) if isinstance(node, ast.FunctionDef) else _text(node)
        if text and _is_sentence(text):
            yield text


def _is_sentence(text: str) -> bool:
    """Two words beside each other; what is filled in counts for one, but not alone."""
    words = _FILLED.sub(_FILL, text).split()
    pairs = itertools.pairwise(words)
    return not _STYLE.fullmatch(text) and any(
        (_WORD.search(one) and (_FILL in two or _WORD.search(two))) or (_FILL in one and _WORD.search(two))
        for one, two in pairs
    )


def _seen(node: ast.AST) -> Iterator[ast.AST]:
    """Commands, and the outermost expressions that are texts; nothing that stands for readers of the code."""
    if isinstance(node, ast.FunctionDef) and _help(node):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.FunctionDef) and child.name == "__repr__":
            continue
        if isinstance(child, ast.Assert) or (isinstance(child, ast.Call) and _name(child.func) in NOT_SHOWN):
            continue
        if _is_annotation(node, child):
            continue
        if _text(child) is None:
            yield from _seen(child)
        else:
            yield child
            yield from (text for inner in _filled_in(child) for text in _seen(ast.Expression(inner)))


def _is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return child in (getattr(node, "annotation", None), getattr(node, "returns", None)) and isinstance(
        child, ast.Constant
    )


def _help(node: ast.FunctionDef) -> str:
    """The docstring of a command is its help."""
    is_command = any(
        _name(each.func if isinstance(each, ast.Call) else each) in ("command", "callback", "on_run", "on_cluster")
        for each in node.decorator_list
    )
    return " ".join((ast.get_docstring(node) or "").split()) if is_command else ""


def _name(function: ast.AST) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _text(node: ast.AST) -> str | None:
    """A text with {} around what is filled in; None for what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return _percent(node.left.value, node.right) if isinstance(node.left.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = _text(node.left), _text(node.right)
        if sides == (None, None):
            return None
        left, right = (
            text if text is not None else _filled(side)
            for text, side in zip(sides, (node.left, node.right), strict=True)
        )
        return left + right
    return None


def _filled(value: ast.expr) -> str:
    text = re.sub(r"\bfor \(([^()]*)\) in\b", r"for \1 in", ast.unparse(value))  # as Python 3.11 and later write it
    return f"{{{text}}}"


def _piece(value: ast.expr) -> str:
    if isinstance(value, ast.FormattedValue):
        return _filled(value.value)
    return str(value.value) if isinstance(value, ast.Constant) else ""


def _percent(text: str, right: ast.expr) -> str:
    values = iter(right.elts if isinstance(right, ast.Tuple) else [right])

    def fill(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        if match.group(1):
            return f"{{{match.group(1)}}}"
        return _filled(next(values, right))

    return _PERCENT.sub(fill, text)


def _filled_in(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions within a text: they may hold texts of their own."""
    if isinstance(node, ast.JoinedStr):
        yield from (value.value for value in node.values if isinstance(value, ast.FormattedValue))
    elif isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            if _text(side) is None:
                yield side
            else:
                yield from _filled_in(side)


if __name__ == "__main__":
    print(page(sentences()), end="")

"""Every sentence that a user may see, collected from the code and its data, to be read at one go: `make golden`."""

from __future__ import annotations

import ast
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

DATA = ("*/signatures.ini", "render/manual.yaml", "rooms/check/screen.ini", "config/yaml12.yaml")
NOT_SHOWN = {"cast", "compile", "in_log", "TypeVar", "getattr", "hasattr", "import_module", "find_spec"}
"""Functions whose arguments nobody sees."""

_FILLED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|%\(\w+\)\w|%[.\d]*\w")
_TWO_WORDS = re.compile(r"(?:§|(?<![\w./@-])[A-Za-z]{2,}[,:;.]?) (?:§|[(']?[A-Za-z]{2,}(?![\w/=@]|\.\w))")
_NO_SENTENCE = re.compile(r"bold \w+|\w+\[.*\]", re.DOTALL)
"""Styles of rich, and types."""

_COMMAND = re.compile(r"on_run|on_cluster|.*\.(command|callback)\b")


@cache
def sentences() -> dict[str, list[str]]:
    """File -> its sentences, in the order of the code."""
    files = {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "dtctl").rglob("*.py"))}
    found = {name: list(dict.fromkeys(of_file(path))) for name, path in files.items() if name not in UNSEEN}
    for file in (path for pattern in DATA for path in sorted((ROOT / "dtctl").rglob(pattern))):
        lines = map(str.strip, file.read_text().splitlines())
        found[file.relative_to(ROOT).as_posix()] = [line for line in lines if line and not line.startswith("#")]
    return {name: texts for name, texts in found.items() if texts}


def page(found: dict[str, list[str]]) -> str:
    parts = [HEAD]
    for name, texts in found.items():
        parts.append(f"\n{name}\n" + "".join(f"    {text}\n" for text in texts))
    return "".join(parts)


def of_file(path: Path) -> Iterator[str]:
    for text in _texts(ast.parse(path.read_text("utf-8")), is_command=False):
        filled = _FILLED.sub("§", text)
        if _TWO_WORDS.search(filled) and not _NO_SENTENCE.fullmatch(text) and filled.replace("§", "").strip():
            yield text.replace("\n", "\\n")


def _texts(node: ast.AST, *, is_command: bool) -> Iterator[str]:
    """The texts with {} in place of values, without those for readers of the code."""
    for child in ast.iter_child_nodes(node):
        if child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            if is_command:
                yield " ".join(str(child.value.value).split())
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        elif isinstance(child, ast.JoinedStr):
            yield "".join(map(_piece, child.values))
            for value in child.values:
                if isinstance(value, ast.FormattedValue):
                    yield from _texts(value, is_command=False)
        elif not _is_unseen(child):
            decorators = getattr(child, "decorator_list", [])
            yield from _texts(child, is_command=any(map(_COMMAND.match, map(ast.unparse, decorators))))


def _is_unseen(child: ast.AST) -> bool:
    if isinstance(child, ast.Call):
        return getattr(child.func, "attr", getattr(child.func, "id", "")) in NOT_SHOWN
    return isinstance(child, ast.Assert) or getattr(child, "name", "") == "__repr__"


def _piece(value: ast.expr) -> str:
    return f"{{{ast.unparse(value.value)}}}" if isinstance(value, ast.FormattedValue) else str(ast.literal_eval(value))


if __name__ == "__main__":
    print(page(sentences()), end="")

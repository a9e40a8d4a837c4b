"""Which modules a Python program imports before it does anything else, read from its text; nothing of it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_WITHOUT_VALUE = {"-u", "-B", "-O", "-OO", "-q"}
"""Options of the interpreter after which the program follows, and which do not change where modules are looked for."""

_MOST_FILES = 200

PACKAGES = {
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "absl": "absl-py",
    "google": "protobuf",
}
"""Modules whose package on PyPI has another name."""


@dataclass(frozen=True)
class Program:
    """Where modules of its own lie, and the modules from elsewhere that it needs, in the order of their names."""

    directory: Path
    modules: tuple[str, ...]
    files: tuple[Path, ...] = ()
    """Its own: the program and what it imports of the code."""


def program_of(command: Sequence[str], code: Path) -> Program | None:
    """`command` begins with an interpreter. None where its text does not tell what it imports."""
    words = list(command[1:])
    while words and words[0] in _WITHOUT_VALUE:
        words.pop(0)
    if len(words) > 1 and words[0] == "-m":
        directory, files = code, _files_of_module(code, words[1])
    elif words and not words[0].startswith("-") and not Path(words[0]).is_absolute():
        directory, files = (code / words[0]).parent, [code / words[0]]
    else:
        return None
    read = _imported(directory, files) if files else None
    return None if read is None else Program(directory, tuple(sorted(read[0])), tuple(sorted(read[1])))


def _imported(directory: Path, files: list[Path]) -> tuple[set[str], set[Path]] | None:
    """Of the files and of the modules beside them that they import. None where one changes the rules, or is unclear."""
    wanted: set[str] = set()
    seen: set[Path] = set()
    while files:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        tree = _parsed(file)
        if tree is None or len(seen) > _MOST_FILES or _changes_the_search(tree):
            return None
        for name in _names(tree):
            own = _files_of_module(directory, name)
            top = name.partition(".")[0]
            if own or (directory / top).is_dir():
                files += own
            else:
                wanted.add(top)
    return wanted, seen


def _names(tree: ast.Module) -> Iterator[str]:
    """Of imports that are certain to happen: not those below an `if`, in a `try` or in a function."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _files_of_module(directory: Path, name: str) -> list[Path]:
    """The files that an import of a module of the program's own runs; none where it is from elsewhere."""
    parts = name.split(".")
    packages = [directory.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    module = directory.joinpath(*parts)
    return [file for file in (*packages, module.with_suffix(".py"), module / "__main__.py") if file.is_file()]


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _changes_the_search(tree: ast.Module) -> bool:
    """Whether it looks for modules where only the running program knows."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("path", "meta_path", "path_hooks", "addsitedir")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("sys", "site")
        for node in ast.walk(tree)
    )

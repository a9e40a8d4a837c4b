"""Which modules a Python program imports before it does anything else, read from its text; nothing of it runs."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    places: Mapping[str, str] = field(default_factory=dict)
    """Module -> where it is imported first, as in train.py:3."""


def words_of(command: Sequence[str]) -> list[str]:
    """What follows the interpreter of a command and its options: the program, or -m and its name, and its arguments."""
    words = list(command[1:])
    while words and words[0] in _WITHOUT_VALUE:
        words.pop(0)
    return words


def program_of(command: Sequence[str], code: Path, python_path: Iterable[Path] = ()) -> Program | None:
    """`command` begins with an interpreter. None where its text does not tell what it imports.

    `python_path`: directories of the code from which modules are imported, too.
    """
    words = words_of(command)
    if len(words) > 1 and words[0] == "-m":
        directory, files = code, _files_of_module(code, words[1])
    elif words and not words[0].startswith("-") and not Path(words[0]).is_absolute():
        directory, files = (code / words[0]).parent, [code / words[0]]
    else:
        return None
    read = _imported((directory, *([code] if words[0] == "-m" else []), *python_path), files) if files else None
    if read is None:
        return None
    wanted, seen = read
    places = {name: f"{os.path.relpath(file, code)}:{line}" for name, (file, line) in wanted.items()}
    return Program(directory, tuple(sorted(wanted)), tuple(sorted(seen)), places)


def _imported(roots: Sequence[Path], files: list[Path]) -> tuple[dict[str, tuple[Path, int]], set[Path]] | None:
    """Of the files and of the modules beside them that they import. None where one changes the rules, or is unclear."""
    wanted: dict[str, tuple[Path, int]] = {}
    seen: set[Path] = set()
    while files:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        tree = parsed(file)
        if not isinstance(tree, ast.Module) or len(seen) > _MOST_FILES or _changes_the_search(tree):
            return None
        tried = {name for node in ast.walk(tree) if isinstance(node, ast.Try) for name, _ in _names(node.body)}
        for name, line in _names(tree.body):
            own = [found for root in roots for found in _files_of_module(root, name)]
            top = name.partition(".")[0]
            if own or any((root / top).is_dir() or list(root.glob(f"{top}.*")) for root in roots):
                files += own
            elif name not in tried:  # else it may be made or installed in the meantime
                wanted.setdefault(top, (file, line))
    return wanted, seen


def _names(body: Iterable[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Of imports that are certain to happen: not those below an `if`, in a `try` or in a function; with their lines."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno


def _files_of_module(directory: Path, name: str) -> list[Path]:
    """The files that an import of a module of the program's own runs; none where it is from elsewhere."""
    parts = name.split(".")
    packages = [directory.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    module = directory.joinpath(*parts)
    return [file for file in (*packages, module.with_suffix(".py"), module / "__main__.py") if file.is_file()]


def parsed(file: Path) -> ast.Module | SyntaxError | None:
    """None for what cannot be read. Nothing is compiled, and nothing runs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read_bytes())
    except SyntaxError as error:
        return error
    except (OSError, ValueError, RecursionError, MemoryError):
        return None


def broken_line(command: Sequence[str], code: Path) -> tuple[str, int, str] | None:
    """File, line and words of a syntax error of the program itself, as this Python reads it."""
    words = [word for word in command[1:] if word not in _WITHOUT_VALUE]
    if not words or not words[0].endswith(".py") or Path(words[0]).is_absolute():
        return None
    error = parsed(code / words[0])
    return (words[0], error.lineno or 1, error.msg) if isinstance(error, SyntaxError) else None


def _changes_the_search(tree: ast.Module) -> bool:
    """Whether it looks for modules where only the running program knows."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("path", "meta_path", "path_hooks", "modules", "addsitedir")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("sys", "site")
        for node in ast.walk(tree)
    )

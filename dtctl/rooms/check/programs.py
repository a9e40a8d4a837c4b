"""Finds what the trainers' programs need by parsing their text; nothing of it runs."""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from dtctl.agent.records.values import CODE, HOME
from dtctl.dataclass import dataclass
from dtctl.plan import RunPlan
from dtctl.rooms.check.tensorflow1 import old_names
from dtctl.rooms.diagnose.modules import REMOVED

_MOST_BYTES = 1 << 20

_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")

_TF = r"\b(?:tf|tensorflow)(?:\.compat\.v[12])?"
_USES = {
    "estimator": re.compile(_TF + r"\.estimator\b"),
    "summaries": re.compile(_TF + r"\.summary\.(?:create_file_writer|scalar|image|text)\b"),
    "ps_strategy": re.compile(r"\bParameterServerStrategy(?:V2)?\s*\("),
    "mirrored_strategy": re.compile(r"\bMultiWorkerMirroredStrategy\s*\("),
    "fit": re.compile(r"\b\w*(?i:model)\w*\.fit\s*\("),
    "graphs": re.compile(r"\b(?:import\s+tensorflow\.compat\.v1|compat\.v1\.disable|disable_v2_behavior)\b"),
    "saves_alone": re.compile(r"\bsharded\s*=\s*False\b|\bexperimental_io_device\b"),
    "saves_as_told": re.compile(r"\bsharded\s*=\s*(?!True|False)"),
    "saves_sharded": re.compile(r"\bsharded\s*=\s*True\b|\bMonitoredTrainingSession\b|\bParameterServerStrategy\b"),
    "saves_by_rank": re.compile(r"\bdistributed\.checkpoint\b"),
    "deepspeed": re.compile(r"\bimport\s+deepspeed\b|\bdeepspeed\.initialize\b|\bDeepSpeedStrategy\b"),
    "keras_2": re.compile(r"\btf_keras\b|\bTF_USE_LEGACY_KERAS\b"),
}
"""Facts about a program other than its imports."""
_KERAS_2 = _USES["keras_2"]


@dataclass(frozen=True)
class Needs:
    """The requirements of one job's programs. `uses`: names of _USES."""

    modules: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)
    """Module -> the first line that imports it, such as train.py:3."""
    files: tuple[str, ...] = ()
    """The files of the code that the program runs: itself and what it imports, as far as this machine can read them."""
    old: Mapping[str, str] = field(default_factory=dict)
    """Names that only TensorFlow 1 has, such as tf.app -> the first line that uses it, such as train.py:3."""
    broken: tuple[str, int, str] | None = None
    """The file, line and message of a syntax error, as the Python of this machine reads the program."""


def runs_python(plan: RunPlan, job: str) -> bool:
    """Whether the command of a job begins with a Python interpreter."""
    return _PYTHON.fullmatch(plan.cluster.jobs[job].launch.command[0]) is not None


def needs_of(plan: RunPlan) -> Mapping[str, Needs]:
    """The requirements by job; none are known for a program that is not Python, or that changes how modules are
    imported.
    """
    found: dict[str, Needs] = {}
    for task in plan.tasks:
        job = task.id.job
        if job not in found and runs_python(plan, job):
            code = plan.cluster.trainer.code
            program = program_of(task.argv, code, _of_code(code, task.env.get("PYTHONPATH", "")))
            found[job] = _needs(program, task.argv, task.env, code) if program else _unread(task.argv, code)
            if _KERAS_2.search(plan.cluster.trainer.setup or ""):
                found[job] = replace(found[job], uses=found[job].uses | {"keras_2"})
    return found


def _of_code(code: Path, python_path: str) -> list[Path]:
    """The directories of a PYTHONPATH that are pushed with the code."""
    parts = [part for part in python_path.split(":") if part]
    return [
        Path(part.replace(CODE, str(code))) if CODE in part else code / part
        for part in parts
        if CODE in part or not (part.startswith("/") or HOME in part)
    ]


def _unread(argv: Sequence[str], code: Path) -> Needs:
    broken = broken_line(argv, code)
    return Needs(files=(broken[0],) if broken else (), broken=broken)


def _needs(program: ProgramModules, argv: Sequence[str], env: Mapping[str, str], code: Path) -> Needs:
    texts = [_without_comments(file) for file in program.files]
    uses = {name for name, pattern in _USES.items() if any(pattern.search(text) for text in texts)}
    if env.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True"):
        uses.add("keras_2")
    if "saves_as_told" in uses:
        uses -= {"saves_alone", "saves_sharded"}
        uses.add("saves_sharded" if any(argument.startswith("--sharded") for argument in argv) else "saves_alone")
    elif "saves_alone" in uses:
        uses.discard("saves_sharded")
    own = tuple(name for name in program.modules if name not in sys.stdlib_module_names or name in REMOVED)
    files = tuple(os.path.relpath(file, code) for file in program.files)
    return Needs(own, frozenset(uses), program.places, files, _old(program, code))


def _old(program: ProgramModules, code: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in program.files:
        tree = parsed(file)
        for one in old_names(tree) if isinstance(tree, ast.Module) else ():
            found.setdefault(one.name, f"{os.path.relpath(file, code)}:{one.line}")
    return found


def _without_comments(file: Path) -> str:
    """The text without comments, which do not run."""
    tree = parsed(file)
    try:
        return ast.unparse(tree) if isinstance(tree, ast.Module) else _text(file)
    except RecursionError:
        return _text(file)


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_MOST_BYTES)
    except OSError:
        return ""


_WITHOUT_VALUE = {"-u", "-B", "-O", "-OO", "-q"}
"""Options of the interpreter that take no value and do not change where modules are searched."""

_MOST_FILES = 200


@dataclass(frozen=True)
class ProgramModules:
    """The program's own module directories, and the external modules that it needs, sorted by name."""

    directory: Path
    modules: tuple[str, ...]
    files: tuple[Path, ...] = ()
    """The program and the modules of the code that it imports."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Module -> the first line that imports it, such as train.py:3."""


def arguments_of(command: Sequence[str]) -> list[str]:
    """The part of a command after the interpreter and its options: the program, or -m and a module, and the
    arguments.
    """
    arguments = list(command[1:])
    while arguments and arguments[0] in _WITHOUT_VALUE:
        arguments.pop(0)
    return arguments


def program_of(command: Sequence[str], code: Path, python_path: Iterable[Path] = ()) -> ProgramModules | None:
    """`command` begins with an interpreter. None if its text does not show what it imports.

    `python_path`: directories of the code from which modules are imported, too.
    """
    arguments = arguments_of(command)
    if len(arguments) > 1 and arguments[0] == "-m":
        directory, files = code, _files_of_module(code, arguments[1])
    elif arguments and not arguments[0].startswith("-") and not Path(arguments[0]).is_absolute():
        directory, files = (code / arguments[0]).parent, [code / arguments[0]]
    else:
        return None
    read = _imported((directory, *([code] if arguments[0] == "-m" else []), *python_path), files) if files else None
    if read is None:
        return None
    wanted, seen = read
    places = {name: f"{os.path.relpath(file, code)}:{line}" for name, (file, line) in wanted.items()}
    return ProgramModules(directory, tuple(sorted(wanted)), tuple(sorted(seen)), places)


def _imported(roots: Sequence[Path], files: list[Path]) -> tuple[dict[str, tuple[Path, int]], set[Path]] | None:
    """The facts about these files and the modules of the code that they import; None if one is unclear or changes how
    modules are imported.
    """
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
            elif name not in tried:  # otherwise it may be made or installed in the meantime
                wanted.setdefault(top, (file, line))
    return wanted, seen


def _names(body: Iterable[ast.stmt]) -> Iterator[tuple[str, int]]:
    """The names, with lines, of imports that certainly happen: not below an `if`, in a `try` or in a function."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno


def _files_of_module(directory: Path, name: str) -> list[Path]:
    """The files that run when a module of the code is imported; none for an external module."""
    parts = name.split(".")
    packages = [directory.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    module = directory.joinpath(*parts)
    return [file for file in (*packages, module.with_suffix(".py"), module / "__main__.py") if file.is_file()]


def parsed(file: Path) -> ast.Module | SyntaxError | None:
    """The parsed program; None if it cannot be read. Nothing is compiled or run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read_bytes())
    except SyntaxError as error:
        return error
    except (OSError, ValueError, RecursionError, MemoryError):
        return None


def broken_line(command: Sequence[str], code: Path) -> tuple[str, int, str] | None:
    """The file, line and message of a syntax error in the program itself, as this Python reads it."""
    arguments = arguments_of(command)
    if not arguments or not arguments[0].endswith(".py") or Path(arguments[0]).is_absolute():
        return None
    error = parsed(code / arguments[0])
    return (arguments[0], error.lineno or 1, error.msg) if isinstance(error, SyntaxError) else None


def _changes_the_search(tree: ast.Module) -> bool:
    """Whether the program changes sys.path or the like, so that only running it shows where modules come from."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("path", "meta_path", "path_hooks", "modules", "addsitedir")
        and isinstance(node.value, ast.Name)
        and node.value.id in ("sys", "site")
        for node in ast.walk(tree)
    )

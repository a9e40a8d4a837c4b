"""Which modules belong to which room, and whether dtctl stands without one: `make rooms`.

A room is dtctl/rooms/NAME and dtctl/agent/rooms/NAME with its rows in the tables of both folders, and
tests/of_rooms/NAME.py with its rows of the tests; or dtctl/api. For
each room a copy of the tree without it, and without the rooms that need it, has to pass mypy, to import every module,
and to pass the unit tests of what is left, but for those that run the same code with and without rooms.

    python -m tests.rooms                 the table of rooms
    python -m tests.rooms --remove        the same, and each room is tried
    python -m tests.rooms --remove data   only these
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from dtctl import __version__
from dtctl.agent.rooms import ROOMS as AGENT_ROOMS
from dtctl.rooms import ROOMS, Room
from tests import sampling

ROOT = Path(__file__).resolve().parents[1]
API_NEEDS = ("check", "checkpoints", "data", "diagnose", "execute", "metrics", "pages", "speed")
FOLDERS = ("dtctl/rooms", "dtctl/agent/rooms")
CORE = "core"
TABLES = tuple(f"{folder}/__init__.py" for folder in FOLDERS)

OF_THE_WHOLE = ("test_structure.py", "test_pages.py", "test_table.py")
"""Tests about all of dtctl, with the rooms."""


def room_of(module: str) -> str:
    """The room of a module; empty: it is part of the core."""
    parts = module.split(".")
    if parts[1:2] == ["api"]:
        return "api"
    parts = parts[2:] if parts[1:2] == ["agent"] else parts[1:]
    return parts[1] if parts[:1] == ["rooms"] and len(parts) > 1 else ""


def names() -> tuple[str, ...]:
    return (*dict.fromkeys((*ROOMS, *AGENT_ROOMS)), "api")


def needs(room: str) -> set[str]:
    """The rooms without which a room does not work."""
    return set(API_NEEDS if room == "api" else _row(room).needs)


def _row(room: str) -> Room:
    return ROOMS.get(room, Room())


def with_those_that_need(room: str) -> set[str]:
    """What is removed with a room; with the core's own name, which is empty, every room."""
    if not room:
        return set(names())
    gone = {room}
    while more := {one for one in names() if one not in gone and needs(one) & gone}:
        gone |= more
    return gone


def lines_of_code(path: Path) -> int:
    """Lines that are neither blank nor comments nor docstrings, as cloc counts them."""
    text, documented, counted = path.read_text(), set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            counted.update(range(token.start[0], token.end[0] + 1))
    return len(counted - documented)


def modules(folder: str, root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / folder).rglob("*.py")):
        yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"), path


@dataclass(frozen=True)
class Module:
    """A module of dtctl or of the tests, and the modules of both that it imports, wherever in it that is."""

    path: Path
    imports: frozenset[str]
    rooms: frozenset[str]
    """The rooms of which it imports or names a part."""

    def starts_programs(self) -> bool:
        return re.search(r"^(import subprocess|from tests.desk import)", self.path.read_text(), re.M) is not None


@cache
def all_modules() -> dict[str, Module]:
    paths = dict(chain(modules("dtctl"), modules("tests")))
    return {name: _module(name, path, paths) for name, path in paths.items()}


def _module(name: str, path: Path, paths: Mapping[str, Path]) -> Module:
    text = path.read_text()
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    full = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            full += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            full += [".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names]
    if name == "dtctl":
        full = []  # the API: for types, and when it is used
    if path.name.startswith("test_"):
        conftests = (".".join([*package[:depth], "conftest"]) for depth in range(1, len(package) + 1))
        full += [one for one in conftests if one in paths and _gives(paths[one], text)]
    found = {one if one in paths else one.rpartition(".")[0] for one in full}
    used = {room_of(one) for one in full if one.startswith("dtctl")}
    used |= {room for room in names() if re.search(rf"\brooms[./]{room}\b", text)}
    return Module(path, frozenset(found & paths.keys()), frozenset(used & set(names())))


def _gives(conftest: Path, text: str) -> bool:
    """Whether a file of tests uses one of its fixtures."""
    if "autouse" in conftest.read_text():
        return True
    fixtures = [node.name for node in ast.parse(conftest.read_text()).body if isinstance(node, ast.FunctionDef)]
    return re.search(rf"\b({'|'.join(fixtures)})\b", text) is not None


def reached(name: str) -> set[str]:
    """The module and all that it imports, by itself or by what it imports."""
    seen, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += all_modules()[one].imports
    return seen


@cache
def tests_by_rooms() -> dict[Path, frozenset[str]]:
    """The files of tests, and the rooms that each of them imports, by itself or by what it imports of the tests."""
    tests = {name: module for name, module in all_modules().items() if name.startswith("tests")}
    return {
        module.path: frozenset[str]().union(*(tests[one].rooms for one in reached(name) if one in tests))
        for name, module in tests.items()
    }


@cache
def tests_of_the_core() -> tuple[Path, ...]:
    """The unit tests that may see whether there is a room; the others reach neither a table of rooms nor a program."""
    found = []
    for name, module in all_modules().items():
        if name.startswith("tests.unit") and module.path.name.startswith("test_"):
            own = reached(name)
            runs = any(one.startswith("tests.unit") and all_modules()[one].starts_programs() for one in own)
            if runs or own & {"dtctl.rooms", "dtctl.agent.rooms", "dtctl.cli.late"}:
                found.append(module.path)
    return tuple(path for path in found if path.name not in OF_THE_WHOLE)


def without_rows(text: str, rooms: Collection[str], folder: Path) -> str:
    """The table of a folder without the rows of these rooms, and without the parts of others whose module is gone."""
    module = ast.parse(text)
    (table,) = (
        node.value
        for node in module.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "ROOMS"
    )  # fmt: skip
    rows = [(ast.literal_eval(key), row) for key, row in zip(table.keys, table.values, strict=True) if key]
    for room, row in rows:
        assert isinstance(row, ast.Call)
        row.keywords = [one for one in row.keywords if _stays(one.value, folder / room)]
    kept = [(room, row) for room, row in rows if room not in rooms]
    table.keys, table.values = [ast.Constant(room) for room, _ in kept], [row for _, row in kept]
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _stays(value: ast.expr, folder: Path) -> bool:
    """Whether what a part names is still there; of a table of parts those stay that are. MODULE.NAME is of `folder`."""
    if isinstance(value, ast.Dict):
        kept = [(key, own) for key, own in zip(value.keys, value.values, strict=True) if _stays(own, folder)]
        value.keys, value.values = [key for key, _ in kept], [own for _, own in kept]
        return bool(kept)
    names = [node.value for node in ast.walk(value) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    own = [name.split(".")[0] for name in names if name.count(".") == 1]
    return all((folder / f"{module}.py").exists() or (folder / module).is_dir() for module in own)


def without(rooms: Collection[str], copy: Path) -> None:
    """Removes rooms from a copy of the tree: their folders, rows and rows of tests, and the modules that join them."""
    for room in rooms:
        for folder in (*(f"{one}/{room}" for one in FOLDERS), *(["dtctl/api"] if room == "api" else [])):
            shutil.rmtree(copy / folder, ignore_errors=True)
        (copy / f"tests/of_rooms/{room}.py").unlink(missing_ok=True)
        for folder in FOLDERS:
            for joint in (copy / folder).glob(f"*/{room}.py"):
                name = ".".join(joint.relative_to(copy).with_suffix("").parts)
                if room in all_modules()[name].rooms:  # the topic `storage` of `check` only has the same name
                    joint.unlink()
    for table in TABLES:
        path = copy / table
        path.write_text(without_rows(path.read_text(), rooms, path.parent))
    if "api" in rooms:
        (copy / "dtctl/__init__.py").write_text(f'"""Without the API."""\n\n__version__ = "{__version__}"\n')


class Trial:
    """A copy of the tree, which is copied once more for each removal: mypy then reads again only what differs."""

    def __init__(self, place: Path) -> None:
        self._place, self._whole = place, place / "whole"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for name in filter(lambda name: (ROOT / name).is_file(), listed.splitlines()):
            (self._whole / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self._whole / name)
        cache = ROOT / ".mypy_cache/rooms"
        self._run(self._whole, *MYPY, "--cache-dir", str(cache))
        shutil.copytree(cache, self._whole / ".mypy_cache")

    def of(self, room: str) -> list[str]:
        """What fails without the room, or without any; empty: dtctl stands without it."""
        gone, copy = with_those_that_need(room), self._place / (room or CORE)
        shutil.copytree(self._whole, copy)
        without(gone, copy)
        left = {path for path, used in tests_by_rooms().items() if not used & gone}
        tests = [str(path.relative_to(ROOT)) for path in tests_of_the_core() if path in left]
        words = " ".join(command for one in gone for command in (one, *_row(one).commands))
        problems = {
            "mypy": self._run(copy, *MYPY),
            "imports": self._run(copy, "tests.importing"),
            "tests": self._run(copy, *PYTEST, *tests, FUZZ="5", **{sampling.ALSO: words}),
        }
        shutil.rmtree(copy)
        return [f"{what}: {text}" for what, text in problems.items() if text]

    def _run(self, copy: Path, *command: str, **own: str) -> str:
        """The end of what a module of Python printed; empty: it succeeded."""
        env = {"PYTHONPATH": str(copy), "PATH": os.environ["PATH"], "HOME": str(self._place), "LANG": "C.UTF-8"}
        env |= own
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=copy, env=env, capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else "\n".join((done.stdout + done.stderr).strip().splitlines()[-60:])


MYPY = ("mypy", "-p", "dtctl")
PYTEST = ("pytest", "-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", sampling.__name__)


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rooms")
    parser.add_argument("--remove", nargs="*", metavar="ROOM", choices=(CORE, *names()))
    chosen = parser.parse_args(args).remove
    sizes, tests = Counter[str](), Counter[str]()
    for name, path in modules("dtctl"):
        sizes[room_of(name)] += lines_of_code(path)
    for path, used in tests_by_rooms().items():
        tests[next(iter(used)) if len(used) == 1 else ""] += lines_of_code(path)
    print(f"{'room':<12} {'code':>7} {'tests':>7}  needs")
    failed = False
    with tempfile.TemporaryDirectory(prefix="dtctl-rooms-") as place:
        trial = Trial(Path(place)) if chosen is not None else None
        for room in ("", *sorted(names(), key=sizes.__getitem__, reverse=True)):
            row = f"{room or CORE:<12} {sizes[room]:>7,} {tests[room]:>7,}  {', '.join(sorted(needs(room)))}"
            if not trial or (chosen and (room or CORE) not in chosen):
                print(row)
                continue
            started = time.monotonic()
            problems = trial.of(room)
            also = with_those_that_need(room) - {room} if room else set[str]()
            removed = f", removed with {', '.join(sorted(also))}" if also else ""
            stands = f"stands without {'it' if room else 'rooms'}: {'no' if problems else 'yes'}{removed}"
            print(f"{row:<76}  {stands} ({time.monotonic() - started:.0f} s)", flush=True)
            for problem in problems:
                failed = True
                print(problem, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

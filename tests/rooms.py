"""Which modules belong to which room, and whether dtctl stands without one: `make rooms`.

A room is dtctl/rooms/NAME and dtctl/agent/rooms/NAME with its rows in the tables of both folders, or dtctl/api. For
each room a copy of the tree without it, and without the rooms that need it, has to pass mypy, to import every module,
and to pass the unit tests of what is left.

    python -m tests.rooms                 the table of rooms
    python -m tests.rooms --remove        the same, and each room is tried
    python -m tests.rooms --remove data   only these
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from dtctl.agent.rooms import ROOMS as AGENT_ROOMS
from dtctl.rooms import ROOMS

ROOT = Path(__file__).resolve().parents[1]
API_NEEDS = ("check", "checkpoints", "data", "diagnose", "execute", "metrics", "pages")
FOLDERS = ("dtctl/rooms", "dtctl/agent/rooms")
TABLES = tuple(f"{folder}/__init__.py" for folder in FOLDERS)


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
    return set(API_NEEDS if room == "api" else ROOMS[room].needs)


def with_those_that_need(room: str) -> set[str]:
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


def modules(folder: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


@cache
def tests_by_rooms() -> dict[Path, frozenset[str]]:
    """The files of tests, and the rooms that each of them imports, by itself or by what it imports of the tests."""
    direct: dict[str, tuple[Path, set[str], set[str]]] = {}
    for name, path in modules("tests"):
        used, others = set[str](), set[str]()
        for node in ast.walk(ast.parse(path.read_text())):
            full = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                full = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            used |= {room_of(one) for one in full if one.startswith("dtctl")} - {""}
            others |= {one for one in full if one.startswith("tests")}
        used |= {room for room in names() if re.search(rf"\brooms[./]{room}\b", path.read_text())}
        direct[name] = path, used, others
    found = {}
    for name, (path, _, _) in direct.items():
        seen, waiting, used = set[str](), [name], set[str]()
        while waiting:
            one = waiting.pop()
            if one in direct and one not in seen:
                seen.add(one)
                used |= direct[one][1]
                waiting += direct[one][2]
        found[path] = frozenset(used & set(names()))
    return found


def without(rooms: Iterable[str], copy: Path) -> None:
    """Removes rooms from a copy of the tree: their folders, their rows, what joins them to others, and their tests."""
    for room in rooms:
        for folder in (*(f"{one}/{room}" for one in FOLDERS), *(["dtctl/api"] if room == "api" else [])):
            shutil.rmtree(copy / folder, ignore_errors=True)
        for folder in FOLDERS:
            for joint in (copy / folder).glob(f"*/{room}.py"):
                joint.unlink()
    for table in TABLES:
        path = copy / table
        path.write_text(_without_rows(path.read_text(), set(rooms), path.parent))
    if "api" in rooms:
        (copy / "dtctl/__init__.py").write_text('"""Without the API."""\n\n__version__ = "0"\n')


def _without_rows(text: str, rooms: set[str], folder: Path) -> str:
    """The table without the rows of these rooms, and without the parts of others whose module is gone."""
    table = next(
        node.value
        for node in ast.parse(text).body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict)
        and "ROOMS" in ast.unparse(node).split("=")[0].split(":")[0]
    )  # fmt: skip
    lines = text.splitlines(keepends=True)
    for key, value in reversed([*zip(table.keys, table.values, strict=True)]):
        assert isinstance(key, ast.Constant)
        assert isinstance(key.value, str)
        first, last = key.lineno, value.end_lineno or key.lineno
        if key.value in rooms:
            del lines[first - 1 : last]
            continue
        own = "".join(lines[first - 1 : last])
        for part in re.findall(r'\w+="(\w+)\.\w+"', own) + re.findall(r'topics=\{"\w+": \("(\w+)\.', own):
            if not (folder / key.value / f"{part}.py").exists() and not (folder / key.value / part).is_dir():
                own = re.sub(rf'(?m)^\s*(\w+="{part}\.\w+"|topics=\{{"\w+": \("{part}\..*\)\}}),\n', "", own)
                own = re.sub(rf'(, |(?<=\())\w+="{part}\.\w+"', "", own).replace("Room(, ", "Room(")
        lines[first - 1 : last] = [own]
    return "".join(lines)


def tried(room: str) -> list[str]:
    """What a copy without the room does not pass; empty: dtctl stands without it."""
    gone = with_those_that_need(room)
    with tempfile.TemporaryDirectory(prefix="dtctl-rooms-") as place:
        copy = Path(place) / "dtctl"
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in listed.splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        without(gone, copy)
        env = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "HOME": place}

        def run(*command: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=copy, env=env, capture_output=True, text=True, check=False
            )
            return "" if done.returncode == 0 else "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])

        tests = [
            str(path.relative_to(ROOT))
            for path, used in tests_by_rooms().items()
            if not used & gone and path.is_relative_to(ROOT / "tests/unit") and path.name.startswith("test_")
            and path.name not in OF_THE_WHOLE
        ]  # fmt: skip
        problems = [
            ("mypy", run("mypy", "--no-incremental", "-p", "dtctl")),
            ("imports", run("tests.importing")),
            ("tests", run("pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)),
        ]
    return [f"{what}: {text}" for what, text in problems if text]


OF_THE_WHOLE = ("test_structure.py", "test_pages.py", "test_table.py")
"""Tests about all of dtctl, with the rooms."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rooms")
    parser.add_argument("--remove", nargs="*", metavar="ROOM")
    args = parser.parse_args()
    sizes = dict.fromkeys(("", *names()), 0)
    tests = dict(sizes)
    for name, path in modules("dtctl"):
        sizes[room_of(name)] += lines_of_code(path)
    for path, used in tests_by_rooms().items():
        owner = next(iter(used)) if len(used) == 1 else ""
        tests[owner] += lines_of_code(path)
    chosen = None if args.remove is None else args.remove or list(names())
    failed = False
    print(f"{'room':<12} {'code':>7} {'tests':>7}  needs")
    for room in sorted(sizes, key=lambda one: (bool(one), -sizes[one])):
        problems = tried(room) if chosen is not None and room in chosen else []
        is_tried = chosen is not None and room in chosen
        stands = f"  dtctl stands without it: {'no' if problems else 'yes'}" if is_tried else ""
        need = ", ".join(sorted(needs(room))) if room else ""
        print(f"{room or 'the core':<12} {sizes[room]:>7,} {tests[room]:>7,}  {need}{stands}", flush=True)
        for problem in problems:
            failed = True
            print(problem)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

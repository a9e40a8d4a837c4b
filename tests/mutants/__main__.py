"""`python -m tests.mutants [MODULE ...]` tells which small faults no test finds.

A module is written as its file below dtctl, `plan/gpus`, or as its room, `plan`. It fails when fewer than 95 of 100
are found, those that change nothing (equivalent.txt) left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.equivalent import Equivalents
from tests.mutants.making import Mutant
from tests.mutants.running import Result, try_module

ROOT = Path(__file__).parents[2]
ENOUGH = 0.95

MODULES = (
    *(f"agent/coordinate/{name}" for name in ("contacts", "incidents", "lifecycle", "orders", "recovery", "view")),
    *(f"agent/run/{name}" for name in ("cause", "goodput", "hangs", "intents", "outcome", "policy")),
    "agent/checkpoints/tensor_bundle",
    "agent/link/stream",
    "agent/supervise/step_reader",
    *(f"config/{name}" for name in ("placement", "ranges")),
    *(f"plan/{name}" for name in ("dialects", "hosts", "roster", "run")),
    *(f"operations/checks/network/{name}" for name in ("exchange", "exposure", "firewall", "judging", "tasks")),
    *(f"operations/checks/{name}" for name in ("machine", "speed", "storage")),
    *(f"operations/diagnosis/{name}" for name in ("hosts", "signatures")),
    "transport/ssh/known_hosts",
)
"""Decisions that are functions of what they are told."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    modules = _chosen(parser.parse_args().modules)
    if isinstance(modules, str):
        parser.error(modules)
    os.chdir(ROOT)
    equivalents = Equivalents.read()
    tried = found = 0
    problems = []
    for module in modules:
        result = try_module("dtctl." + module.replace("/", "."), tests_of(module, ROOT))
        left = equivalents.left_of(result.module, [*result.unseen, *result.survivors])
        counted = result.tried - result.survived + len(left)
        tried, found = tried + counted, found + counted - len(left)
        _show(result, left, counted)
        problems += [f"{result.module}: {result.problem}"] if result.problem else []
    if tried:
        print(f"{found} of {tried} found ({found / tried:.1%})")
    problems += [f"equivalent.txt: no such survivor any more: {text}" for text in equivalents.stale()]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems or found < ENOUGH * tried else 0


def _chosen(words: Sequence[str]) -> list[str] | str:
    """The modules that are named; else what is wrong with a word."""
    chosen = []
    for word in words:
        named = [module for module in MODULES if f"{module}/".startswith(f"{word.strip('/').removesuffix('.py')}/")]
        if not named:
            return f"{word} is none of {', '.join(MODULES)}"
        chosen += named
    return chosen or list(MODULES)


def tests_of(module: str, root: Path) -> list[str]:
    """Those that import it or have its name, in the folder of unit tests that mirrors its room.

    Where there is none: that whole folder; of a folder for more than its room, the tests that import the room.
    """
    *rooms, name = module.split("/")
    unit = root / "tests" / "unit"
    folder = _folder(unit, rooms)
    tests = sorted(folder.glob("test_*.py"))
    own = [test for test in tests if _imports(test, ["dtctl", *rooms], name)]
    named = [test for test in tests if f"{test.stem}_".startswith(f"test_{name}_")]
    found = sorted({*own, *named}) if own else []
    if not found and folder.name != rooms[-1]:
        found = [test for test in tests if _imports(test, ["dtctl", *rooms[:-1]], rooms[-1])]
    return [str(path.relative_to(root)) for path in found or [folder]]


def _folder(unit: Path, rooms: Sequence[str]) -> Path:
    """`operations/checks` may be mirrored by `checks` as well; else by what mirrors `operations`."""
    outer = [unit.joinpath(*rooms[:-more]) for more in range(1, len(rooms))]
    wanted = [unit.joinpath(*rooms), unit / rooms[-1], *outer]
    return next((folder for folder in wanted if (folder / "__init__.py").exists()), unit)


def _imports(test: Path, package: Sequence[str], name: str) -> bool:
    parent = re.escape(".".join(package))
    return re.search(rf"^from {parent}(\.{name}[. ]| import .*\b{name}\b)", test.read_text(), re.MULTILINE) is not None


def _show(result: Result, left: Sequence[Mutant], counted: int) -> None:
    share = f"{counted - len(left):4} of {counted:4}"
    print(f"{result.module:42} {share}   {result.seconds:5.1f} s", flush=True)
    for test in result.left_out:
        print(f"  without {test}, which fails by itself")
    for mutant in left:
        unseen = "  (no test runs this line)" if mutant in result.unseen else ""
        print(f"{_file(result.module)}:{mutant}{unseen}", flush=True)


def _file(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return os.path.relpath(spec.origin)


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant
from tests.mutants.running import Result, try_module

FILE = Path(__file__).with_name("equivalent.txt")

Key = tuple[str, str, str]
"""Module, line before and after."""


@dataclass
class Equivalents:
    known: dict[Key, str]
    used: set[Key]
    asked: set[str]

    @classmethod
    def read(cls, text: str | None = None) -> Equivalents:
        """Blocks of a module, `- before`, `+ after`, and why; raises ValueError."""
        known = {}
        for block in (FILE.read_text() if text is None else text).split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if not lines:
                continue
            if len(lines) < 4 or not lines[1].startswith("- ") or not lines[2].startswith("+ "):
                raise ValueError(f"{FILE.name}: not a module, a line before, one after and a reason: {block}")
            known[lines[0], lines[1][2:], lines[2][2:]] = " ".join(lines[3:])
        return cls(known, set(), set())

    def left_of(self, module: str, survivors: Iterable[Mutant]) -> list[Mutant]:
        """Those that nobody has explained."""
        self.asked.add(module)
        left = []
        for mutant in survivors:
            key = (module, mutant.before, mutant.after)
            self.used.add(key)
            if key not in self.known:
                left.append(mutant)
        return sorted(left, key=lambda mutant: mutant.line)

    def stale(self) -> list[str]:
        """Of the modules that were asked for."""
        return [f"{key[0]}: + {key[2]}" for key in self.known if key[0] in self.asked and key not in self.used]


ROOT = Path(__file__).parents[2]
ENOUGH = 0.95

MODULES = (
    *(
        f"agent/coordinate/{name}"
        for name in ("contacts", "hangs", "incidents", "lifecycle", "orders", "recovery", "view")
    ),
    *(f"agent/run/{name}" for name in ("cause", "goodput", "hangs", "intents", "outcome", "policy")),
    "agent/checkpoints/tensor_bundle",
    "agent/link/peer",
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


def _chosen(args: Sequence[str]) -> list[str] | str:
    """The modules that are named; else what is wrong with a word."""
    chosen = []
    for word in args:
        named = [module for module in MODULES if f"{module}/".startswith(f"{word.strip('/').removesuffix('.py')}/")]
        if not named:
            return f"{word} is none of {', '.join(MODULES)}"
        chosen += named
    return chosen or list(MODULES)


def tests_of(module: str, root: Path) -> list[str]:
    """The unit tests that import it."""
    parent, _, name = f"dtctl/{module}".replace("/", ".").rpartition(".")
    imports = re.compile(rf"^from {re.escape(parent)}(\.{name} import| import .*\b{name}\b)", re.MULTILINE)
    tests = sorted((root / "tests" / "unit").rglob("test_*.py"))
    return [str(test.relative_to(root)) for test in tests if imports.search(test.read_text())]


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

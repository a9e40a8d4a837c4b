"""equivalent.txt: survivors that no test can find, because they change nothing that anybody could see, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant

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

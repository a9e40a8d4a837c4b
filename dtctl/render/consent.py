"""What a cluster file would start on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl.render.terminal import console
from dtctl.render.words import fold

if TYPE_CHECKING:
    from dtctl.operations.consent import Program


def show_programs(programs: Sequence[Program]) -> None:
    console.tell("this would start on this machine:")
    for line in program_lines(programs):
        console.tell(f"  {line}")


def program_lines(programs: Sequence[Program]) -> Iterator[str]:
    for one in programs:
        where = f" on {fold(one.hosts)}" if one.hosts else ""
        yield f"{one.what}{where}: {shlex.join(one.words)}"
        for name, value in one.settings.items():
            yield f"    {name}: {value}"

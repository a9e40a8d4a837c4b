"""What `import` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dtctl.render.format import count

if TYPE_CHECKING:
    from dtctl.rooms.importing.operation import Imported


def summary(made: Imported) -> Iterator[str]:
    jobs = ", ".join(f"{job} {tasks}" for job, tasks in made.jobs.items())
    yield f"wrote {made.file} from {made.found.kind}: {count(len(made.found.machines), 'host')}, {jobs}"
    if made.needs_command:
        yield "to fill in: trainer.command"
    for note in made.found.to_fill:
        yield f"to fill in: {note.text}"
    if made.found.left_out:
        yield f"left out: {count(len(made.found.left_out), 'thing')}; comments in the file name them"
    yield "next:"
    yield f"dtctl plan {made.file}    shows what would start"

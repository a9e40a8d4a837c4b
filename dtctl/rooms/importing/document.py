"""The machine form of the result of `import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtctl.rooms.importing.operation import Imported


def imported(made: Imported, *, written: bool) -> dict[str, Any]:
    found = made.found
    notes = {
        "toFill": [{"text": note.text, "place": str(note.place or "")} for note in found.to_fill],
        "leftOut": [{"text": note.text, "place": str(note.place or "")} for note in found.left_out],
    }
    return {
        "file": str(made.file),
        "written": written,
        "format": made.format,
        "hosts": [machine.name for machine in found.machines],
        "jobs": dict(made.jobs),
        "needsCommand": made.needs_command,
        **notes,
    }

"""The machine form of a run's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtctl.render.machine.document import picked
from dtctl.render.machine.status import revision

if TYPE_CHECKING:
    from dtctl.model import Revision
    from dtctl.operations.history import CodeRecord
    from dtctl.rooms.code.operation import Restored


def restored(found: Restored, version: Revision | None) -> dict[str, Any]:
    known = picked(found, "run host bundle files size_bytes=sizeBytes is_as_sent=asSent")
    return {**known, "directory": str(found.directory.absolute()), "revision": revision(version)}


def code(run: str | None, version: Revision | None, known: CodeRecord | None) -> dict[str, Any]:
    return {"run": run, "revision": revision(version), "diff": known.diff if known is not None else None}

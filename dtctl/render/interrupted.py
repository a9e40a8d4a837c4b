"""What Ctrl-C has left of a start: never more than is certain."""

from __future__ import annotations

import shlex
from pathlib import Path

from dtctl.operations.starting.interrupts import Left
from dtctl.render.errors import note, show_warning
from dtctl.render.words import fold


def show_interrupted(left: Left, file: Path) -> None:
    named = f" -c {shlex.quote(str(file))}" if left.unremembered is not None else ""
    if left.kept:
        note(
            f"interrupted, but {left.run} had started completely and continues",
            f"dtctl status{named}    shows it",
            f"dtctl stop{named}      ends it",
        )
    elif left.unclear:
        note(
            f"interrupted: {fold(left.unclear)} did not say whether what had been started is taken back",
            f"dtctl status{named}    shows what goes on; a host that has lost its controller takes it back by itself",
            f"dtctl stop{named}      ends it",
        )
    elif left.started:
        note("interrupted: what had been started was taken back")
    else:
        note("interrupted before anything was started")
    for run in left.ended:
        note(f"{run}, which this run was to replace, was told to stop", "dtctl up    starts from the file again")
    if left.unremembered is not None and (left.kept or left.unclear):
        show_warning(f"{left.unremembered.summary}: {left.unremembered.detail}".rstrip(": "))

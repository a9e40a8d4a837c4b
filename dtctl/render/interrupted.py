"""What Ctrl-C has left of a start: never more than is certain."""

from __future__ import annotations

import shlex
from pathlib import Path

from dtctl.operations.up.rollback import Left
from dtctl.render.errors import interrupted, note, show_warning
from dtctl.render.words import fold


def show_interrupted(left: Left, file: Path, *, brought: bool = False) -> None:
    """`brought`: hosts had been reached, and keep what has arrived of the code."""
    named = f" -c {shlex.quote(str(file))}" if left.unremembered is not None else ""
    kept = "; the hosts keep the code that has arrived" if brought else ""
    if left.kept:
        interrupted(
            f"{left.run} had started completely and continues",
            f"dtctl status{named}    shows it",
            f"dtctl stop{named}      ends it",
        )
    elif left.unclear:
        interrupted(
            f"{fold(left.unclear)} did not confirm that the start is cancelled there",
            f"dtctl status{named}    shows what goes on; a host that has lost its controller cancels by itself",
            f"dtctl stop{named}      ends it",
        )
    elif left.started:
        interrupted(f"start cancelled; all tasks stopped{kept}")
    else:
        interrupted(f"nothing was started{kept}")
    for run in left.ended:
        note(f"{run} was stopped to make room for this run", "dtctl up    starts from the file again")
    if left.unremembered is not None and (left.kept or left.unclear):
        show_warning(f"{left.unremembered.summary}: {left.unremembered.detail}".rstrip(": "))

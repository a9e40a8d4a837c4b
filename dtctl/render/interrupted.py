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
            f"{fold(left.unclear)} did not say whether what had been started is taken back",
            f"dtctl status{named}    shows what goes on; a host that has lost its controller takes it back by itself",
            f"dtctl stop{named}      ends it",
        )
    elif left.started:
        interrupted(f"what had been started was taken back{kept}")
    else:
        interrupted(f"nothing was started{kept}")
    for run in left.ended:
        note(f"{run}, which this run was to replace, was told to stop", "dtctl up    starts from the file again")
    if left.unremembered is not None and (left.kept or left.unclear):
        show_warning(f"{left.unremembered.summary}: {left.unremembered.detail}".rstrip(": "))

"""What a start leaves on this machine: files that look like secrets, and whether the run is remembered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtctl.render.errors import note, show_warning

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.operations.up.result import UpResult
    from dtctl.operations.up.secrets import Exposure

_SHOWN = 5


def show_left_out(bundle: Bundle) -> None:
    if bundle.withheld:
        rule = f"!{_as_rule(bundle.withheld[0])}"
        note(f"not pushed: {_folded(bundle.withheld)} (a line such as {rule} in .dtctlignore pushes one)")
    if bundle.twins:
        note(f"not pushed: {_folded(bundle.twins)} (identical to a file of secrets or keys that this run uses)")


def show_exposure(exposed: Exposure | None) -> None:
    if exposed is not None:
        show_warning(f"{exposed.file} {exposed.what}", hint=exposed.remedy)


def show_unremembered(outcome: UpResult) -> None:
    if (error := outcome.unremembered) is not None:
        show_warning(f"{error.summary}: {error.detail}".rstrip(": "), hint=error.hint)


def _folded(paths: Sequence[str]) -> str:
    rest = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + rest


def _as_rule(path: str) -> str:
    return re.sub(r"([\\*?\[])", r"\\\1", path)

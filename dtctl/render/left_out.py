"""What a start leaves on this machine: files that look like secrets, and whether the run is remembered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtctl.bundle.manifest import OWN
from dtctl.render.errors import note, show_warning
from dtctl.render.words import count

if TYPE_CHECKING:
    from pathlib import Path

    from dtctl.bundle import Bundle, LeftOut
    from dtctl.operations.up.local import Exposure
    from dtctl.operations.up.result import UpResult

_SHOWN = 5


def show_left_out(bundle: Bundle, cluster_file: Path | None = None) -> None:
    """The cluster file itself, which no trainer reads, is not worth a line."""
    if bundle.withheld:
        rule = f"!{_as_rule(bundle.withheld[0].path)}"
        note(f"not pushed: {_with_rules(bundle.withheld)} (a line such as {rule} in .dtctlignore pushes one)")
    if bundle.twins:
        note(f"not pushed: {_folded(bundle.twins)} (identical to a file of secrets or keys that this run uses)")
    by_rule: dict[str, list[str]] = {}
    for one in bundle.skipped:
        if bundle.root / one.path == cluster_file:
            continue
        by_rule.setdefault(one.rule, []).append(one.path)
    by_rule.pop(OWN, None)
    if by_rule:
        number = count(sum(map(len, by_rule.values())), "path")
        told = [f"{paths[0] if len(paths) == 1 else len(paths)} [{rule}]" for rule, paths in by_rule.items()]
        note(f"not pushed by your ignore rules: {number}: {_folded(told)}")


def show_exposure(exposed: Exposure | None) -> None:
    if exposed is not None:
        show_warning(f"{exposed.file} {exposed.what}", hint=exposed.remedy)


def show_unremembered(outcome: UpResult) -> None:
    if (error := outcome.unremembered) is not None:
        show_warning(f"{error.summary}: {error.detail}".rstrip(": "), hint=error.hint)


def _with_rules(left_out: Sequence[LeftOut]) -> str:
    """The rule beside each, unless it says the same."""
    return _folded([one.path if one.rule == one.path else f"{one.path} [{one.rule}]" for one in left_out])


def _folded(paths: Sequence[str]) -> str:
    rest = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + rest


def _as_rule(path: str) -> str:
    return re.sub(r"([\\*?\[])", r"\\\1", path)

"""Who did not answer, or not all that was to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dtctl.operations.report.tree import Report
from dtctl.render.errors import note
from dtctl.render.words import fold


def gaps(report: Report) -> Iterator[tuple[str, str]]:
    """Host, and why something of it is missing."""
    for host, error in report.errors.items():
        left = report.unasked.get(host)
        yield host, f"{error.summary}; {_not_asked(left)}" if left else error.summary


def show_unasked(unasked: Mapping[str, Sequence[str]]) -> None:
    """One line for all hosts that were spared the same."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, left in unasked.items():
        alike.setdefault(tuple(left), []).append(host)
    for parts, hosts in alike.items():
        note(f"{fold(hosts)}: {_not_asked(parts)}")


def _not_asked(parts: Sequence[str]) -> str:
    return f"not asked for {' and '.join(parts)} any more"

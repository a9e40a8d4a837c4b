"""Who did not answer, or not all that was to be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dtctl.operations.report.tree import Report
from dtctl.render.errors import note
from dtctl.render.words import fold
from dtctl.transport.group_errors import rows


def gaps(report: Report) -> Iterator[str]:
    """A line for each reason, and one for all hosts that were spared the same."""
    yield from (row.text for row in rows(report.errors))
    yield from _spared(report.unasked)


def show_unasked(unasked: Mapping[str, Sequence[str]]) -> None:
    for line in _spared(unasked):
        note(line)


def _spared(unasked: Mapping[str, Sequence[str]]) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, left in unasked.items():
        alike.setdefault(tuple(left), []).append(host)
    for parts, hosts in alike.items():
        yield f"{fold(hosts)}: not asked for {' and '.join(parts)} any more"

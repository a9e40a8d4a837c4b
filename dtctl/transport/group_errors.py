"""Hosts that failed for the same reason, reported as one: of 300 hosts 30 may fail, for four reasons."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError, advice

MOST_KINDS = 20
"""The most reasons that are shown; of more, only the hosts are named."""

APART = "    "
"""The separator between the finding and the command to type."""

_PLACE = "\0"
"""The placeholder for the host's own name."""


@dataclass(frozen=True)
class ErrorGroup:
    """`hosts` failed in the same way, and `first` is the error of the first of them."""

    hosts: tuple[str, ...]
    first: DtctlError
    same_hint: bool
    same_detail: bool

    @property
    def alone(self) -> bool:
        return len(self.hosts) == 1

    @property
    def covers_all(self) -> bool:
        """Whether the first error has a summary that was written for several hosts."""
        return not self.alone and isinstance(self.first, TransportError) and bool(self.first.shared_summary)

    @property
    def summary(self) -> str:
        """The summary, with the names of the hosts."""
        name = self.hosts[0]
        if self.alone:
            known = name.lstrip("@") in self.first.summary
            return self.first.summary if known else f"{name}: {_bare(self.first, name)}"
        text = _summary(self.first, name)
        return text.replace(_PLACE, fold(self.hosts)) if _PLACE in text else f"{fold(self.hosts)}: {text}"

    @property
    def detail(self) -> str:
        """The detail; for several hosts, that of the first."""
        if self.covers_all and self.first.detail in self.summary:
            return ""
        if self.alone or not self.first.detail or self.same_detail:
            return self.first.detail
        return "" if self.covers_all else f"on {self.hosts[0]}:\n{self.first.detail}"

    @property
    def hint(self) -> str:
        """A command to type, or a thing to check; if hosts differ, the first host's."""
        return self._for_all(self.first.hint)

    @property
    def next_step(self) -> str:
        """The hint for an error among others: it names the hosts that sent it."""
        whose = getattr(self.first, "host", "")
        step = advice(self.first)
        return self._for_all(step.replace(f"{whose} says:", f"{fold(self.hosts)} says:", 1) if whose else step)

    def _for_all(self, hint: str) -> str:
        return hint if self.same_hint or not hint else f"{hint}    and the same for the others"


def group_errors(errors: Mapping[str, DtctlError]) -> tuple[ErrorGroup, ...]:
    """Errors by their reason, in the order of their first hosts."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, error in errors.items():
        groups.setdefault((type(error).__name__, _summary(error, name)), []).append(name)
    return tuple(
        ErrorGroup(
            tuple(names),
            errors[names[0]],
            len({errors[name].hint for name in names}) == 1,
            len({_without(errors[name].detail, name) for name in names}) == 1,
        )
        for names in groups.values()
    )


@dataclass(frozen=True)
class Row:
    """A reason with the names of its hosts, the next command among other reasons, and details."""

    text: str
    next_step: str = ""
    below: tuple[str, ...] = ()


def rows(errors: Mapping[str, DtctlError]) -> list[Row]:
    """One row for each reason. Among several reasons, a group leaves out details that its summary covers."""
    groups = group_errors(errors)
    several = len(groups) > 1
    shown = [
        Row(
            group.summary,
            next(iter(group.next_step.splitlines()), "") if several else "",
            () if several and group.covers_all else tuple(group.detail.splitlines()),
        )
        for group in groups[:MOST_KINDS]
    ]
    more = [name for group in groups[MOST_KINDS:] for name in group.hosts]
    return [*shown, Row(f"{fold(more)}: for other reasons")] if more else shown


def lines(errors: Mapping[str, DtctlError]) -> list[str]:
    """The same as text; each reason is one line of any length."""
    return [
        line
        for row in rows(errors)
        for line in (APART.join(filter(None, [row.text, row.next_step])), *(f"  {each}" for each in row.below))
    ]


def _summary(error: DtctlError, name: str) -> str:
    """The summary with the host's name replaced, the same for all hosts with this failure."""
    if isinstance(error, TransportError) and error.shared_summary:
        return error.shared_summary
    return _without(_bare(error, name), name)


def _bare(error: DtctlError, name: str) -> str:
    return error.summary.removeprefix(f"{name.lstrip('@')}: ")


def _without(text: str, name: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", _PLACE, text)

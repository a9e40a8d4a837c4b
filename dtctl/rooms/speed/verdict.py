"""A cause that makes a run slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dtctl.dataclass import dataclass
from dtctl.rooms.speed.expected import Range

Kind = Literal[
    "unbalanced",
    "busy_server",
    "network",
    "loss",
    "throttled",
    "shared_cpu",
    "oversubscribed",
    "swapping",
    "stolen",
    "straggler",
    "stale",
    "saves",
    "feeder",
    "input",
]

_OF_HOSTS = ("network", "loss", "shared_cpu", "oversubscribed", "stolen")


@dataclass(frozen=True)
class Verdict:
    """A cause. `tasks` and `hosts`: whom it is about; `figures`: its evidence."""

    kind: Kind
    tasks: tuple[str, ...]
    hosts: tuple[str, ...]
    costs: float
    """The share of the workers' time that it takes, at most."""
    figures: Mapping[str, Any]
    expected: Range | None = None
    """How many times the steps a second, if it is removed: at least and at most."""
    minutes: int = 1
    """The number of judged minutes in which it held."""

    @property
    def subject(self) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
        """The same in each minute; which of a host's tasks suffer may change."""
        return self.kind, () if self.kind in _OF_HOSTS else self.tasks, self.hosts

"""Goodput as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.model import TaskId


@dataclass(frozen=True)
class Span:
    """What a time was spent on, in seconds since the account was begun. `step`: the newest that was told by its end."""

    what: str
    begin_s: float
    end_s: float
    step: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Gain:
    """What would raise the goodput by this share of the elapsed time.

    `checkpoints`: that there were any, at most. `save`: a checkpoint every `to_s` in place of `from_s`.
    `stall`: a limit of `to_s` for what hangs, where it took `from_s` to notice.
    `losses`: that `task` had not been lost, `count` times.
    """

    kind: str
    share: float
    from_s: float = 0.0
    to_s: float = 0.0
    task: TaskId | None = None
    count: int = 0


@dataclass(frozen=True)
class Goodput:
    """`seconds` of each part (the keys of `rules.PARTS`), which add up to `elapsed_s`."""

    since: float
    """Epoch seconds of the coordinator's host."""
    elapsed_s: float
    seconds: Mapping[str, float]
    spans: tuple[Span, ...]
    gains: tuple[Gain, ...] = ()
    """The largest first."""
    by_scalars: bool = False
    """The logs told no step; event files did."""

    @property
    def share(self) -> float:
        return self.share_of("kept")

    def share_of(self, what: str) -> float:
        return self.seconds.get(what, 0.0) / self.elapsed_s if self.elapsed_s else 0.0

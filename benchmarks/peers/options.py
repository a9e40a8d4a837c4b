"""What a benchmark beside the peers is asked for, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.contest import Standings
from dtctl.transport.fanout import WIDTH


@dataclass(frozen=True)
class Options:
    rounds: int = 3
    hosts: int | None = None
    """None: as many as each benchmark says."""
    width: int = WIDTH
    """How many hosts at once; dtctl's own cannot be changed."""


@dataclass(frozen=True)
class Report:
    hosts: int
    sections: Sequence[str]
    standings: Sequence[Standings]

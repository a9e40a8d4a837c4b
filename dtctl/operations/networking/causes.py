"""What is wrong with a network, as facts; render makes sentences of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Level(IntEnum):
    """What it does to a run."""

    BLOCKS = 1
    """The run does not start, or hangs."""
    DANGER = 2
    """It runs, and strangers may do harm."""
    NOTE = 3
    """Good to know."""


@dataclass(frozen=True)
class Cause:
    """One cause of whatever many connections have failed of it.

    `hosts`: where it is to be mended. `others`: whom it concerns there.
    """

    kind: str
    level: Level
    hosts: tuple[str, ...]
    others: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        """By what it does; what concerns many hosts goes first."""
        return self.level, -len(self.hosts) - len(self.others)

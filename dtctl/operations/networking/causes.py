"""What is wrong with a network, as facts; the rows of of_tasks.py make sentences of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cause:
    """One cause of whatever many connections have failed of it.

    `hosts`: where it is to be mended. `others`: whom it concerns there.
    """

    kind: str
    hosts: tuple[str, ...]
    others: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

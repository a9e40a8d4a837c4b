"""The topics of `check`, in the order in which they are told."""

from __future__ import annotations

from typing import Any

from dtctl.operations.checks import machine, network, software, ssh, storage
from dtctl.operations.checks.topic import Topic

TOPICS: tuple[Topic[Any, Any], ...] = (
    network.TOPIC,
    storage.TOPIC,
    software.TOPIC,
    machine.TOPIC,
    ssh.TOPIC,
)

ROWS = tuple(row for topic in TOPICS for row in topic.rows)

"""The topics of `check`, in the order in which they are told."""

from __future__ import annotations

from typing import Any

from dtctl.operations.checks import machine, of_machine, of_software, software, speed, storage
from dtctl.operations.checks.topic import Topic
from dtctl.operations.networking import logins, tasks

TOPICS: tuple[Topic[Any, Any], ...] = (
    tasks.TOPIC,
    storage.TOPIC,
    software.TOPIC,
    machine.TOPIC,
    speed.TOPIC,
    logins.TOPIC,
)

STOPPING = (of_software.PYTHON_MISSING, of_software.MODULES_MISSING, of_software.SYNTAX_ERROR, *of_machine.GPUS_LACKING)
"""What is so certain to make tasks fail that `up` starts nothing."""

ROWS = tuple(row for topic in TOPICS for row in topic.rows)

"""The topics of `check`, in the order in which they are told."""

from __future__ import annotations

from typing import Any

from dtctl.operations.checks import machine, software, speed, storage
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

STOPPING = ("python_missing", "modules_missing", "syntax_error", "gpus_missing", "gpus_unseen", "gpus_silent")
"""What is so certain to make tasks fail that `up` starts nothing."""

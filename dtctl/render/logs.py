"""Log lines on stdout: several tasks merged, each line with the name of its task."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable

from dtctl.model import TaskId
from dtctl.operations.logs import LogLines
from dtctl.render import console

_COLORS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""ANSI foregrounds, told apart on dark and on light."""


class LogPrinter:
    """Writes whole lines only. A progress bar that redraws itself with \\r leaves its last state."""

    def __init__(self, tasks: Iterable[TaskId], *, prefix: bool, timestamps: bool) -> None:
        names = [str(task) for task in tasks]
        width = max((len(name) for name in names), default=0)
        color = console.colored()
        self._prefixes = {
            name: _prefix(name.ljust(width), _COLORS[index % len(_COLORS)] if color else None)
            for index, name in enumerate(names)
        }
        self._prefix = prefix
        self._timestamps = timestamps
        self._attempts: dict[TaskId, int] = {}

    def print(self, lines: LogLines) -> None:
        head = self._prefixes.get(str(lines.task), f"{lines.task} | ") if self._prefix else ""
        if self._timestamps:
            head += time.strftime("%Y-%m-%dT%H:%M:%S ", time.localtime(lines.time))
        before = self._attempts.get(lines.task)
        text = "".join(f"{head}{line}\n" for line in readable_lines(lines.data))
        if before is not None and before != lines.attempt:
            text = f"{head}--- attempt {lines.attempt} ---\n{text}"
        if lines.truncated:
            text = f"{head}--- the log was cut; from its new start ---\n{text}"
        self._attempts[lines.task] = lines.attempt
        sys.stdout.write(text)
        sys.stdout.flush()


def readable_lines(data: bytes) -> list[str]:
    """The lines as a terminal would leave them; bytes that are no UTF-8 become U+FFFD."""
    lines = data.decode("utf-8", errors="replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def _prefix(name: str, color: int | None) -> str:
    return f"{name} | " if color is None else f"\x1b[{color}m{name} |\x1b[0m "

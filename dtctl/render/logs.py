"""Log lines on stdout: several tasks merged, each line with the name of its task."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from dtctl.model import TaskId
from dtctl.operations.logs import LogLines
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import log_lines, one_line
from dtctl.render.words import local_time

_COLORS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""ANSI foregrounds, told apart on dark and on light."""


REMEMBERED = 200
"""Lines, of all tasks, after which nobody still sees what was shown."""

_TAIL_BYTES = 64 * 1024


class LogPrinter:
    """Writes whole lines, safe for a screen; with `raw` the bytes of the log and nothing but the heads of its lines."""

    def __init__(self, tasks: Iterable[TaskId], *, prefix: bool, timestamps: bool, raw: bool = False) -> None:
        names = [str(task) for task in tasks]
        self._width = max((len(name) for name in names), default=0)
        self._color = console.colored()
        self._colors = {name: _COLORS[index % len(_COLORS)] for index, name in enumerate(names)} if self._color else {}
        self._prefix = prefix
        self._timestamps = timestamps
        self._raw = raw
        self._attempts: dict[TaskId, int] = {}
        self._last: deque[tuple[TaskId, str]] = deque(maxlen=REMEMBERED)

    def print(self, lines: LogLines) -> None:
        head = self._head(lines)
        if self._raw:
            self._remember(lines)
            return console.pass_on(_headed(head.encode(), lines.data))
        before = self._attempts.get(lines.task)
        self._attempts[lines.task] = lines.attempt
        shown = log_lines(lines.data, color=self._color)
        self._remember(lines)
        if before is not None and before != lines.attempt:
            shown.insert(0, f"--- attempt {lines.attempt} ---")
        if lines.truncated:
            shown.insert(0, "--- the log was cut; from its new start ---")
        if shown:
            console.put(head + f"\n{head}".join(shown) + "\n")
        return None

    def _remember(self, lines: LogLines) -> None:
        self._last.extend((lines.task, line) for line in log_lines(lines.data[-_TAIL_BYTES:], color=False))

    def has_just_shown(self, task: TaskId, tail: Sequence[str]) -> bool:
        """Whether these are the last lines of the task that were shown, not long ago."""
        own = [line.rstrip() for shown, line in self._last if shown == task and line.strip()]
        wanted = [line.rstrip() for line in tail if line.strip()]
        return own[len(own) - len(wanted) :] == wanted

    def _head(self, lines: LogLines) -> str:
        name = str(lines.task)
        color = self._colors.get(name)
        head = f"{one_line(name).ljust(self._width)} |" if self._prefix else ""
        if self._prefix:
            head = f"{head} " if color is None else f"\x1b[{color}m{head}\x1b[0m "
        return f"{head}{local_time(lines.time, '%Y-%m-%dT%H:%M:%S')} " if self._timestamps else head


def _headed(head: bytes, data: bytes) -> bytes:
    if not head:
        return data
    *lines, rest = data.split(b"\n")
    return b"".join(head + line + b"\n" for line in [*lines, *filter(None, [rest])])

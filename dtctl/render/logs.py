"""Output for a person who follows a run or a command: lines with the names of tasks, and events in between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dtctl.agent.run.log_text import is_start_up
from dtctl.agent.run.traceback import is_folded
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.operations.client.streams import Disconnected, Reconnected
from dtctl.operations.follow import PATIENCE_S, Event, Onward
from dtctl.operations.logs import LogLines
from dtctl.operations.snapshot import Coordination, RunStatus
from dtctl.render.errors import note, show_host_errors
from dtctl.render.events import Told, cause_of, news, reported_losses
from dtctl.render.format import count, fold, local_time, size
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import log_lines, one_line

if TYPE_CHECKING:
    from dtctl.agent.records.answers import Log, SetupLog
    from dtctl.model import TaskId
    from dtctl.operations.logs.reading import SavedLog


_COLORS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""ANSI foregrounds that are distinguishable on dark and on light."""


REMEMBERED = 200
"""The number of lines, of all tasks, after which earlier output has scrolled away."""

_TAIL_BYTES = 64 * 1024

START_UP_LEFT_OUT = "[TensorFlow's start-up messages are left out; --raw shows them]"


@dataclass
class LogPrinter:
    """Writes whole lines, safe for a screen; with `raw` the bytes of the log, with only the prefixes of its lines.

    What TensorFlow writes at each start is left out where nothing is wrong, unless lines were searched for (`found`).
    `gaps`: `--` between lines that are not consecutive, as in grep. `all_attempts`: the first attempt is named, too.
    """

    tasks: InitVar[Iterable[TaskId]]
    prefix: bool
    timestamps: bool
    raw: bool = False
    gaps: bool = False
    all_attempts: bool = False
    found: bool = False
    printed: bool = False
    for_people: ClassVar[bool] = True
    """Whether the output is for a person, who may be shown something between its lines."""

    def __post_init__(self, tasks: Iterable[TaskId]) -> None:
        names = [str(task) for task in tasks]
        self._width = max((len(name) for name in names), default=0)
        self._color = console.colored()
        self._colors = {name: _COLORS[index % len(_COLORS)] for index, name in enumerate(names)} if self._color else {}
        self._attempts: dict[str, int] = {}
        self._told_of_folding = False
        self._ends: dict[str, int] = {}
        """The offset in its log at which each task's last lines ended."""
        self._last: deque[tuple[str, str]] = deque(maxlen=REMEMBERED)

    def print(self, lines: LogLines) -> None:
        head = self._head(lines.log)
        if self.raw:
            self._remember(lines)
            return console.pass_on(_headed(head.encode(), lines.data))
        shown = log_lines(lines.data, color=self._color)
        if not self.found:
            without = lines.log["without_gpus"]
            kept = [line for line in shown if not is_start_up(line, without_gpus=without)]
            self._fold(hidden=len(kept) < len(shown))
            shown = kept
        self._remember(lines)
        shown[:0] = self._separator(lines.log)
        if lines.log["truncated"]:
            shown.insert(0, "--- the log was cut; from its new start ---")
        if shown:
            console.put(head + f"\n{head}".join(shown) + "\n")
        return None

    def _fold(self, *, hidden: bool) -> None:
        """Shows a person once that lines of TensorFlow's start are left out, whichever tasks they are of."""
        if hidden and not self._told_of_folding and console.on_terminal():
            self._told_of_folding = True
            console.put(START_UP_LEFT_OUT + "\n")

    def _separator(self, log: Log) -> list[str]:
        """The line between this and the earlier output of the task."""
        task, attempt = log["task"], log["attempt"]
        before, end = self._attempts.get(task), self._ends.get(task)
        self._attempts[task], self._ends[task] = attempt, log["end"]
        if attempt != before:
            return [f"--- attempt {attempt} ---"] if before is not None or self.all_attempts else []
        return ["--"] if self.gaps and log["offset"] != end else []

    def _remember(self, lines: LogLines) -> None:
        self.printed = True
        self._last.extend((lines.log["task"], line) for line in log_lines(lines.data[-_TAIL_BYTES:], color=False))

    def has_just_shown(self, task: TaskId, tail: Sequence[str], excerpt: Sequence[str]) -> bool:
        """Whether these are the last lines of the task that were recently shown, and its excerpt is no clearer."""
        own = [line.rstrip() for shown, line in self._last if shown == str(task) and line.strip()]
        wanted = [line.rstrip() for line in tail if line.strip()]
        return own[len(own) - len(wanted) :] == wanted and not any(map(is_folded, excerpt))

    def _head(self, log: Log) -> str:
        name = log["task"]
        color = self._colors.get(name)
        head = f"{one_line(name).ljust(self._width)} |" if self.prefix else ""
        if self.prefix:
            head = f"{head} " if color is None else f"\x1b[{color}m{head}\x1b[0m "
        return f"{head}{local_time(log['time'], '%Y-%m-%dT%H:%M:%S')} " if self.timestamps else head


class LogObjects(LogPrinter):
    """Writes each line as a JSON object: for programs, without separators."""

    for_people: ClassVar[bool] = False

    def print(self, lines: LogLines) -> None:
        from dtctl.render.machine.document import json_line, picked

        self._remember(lines)
        head = picked(lines.log, "task attempt time@")
        console.put("".join(json_line({**head, "text": text}) for text in lines.texts()))


def show_setup_logs(logs: Mapping[str, Sequence[SetupLog]], lines: int | None, *, as_json: bool) -> None:
    """Shows the last `lines` of each log, with the name of its host; None: all lines."""
    width = max((len(host) for host in logs), default=0)
    for host, one in ((host, one) for host, own in logs.items() for one in own):
        whole = log_lines(one["text"].encode("utf-8", "surrogatepass"), color=False)
        shown = whole if lines is None else whole[max(0, len(whole) - lines) :]
        if as_json:
            from dtctl.render.machine.document import print_json_line

            print_json_line({"host": host, "path": one["path"], "lines": shown})
        else:
            console.put("".join(f"{one_line(host).ljust(width)} | {line}\n" for line in shown))
    without = [host for host, own in logs.items() if not own]
    if without:
        note(f"{fold(without)}: the last start had no environment to make and no setup to run")


def show_saved(files: Sequence[SavedLog], directory: Path, *, as_json: bool) -> None:
    """Shows the path of each file, as it can be opened from here."""
    for file in files:
        if as_json:
            from dtctl.render.machine.document import picked, print_json_line

            print_json_line(picked(file, "task attempt path=file size_bytes"))
        else:
            console.say(str(file.path))
    if not as_json:
        total = size(sum(file.size_bytes for file in files))
        note(f"{count(len(files), 'file')} in {directory}, {total}" if files else "no line is meant: nothing was saved")


def _headed(head: bytes, data: bytes) -> bytes:
    if not head:
        return data
    *lines, rest = data.split(b"\n")
    return b"".join(head + line + b"\n" for line in [*lines, *filter(None, [rest])])


TOGETHER_S = 0.5
"""Hosts that become unreachable within this time are reported together, or as soon as nothing else comes."""


class Narrator:
    """Reports each host that becomes unreachable or reachable once, though two conversations with it may break.

    The event None: nothing has come for a while.
    """

    def __init__(
        self,
        coordinator: str,
        printer: LogPrinter | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        waits: bool = True,
    ) -> None:
        self._coordinator = coordinator
        self._waits = waits
        self._printer = printer
        self._clock = clock
        self.reported: set[tuple[str, str]] = set()
        """Causes of losses that have been reported."""
        self._told = Told()
        self._seen: Coordination | None = None
        self._away: set[str] = set()
        self._leaving: dict[str, DtctlError] = {}
        """Unreachable hosts that have not been reported yet."""
        self._since = 0.0

    def __call__(self, event: Event | None) -> None:
        if isinstance(event, Reconnected) or event is None or self._clock() - self._since >= TOGETHER_S:
            self.report_away()
        if isinstance(event, LogLines):
            if self._printer is not None:
                self._printer.print(event)
        elif isinstance(event, RunStatus) and event.coordination:
            self.reported.update(map(cause_of, reported_losses(self._seen, event.coordination)))
            for line in news(self._seen, event.coordination, self._told, waits=self._waits):
                note(line)
            self._seen = event.coordination
        elif isinstance(event, Disconnected) and event.host not in self._away:
            self._away.add(event.host)
            self._since = self._since if self._leaving else self._clock()
            self._leaving[event.host] = event.error
            if event.host == self._coordinator and not event.final:
                self.report_away()
                note("the run continues without it; trying again")
        elif isinstance(event, Reconnected) and event.host in self._away:
            self._away.discard(event.host)
            note(f"{event.host} can be reached again")

    def report_away(self) -> None:
        """Reports the unreachable hosts that have not been reported; to be called at the end, too."""
        leaving, self._leaving = self._leaving, {}
        show_host_errors(leaving)


def show_onward(ended: RunStatus, newer: Onward) -> None:
    """Reports that the logs of another run follow, or why they do not."""
    old = ended.record.run or ended.record.cluster
    if newer.record is None:
        return note(f"{old} was stopped to make room for another run, which has not begun within {PATIENCE_S:g} s")
    run = newer.record.run
    how = f"was replaced by {run}" if ended.verdict.replaced else f"has ended; {run} is newer"
    return note(f"{old} {how}: its logs follow")

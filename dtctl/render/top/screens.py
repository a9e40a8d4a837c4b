"""The screens above the table: the log of a task, and the help."""

from __future__ import annotations

from collections import deque

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key as KeyPressed
from textual.screen import ModalScreen

from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Away, Back
from dtctl.operations.logs import LogLines
from dtctl.operations.watching.feed import Feed
from dtctl.render.terminal.safe import log_lines
from dtctl.render.top.keys import LOG, help_lines, last_line
from dtctl.render.top.snapshot import Line, safe
from dtctl.render.top.widgets import Block, Lines

MOST_LINES = 10_000
_MOST_OF_LINE = 4000
"""Characters; `dtctl logs` shows all."""
_LOOK_EVERY_S = 0.1


class LogText:
    """The last lines of a log, and in between what has happened to it."""

    def __init__(self) -> None:
        self.lines: deque[Line] = deque(maxlen=MOST_LINES)
        self.width = 0
        self._attempt: int | None = None

    def hear(self, told: object) -> None:
        if isinstance(told, LogLines):
            if self._attempt not in (None, told.attempt):
                self._add(f"--- attempt {told.attempt} ---", "yellow")
            if told.truncated:
                self._add("--- the log was cut; from its new start ---", "yellow")
            self._attempt = told.attempt
            for line in log_lines(told.data, color=False):
                self._add(line.expandtabs())
        elif isinstance(told, Away):
            self._add(f"--- {told.host}: {told.error.summary} ---", "red")
        elif isinstance(told, Back):
            self._add(f"--- {told.host} can be reached again ---", "yellow")
        elif isinstance(told, DtctlError):
            self._add(f"--- {told.summary} ---", "red")
        elif isinstance(told, BaseException):
            raise told

    def _add(self, text: str, style: str = "") -> None:
        shown = safe(text if len(text) <= _MOST_OF_LINE else f"{text[:_MOST_OF_LINE]} ...")
        self.width = max(self.width, cell_len(shown))
        self.lines.append([(shown, style)])


class LogScreen(ModalScreen[None]):
    """Follows it, until somebody moves up."""

    BINDINGS = [  # noqa: RUF012
        *(Binding(key.keys, key.action, key.does, show=False) for key in LOG),
        *(
            Binding(keys, f"look_at({x}, {y})", show=False)
            for keys, x, y in (
                ("up,k", 0, -1),
                ("down,j,enter", 0, 1),
                ("left", -20, 0),
                ("right", 20, 0),
                ("pageup", 0, "'-page'"),
                ("pagedown,space", 0, "'page'"),
                ("home,g", 0, -MOST_LINES),
            )
        ),
    ]

    def __init__(self, task: TaskId, feed: Feed) -> None:
        super().__init__()
        self._of = task
        self._feed = feed
        self._text = LogText()
        self._follows = True

    def compose(self) -> ComposeResult:
        yield Block(name="title")
        yield Lines(name="log", choosing=False)
        yield Block([(last_line(LOG), "dim")], name="keys")

    def on_mount(self) -> None:
        self._title()
        self.query_one("#log", Lines).focus()
        self.set_interval(_LOOK_EVERY_S, self.look)

    def on_unmount(self) -> None:
        self._feed.close(0.0)

    def look(self) -> None:
        told = self._feed.take()
        for one in told:
            self._text.hear(one)
        if told:
            self._draw()

    def _draw(self) -> None:
        shown = self.query_one("#log", Lines)
        shown.show(list(self._text.lines), max(self._text.width, shown.size.width))
        if self._follows:
            shown.scroll_to(y=len(self._text.lines), animate=False, force=True)

    def _title(self) -> None:
        how = "following" if self._follows else "not following"
        self.query_one("#title", Block).show([[(str(self._of), "bold"), (f"  log, {how}", "dim")]])

    def action_look_at(self, x: int, y: int | str) -> None:
        shown = self.query_one("#log", Lines)
        page_by = max(1, shown.size.height - 1)
        by = y if isinstance(y, int) else {"page": page_by, "-page": -page_by}[y]
        shown.scroll_relative(x=x or None, y=by or None, animate=False, force=True)
        if by < 0 and self._follows:
            self._follows = False
            self._title()
        elif by > 0:
            self.call_after_refresh(self._follow_at_end)

    def _follow_at_end(self) -> None:
        if self.query_one("#log", Lines).at_end and not self._follows:
            self.action_follow()

    def action_follow(self) -> None:
        self._follows = True
        self._title()
        self._draw()

    def action_back(self) -> None:
        self.dismiss()


class HelpScreen(ModalScreen[None]):
    def compose(self) -> ComposeResult:
        yield Lines(name="help", choosing=False)

    def on_mount(self) -> None:
        lines = help_lines()
        self.query_one("#help", Lines).show([[(line, "")] for line in lines], max(map(len, lines)))

    def on_key(self, pressed: KeyPressed) -> None:
        shown = self.query_one("#help", Lines)
        pressed.stop()
        if pressed.key in ("up", "down") and shown.size.height < len(help_lines()):
            shown.move(-1 if pressed.key == "up" else 1)
        else:
            self.dismiss()

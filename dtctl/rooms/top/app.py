"""The full screen of `dtctl top`. page.py decides what it shows; this module handles keys and the clock."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from collections.abc import Callable
from pathlib import Path

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Resize
from textual.widgets import Input

from dtctl.errors import ExitCode
from dtctl.model import TaskId
from dtctl.operations.client.streams import Feed
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.top.model import Choice, Model, jobs_of
from dtctl.rooms.top.page import Page, page
from dtctl.rooms.top.screens import TABLE, Block, HelpScreen, Lines, LogScreen, last_line
from dtctl.rooms.top.table import SORTED_BY
from dtctl.rooms.top.tail import Tail

LOOK_EVERY_S = 0.1
DRAW_EVERY_S = 1.0
"""The longest time between two drawings: ages grow without news."""
LEAST_APART_S = 0.25
"""The least time between two drawings: a run of hundreds of tasks has news all the time."""

OpenLog = Callable[[RunRecord, TaskId], Feed]


_MOVES: tuple[tuple[str, str, int | str], ...] = (
    *(("up", "arrow", -1), ("down", "arrow", 1), ("pageup", "arrow", "-page"), ("pagedown", "arrow", "page")),
    *(("k", "move", -1), ("j", "move", 1), ("home,g", "move", "home"), ("end,G", "move", "end")),
)
_OWN = {"move", "arrow", *(key.action.partition("(")[0] for key in TABLE)}
_IN_FILTER = ("open", "all", "arrow")
"""Actions of keys that are not part of the filter's words."""


class Top(App[ExitCode]):
    """`run` returns the exit code for an end by a signal or Ctrl-C, and None after `q`.

    An error of a stream is in `failure`.
    """

    TITLE = "dtctl top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("top.tcss")  # so that a subclass in another directory finds it, too
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+c", "interrupted", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        *(Binding(key.keys, key.action, key.does, show=False, priority=True) for key in TABLE),
        *(Binding(keys, f"{action}({by!r})", show=False, priority=True) for keys, action, by in _MOVES),
    ]
    """The keys, with priority, so that they are handled in order however fast they are typed."""

    def __init__(
        self,
        run: Feed,
        loss: Feed,
        speed: Feed,
        open_log: OpenLog,
        *,
        fine: bool = True,
        heeds_signals: bool = False,
        with_tail: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)
        self.failure: BaseException | None = None
        self.model = Model(run, loss, speed)
        self.choice = Choice()
        self._open_log = open_log
        self._fine = fine
        self._heeds_signals = heeds_signals
        self._tail = Tail(open_log) if with_tail else None
        self._page: Page | None = None
        self._drawn, self._news = 0.0, False
        self._room = (0, 0)
        """Columns and lines, without those of the scroll bar and the keys."""

    def compose(self) -> ComposeResult:
        yield Block(name="top")
        yield Block(name="heading")
        yield Lines(name="rows", choosing=True)
        yield Block(name="tail")
        yield Input(id="filter", placeholder="words that a row has to have", select_on_focus=False)
        yield Block([(last_line(TABLE), "dim")], name="keys")

    def on_mount(self) -> None:
        if self._heeds_signals:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.exit, ExitCode.INTERRUPTED)
            loop.add_signal_handler(signal.SIGTERM, self.exit, ExitCode.TERMINATED)
            loop.add_signal_handler(signal.SIGHUP, self.exit, ExitCode.HUNG_UP)
        self.app_resume_signal.subscribe(self, self._redraw_all)
        self.query_one("#rows", Lines).focus()
        self.set_interval(LOOK_EVERY_S, self.poll)
        self.poll()

    def on_resize(self, resized: Resize) -> None:
        self._room = resized.size.width - 1, resized.size.height - 1
        self.draw()

    def on_unmount(self) -> None:
        if self._tail is not None:
            self._tail.close()

    def _redraw_all(self, _: object) -> None:
        """Redraws all widgets after another program had the terminal."""
        for widget in self.screen.walk_children():
            widget.refresh()

    def poll(self) -> None:
        """Takes the news and draws it; without any, draws the ages regularly."""
        try:
            news = self.model.poll(time.monotonic())
        except BaseException as error:  # shown below the screen, after it has closed
            self.failure = error
            self.exit()
            return
        if self._tail is not None and self.model.status is not None:
            wanted = self._chosen() if self._page is not None and self._page.tail_rows else None
            log_of = wanted if isinstance(wanted, TaskId) else None
            news = self._tail.poll(self.model.status.record, log_of, time.monotonic()) or news
        self._news = self._news or news
        if time.monotonic() - self._drawn >= (LEAST_APART_S if self._news else DRAW_EVERY_S):
            self.draw()

    def draw(self) -> None:
        snapshot = self.model.snapshot(time.monotonic())
        if snapshot is None or self._room[0] < 1:
            return
        self._drawn, self._news = time.monotonic(), False
        before = self._chosen() if self._page is not None else snapshot.status.record.lead
        points = self.model.losses.best()
        shown = page(snapshot, self.model.histories, points, self.choice, self._room, fine=self._fine)
        tasks = self.screen_stack[0]
        tasks.query_one("#top", Block).show(shown.top)
        tasks.query_one("#heading", Block).show([shown.heading])
        place = next((number for number, row in enumerate(shown.rows) if row.of == before), None)
        if self._page is None and place is not None and place > self._room[1] // 2:
            place = 0  # the first screen begins with the first task
        table = tasks.query_one("#rows", Lines)
        table.show(shown.lines(), self._room[0], place)
        table.styles.height = max(1, len(shown.rows)) if shown.tail_rows else "1fr"
        self._page = shown
        tasks.query_one("#tail", Block).show(self._tail.lines(shown.tail_rows) if self._tail is not None else [])

    def _chosen(self) -> TaskId | str | None:
        if self._page is None or not self._page.rows:
            return None
        return self._page.rows[min(self._table.chosen, len(self._page.rows) - 1)].of

    @property
    def _table(self) -> Lines:
        return self.screen_stack[0].query_one("#rows", Lines)

    def _choose(self, choice: Choice) -> None:
        self.choice = choice
        self.draw()
        self._table.keep_in_sight()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the table handles a key; not while a log, the help or the filter does."""
        if action not in _OWN:
            return True
        if len(self.screen_stack) > 1:
            return False
        return action in _IN_FILTER or not self._in_filter

    @property
    def _in_filter(self) -> bool:
        return self.focused is not None and self.focused.id == "filter"

    def action_arrow(self, by: int | str) -> None:
        self.action_move(by)

    def action_move(self, by: int | str) -> None:
        table = self._table
        page_by = max(1, table.size.height - 1)
        ways = {"page": page_by, "-page": -page_by, "home": -(10**9), "end": 10**9}
        table.move(by if isinstance(by, int) else ways[by])

    def action_sort(self, by: int) -> None:
        place = (SORTED_BY.index(self.choice.sort) + by) % len(SORTED_BY)
        self._choose(dataclasses.replace(self.choice, sort=SORTED_BY[place], backwards=False))

    def action_sort_by(self, heading: str) -> None:
        self._choose(dataclasses.replace(self.choice, sort=heading, backwards=False))

    def action_reverse(self) -> None:
        self._choose(dataclasses.replace(self.choice, backwards=not self.choice.backwards))

    def action_fold(self) -> None:
        """Folds or unfolds the job of the chosen row, which stays chosen."""
        if self._page is None or self._chosen() is None:
            return
        job = self._page.rows[self._table.chosen].job
        self._choose(self.choice.folding(job))
        first = next((number for number, row in enumerate(self._page.rows) if row.job == job), 0)
        self._table.chosen = first
        self._table.keep_in_sight()

    def action_fold_all(self) -> None:
        snapshot = self.model.snapshot(time.monotonic())
        if snapshot is not None:
            self._choose(self.choice.folding_all(frozenset(jobs_of(snapshot))))

    def action_open(self) -> None:
        chosen = self._chosen()
        if self._in_filter:
            self._end_filter()
        elif isinstance(chosen, TaskId) and self.model.status is not None:
            self.push_screen(LogScreen(chosen, self._open_log(self.model.status.record, chosen)))
        elif chosen is not None:
            self.action_fold()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    def action_filter(self) -> None:
        words = self.query_one("#filter", Input)
        words.value = self.choice.filter
        words.display = True
        self.screen.set_focus(words)

    def action_all(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._end_filter()
        self._choose(dataclasses.replace(self.choice, filter=""))

    def on_input_changed(self, typed: Input.Changed) -> None:
        self._choose(dataclasses.replace(self.choice, filter=typed.value))

    def _end_filter(self) -> None:
        self.screen.set_focus(self._table)
        self.query_one("#filter", Input).display = False

    def action_interrupted(self) -> None:
        self.exit(ExitCode.INTERRUPTED)

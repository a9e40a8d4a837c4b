"""The screen of `dtctl top` itself, by the keys that a person presses: Textual's own driver, and no terminal."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import html
import inspect
import signal
import textwrap
import time
from collections.abc import Awaitable, Callable, Generator
from importlib import util
from types import SimpleNamespace
from typing import Any

import pytest
from textual.app import App
from textual.events import Key
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.widget import Widget

from dtctl.errors import AgentError, ExitCode, PreflightError, TransportError, UsageError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Disconnected, Feed
from dtctl.operations.logs import LogLines
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Outcome, Verdict
from dtctl.operations.watch import Over
from dtctl.render.terminal import console
from dtctl.rooms import top
from dtctl.rooms.metrics.operation import Point, Series
from dtctl.rooms.speed.facts import merged
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.verdicts import judged
from dtctl.rooms.top.app import Top
from dtctl.rooms.top.screens import Block, HelpScreen, Lines, LogScreen
from tests.unit.agent.poisons import POISONS, left_in
from tests.unit.render.top.runs import joined, run_status, task, training
from tests.unit.tasks import log_lines_of
from tests.unit.test_speed_verdicts import of_two
from tests.waiting import PATIENCE_S

Typing = Callable[["Table", Pilot[Any]], Awaitable[None]]


class ScriptedFeed(Feed):
    """Events that a test supplies, in place of a stream."""

    def __init__(self, *items: object) -> None:
        super().__init__(_nothing)
        self.closed = False
        for one in items:
            self._put(one)

    def put(self, items: object) -> None:
        self._put(items)

    def close(self, within_s: float = 1.0) -> None:
        self.closed = True


def _nothing() -> Generator[object, None, None]:
    yield from ()


class Table(Top):
    """The screen with the parts that a test inspects."""

    def __init__(self, *items: object, loss: ScriptedFeed | None = None, speed: ScriptedFeed | None = None) -> None:
        self.run_told, self.log_told = ScriptedFeed(*items), ScriptedFeed()
        self.opened: list[TaskId] = []
        super().__init__(self.run_told, loss or ScriptedFeed(), speed or ScriptedFeed(), self._open)

    def _open(self, record: RunRecord, task: TaskId) -> Feed:
        self.opened.append(task)
        return self.log_told

    def lines(self, name: str) -> list[str]:
        """The lines of a part; empty while the screen has no such part."""
        parts = [part for part in self.screen.query(f"#{name}") if isinstance(part, Block | Lines)]
        return [joined(line) for part in parts for line in part._lines]

    @property
    def chosen(self) -> str:
        return str(self._chosen())


def typed(app: Table, typing: Typing, size: tuple[int, int] = (80, 24)) -> Table:
    async def all_of_it() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.lines("rows"))
            await typing(app, pilot)

    asyncio.run(all_of_it())
    return app


async def until(pilot: Pilot[Any], shown: Callable[[], object]) -> None:
    """Waits, because a busy machine draws late."""
    deadline = time.monotonic() + PATIENCE_S
    while not shown():
        assert time.monotonic() < deadline
        await pilot.pause(0.02)


TASKS = (
    task("ps:0"),
    training("worker:0", 120),
    training("worker:1", 90, rate=2.0),
    task("worker:2", "failed", why="OOM: killed"),
)


def table(*tasks: Any) -> Table:
    return Table(run_status(*tasks or TASKS))


def test_the_screen_shows_outcome_and_tasks() -> None:
    async def refresh(app: Table, _: Pilot[Any]) -> None:
        assert app.lines("top")[0].startswith("digits-1: Running")
        assert [line.split()[0] for line in app.lines("rows")] == ["ps:0", "worker:0", "worker:1", "worker:2"]
        assert "q quit" in app.lines("keys")[0]

    typed(table(), refresh)


def test_new_rows_are_shown_and_the_chosen_task_stays_chosen() -> None:
    async def refresh(app: Table, pilot: Pilot[Any]) -> None:
        assert app.chosen == "worker:2", "the lead, whose log is of interest first"
        await pilot.press("up")
        assert app.chosen == "worker:1"
        app.run_told.put(run_status(training("evaluator:0"), *TASKS))
        await until(pilot, lambda: len(app.lines("rows")) == 5)
        assert app.chosen == "worker:1"
        app.run_told.put(Disconnected("c", TransportError("no route to c")))
        app.run_told.put(Over())
        await until(pilot, lambda: "c cannot be asked: no route to c; tried again" in app.lines("top"))

    typed(table(), refresh)


def test_keys_sort_and_reverse() -> None:
    async def sort(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("s", "s")
        assert app.choice.sort == "STATE"
        assert app.lines("rows")[0].startswith("worker:2")
        assert "STATE\u25be" in app.lines("heading")[0]
        await pilot.press("r")
        assert app.lines("rows")[-1].startswith("worker:2")
        await pilot.press("S", "S", "S")
        assert app.choice.sort == "OUTPUT"

    typed(table(), sort)


def test_a_filter_is_typed_kept_and_removed() -> None:
    async def type_it(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("slash", *"worker q", "backspace", "backspace")
        assert len(app.lines("rows")) == 3
        await pilot.press("enter")
        assert app.choice.filter == "worker"
        assert "filter: worker" in app.lines("top")[-1]
        await pilot.press("down")
        assert app.chosen == "worker:1"
        await pilot.press("slash", *" fail")
        assert [line.split()[0] for line in app.lines("rows")] == ["worker:2"]
        await pilot.press("escape")
        assert len(app.lines("rows")) == 4
        assert app.focused is not None
        assert app.focused.id == "rows"

    typed(table(), type_it)


def test_jobs_are_folded_and_unfolded() -> None:
    async def fold(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("end", "f")
        assert [line.split("  ")[0] for line in app.lines("rows")] == ["ps:0", "worker (3)"]
        assert app.chosen == "worker"
        await pilot.press("enter")
        assert (len(app.lines("rows")), app.chosen) == (4, "worker:0")
        await pilot.press("F")
        assert len(app.lines("rows")) == 2
        await pilot.press("F")
        assert len(app.lines("rows")) == 4

    typed(table(), fold)


def test_a_log_is_opened_followed_and_left() -> None:
    def log(text: bytes, attempt: int = 1) -> LogLines:
        return log_lines_of("worker:0", text, attempt=attempt)

    async def read(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("up", "up", "enter")
        assert app.opened == [TaskId("worker", 0)]
        app.log_told.put(log(b"".join(b"step %d\n" % number for number in range(100))))
        app.log_told.put(log(b"again\tit runs\n", attempt=2))
        app.log_told.put(Disconnected("a", TransportError("no route")))
        last = ["step 99", "--- attempt 2 ---", "again   it runs", "--- a: no route ---"]
        await until(pilot, lambda: app.lines("log")[-4:] == last)
        assert app.lines("title") == ["worker:0  log, following"]
        shown = app.screen.query_one("#log", Lines)
        await until(pilot, lambda: shown.at_end)
        await pilot.press("pageup")
        await until(pilot, lambda: app.lines("title") == ["worker:0  log, not following"])
        app.log_told.put(log(b"more\n", attempt=2))
        await until(pilot, lambda: app.lines("log")[-1] == "more")
        assert not shown.at_end
        await pilot.press("f")
        await until(pilot, lambda: shown.at_end)
        await pilot.press("s", "slash")
        assert app.choice.sort == "TASK"
        await pilot.press("q")
        assert app.lines("rows")
        assert app.log_told.closed
        assert app.is_running

    typed(table(), read)


def test_the_help_shows_every_key_and_any_key_closes_it() -> None:
    async def refresh(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        text = "\n".join(app.lines("help"))
        assert all(word in text for word in ("Enter", "sort by the next column", "PgUp", "Ctrl-C", "OUTPUT"))
        await pilot.press("q")
        assert app.lines("rows")

    typed(table(), refresh)


@pytest.mark.parametrize(("key", "code"), [("q", None), ("ctrl+c", ExitCode.INTERRUPTED)])
def test_keys_end_it(key: str, code: ExitCode | None) -> None:
    async def end(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press(key)

    assert typed(table(), end).return_value == code


def test_ctrl_c_ends_it_from_a_log_and_from_the_filter_too() -> None:
    async def from_log(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("down", "enter", "ctrl+c")

    async def from_filter(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("slash", "x", "ctrl+c")

    for typing in (from_log, from_filter):
        assert typed(table(), typing).return_value == ExitCode.INTERRUPTED


def test_an_error_of_the_stream_ends_it_and_is_kept() -> None:
    async def break_it(app: Table, pilot: Pilot[Any]) -> None:
        app.run_told.put(AgentError("no_run", "there is no run"))
        await until(pilot, lambda: app.failure)

    app = typed(table(), break_it)
    assert isinstance(app.failure, AgentError)
    assert not app.return_code


@pytest.mark.parametrize("size", [(20, 5), (40, 12), (80, 24), (250, 60)])
def test_any_size_of_terminal_shows_the_failure_also_after_a_resize(size: tuple[int, int]) -> None:
    async def resize(app: Table, pilot: Pilot[Any]) -> None:
        assert "failed" in "".join(app.lines("rows"))
        assert max(map(len, [*app.lines("top"), *app.lines("rows")])) <= size[0]
        await pilot.resize_terminal(60, 20)
        await until(pilot, lambda: max(map(len, [*app.lines("top"), *app.lines("rows")])) <= 60)

    typed(table(), resize, size)


def test_two_hundred_tasks_scroll_under_the_choice() -> None:
    async def scroll(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("end")
        shown = app.screen.query_one("#rows", Lines)
        assert app.chosen == "worker:199"
        await until(pilot, lambda: shown.at_end)
        await pilot.press("home")
        await until(pilot, lambda: shown.scroll_offset.y == 0)

    typed(table(*(training(f"worker:{index}", index) for index in range(200))), scroll)


def test_a_loss_from_event_files_is_drawn() -> None:
    points = tuple(Point(step, float(step), 1.0 / (step + 1)) for step in range(50))
    loss = ScriptedFeed(Series("loss", "train", "a", "/out", points, 50), AgentError("no_run", "gone"))

    async def refresh(app: Table, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: app.lines("top")[1].startswith("loss ") and "└" in "".join(app.lines("top")))

    typed(Table(run_status(*TASKS), loss=loss), refresh)


MARKUP = "[bold red]x[/] [@click=app.quit()]y[/]"


def test_neither_escapes_nor_markup_of_a_host_reach_the_screen() -> None:
    bad = [f"{poison} {MARKUP}" for poison in POISONS.values()]
    tasks = [
        dataclasses.replace(task(f"worker:{index}", "failed", why=text), host=f"h{text}")
        for index, text in enumerate(bad)
    ]

    async def refresh(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        for text in bad:
            app.log_told.put(log_lines_of("worker:0", text.encode("utf-8", "replace") + b"\n"))
        await until(pilot, lambda: len(app.lines("log")) == len(bad))
        assert all(MARKUP in line for line in app.lines("log"))
        assert left_in("\n".join(app.lines("log"))) == set()
        await pilot.press("q")
        shown = app.lines("rows") + app.lines("top")
        assert any(MARKUP in line for line in shown)
        assert left_in("\n".join(shown)) == set()
        drawn = html.unescape(app.export_screenshot()).replace("\xa0", " ")
        assert "[bold red]x[/]" in drawn
        assert left_in(drawn) == set()

    typed(table(*tasks), refresh, (250, 60))


MEANT = {"__init__", "compose", "check_action", "get_content_height", "render_line", "virtual_size"}


@pytest.mark.parametrize(
    ("own", "base"),
    [(Top, App), (Block, Widget), (Lines, ScrollView), (LogScreen, ModalScreen), (HelpScreen, ModalScreen)],
)
def test_no_name_of_ours_overrides_one_of_textuals(own: type, base: type) -> None:
    """Textual has many names, `_task` among them, and gives no warning."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(own)))
    nodes = list(ast.walk(tree))
    stored = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    named = {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
    named |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    plain = base()
    assert {name for name in named if hasattr(plain, name)} <= MEANT


def test_keys_typed_ahead_go_to_the_filter_and_are_no_commands() -> None:
    async def rush(app: Table, pilot: Pilot[Any]) -> None:
        before = app.choice
        for key in ("slash", *"worksq", "enter"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.choice == dataclasses.replace(before, filter="worksq"))
        await pilot.press("escape")
        assert app.opened == []
        for key in ("enter", "q", "s", "escape", "question_mark", "x"):
            app.post_message(Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.log_told.closed and len(app.screen_stack) == 1)
        assert len(app.opened) == 1
        assert app.is_running

    typed(table(), rush)


def test_signal_handlers_are_installed_only_for_the_whole_program() -> None:
    before = signal.getsignal(signal.SIGTERM)

    async def refresh(app: Table, _: Pilot[Any]) -> None:
        assert signal.getsignal(signal.SIGTERM) is before

    typed(table(), refresh)


class Terminal:
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A replacement of `sys`, whose own streams are pytest's."""
    streams = {name: Terminal() for name in ("stdin", "stdout", "stderr")}
    found = SimpleNamespace(**streams)
    monkeypatch.setattr(console, "sys", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


@pytest.mark.usefixtures("terminal")
def test_the_screen_needs_only_a_terminal_and_textual() -> None:
    top.need_screen()


@pytest.mark.usefixtures("terminal")
def test_without_the_extra_the_command_to_install_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "find_spec", lambda name: None if name == "textual" else util.find_spec(name))
    with pytest.raises(PreflightError, match="needs Textual") as raised:
        top.need_screen()
    assert raised.value.exit_code == ExitCode.PREFLIGHT
    assert "pip install 'dtctl[top]'" in raised.value.hint


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("term", ["dumb", None])
def test_a_dumb_terminal_is_refused(monkeypatch: pytest.MonkeyPatch, term: str | None) -> None:
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM")
    with pytest.raises(UsageError, match="needs a terminal"):
        top.need_screen()


def test_a_pipe_is_refused(terminal: SimpleNamespace) -> None:
    terminal.stdin = None
    with pytest.raises(UsageError) as raised:
        top.need_screen()
    assert "dtctl status --watch" in raised.value.hint


def test_tasks_are_sorted_by_processor_and_memory_with_the_keys_of_htop() -> None:
    busy = [task(f"worker:{n}", cpu=float(n), memory_bytes=1000 * (3 - n)) for n in range(3)]

    async def sort(app: Table, pilot: Pilot[Any]) -> None:
        await pilot.press("P")
        await until(pilot, lambda: app.lines("rows")[0].startswith("worker:2"))
        await pilot.press("M")
        await until(pilot, lambda: app.lines("rows")[0].startswith("worker:0"))

    typed(table(*busy), sort, (120, 30))


def test_the_cause_of_a_slow_run_is_on_the_screen_until_it_is_over() -> None:
    one = of_two((110.0, 2.0), 0.4, (0.7, 0.02))
    slow = Speed("demo-1", judged([one]), 1, merged([one]), 1.0, 99.0)
    app = Table(run_status(*TASKS[:3]), speed=ScriptedFeed(slow, RuntimeError("the stream has ended")))

    async def reads(table: Table, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: any("slow: the workers wait for ps:0 70 %" in line for line in table.lines("top")))
        table.run_told.put(run_status(task("worker:1", "succeeded"), verdict=Verdict(Outcome.SUCCEEDED, ())))
        await until(pilot, lambda: not any("slow" in line for line in table.lines("top")))

    typed(app, reads)

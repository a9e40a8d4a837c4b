"""The keys, Textual's widgets, and the screens above the table: the log of a task, and the help."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key as KeyPressed
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from dtctl.agent.run.log_text import is_start_up
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Disconnected, Feed, Reconnected
from dtctl.operations.logs import LogLines
from dtctl.render.terminal.safe import log_lines
from dtctl.rooms.top.model import Line, safe

_STYLES: dict[str, Style] = {}


def strip_of(line: Line, base: Style) -> Strip:
    return Strip([Segment(text, base + _style(style)) for text, style in line if text])


def _style(name: str) -> Style:
    if name not in _STYLES:
        _STYLES[name] = Style.parse(name) if name else Style()
    return _STYLES[name]


class Block(Widget):
    """Lines in a widget of their height."""

    def __init__(self, *lines: Line, name: str) -> None:
        super().__init__(id=name)
        self._lines: tuple[Line, ...] = lines

    def show(self, lines: Sequence[Line]) -> None:
        higher = len(lines) != len(self._lines)
        if higher or tuple(lines) != self._lines:
            self._lines = tuple(lines)
            self.refresh(layout=higher)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        strip = strip_of(self._lines[y], self.rich_style) if y < len(self._lines) else Strip([])
        return strip.adjust_cell_length(width, self.rich_style)


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines that may exceed the space in both directions; one of them may be chosen. Screens bind the keys."""

    def __init__(self, *, name: str, choosing: bool) -> None:
        super().__init__(id=name)
        self._lines: Sequence[Line] = ()
        self._choosing = choosing
        self.chosen = 0

    def show(self, lines: Sequence[Line], width: int, chosen: int | None = None) -> None:
        """Replaces all lines. `width`: of the longest."""
        self._lines = lines
        self.virtual_size = Size(width, len(lines))
        if chosen is not None:
            self.chosen = chosen
        self.chosen = max(0, min(self.chosen, len(lines) - 1))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        left, above = self.scroll_offset
        width, row = self.size.width, above + y
        if row >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        strip = strip_of(self._lines[row], self.rich_style)
        if self._choosing and row == self.chosen:
            strip = strip.adjust_cell_length(max(width, strip.cell_length), self.rich_style)
            strip = strip.apply_style(Style(reverse=True))
        return strip.crop(left, left + width).adjust_cell_length(width, self.rich_style)

    def move(self, by: int) -> None:
        """Moves the choice, which stays visible; without one the view."""
        if not self._choosing:
            self.scroll_relative(y=by, animate=False, force=True)
            return
        self.chosen = max(0, min(self.chosen + by, len(self._lines) - 1))
        self.keep_in_sight()
        self.refresh()

    def keep_in_sight(self) -> None:
        height, above = self.size.height, self.scroll_offset.y
        if height and not above <= self.chosen < above + height:
            self.scroll_to(
                y=self.chosen if self.chosen < above else self.chosen - height + 1, animate=False, force=True
            )

    @property
    def at_end(self) -> bool:
        return self.scroll_offset.y >= len(self._lines) - self.size.height


@dataclass(frozen=True)
class Key:
    """A key.

    `keys`: its names in Textual; `action`: of the screen; `short`: its text in the last line, if it is there.
    """

    keys: str
    shown: str
    action: str
    does: str
    short: str = ""


TABLE = (
    Key("enter", "Enter", "open", "open the log of the task, or unfold the job", "log"),
    Key("slash", "/", "filter", "show the tasks in whose rows each of some words is found; Esc shows all", "filter"),
    Key("s", "s", "sort(1)", "sort by the next column; S by the one before", "sort"),
    Key("S", "", "sort(-1)", ""),
    Key("P", "P", "sort_by('CPU')", "sort by CPU; M by memory, as in htop"),
    Key("M", "", "sort_by('MEMORY')", ""),
    Key("r,I", "r", "reverse", "reverse the order"),
    Key("space,f", "f", "fold", "fold the tasks of this job into one row, or unfold them; F all jobs", "fold"),
    Key("F", "", "fold_all", ""),
    Key("question_mark,h", "?", "help", "this help", "help"),
    Key("q", "q", "quit", "quit; the run continues. Ctrl-C does the same", "quit"),
    Key("escape", "", "all", ""),
)

LOG = (
    Key("q,escape,left_square_bracket", "q", "back", "back to the tasks; Esc does the same", "back"),
    Key("f,G,end", "f", "follow", "go to the end and follow the log; moving up stops that", "follow"),
)

MOVING = "arrows, j, k, PgUp, PgDn, Home, End"

COLUMNS = (
    ("FOR", "how long it has been in this state"),
    ("RATE", "steps a second, and how they have moved"),
    ("LOSS", "the last loss in its log, and how it has moved"),
    ("CPU", "processors in use; of several tasks in one row the median"),
    ("OUTPUT", "how long ago it last wrote to its log"),
)


def last_line(keys: tuple[Key, ...]) -> str:
    return "  ".join(f"{key.shown} {key.short}" for key in keys if key.short)


def help_lines() -> list[str]:
    rows = [(key.shown, key.does) for key in TABLE if key.shown]
    logs = [(key.shown, key.does) for key in LOG if key.shown]
    return [
        "Keys",
        *_rows([("moving", MOVING), *rows]),
        "",
        "In a log",
        *_rows(logs),
        "",
        "Columns",
        *_rows(list(COLUMNS)),
        "",
        "A narrow terminal shows fewer columns. Problems are shown above the table, with their causes.",
        "Any key closes this help.",
    ]


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name.ljust(width)}  {text}" for name, text in rows]


MOST_LINES = 10_000
_MOST_OF_LINE = 4000
"""The most characters of a line; `dtctl logs` shows all."""
_LOOK_EVERY_S = 0.1


class LogText:
    """The last lines of a log, and its events between them."""

    def __init__(self) -> None:
        self.lines: deque[Line] = deque(maxlen=MOST_LINES)
        self.width = 0
        self._attempt: int | None = None
        self._left_out = False

    def receive(self, event: object) -> None:
        if isinstance(event, LogLines):
            attempt = event.log["attempt"]
            if self._attempt not in (None, attempt):
                self._add(f"--- attempt {attempt} ---", "yellow")
            if event.log["truncated"]:
                self._add("--- the log was cut; from its new start ---", "yellow")
            self._attempt = attempt
            for line in log_lines(event.data, color=False):
                if not is_start_up(line, without_gpus=event.log["without_gpus"]):
                    self._add(line.expandtabs())
                elif not self._left_out:
                    self._left_out = True
                    self._add("[TensorFlow's start-up messages are left out; dtctl logs --raw shows them]", "dim")
        elif isinstance(event, Disconnected):
            self._add(f"--- {event.host}: {event.error.summary} ---", "red")
        elif isinstance(event, Reconnected):
            self._add(f"--- {event.host} can be reached again ---", "yellow")
        elif isinstance(event, DtctlError):
            self._add(f"--- {event.summary} ---", "red")
        elif isinstance(event, BaseException):
            raise event

    def _add(self, text: str, style: str = "") -> None:
        shown = safe(text if len(text) <= _MOST_OF_LINE else f"{text[:_MOST_OF_LINE]} ...")
        self.width = max(self.width, cell_len(shown))
        self.lines.append([(shown, style)])


class LogScreen(ModalScreen[None]):
    """Follows the log, until the user moves up."""

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
        self.set_interval(_LOOK_EVERY_S, self.poll)

    def on_unmount(self) -> None:
        self._feed.close(0.0)

    def poll(self) -> None:
        events = self._feed.take()
        for one in events:
            self._text.receive(one)
        if events:
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

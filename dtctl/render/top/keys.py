"""The keys, in one table: what the screen binds, its last line and its help are made of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """`keys` as Textual names them; `action` of the screen; `short`: in its last line, if it stands there."""

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
    Key("r", "r", "reverse", "reverse the order"),
    Key("space,f", "f", "fold", "fold the tasks of this job into one row, or unfold them; F all jobs", "fold"),
    Key("F", "", "fold_all", ""),
    Key("question_mark,h", "?", "help", "this help", "help"),
    Key("q", "q", "quit", "end; the run goes on. Ctrl-C does the same", "quit"),
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
        "A narrow terminal shows fewer columns. What is wrong stands above the table, with its cause.",
        "Any key closes this help.",
    ]


def _rows(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    return [f"  {name.ljust(width)}  {text}" for name, text in rows]

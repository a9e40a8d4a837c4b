"""The report's page kept up to date: the same sections, each of which is sent again when it has changed.

The curves are drawn here, as in a report. A charting library in the browser would draw the same lines from numbers that
only it can read; these are also described in text, need no script, and add no licence of others.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dtctl.agent.records.reasons import sentence
from dtctl.errors import DtctlError
from dtctl.operations.findings import problems_of
from dtctl.operations.snapshot import Outcome
from dtctl.render import errors
from dtctl.render.findings import filled as worded
from dtctl.render.findings import happened, last_lines, remedies, words
from dtctl.render.format import count
from dtctl.render.machine import document
from dtctl.render.roster import cells_of, rows_of
from dtctl.render.status import headline
from dtctl.render.terminal import console
from dtctl.rooms.pages.report import Report, is_over
from dtctl.rooms.pages.report_page import SECTIONS, about, contents, known_by_hash
from dtctl.rooms.pages.report_page import STYLE as OF_REPORT
from dtctl.rooms.pages.report_page.drawings import colored, escape, templates
from dtctl.rooms.pages.report_page.failing import command_in, failure_of
from dtctl.rooms.pages.webserver import HEADERS, Entrance
from dtctl.transport.group_errors import rows

MOST_PROBLEMS = 3
MOST_ROWS = 60
"""The most rows of the table of tasks; if there are more tasks, those in the same state share a row."""

_KINDS = {"STATE": "nowrap", "TASK": "nowrap", "HOST": "nowrap", "NOTE": "wide"}
_SELDOM = ("STEP", "RATE", "OUTPUT", "CPU", "MEMORY", "GPU USE", "GPU MEMORY", "GPU HEAT", "NOTE")
"""Columns that are left out if all of their cells are empty."""
_LEFT_OUT = ("PID",)

_STATES = {
    "live": "Live",
    "held": "Held: what is new is shown when you go on",
    "lost": "The connection is lost, and tried again",
    "over": "dtctl dashboard has ended: this is what it showed last",
    "ended": "The run has ended: this page does not change any more",
}

STYLE = OF_REPORT + Path(__file__).with_name("dashboard.css").read_text("utf-8")


SELDOM_S = 10.0
_SLOW = ("timeline", "curves")
"""Large sections, in which time only makes lines longer: they are drawn every SELDOM_S, or when a task changes."""


class Drawing:
    """Draws the parts of the page again and again."""

    def __init__(self) -> None:
        self._drawn = -math.inf
        """When the slow sections were drawn last, by the monotonic clock."""
        self._states: object = None

    def parts(self, report: Report) -> dict[str, str]:
        """The same as the function `parts`, without the sections that stay as they are."""
        states = [(task.state, task.entry["attempt"]) for task in report.status.tasks.values()]
        now, states_before, self._states = time.monotonic(), self._states, states
        if states == states_before and now - self._drawn < SELDOM_S and not is_over(report.status):
            return parts(report, without=_SLOW)
        self._drawn = now
        return parts(report)


def parts(report: Report, without: Container[str] = ()) -> dict[str, str]:
    """The parts of the page by name; `title` is text, the others are HTML. `without`: sections that are not wanted."""
    return {
        "title": f"{report.status.verdict.outcome.value}: {_run(report)}",
        "answer": _answer(report),
        "failure": _failure(report),
        "about": escape(about(report)),
        "phase": "ended" if is_over(report.status) else "",
        "progress": _progress(report),
        "news": escape(_news(report)),
        "problems": _problems(report),
        "tasks": _tasks(report),
        "logs": _logs(report),
        **contents(report, headed=True, without=without),
    }


def unknown(error: DtctlError | None) -> dict[str, str]:
    """The part that reports why the state of the run is unknown; empty if `error` is None."""
    return {"unknown": str(_macros().unknown(error.summary)) if error is not None else ""}


def whole(held: Mapping[str, str], number: int) -> str:
    """The page with these parts; `number` is that of the newest of them."""
    headings = [(one.at, one.heading, "") for one in SECTIONS]
    names = (*("answer", "failure", "progress", "about", "news", "unknown", "problems"), *(at for at, _, _ in headings))
    texts = {name: held.get(name, "") for name in ("title", "phase")}
    parts = {name: Markup(held.get(name, "")) for name in names} | texts
    return str(_macros().page(parts, number, headings, _STATES, Markup(STYLE), Markup(script())))


def entered(place: str) -> str:
    """A page that redirects from the address with the token, which must not stay in the browser's history."""
    return str(_macros().leading_on(place, Markup(STYLE)))


def entrance(command: str) -> Entrance:
    """The pages for browsers that have not logged in."""

    def refused(code: int) -> str:
        title, text, advice = _REFUSALS.get(code, _REFUSALS[400])
        return str(_macros().small(title, text.format(command=command), Markup(STYLE), advice.format(command=command)))

    return Entrance(entered, refused, headers())


_AGAIN = "{command}    prints a new address; type it in the directory of the cluster file"
_REFUSALS = {
    400: (
        "Bad request",
        "This server is reached by the address that {command} has printed, and by no other name.",
        _AGAIN,
    ),
    403: (
        "This address does not open the page",
        "Open the address that {command} has printed last: each address works once, in one browser, and after that it"
        " prints another. If its terminal is closed, the page has ended with it.",
        _AGAIN,
    ),
    404: (
        "There is no such page",
        "{command} has printed the address of its page; there is nothing else at this server.",
        _AGAIN,
    ),
    405: (
        "Nothing can be changed here",
        "The page only shows: other commands change a run.",
        "dtctl --help    lists them",
    ),
    503: (
        "Too many pages are open",
        "As many browsers as this server can serve read it already. Close one of them, and load this page again.",
        "{command} --port 0    serves another one beside this",
    ),
}
"""HTTP status -> what a small page is called, what it says, and what to type."""


def headers() -> dict[str, str]:
    return {**HEADERS, "Content-Security-Policy": policy()}


def policy() -> str:
    """The content security policy: scripts and styles by their hashes, requests only to this server."""
    return (
        f"default-src 'none'; style-src {known_by_hash(STYLE)}; script-src {known_by_hash(script())};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def script() -> str:
    return Path(__file__).with_name("dashboard.js").read_text("utf-8")


def _macros() -> Any:
    return templates().get_template("dashboard.html").module


def _run(report: Report) -> str:
    return report.status.record.run or report.status.record.cluster


def _answer(report: Report) -> str:
    """The first line of `dtctl status`."""
    (run, _), _, (outcome, _), *rest = headline(report.status)
    return str(_macros().answer(run, outcome, "".join(text for text, _ in rest)))


def _failure(report: Report) -> str:
    """The end that made the run fail, as the terminal shows it; empty if there is none."""
    found = failure_of(report)
    return str(_macros().failed(found)) if found is not None else ""


def _progress(report: Report) -> str:
    """How far the training has come as a bar; empty if its end is unknown. The first line has the steps."""
    share = report.figures.share
    return str(_macros().progress(share, f"{100 * share:.0f}%")) if share is not None else ""


def _news(report: Report) -> str:
    """The text that screen readers announce. It rarely changes: the outcome, and the counts of states; while tasks
    restart, why.
    """
    verdict, failure = report.status.verdict, failure_of(report)
    if is_over(report.status):
        why = failure.sentence if failure is not None else sentence(verdict.why)
        return f"The run has ended. {verdict.outcome.value}{f': {why}' if why else ''}"
    if verdict.outcome is Outcome.RESTARTING and (why := sentence(verdict.why)):
        return f"{verdict.outcome.value}: {why}"
    states = Counter(task.state.value for task in report.status.tasks.values())
    counts = ", ".join(f"{count(number, 'task')} {state}" for state, number in sorted(states.items()))
    return f"{verdict.outcome.value}: {counts}"


def _problems(report: Report) -> str:
    """The problems, the most important first."""
    found = [
        (
            [line for line in (happened(one.seen), worded(one.signature.means, words(one))) if line],
            [command_in(line) for line in remedies(one)],
            "\n".join(last_lines(one)),
        )
        for one in problems_of(report.status)
        if not (one.first and failure_of(report) is not None)  # which is told above
    ]
    return str(_macros().problems([row.text for row in rows(report.errors)], found, MOST_PROBLEMS))


def _tasks(report: Report) -> str:
    status = report.status
    rows = [(row, cells_of(row, status)) for row in rows_of(status, MOST_ROWS)]
    names = [name for name in rows[0][1] if name not in _LEFT_OUT] if rows else ["TASK"]
    names = [name for name in names if name not in _SELDOM or any(cells[name] for _, cells in rows)]
    table = [
        [colored(cells[name], row.first.state.value) if name == "STATE" else cells[name] for name in names]
        for row, cells in rows
    ]
    return str(_macros().tasks({name.lower(): _KINDS.get(name, "number") for name in names}, table))


def _logs(report: Report) -> str:
    """The choice of a log. The lead's is chosen first, or that of the task by which the run has failed."""
    status = report.status
    first = status.verdict.cause if status.verdict.cause in status.tasks else status.record.lead
    return str(_macros().logs([str(task) for task in status.tasks], str(first)))


def show_url(url: str, fields: Mapping[str, object], *notes: str, json: bool) -> None:
    """Shows the address, once it can be opened. `fields`: the other fields of its document."""
    if json:
        document.print_json_line({"apiVersion": document.API_VERSION, **fields, "url": url})
        return
    console.say(url)
    for note in notes:
        errors.note(note)


def show_next_url(url: str, fields: Mapping[str, object], *, json: bool) -> None:
    """Shows the next address after a browser has used one."""
    if json:
        show_url(url, fields, json=True)
    else:
        errors.note("opened; for another browser:", url)

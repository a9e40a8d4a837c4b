"""The report's page as one that stays up to date: the same sections, each of which is sent again when it has changed.

The curves are drawn here, as in a report. A charting library in the browser would draw the same lines from numbers
that it alone can read; these are described in text too, need no script, and bring along no licence of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dtctl.errors import DtctlError
from dtctl.operations.diagnosis.diagnose import in_short as problems_of
from dtctl.operations.report import Report, is_over
from dtctl.operations.webserver import HEADERS, Entrance
from dtctl.render import errors
from dtctl.render.diagnosis import filled as worded
from dtctl.render.diagnosis import happened, remedies, words
from dtctl.render.format import count, duration
from dtctl.render.machine import document
from dtctl.render.report import STYLE as OF_REPORT
from dtctl.render.report import about, known_by_hash, nav, section
from dtctl.render.report.html import Column, Html, joined, scrolled, tag
from dtctl.render.report.sections import HEADINGS, contents
from dtctl.render.roster import cells_of, rows_of
from dtctl.render.status import SEPARATOR, in_short
from dtctl.render.terminal import console
from dtctl.transport.group_errors import rows

MOST_PROBLEMS = 3
MOST_ROWS = 60
"""Of the table of tasks; where there are more, tasks in the same state share one."""

_HEADINGS = {"result": HEADINGS["result"], "tasks": "Tasks", "curves": HEADINGS["curves"], **HEADINGS}
"""What changes most stands first."""
_KINDS = {"STATE": "nowrap", "TASK": "nowrap", "HOST": "nowrap", "NOTE": "wide"}
_SELDOM = ("STEP", "RATE", "OUTPUT", "CPU", "MEMORY", "GPU USE", "GPU MEMORY", "GPU HEAT", "NOTE")
"""Columns that are left out where no task has anything in them."""
_LEFT_OUT = ("PID",)

_STATES = {
    "live": "Live",
    "held": "Held: what is new is shown when you go on",
    "lost": "The connection is lost, and tried again",
    "over": "dtctl dashboard has ended: this is what it showed last",
}

STYLE = OF_REPORT + Path(__file__).with_name("dashboard.css").read_text("utf-8")


def parts(report: Report) -> dict[str, str]:
    """By their names; `title` is text, the others are HTML."""
    return {
        "title": f"{report.status.verdict.outcome.value}: {_run(report)}",
        "answer": _answer(report),
        "about": joined(about(report)),
        "news": joined(_news(report)),
        "problems": _problems(report),
        "tasks": _tasks(report),
        **contents(report, headed=True),
    }


def unknown(error: DtctlError | None) -> dict[str, str]:
    """While the state of the run is unknown; None: it is known."""
    if error is None:
        return {"unknown": Html("")}
    lines = [
        tag("p", f"The state of the run is unknown: {error.summary}"),
        tag("p", "Below is what was known last."),
    ]
    return {"unknown": tag("div", lines, class_="problem")}


def whole(held: Mapping[str, str], number: int) -> str:
    """The page with these parts; `number` is that of the newest of them."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", held.get("title", "")),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE)),
    )
    body = tag(
        "body",
        tag("a", "To the result", href="#result", class_="skip"),
        tag("header", _header(held)),
        nav(_HEADINGS),
        tag("main", [section(at, name, _place("div", at, held)) for at, name in _HEADINGS.items()]),
        tag("script", Html(script())),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en", data_number=number) + "\n"


def entered(place: str) -> str:
    """Leads on from the address with the token, which is not to stay in the browser's history."""
    return _small("dtctl", tag("meta", http_equiv="refresh", content=f"0;url={place}"), tag("a", "Go on", href=place))


def entrance(command: str) -> Entrance:
    """For those who have not come in."""
    text = (
        f"This page is shown to whoever opens the address that {command} has printed: each of them works once, in"
        " one browser. After each it prints another."
    )
    return Entrance(entered, _small("Not shown", None, text), headers())


def headers() -> dict[str, str]:
    return {**HEADERS, "Content-Security-Policy": policy()}


def policy() -> str:
    """The script and the style sheet are known by their hashes; the script may ask this server alone."""
    return (
        f"default-src 'none'; style-src {known_by_hash(STYLE)}; script-src {known_by_hash(script())};"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@cache
def script() -> str:
    return Path(__file__).with_name("dashboard.js").read_text("utf-8")


def _small(title: str, more: Html | None, *held: str) -> str:
    head = tag("head", tag("meta", charset="utf-8"), more, tag("title", title), tag("style", Html(STYLE)))
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", tag("main", tag("p", *held))), lang="en") + "\n"


def _header(held: Mapping[str, str]) -> Html:
    without = "This page follows the run by a script, which does not run here: load it again to see more."
    link = tag("p", without, id="link", role="status", class_="small", **{f"data_{k}": v for k, v in _STATES.items()})
    hold = tag("button", "Hold", id="hold", type="button", hidden=True, aria_pressed="false")
    return joined(
        _place("div", "answer", held),
        tag("div", link, hold, _place("p", "about", held, class_="soft small"), class_="bar-of-state"),
        _place("p", "news", held, class_="unseen", role="status"),
        _place("div", "unknown", held, role="alert"),
        _place("div", "problems", held),
    )


def _place(name: str, part: str, held: Mapping[str, str], **attributes: object) -> Html:
    return tag(name, held.get(part), id=f"part-{part}", **attributes)


def _run(report: Report) -> str:
    return report.status.record.run or report.status.record.cluster


def _answer(report: Report) -> Html:
    """As `dtctl status` begins."""
    status = report.status
    outcome = status.verdict.outcome
    since = status.time - status.record.created if status.record.created else 0
    age = f" {duration(since)}" if since and outcome.value == "Running" else ""
    summary = "".join(f"{SEPARATOR}{one}" for one in in_short(status))
    return joined(
        tag("h1", _run(report)),
        tag("p", tag("span", outcome.value, class_=f"outcome {outcome.value}"), age, summary, class_="answer"),
        tag("p", "The run has ended, and this page stays as it is.", class_="soft") if is_over(status) else None,
    )


def _news(report: Report) -> str:
    """What a screen reader says by itself, and so what seldom changes: the outcome, and how many tasks do what."""
    states = Counter(task.state.value for task in report.status.tasks.values())
    counts = ", ".join(f"{count(number, 'task')} {state}" for state, number in sorted(states.items()))
    return f"{report.status.verdict.outcome.value}: {counts}"


def _problems(report: Report) -> Html:
    """Who gives no answer; then what is wrong, the most important first: the finding, what it means, what to type."""
    found = problems_of(report.status)
    shown = [_unreachable(report)] if report.errors else []
    for one in found[:MOST_PROBLEMS]:
        lines = filter(None, (happened(one.seen), worded(one.signature.means, words(one))))
        remedy = [tag("p", _command(line)) for line in remedies(one)]
        shown.append(tag("div", [tag("p", line) for line in lines], remedy, class_="problem"))
    left = len(found) - MOST_PROBLEMS
    return joined(shown, tag("p", f"{count(left, 'more problem')}: dtctl diagnose") if left > 0 else None)


def _unreachable(report: Report) -> Html:
    groups = rows(report.errors)
    lines = [tag("p", f"no answer: {row.text}") for row in groups[:MOST_PROBLEMS]]
    left = len(groups) - len(lines)
    more = tag("p", tag("a", f"{count(left, 'more reason')}", href="#gaps")) if left > 0 else None
    return tag("div", lines, more, class_="problem")


def _command(line: str) -> Html:
    """What to type, apart from what it does."""
    typed, _, does = line.partition("    ")
    return (
        joined(tag("code", typed), f" {does.strip()}" if does else None) if typed.startswith("dtctl ") else joined(line)
    )


def _tasks(report: Report) -> Html:
    status = report.status
    rows = [(row, cells_of(row, status)) for row in rows_of(status, MOST_ROWS)]
    names = [name for name in rows[0][1] if name not in _LEFT_OUT] if rows else ["TASK"]
    names = [name for name in names if name not in _SELDOM or any(cells[name] for _, cells in rows)]
    table = [
        [
            tag("span", cells[name], class_=f"s-{row.first.state.value}") if name == "STATE" else cells[name]
            for name in names
        ]
        for row, cells in rows
    ]
    columns = [Column(name.lower(), _KINDS.get(name, "number")) for name in names]
    return scrolled("Tasks as they are now", columns, table)


def show_url(url: str, fields: Mapping[str, object], *notes: str, json: bool) -> None:
    """Once it can be opened. `fields`: of its document, besides the address."""
    if json:
        document.print_json_line({"apiVersion": document.API_VERSION, **fields, "url": url})
        return
    console.say(url)
    for note in notes:
        errors.note(note)


def show_next_url(url: str, fields: Mapping[str, object], *, json: bool) -> None:
    """When a browser has come in."""
    if json:
        show_url(url, fields, json=True)
    else:
        errors.note("opened; for another browser:", url)

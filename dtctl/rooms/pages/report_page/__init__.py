"""A report as one HTML file, without network, scripts or other files; and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from dtctl import __version__
from dtctl.agent.host.secrets import hide_text
from dtctl.operations.goodput import Goodput
from dtctl.render import goodput, gpus
from dtctl.render.checkpoints import position
from dtctl.render.errors import note
from dtctl.render.events import event_lines, warnings
from dtctl.render.failure import brief, excerpt
from dtctl.render.format import by_value, count, duration, fold, local_time, size
from dtctl.render.status import left_text, position_of, restarts_lines
from dtctl.render.terminal import console
from dtctl.render.terminal.safe import lines_of, one_line
from dtctl.rooms.pages.comparing_screen import comparison_rows, same_everywhere
from dtctl.rooms.pages.report import MARK, HostFacts, Report
from dtctl.rooms.pages.report.configuration import Configuration
from dtctl.rooms.pages.report_page import drawings, figures
from dtctl.rooms.pages.report_page.drawings import templates
from dtctl.rooms.pages.report_page.failing import failure_of
from dtctl.rooms.speed.telling_screen import told, without_verdict
from dtctl.transport.group_errors import rows

if TYPE_CHECKING:
    from dtctl.rooms.metrics.operation import Series
    from dtctl.rooms.pages.comparing import Comparison

STYLE = Path(__file__).with_name("report.css").read_text("utf-8")
"""The style for light and dark, narrow and wide screens, and paper. It fetches nothing."""


def page(report: Report, compared: Comparison | None = None) -> str:
    """The report as HTML. `compared`: a comparison with other runs."""
    return (
        templates()
        .get_template("page.html")
        .render(
            report=report,
            mark=Markup(MARK),
            run=report.status.record.run or report.status.record.cluster,
            policy=policy(),
            style=Markup(STYLE),
            about=about(report),
            snapshot=snapshot_text(report),
            parts=sections(report, compared),
            version=__version__,
        )
    )


def markdown(report: Report, compared: Comparison | None = None) -> str:
    """The same facts for a merge request or a chat, without the drawings."""
    form = templates().overlay(finalize=_marked).get_template("page.md", globals={**FUNCTIONS, "code": _code})
    run = report.status.record.run or report.status.record.cluster
    return form.render(report=report, compared=compared, run=run, mark=Markup(MARK)).rstrip("\n") + "\n"


def _code(text: str, language: str) -> Markup:
    """The text between fences that it cannot end."""
    lines = [line.replace(_FENCE, "'''' ") for line in lines_of(hide_text(text))]
    return Markup("\n".join([f"{_FENCE}{language}", *lines, _FENCE]))


_FENCE = "````"
_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def _marked(value: object) -> Markup:
    """The value without Markdown, HTML and mentions (@NAME), whatever a host sends.

    An entity would still be a mention for GitHub and GitLab, which look for them in the resulting text.
    """
    if isinstance(value, Markup):
        return value
    text = one_line(hide_text(str(value)).replace("\n", " "))
    return Markup(_SPECIAL.sub(r"\\\1", escape(text, quote=False)).replace("@", "@<!-- -->"))


def put(text: str) -> None:
    """Prints a report on stdout. Its content was made safe when it was written."""
    console.put(text)


def policy() -> str:
    """The content security policy: nothing is fetched or executed; the only style sheet is known by its hash."""
    return f"default-src 'none'; style-src {known_by_hash(STYLE)}; base-uri 'none'; form-action 'none'"


def known_by_hash(text: str) -> str:
    """Content within the page, as a Content-Security-Policy names it (CSP 3, 2.3.1)."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def about(report: Report) -> str:
    record = report.status.record
    began = f", started {local_time(record.created)}" if record.created else ""
    return f"cluster {record.cluster}{began}; as of {local_time(report.status.time or report.made)}"


def snapshot_text(report: Report) -> str:
    """What a report of a run that goes on says of itself, with the time left."""
    text = "This is a snapshot of a run that goes on."
    left = left_text(report.figures)
    if not left or report.figures.left_s is None:
        return text
    end = (report.status.time or report.made) + report.figures.left_s
    form = "%H:%M:%S" if report.figures.left_s < _DAY_S / 2 else "%Y-%m-%d %H:%M"
    return f"{text} By its pace it is {left}, at {local_time(end, form)}."


_DAY_S = 86400


class Section(NamedTuple):
    """A section of report and dashboard: its anchor and its heading. sections.html has its content as a macro,
    `AT_section(report, headed)`; a section without content is left out.
    """

    at: str
    heading: str
    live: bool = False
    """Whether it is of the dashboard alone, which has its content."""


SECTIONS = (
    Section("result", "Result"),
    Section("tasks", "Tasks", live=True),
    Section("curves", "Curves"),
    Section("speed", "Speed"),
    Section("logs", "Logs", live=True),
    Section("goodput", "Goodput"),
    Section("timeline", "Timeline"),
    Section("checkpoints", "Checkpoints"),
    Section("story", "What happened"),
    Section("hosts", "Hosts"),
    Section("configuration", "Configuration"),
    Section("gaps", "What is missing here"),
)
"""The sections in the order of both pages."""


def contents(
    report: Report, *, headed: bool = False, drawn: Sequence[str] = (), without: Container[str] = ()
) -> dict[str, Markup]:
    """The contents of a report by the names of the anchors, in order. `headed`: the outcome is above them already;
    `drawn`: tags whose curves are shown elsewhere; `without`: sections that are not wanted.
    """
    more = {"curves": {"without": drawn}}
    found = {
        one.at: getattr(_macros(), f"{one.at}_section")(report, headed, **more.get(one.at, {}))
        for one in SECTIONS
        if not (one.live or one.at in without)
    }
    return {at: content.strip() for at, content in found.items()}


def sections(report: Report, compared: Comparison | None = None) -> list[tuple[str, str, Markup]]:
    """Anchor, heading and content of each section that has any, and the comparison with other runs."""
    drawn = figures.tags_of_runs(_series_of(compared)) if compared is not None else ()
    contained = contents(report, drawn=[*drawn])
    headings = {one.at: one.heading for one in SECTIONS}
    parts = [(at, headings[at], held) for at, held in contained.items() if held]
    if compared is None:
        return parts
    return [*parts[:1], ("compared", "Side by side", _macros().compared_section(compared)), *parts[1:]]


def _series_of(found: Comparison) -> dict[str, tuple[Series, ...]]:
    return {run: one.series for run, one in found.runs.items()}


def _macros() -> Any:
    return templates().get_template("sections.html", globals=FUNCTIONS).module


def _spent(found: Goodput) -> list[tuple[str, float, float, str]]:
    """The time spent, in the form of `bars` of parts.html."""
    return [
        (
            *(span.what, span.begin_s / found.elapsed_s, span.end_s / found.elapsed_s),
            f"{goodput.PARTS[span.what]}: {duration(span.seconds)}",
        )
        for span in found.spans
    ]


def facts(report: Report) -> list[tuple[str, str]]:
    """The figures at the top."""
    status, figures = report.status, report.figures
    newest = figures.checkpoint
    step = "" if figures.step is None else str(figures.step) + (f" of {figures.target}" if figures.target else "")
    entries = [
        ("Time", duration(figures.elapsed_s) if figures.elapsed_s is not None else ""),
        ("Step", position_of(figures.position) if figures.position is not None else step),
        ("Steps/s", f"{figures.rate:.3g}" if figures.rate else ""),
        ("Last step", f"{duration(figures.silent_s)} ago" if figures.silent_s is not None else ""),
        ("Time left", left_text(figures).removeprefix("done in ")),
        ("Loss", figures.loss or ""),
        ("Goodput", goodput.percent(figures.goodput.share) if figures.goodput else ""),
        ("Restarts", str(figures.restarts)),
        ("Checkpoint", position(newest) if newest else ""),
        ("Tasks", f"{len(status.tasks)} on {count(len(report.hosts), 'host')}"),
        *([("Code", revision.shown)] if (revision := status.record.revision) is not None else []),
        *([("Repository", revision.remote)] if revision is not None and revision.remote else []),
    ]
    return [(name, value) for name, value in entries if value]


def columns_of(tiles: int) -> int:
    """The columns in which so many tiles fill their rows; their last row may lack one."""
    return tiles if tiles <= _MOST_IN_ROW else -(-tiles // 2)


_MOST_IN_ROW = 7


def checkpoint_rows(report: Report) -> list[list[str]]:
    return [
        [
            one["prefix"],
            position(one).removeprefix("step "),
            local_time(one["time"]),
            size(one["size_bytes"]),
            "complete" if one["complete"] else f"incomplete: {one['problem']}",
            f"{found.host}:{found.report['dir']}",
        ]
        for found in report.status.checkpoints
        for one in found.report["all"]
    ]


def checkpoint_problems(report: Report) -> list[str]:
    """Directories that may have more checkpoints than were found, and why."""
    found = [(one.host, one.report) for one in report.status.checkpoints]
    return [f"{host}:{one['dir']}: {one['problem']}" for host, one in found if one["problem"]]


def host_rows(report: Report) -> list[list[str]]:
    return [
        [
            one.name + (f" ({hostname})" if (hostname := one.greeting.get("hostname", one.name)) != one.name else ""),
            fold(map(str, one.tasks)),
            one.greeting.get("system") or "not known",
            one.greeting.get("python", ""),
            hardware(one),
        ]
        for one in report.hosts
    ]


def hardware(host: HostFacts) -> str:
    cpus, memory_bytes, free_bytes = (host.greeting.get(name, 0) for name in ("cpus", "memory_bytes", "free_bytes"))
    parts = [
        count(cpus, "CPU") if cpus else "",
        f"{size(memory_bytes)} of memory" if memory_bytes else "",
        count(host.gpus, "GPU") if host.gpus else "",
        f"{size(free_bytes)} free" if free_bytes else "",
    ]
    return ", ".join(filter(None, parts))


def settings_rows(found: Configuration) -> list[list[str]]:
    rows = [[one.key, one.value, "--set" if one.is_set else ""] for one in found.settings]
    return [row[: len(settings_columns(found))] for row in rows]


def settings_columns(found: Configuration) -> dict[str, str]:
    """The heading of each column and its kind."""
    given = {"from": "nowrap"} if any(one.is_set for one in found.settings) else {}
    return {"key": "", "value": "wide", **given}


MOST_DIFFERENCES = 10


def configuration_notes(found: Configuration) -> Iterator[str]:
    """Whether the file is still what the run was started with, or why that is unknown."""
    if found.problem:
        yield f"The file is not shown: {found.problem}."
    elif not found.settings:
        yield (
            f"As {found.file} reads now, without its comments: what the run was started with is unknown. What may be a "
            "secret is masked."
        )
    elif differing := found.differences:
        keys = ", ".join(differing[:MOST_DIFFERENCES])
        more = f" and {count(len(differing) - MOST_DIFFERENCES, 'other')}" if len(differing) > MOST_DIFFERENCES else ""
        yield f"{found.file} differs by now from what the run was started with: {keys}{more}."


def gaps(report: Report) -> Iterator[str]:
    """A line for each error, and one for all hosts with the same unread parts."""
    yield from (row.text for row in rows(report.errors))
    yield from _spared(report.unasked)


def show_unasked(unasked: Mapping[str, Sequence[str]]) -> None:
    for line in _spared(unasked):
        note(line)


def _spared(unasked: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for parts, hosts in by_value({host: tuple(left) for host, left in unasked.items()}).items():
        yield f"{fold(hosts)}: not asked for {' and '.join(parts)} any more"


def of_what(report: Report) -> str:
    """The explanation of the percentage: of 1h2m until the outcome went into steps that were kept."""
    elapsed = duration(report.goodput.counted_s if report.goodput else 0.0)
    paused_s = report.goodput.seconds.get("pause", 0.0) if report.goodput else 0.0
    paused = f", less pauses of {duration(paused_s)}," if paused_s else ""
    until = "the outcome" if report.status.verdict.outcome.decided else "now"
    source = ", by the event files (the logs report no step)" if report.goodput and report.goodput.by_scalars else ""
    return f" of the {elapsed} until {until}{paused} went into steps that were kept{source}."


FUNCTIONS = {
    "checkpoint_problems": checkpoint_problems,
    "checkpoint_rows": checkpoint_rows,
    "columns_of": columns_of,
    "comparison_rows": lambda found: [[name, *values] for name, values in comparison_rows(found)],
    "brief": brief,
    "curves": figures,
    "event_lines": event_lines,
    "excerpt": excerpt,
    "facts": facts,
    "failure_of": failure_of,
    "goodput": goodput,
    "of_what": of_what,
    "gpus": gpus,
    "host_rows": host_rows,
    "reasons": gaps,
    "configuration_notes": configuration_notes,
    "restarts_lines": restarts_lines,
    "same_everywhere": same_everywhere,
    "settings_columns": settings_columns,
    "settings_rows": settings_rows,
    "snapshot_text": snapshot_text,
    "spent": _spent,
    "told": told,
    "without_verdict": without_verdict,
    "tags_of_runs": lambda found: figures.tags_of_runs(_series_of(found)),
    "tasks": drawings,
    "version": __version__,
    "warnings": warnings,
}
"""Functions for the templates, besides those of all pages."""

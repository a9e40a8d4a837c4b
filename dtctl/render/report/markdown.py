"""A report as Markdown, for a merge request or a chat: the same facts, without the drawings."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dtctl import __version__
from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records.reasons import sentence
from dtctl.operations.report import MARK, Report
from dtctl.render import goodput as goodput_text
from dtctl.render import gpus
from dtctl.render.events import event_line
from dtctl.render.format import count
from dtctl.render.metrics import names, sparkline
from dtctl.render.report import drawings
from dtctl.render.report.sections import MOST_INCIDENTS, checkpoint_problems, checkpoint_rows, facts, gaps, host_rows
from dtctl.render.status import comparison_rows, restarts_lines
from dtctl.render.terminal.safe import lines_of, one_line

if TYPE_CHECKING:
    from dtctl.operations.compare import Comparison

CURVE_WIDTH = 24
MOST_LINES = 100
MOST_TASKS = 200

_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")
_FENCE = "````"


def markdown(report: Report, compared: Comparison | None = None) -> str:
    """`compared`: with other runs."""
    return "\n".join(_lines(report, compared)) + "\n"


def _lines(report: Report, compared: Comparison | None) -> Iterator[str]:
    run = report.status.record.run or report.status.record.cluster
    yield f"# {_text(run)}"
    yield f"{MARK} -->"
    for heading, lines in (
        ("Result", _result(report)),
        *([] if compared is None else [("Side by side", _compared(compared))]),
        ("Goodput", _goodput(report)),
        ("Tasks", _tasks(report)),
        ("Curves", _curves(report)),
        ("Checkpoints", _checkpoints(report)),
        ("What happened", _events(report)),
        ("Hosts", _hosts(report)),
        ("Configuration", _configuration(report)),
    ):
        yield from ("", f"## {heading}", "", *lines)
    if report.errors:
        yield from ("", "## What is missing here", "")
        yield from (f"- {_text(text)}" for text in gaps(report))


def _compared(found: Comparison) -> Iterator[str]:
    yield from _table(["", *map(_text, found.runs)], [[name, *values] for name, values in comparison_rows(found)])
    yield from (f"- {_text(run)}: {_text(error.summary)}" for run, error in found.errors.items())


def _result(report: Report) -> Iterator[str]:
    status = report.status
    why = sentence(status.verdict.why)
    yield f"**{status.verdict.outcome.value}**" + (f": {_text(why)}" if why else "")
    yield ""
    yield from _table(["", ""], [list(one) for one in facts(report)])
    cause = status.verdict.cause
    if cause is not None and cause in status.tasks and status.tasks[cause].exit["tail"]:
        yield from ("", f"The end of {cause}'s log:", "", *_code(status.tasks[cause].exit["tail"]))
    lines = restarts_lines(status, MOST_INCIDENTS)
    if lines:
        yield from ("", *(f"- {_text(line.strip())}" for line in lines))


def _goodput(report: Report) -> Iterator[str]:
    found = report.goodput
    if found is None:
        yield "Unknown: the logs report no step, or the coordinator is unreachable."
        return
    yield f"**{goodput_text.percent(found.share)}**{goodput_text.of_what(report)}"
    yield ""
    yield from _table(["part", "share", "time", "what it is"], list(goodput_text.rows(found).values()))
    if found.gains:
        yield from ("", *(f"- {_text(goodput_text.gain_text(one))}" for one in found.gains))


def _tasks(report: Report) -> Iterator[str]:
    lines = report.timeline.tasks
    rows = [
        [str(line.task), line.host, line.state.value, str(len(line.attempts)), drawings.described(line)]
        for line in lines[:MOST_TASKS]
    ]
    yield from _table(["task", "host", "state", "attempts", "in order"], rows)
    if len(lines) > MOST_TASKS:
        yield from ("", f"{count(len(lines) - MOST_TASKS, 'other task')} left out.")


def _curves(report: Report) -> Iterator[str]:
    rows = []
    for name, several in drawings.tags(report).items():
        for label, one in zip(names(several), several, strict=True):
            shape = sparkline([point.value for point in one.points], CURVE_WIDTH)
            rows.append([name, label, shape, drawings.as_text(one)])
    if rows:
        yield from _table(["tag", "where", "curve", "in words"], rows[: drawings.MOST_FIGURES])
    else:
        yield "No TensorBoard event files were found."


def _checkpoints(report: Report) -> Iterator[str]:
    rows = checkpoint_rows(report)
    if rows:
        yield from _table(["checkpoint", "step", "written", "size", "state", "where"], rows)
    else:
        yield "None was found."
    problems = checkpoint_problems(report)
    if problems:
        yield from ("", *(f"- {_text(text)}" for text in problems))


def _events(report: Report) -> Iterator[str]:
    events = report.events[-MOST_LINES:]
    if len(report.events) > len(events):
        yield f"- {count(len(report.events) - len(events), 'line')} before: dtctl events lists them all"
    yield from (f"- {_text(event_line(one))}" for one in events)


def _hosts(report: Report) -> Iterator[str]:
    yield from _table(["host", "tasks", "system", "Python of the agent", "hardware"], host_rows(report))
    known = list(gpus.rows(report.status))
    if known:
        yield from ("", *_table(list(gpus.COLUMNS), known))
    yield from ("", f"This report is by dtctl {__version__} on Python {_text(report.python)}.")


def _configuration(report: Report) -> Iterator[str]:
    found = report.configuration
    if found.problem:
        yield f"Not shown: {_text(found.problem)}."
        return
    yield f"As {_text(str(found.file))} reads now, without its comments; what may be a secret is masked."
    yield from ("", *_code("\n".join(found.lines), "yaml"))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _code(text: str, language: str = "text") -> Iterator[str]:
    """Between fences that the text cannot end."""
    yield f"{_FENCE}{language}"
    for line in lines_of(hide_text(text)):
        yield line.replace("````", "'''' ")
    yield _FENCE


def _text(text: str) -> str:
    """Neither Markdown nor HTML, whatever a host says, and no @NAME mentions a user.

    An entity would still be a mention for GitHub and GitLab, which look for them in what is left of the text.
    """
    plain = _SPECIAL.sub(r"\\\1", html.escape(one_line(hide_text(text).replace("\n", " ")), quote=False))
    return plain.replace("@", "@<!-- -->")

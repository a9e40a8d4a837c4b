"""The page's contents, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dtctl import __version__
from dtctl.agent.records.reasons import sentence
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.operations.report import HostFacts, Report
from dtctl.render import goodput as goodput_text
from dtctl.render import gpus
from dtctl.render.errors import note
from dtctl.render.events import event_line
from dtctl.render.format import by_value, count, duration, fold, local_time, size
from dtctl.render.report import curves, timeline
from dtctl.render.report.html import Column, Html, bars, joined, key, preformatted, scrolled, tag
from dtctl.render.status import comparison_rows, restarts_lines
from dtctl.transport.group_errors import rows

if TYPE_CHECKING:
    from dtctl.operations.compare import Comparison

MOST_INCIDENTS = 50
MOST_LINES = 300

Section = tuple[str, str, Html]
"""The name of its anchor, its heading and what it holds."""


HEADINGS = {
    "result": "Result",
    "goodput": "Goodput",
    "timeline": "Timeline",
    "curves": "Curves",
    "checkpoints": "Checkpoints",
    "story": "What happened",
    "hosts": "Hosts",
    "configuration": "Configuration",
    "gaps": "What is missing here",
}
"""By the names of the anchors."""


def sections(report: Report, compared: Comparison | None = None) -> list[Section]:
    """What is missing is one where something is, and the comparison where there are other runs."""
    parts = [(at, HEADINGS[at], held) for at, held in contents(report).items() if at != "gaps" or report.errors]
    if compared is None:
        return parts
    return [*parts[:1], ("compared", "Side by side", _compared(compared)), *parts[1:]]


def _compared(found: Comparison) -> Html:
    rows = [[name, *values] for name, values in comparison_rows(found)]
    table = scrolled("Runs side by side; of their settings those that differ", ["", *found.runs], rows)
    drawn = curves.figures_of_runs({run: one.series for run, one in found.runs.items()})
    unknown = [f"{run}: {error.summary}" for run, error in found.errors.items()]
    return joined(table, drawn, [tag("p", text) for text in unknown])


def contents(report: Report, *, headed: bool = False) -> dict[str, Html]:
    """By the names of the anchors, in order. `headed`: the outcome is above them already."""
    return {
        "result": _result(report, headed=headed),
        "goodput": _goodput(report),
        "timeline": _timeline(report),
        "curves": curves.figures(report) or _no_curves(report),
        "checkpoints": _checkpoints(report),
        "story": _events(report),
        "hosts": _hosts(report),
        "configuration": _configuration(report),
        "gaps": _gaps(report),
    }


def facts(report: Report) -> list[tuple[str, str]]:
    """The figures at the top."""
    status = report.status
    progress = status.progress
    newest = status.newest_complete
    step = "" if progress.step is None else str(progress.step) + (f" of {progress.target}" if progress.target else "")
    entries = [
        ("Time", duration(report.timeline.end - report.timeline.begin)),
        ("Step", step),
        ("Steps/s", f"{progress.rate:.3g}" if progress.rate and not status.verdict.outcome.decided else ""),
        ("Loss", progress.loss or ""),
        ("Goodput", goodput_text.percent(report.goodput.share) if report.goodput else ""),
        ("Restarts", str(sum(max(0, len(line.attempts) - 1) for line in report.timeline.tasks))),
        ("Checkpoint", f"step {newest['step']}" if newest and newest["step"] is not None else ""),
        ("Tasks", f"{len(status.tasks)} on {count(len(report.hosts), 'host')}"),
    ]
    return [(name, value) for name, value in entries if value]


def _result(report: Report, *, headed: bool) -> Html:
    status = report.status
    verdict = status.verdict
    outcome = tag("span", verdict.outcome.value, class_=f"outcome {verdict.outcome.value}")
    figures = tag(
        "dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts(report)], class_="facts"
    )
    why = sentence(verdict.why)
    lines = restarts_lines(status, MOST_INCIDENTS)
    return joined(
        tag("p", outcome, f": {why}" if why else "", class_="cause" if verdict.cause else None) if not headed else None,
        figures,
        _cause(report),
        [
            tag("p", f"warning: {text}")
            for text in (status.coordination.view["warnings"] if status.coordination else ())
        ],
        tag("h3", "Losses and recoveries") if lines else None,
        tag("ul", [tag("li", line) for line in lines]) if lines else None,
    )


def _cause(report: Report) -> Html | None:
    """The task that failed first, with the end of its log."""
    cause = report.status.verdict.cause
    task = report.status.tasks.get(cause) if cause is not None else None
    if task is None or not task.exit["tail"]:
        return None
    return joined(tag("h3", f"The end of {task.id}'s log"), tag("pre", preformatted(task.exit["tail"]), tabindex="0"))


def _goodput(report: Report) -> Html:
    found = report.goodput
    if found is None:
        return tag("p", "Unknown: the logs report no step, or the coordinator is unreachable.")
    spans = [
        (one.what, one.begin_s / found.elapsed_s, one.end_s / found.elapsed_s, _span(one.what, one.seconds))
        for one in found.spans
    ]
    rows = [[tag("span", key(what), " ", name), *others] for what, (name, *others) in goodput_text.rows(found).items()]
    columns: list[Column | str] = [
        "part",
        Column("share", "number"),
        Column("time", "number"),
        Column("what it is", "wide"),
    ]
    gains = [tag("li", goodput_text.gain_text(one)) for one in found.gains]
    return joined(
        tag("p", tag("strong", goodput_text.percent(found.share)), goodput_text.of_what(report)),
        tag("div", bars("Where the time went", goodput_text.goodput_line(found), spans), class_="bar"),
        scrolled("Where the time went", columns, rows),
        tag("h3", "What would raise it") if gains else None,
        tag("ul", gains) if gains else None,
    )  # fmt: skip


def _span(what: str, seconds: float) -> str:
    return f"{goodput_text.PARTS[what]}: {duration(seconds)}"


def _timeline(report: Report) -> Html:
    table = tag("details", tag("summary", "The same as a table"), timeline.attempts_table(report))
    return joined(timeline.lanes(report), table)


def _no_curves(report: Report) -> Html:
    looked = sorted({path for answer in report.scalars.answers.values() for path in answer["dirs"]})
    where = f" below {', '.join(looked[:5])}" if looked else ""
    return tag("p", f"No TensorBoard event files were found{where}.")


def _checkpoints(report: Report) -> Html:
    rows = checkpoint_rows(report)
    problems = [tag("p", text) for text in checkpoint_problems(report)]
    if not rows:
        return joined(tag("p", "None was found."), problems)
    columns: list[Column | str] = [
        "checkpoint",
        Column("step", "number"),
        Column("written", "nowrap"),
        Column("size", "number"),
        "state",
        Column("where", "wide"),
    ]
    return joined(scrolled("Checkpoints, as found in the files", columns, rows), problems)


def checkpoint_rows(report: Report) -> list[list[str]]:
    return [
        [
            one["prefix"],
            "" if one["step"] is None else str(one["step"]),
            local_time(one["time"]),
            size(one["size_bytes"]),
            "complete" if one["complete"] else f"incomplete: {one['problem']}",
            f"{found.host}:{found.report['dir']}",
        ]
        for found in report.status.checkpoints
        for one in found.report["all"]
    ]


def checkpoint_problems(report: Report) -> list[str]:
    """Directories where there may be more than were found, and why."""
    found = [(one.host, one.report) for one in report.status.checkpoints]
    return [f"{host}:{one['dir']}: {one['problem']}" for host, one in found if one["problem"]]


def _events(report: Report) -> Html:
    events: list[HistoryEvent] = list(report.events[-MOST_LINES:])
    left = len(report.events) - len(events)
    items = [tag("li", event_line(one)) for one in events]
    more = tag("p", f"{count(left, 'line')} before: dtctl events lists them all.", class_="soft") if left else None
    folded = tag(
        "details", tag("summary", count(len(events), "line")), more, tag("ul", items), open=len(events) <= 30 or None
    )
    return joined(folded) if events else tag("p", "The event history is unknown: the coordinator is unreachable.")


def _hosts(report: Report) -> Html:
    versions = f"dtctl {__version__} on Python {report.python}"
    columns: list[Column | str] = [
        "host",
        Column("tasks", "wide"),
        Column("system", "wide"),
        "Python of the agent",
        "hardware",
    ]
    table = scrolled("Hosts of the run", columns, host_rows(report))
    known = list(gpus.rows(report.status))
    shown = scrolled("GPUs as they were last", _GPU_COLUMNS, known) if known else None
    return joined(table, shown, tag("p", f"This report is by {versions}.", class_="soft"))


_GPU_COLUMNS = [Column(name, "wide" if name in ("tasks", "used by") else "nowrap") for name in gpus.HEADINGS]


def host_rows(report: Report) -> list[list[str]]:
    return [
        [
            one.name + (f" ({hostname})" if (hostname := one.greeting.get("hostname", one.name)) != one.name else ""),
            ", ".join(map(str, one.tasks)),
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


def _configuration(report: Report) -> Html:
    found = report.configuration
    if found.problem:
        return tag("p", f"Not shown: {found.problem}.")
    about = f"As {found.file} reads now, without its comments; what may be a secret is masked."
    return joined(tag("p", about, class_="soft"), tag("pre", preformatted("\n".join(found.lines)), tabindex="0"))


def _gaps(report: Report) -> Html:
    if not report.errors:
        return tag("p", "Nothing: every host answers.")
    return tag("ul", [tag("li", text) for text in gaps(report)])


def gaps(report: Report) -> Iterator[str]:
    """A line for each reason, and one for all hosts that were not asked for the same."""
    yield from (row.text for row in rows(report.errors))
    yield from _spared(report.unasked)


def show_unasked(unasked: Mapping[str, Sequence[str]]) -> None:
    for line in _spared(unasked):
        note(line)


def _spared(unasked: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for parts, hosts in by_value({host: tuple(left) for host, left in unasked.items()}).items():
        yield f"{fold(hosts)}: not asked for {' and '.join(parts)} any more"

"""The state of a run: a line on the whole run, a table of its tasks, and its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import read, sentence, why_of
from dtctl.agent.run.policy import fingerprint
from dtctl.operations.failures import failure_of
from dtctl.operations.figures import Figures, elapsed_s, figures_of
from dtctl.operations.findings import problems_of
from dtctl.operations.goodput import goodput_of
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.operations.waiting import has_no_machines
from dtctl.render.allocation import line as allocation_line
from dtctl.render.checkpoints import age, checkpoint_lines
from dtctl.render.errors import show_host_errors
from dtctl.render.events import losses_lines, warnings
from dtctl.render.failure import brief
from dtctl.render.findings import problem_lines
from dtctl.render.format import by_value, duration, fold, local_time
from dtctl.render.goodput import goodput_line
from dtctl.render.roster import rows_of, tasks_table
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, styled, table
from dtctl.render.terminal.moving import Redrawn, moving
from dtctl.transport.group_errors import rows

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.agent.records.run_state import Position
    from dtctl.agent.records.whole_run import Contact
    from dtctl.operations.runs import ForeignRun, KnownRun, KnownRuns
    from dtctl.render.terminal.grid import Grid

OUTCOME_STYLE = {
    Outcome.SUCCEEDED: "bold green",
    Outcome.FAILED: "bold red",
    Outcome.RESTARTING: "yellow",
    Outcome.SUSPENDED: "yellow",
    Outcome.RUNNING: "green",
}
SHOWN_INCIDENTS = 3
"""The number of newest incidents; `dtctl events` lists them all."""


def show_status(status: RunStatus, *, every: bool = False) -> None:
    """Shows a status. `every`: each task has a line of its own, as it has without a terminal."""
    out = console.out()
    for part in summary_lines(status, out.width if out.is_terminal else None):
        out.print(part)
    for line in problem_lines(status):
        out.prose(line)
    if status.tasks:
        print_table(status_table(status, every=every))
    for line in more_lines(status):
        out.prose(line)


def summary(status: RunStatus) -> Text:
    """The run and its outcome, then its progress, rate and remaining time; or the reason."""
    from dtctl.render.terminal.rich_console import text

    return text(*headline(status))


def summary_lines(status: RunStatus, width: int | None) -> list[Text]:
    """The same in lines of at most this width; None: in one line."""
    from dtctl.render.terminal.grid import wrapped
    from dtctl.render.terminal.rich_console import text

    if width is None:
        return [summary(status)]
    lines = [text(*pieces) for pieces in between_facts(headline(status), width)]
    return [part for line in lines for part in wrapped(line, width)]


def between_facts(pieces: Sequence[tuple[str, str]], width: int) -> list[list[tuple[str, str]]]:
    """A headline in lines that end between facts; one that is wider than a line goes on where it begins."""
    from rich.cells import cell_len

    lines: list[list[tuple[str, str]]] = [[]]
    for words, style in pieces:
        fits_below = words.startswith(SEPARATOR) and cell_len(words) <= width
        if fits_below and sum(cell_len(one) for one, _ in lines[-1]) + cell_len(words) > width:
            lines.append([("  ", ""), (words.removeprefix(SEPARATOR), style)])
        else:
            lines[-1].append((words, style))
    return lines


def headline(status: RunStatus) -> list[tuple[str, str]]:
    """Text and style of each piece: the run, a colon, the outcome, and the facts after it."""
    record, outcome, facts = status.record, status.verdict.outcome, in_short(status)
    after, elapsed = stopped_by(status.verdict), _elapsed(status)
    if elapsed and outcome.decided:
        after = f"{after} after {elapsed}".strip()
    elif outcome is Outcome.RUNNING:
        after = elapsed
    if stopped_by(status.verdict):
        facts.pop(0)
    return [
        (record.run or record.cluster, "bold"),
        (": ", ""),
        (outcome.value, OUTCOME_STYLE.get(outcome, "")),
        (f" {after}" if after else "", ""),
        *((f"{SEPARATOR}{fact}", "") for fact in facts),
    ]


def stopped_by(verdict: Verdict) -> str:
    """Who stopped the run, as words after its outcome; empty if there is more to say, or another end."""
    only = read(verdict.why[0]) if verdict.outcome is Outcome.STOPPED and len(verdict.why) == 1 else {"kind": ""}
    return f"by {only['by']}" if only["kind"] == "stopped_by" else ""


SEPARATOR = " · "


def in_short(status: RunStatus) -> list[str]:
    """The facts after the outcome, in one line."""
    verdict, figures = status.verdict, figures_of(status)
    if status.allocation is not None and has_no_machines(status.record, status.allocation):
        log = status.allocation.log
        return [allocation_line(status.allocation), *([f"see {log}"] if log else [])]
    shown = (
        []
        if verdict.outcome is Outcome.RUNNING and figures.step is not None and _all_run(verdict)
        else [brief(verdict.why) if _told_below(status) else sentence(verdict.why)]
    )
    if status.unknown_after_the_end:
        tasks = status.unknown_after_the_end
        hosts = fold(dict.fromkeys(status.tasks[task].host for task in tasks))
        shown.append(f"{', '.join(map(str, tasks))} may still run on {hosts}, which is unreachable")
    if figures.elapsed_s is not None and not (verdict.outcome.decided or verdict.outcome is Outcome.RUNNING):
        shown.append(f"{duration(figures.elapsed_s)} since the start")
    if figures.position is not None:
        shown.append(position_of(figures.position))
    elif figures.step is not None:
        shown.append(f"step {figures.step}" + (f"/{figures.target}" if figures.target is not None else ""))
    shown += pace(figures)
    if figures.loss is not None:
        shown.append(f"loss {figures.loss}")
    if figures.checkpoint is not None:
        shown.append(f"checkpoint {age(figures.checkpoint, status.time)} ago")
    if status.allocation is not None:
        shown.append(allocation_line(status.allocation))
    return shown


def _told_below(status: RunStatus) -> bool:
    """Whether a line below has the whole cause."""
    return failure_of(status) is not None or status.verdict.outcome is Outcome.RESTARTING


def _all_run(verdict: Verdict) -> bool:
    return all(one["kind"] != "tasks_run" or one["count"] == one["of"] for one in map(read, verdict.why))


def _elapsed(status: RunStatus) -> str:
    seconds = elapsed_s(status)
    return "" if seconds is None else duration(seconds)


def pace(figures: Figures) -> list[str]:
    """The rate and the time left; without a recent step, the age of the last one."""
    if figures.silent_s is not None:
        return [f"last step {duration(figures.silent_s)} ago"]
    return [text for text in (rate_text(figures), left_text(figures)) if text]


def rate_text(figures: Figures) -> str:
    """The rate; empty if unknown."""
    if not figures.rate:
        return ""
    return f"{figures.rate:.3g}/s" if figures.position is not None else f"{figures.rate:.3g} steps/s"


def left_text(figures: Figures) -> str:
    """The time left, as `done in 12m`; empty if unknown."""
    if not figures.left_s:
        return ""
    return f"done in {'about ' if figures.position is not None else ''}{duration(figures.left_s)}"


def position_of(position: Position) -> str:
    """A position as `epoch 4/90, 710/1251`, or as much of it as is known."""
    epoch, batch = position["epoch"], position["batch"]
    shown = []
    if epoch is not None:
        shown.append(f"epoch {epoch}" + (f"/{position['epochs']}" if position["epochs"] is not None else ""))
    if batch is not None:
        shown.append(f"{batch}/{position['batches']}" if position["batches"] is not None else f"batch {batch}")
    return ", ".join(shown)


def status_table(status: RunStatus, *, every: bool = False) -> Grid:
    """The table, with as many lines as the terminal has room for besides the other output."""
    out = console.out()
    if every or not out.is_terminal:
        return tasks_table(rows_of(status), status)
    others = 1 + len(problem_lines(status)) + len(more_lines(status))
    return tasks_table(rows_of(status, max(_LEAST_ROWS, out.height - others - _AROUND)), status)


_LEAST_ROWS = 5
_AROUND = 3
"""Lines of the table's head, and of the prompts before and after."""


def more_lines(status: RunStatus) -> list[str]:
    """Facts that the table does not show: awaited hosts, losses, warnings, and the newest checkpoint."""
    coordination = status.coordination
    revision = status.record.revision
    code = [f"code: {revision.shown}"] if revision is not None else []
    if coordination is None:
        return code + checkpoint_lines(status)
    going_on = not status.verdict.outcome.decided
    waits_for = sentence(why_of(coordination.view["waits_for"]))
    lines = [f"waiting: {waits_for}"] if waits_for and going_on else []
    if not coordination.view["leased"] and going_on:
        lines.append(_without_majority(status.record.coordinator, coordination.lost_hosts))
    if coordination.absent_hosts and going_on:
        lines.append(f"without {fold(coordination.absent_hosts)}: dtctl up    takes in those that are back")
    drained = [host for host in coordination.drained_hosts if host not in coordination.idle]
    if drained and going_on:
        lines.append(f"drained: {fold(drained)}; dtctl undrain {drained[0]}    starts its tasks again")
    lines += idle_lines(status) if going_on else []
    if status.going_on_after_the_end:
        lines.append(f"ending: {', '.join(map(str, status.going_on_after_the_end))}")
    lines += restarts_lines(status, SHOWN_INCIDENTS)
    lines += [f"warning: {text}" for text in warnings(coordination.view)]
    lines += [goodput_line(goodput)] if (goodput := goodput_of(status)) else []
    if coordination.lost_hosts and status.verdict.outcome.decided:
        lines.append(f"away: {fold(coordination.lost_hosts)}; what runs there is ended as soon as it is back")
    return lines + code + checkpoint_lines(status)


def _without_majority(coordinator: str, lost: Sequence[str]) -> str:
    unreachable = f" ({fold(lost)} unreachable)" if lost else ""
    return (
        f"{coordinator} coordinates, but reaches no majority of the voting hosts{unreachable}: nothing is restarted "
        "until it does, or they elect another"
    )


def idle_lines(status: RunStatus) -> list[str]:
    """Hosts that have taken tasks of others, and the states of hosts without a task."""
    record = status.record
    idle = status.coordination.idle if status.coordination is not None else {}
    lines = [f"{host} has taken the place of {fold(slots)}" for host, slots in by_value(record.moved).items()]
    # a replaced host is shown again when it is back
    spares = [
        host for host in idle if host not in record.arbiters and (host not in record.moved or idle[host]["connected"])
    ]
    for what, names in (("spares", spares), ("arbiters", [host for host in idle if host in record.arbiters])):
        states = by_value({host: _idle_state(idle[host]) for host in names})
        lines += [f"{what}: {'; '.join(f'{fold(hosts)} {state}' for state, hosts in states.items())}"] if states else []
    return lines


def _idle_state(contact: Contact) -> str:
    if contact["absent"]:
        return "not started: dtctl up    adds it"
    state = "ready" if contact["connected"] else "away"
    return f"{state}, but drained" if contact["drained"] is not None else state


def restarts_lines(status: RunStatus, most: int, reported: Container[tuple[str, str]] = ()) -> list[str]:
    """The newest causes of losses, one per line, and the number of earlier ones; those in `reported` are left out."""
    coordination = status.coordination
    if coordination is None or not coordination.view["incidents"]:
        return []
    failure, now = failure_of(status), status.time or coordination.view["time"]
    end = failure.end if failure is not None else next((found.seen.end for found in problems_of(status)[:1]), None)
    told = {fingerprint(end.cause)} if end is not None and end.cause else ()
    return losses_lines(coordination.view["incidents"], now, most, reported, told)


@contextmanager
def redrawn(*, every: bool = False) -> Iterator[Callable[[RunStatus], None]]:
    """Shows states in place of each other; without a terminal, one below the other.

    `every`: tasks do not share lines.
    """
    out = console.out()
    if not out.is_terminal:

        def print_it(status: RunStatus) -> None:
            if status.time:
                show_status(status, every=every)
            show_host_errors(status.errors)

        yield print_it
        return
    from rich.console import Group
    from rich.live import Live

    display = Redrawn(lambda: Live(console=out, auto_refresh=False))
    with moving(display):

        def draw(status: RunStatus) -> None:
            away = [row.text for row in rows(status.errors)]
            if status.time:
                tasks = status_table(status, every=every)
                head = summary_lines(status, out.width)
                shown = Group(*head, *problem_lines(status), tasks, *more_lines(status), *away)
            else:
                shown = Group(*away)
            display.display.update(shown, refresh=True)

        yield draw


def show_runs(known: KnownRuns) -> None:
    """Shows the runs. Those of other accounts come last: nothing more is known of them."""
    runs, foreign = known.runs, known.foreign
    every: list[KnownRun | ForeignRun] = [*runs, *foreign]
    columns: dict[str, list[str] | list[Text]] = {
        "RUN": [one.run for one in every],
        "RESULT": [*map(_result, runs), *(styled("live", "") for _ in foreign)],
        "STARTED": [*(local_time(run.created) for run in runs), *("" for _ in foreign)],
        "BY": [*(run.by for run in runs), *(f"account {one.account}" for one in foreign)],
        "HOSTS": [fold(one.hosts) for one in every],
        "TASKS": [*map(_tasks, runs), *("" for _ in foreign)],
    }
    if any(run.commit for run in runs):
        columns["COMMIT"] = [*(run.commit[:12] for run in runs), *("" for _ in foreign)]
    print_table(
        table(columns, dropped=("STARTED", "COMMIT", "BY", "TASKS", "HOSTS"))
    )  # the name also contains the start


def _result(run: KnownRun) -> Text:
    """The outcome; `ended` or `live` if it is unknown. `live` also if tasks still run on a host after the end."""
    if run.verdict is None:
        return styled("live" if run.live else "ended", "")
    outcome = run.verdict.outcome
    live = ", live" if run.live and outcome.decided else ""
    return styled(f"{outcome.value}{live}", OUTCOME_STYLE.get(outcome, ""))


def _tasks(run: KnownRun) -> str:
    return ", ".join(f"{number} {state.value}" for state, number in Counter(run.tasks.values()).items())

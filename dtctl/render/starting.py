"""The output of a start: programs to run on this machine, how the tasks start, and why they do not."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.agent.host.secrets import hide_text, hide_variable, hide_words
from dtctl.agent.records.reasons import Fact, fact, headline, sentence
from dtctl.agent.run.policy import why_ended
from dtctl.config.cluster import Cluster, Hook
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import TaskState
from dtctl.operations.consent import LocalProgram, allow_command
from dtctl.operations.sending import sending_lines
from dtctl.operations.snapshot import Coordination, RunStatus, TaskStatus, how_it_ended
from dtctl.operations.up.result import (
    EXPECTED_S,
    FailedStart,
    UnusedCheckpoint,
    UpResult,
    awaited,
    not_listening,
    present,
)
from dtctl.render.errors import interrupted, note, show_error, show_host_errors, show_styled, show_warning
from dtctl.render.failure import excerpt
from dtctl.render.findings import advice_lines, fold_tasks
from dtctl.render.format import by_value, count, fold, size, summarize_hosts
from dtctl.render.plan import hook_line, survival_lines
from dtctl.render.result import stopped_tasks
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import still
from dtctl.render.terminal.safe import one_line

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import Past
    from dtctl.bundle import Bundle
    from dtctl.config.outgoing import Sending
    from dtctl.operations.checkpoints import Checkpoints
    from dtctl.operations.replace import Replacement
    from dtctl.operations.up.readying import Left
    from dtctl.plan import RunPlan


def show_hooks(hooks: Sequence[Hook]) -> None:
    """Shows the hooks, before any of them runs."""
    for hook in hooks:
        note(hook_line(hook))


def show_wanted(programs: Sequence[LocalProgram], sendings: Sequence[Sending]) -> None:
    """Shows what the file would start here and what it would send from here, before it is allowed."""
    if programs:
        console.report("this would start on this machine:")
        for line in program_lines(programs):
            console.report(f"  {line}")
    if sendings:
        console.report("this would be sent from this machine:")
        for line in sending_lines(sendings):
            console.report(f"  {line}")


def program_lines(programs: Sequence[LocalProgram]) -> Iterator[str]:
    for one in programs:
        where = f" on {fold(one.hosts)}" if one.hosts else ""
        yield f"{one.what}{where}: {shlex.join(hide_words(one.argv))}"
        for name, value in one.settings.items():
            yield f"    {name}: {hide_variable(name, value) if name.startswith('env.') else hide_text(value)}"


def not_allowed(cluster: Cluster, programs: Sequence[LocalProgram], *, local: bool) -> PreflightError:
    return PreflightError(
        f"{cluster.file} would start programs on this machine, and you have not allowed it",
        detail="\n".join(program_lines(programs)),
        hint=f"{allow_command(cluster.file, local=local)}    allows them, until the file changes",
    )


def wheels_lines(sent: Mapping[str, int], wheels: Bundle) -> Iterator[str]:
    """`sent`: host -> the number of wheels that it lacked."""
    whole = f"{count(len(wheels.manifest.files), 'wheel')} ({size(wheels.total_bytes)})"
    for number, hosts in by_value(sent).items():
        yield f"{fold(hosts)}: {number} of {whole} sent" if number else f"{fold(hosts)}: {whole} already there"


def show_hook_failure(name: str, why: Sequence[Fact]) -> None:
    note(f"hook {name} has failed: {sentence(why)}")


def show_start_warnings(outcome: UpResult) -> None:
    """Shows failures in spite of which the run has started."""
    for host, lost in outcome.unconfirmed.items():
        show_warning(
            f"{host} did not confirm that it keeps the run: {lost.summary}",
            hint="the coordinator repeats the request; dtctl status    shows whether it takes part",
        )
    if (error := outcome.unremembered) is not None:
        show_warning(f"{error.summary}: {error.detail}".rstrip(": "), hint=error.hint)


_REVIVALS = {"cron": "crontab entries", "systemd": "systemd user units"}


def show_started(result: UpResult, plan: RunPlan) -> None:
    if not result.started:
        note(f"run {result.run} is already running and has not changed")
        for host, slots in by_value(result.moved).items():
            note(f"{host} has taken the place of {fold(slots)}, which is not needed")
        _show_joined(result)
        _show_missing(result, plan)
        if result.ended:
            ended = ", ".join(map(str, result.ended))
            show_warning(f"no longer running: {ended}", hint="dtctl restart TASK    or dtctl stop, then dtctl up")
        for why, tasks in by_value({str(task): sentence(one.why) for task, one in result.drained.items()}).items():
            note(f"{', '.join(tasks)}: held, {why}", "dtctl undrain HOST, or dtctl scale JOB=N    starts them again")
        return
    for run, stopped in result.replaced.items():
        note(f"replaced {run}: {stopped_tasks(stopped)}")
        if stopped.errors:
            show_warning(
                f"{run} may still run on {fold(stopped.errors)}, which cannot be reached",
                hint=f"dtctl stop --run {run}    or dtctl gc, as soon as they are back",
            )
    present_hosts = summarize_hosts(host for host in plan.hosts if host not in result.absent)
    where = f"{count(len(result.started), 'task')} on {present_hosts}"
    show_styled("run ", (result.run, "bold"), f" started: {where}")
    _show_failing(result)
    for line in survival_lines(plan) if len(plan.members) > len(plan.hosts) else ():
        note(line)
    if result.earlier is not None and (newest := result.earlier.report["newest_complete"]) is not None:
        place = f"{result.earlier.report['dir']}/{newest['prefix']} on {result.earlier.host}"
        note(f"found a checkpoint of an earlier run, {place}: a trainer that restores continues from it")
    for why, hosts in by_value(result.without_revival).items():
        note(f"{summarize_hosts(hosts)}: after a reboot the run waits there for the next dtctl command: {why}")
    for why, hosts in by_value(result.unsure_revival).items():
        note(f"{summarize_hosts(hosts)}: after a reboot the run may not continue by itself: {why}")
    for kind, hosts in by_value(result.new_revival).items():
        written = _REVIVALS.get(kind, kind)
        note(
            f"{summarize_hosts(hosts)}: added {written} that restart the run's agent after a reboot "
            "(removed when the run ends)"
        )
    for moved, hosts in by_value(result.aside).items():
        show_warning(
            f"{fold(hosts)}: moved files of trainers to make room for files of the code",
            hint="\n".join(map(one_line, moved)),
        )
    _show_missing(result, plan)


def _show_failing(result: UpResult) -> None:
    """Warns of tasks that have only failed so far, and are to be started again: the run is `Restarting`."""
    failing = [one for one in result.started.values() if one.state is TaskState.BACKOFF and one.entry["history"]]
    for why, tasks in by_value({str(one.id): _how(one.entry["history"][-1]) for one in failing}).items():
        show_warning(
            f"{fold(tasks)} failed, and {'is' if len(tasks) == 1 else 'are'} started again: {why}",
            hint="dtctl diagnose    shows what to do",
        )


def starting_line(seen: Coordination | None, width: int) -> str:
    """The tasks and hosts that a start waits for, in a line."""
    waits = awaited(present(seen)) if seen is not None else ""
    return f"starting: {waits}"[:width] if waits else "starting"


def show_late(seen: Coordination | None) -> None:
    """Reports that a start takes longer than usual, and the possible reason."""
    if seen is None:
        return note(f"no report from the coordinator after {EXPECTED_S:g} s")
    tasks = not_listening(seen)
    if not tasks:
        return note(f"not all tasks have started after {EXPECTED_S:g} s: {awaited(present(seen))}")
    verb = "is" if len(tasks) == 1 else "are"
    return note(
        f"{fold_tasks(tasks)} {verb} still loading after {EXPECTED_S:g} s; "
        "a program without a port counts as started at its first step",
        "Ctrl-C    asks whether to stop the run, or leaves it running",
    )


def show_failed_exit(task: TaskStatus, tail: bytes) -> None:
    """Shows an attempt that failed while the start was watched, by the end of its log, or else its exit."""
    if tail.strip():
        note(f"{task.id} on {task.host} failed; the end of its log:")
        return _show_tail(task, tail)
    why = sentence(how_it_ended(task)) if task.why else _how(task.entry["history"][-1])
    return note(f"{task.id} on {task.host} failed: {why}")


def show_failed_start(failed: FailedStart, tail: bytes, ended: RunStatus | None = None) -> None:
    """Shows a failed start, its cause last. `tail`: the end of its log, if it was not shown before.

    `ended`: the run after that, by which `status`, `wait` and `diagnose` say what to do.
    """
    if failed.cause is not None:
        _show_tail(failed.cause, tail)
    if ended is not None and (advice := advice_lines(ended)):
        note(*advice)
    show_error(failed_start(failed))


def failed_start(failed: FailedStart, tail: bytes = b"") -> DtctlError:
    """The error for a failed start.

    `tail`: the end of the log of the task that caused it, if only the error is shown.
    """
    run, cause, why = failed.seen.view["run"], failed.cause, failed.why
    if cause is None:
        return DtctlError(f"run {run} failed: {sentence(why)}", hint="dtctl diagnose    finds the cause")
    where = f"{cause.id} on {cause.host}"
    if headline(why) == "cannot_bind":
        what = sentence(why)
    elif headline(why) == "start_failed":
        what = f"{where}: {sentence(why[1:])}"
    else:
        what = f"{where}: {sentence(how_it_ended(cause))}"
    times = "twice" if len(failed.ends) == 2 else f"{len(failed.ends)} times"
    after = f", {times} in a row; all tasks were stopped" if failed.gave_up else ""
    how = "failed to start" if failed.gave_up or failed.run_failed else "continues with a task that failed"
    return DtctlError(
        f"run {run} {how}: {what}{after}",
        detail="\n".join(_tail_lines(cause, tail)),
        hint=f"dtctl logs {cause.id} --all-attempts    shows its whole output; dtctl diagnose    shows what to do",
    )


def _how(end: Past) -> str:
    return sentence([*why_ended(end), *([fact("cause", text=end["cause"])] if end["cause"] else [])])


def _show_tail(task: TaskStatus, tail: bytes) -> None:
    for line in _tail_lines(task, tail):
        note(f"  {line}")


def _tail_lines(task: TaskStatus, tail: bytes) -> list[str]:
    return [f"{task.id} | {line}" for line in excerpt(tail.decode("utf-8", "replace"))]


def show_interrupted(left: Left, file: Path, *, brought: bool = False) -> None:
    """Shows the result of an interrupted start. `brought`: hosts were reached, and keep the code that has arrived."""
    interrupted(*what_is_left(left, file, brought=brought))
    for run in left.ended:
        note(f"{run} was stopped to make room for this run", "dtctl up    starts from the file again")
    if left.unremembered is not None and (left.kept or left.unclear):
        show_warning(f"{left.unremembered.summary}: {left.unremembered.detail}".rstrip(": "))


def what_is_left(left: Left, file: Path, *, brought: bool = False) -> tuple[str, ...]:
    """What an interrupted start left running, then the next commands."""
    named = f" -c {shlex.quote(str(file))}" if left.unremembered is not None else ""
    kept = "; the hosts keep the code that has arrived" if brought else ""
    if left.kept:
        what, shows = f"{left.run} had started completely and continues", "shows it"
    elif left.unclear:
        what = f"{fold(left.unclear)} did not confirm that the start is cancelled there"
        shows = "shows the state; a host that has lost its controller cancels on its own"
    else:
        return (f"start cancelled; all tasks stopped{kept}" if left.started else f"nothing was started{kept}",)
    return what, f"dtctl status{named}    {shows}", f"dtctl stop{named}      ends it"


def _show_joined(result: UpResult) -> None:
    for host in dict.fromkeys(one.host for one in result.joined.values()):
        tasks = [task for task, one in result.joined.items() if one.host == host]
        note(f"{host} has joined it: {fold_tasks(tasks)}")
    if result.spares:
        what = "a spare" if len(result.spares) == 1 else "spares"
        note(f"{fold(result.spares)} joined it as {what}")
    tasks = [task for own in result.waiting.values() for task in own]
    if tasks:
        verb, what = ("waits", "it") if len(tasks) == 1 else ("wait", "them")
        numbers = {task.job: max(one.index for one in tasks if one.job == task.job) + 1 for task in tasks}
        commands = [f"dtctl scale {job}={number}    starts {what}" for job, number in numbers.items()]
        note(f"{fold_tasks(tasks)} {verb} there", *commands)
    for job, number in result.places.items():
        note(
            f"{job} has {number} tasks in the file, and fewer in the run: its other hosts are spares of the run",
            f"dtctl up --replace    starts again with {number}; dtctl scale {job}=N    changes how many of its own run",
        )


_LATER = "dtctl up    adds missing hosts later, and changes nothing else"


def _show_missing(result: UpResult, plan: RunPlan) -> None:
    """Shows why hosts are missing, by reasons, and the consequences."""
    if not result.absent:
        return None
    show_host_errors(result.absent, tolerated=True)
    for names, lost in (
        (plan.cluster.spares, "no spare is available there"),
        (plan.cluster.arbiters, "no arbiter votes there"),
    ):
        if hosts := [host for host in names if host in result.absent]:
            show_warning(f"the run continues without {fold(hosts)}: {lost}", hint=_LATER)
    hosts = [host for host in plan.hosts if host in result.absent]
    tasks = [task.id for task in plan.tasks if task.host in result.absent]
    if not tasks:
        return None
    if not result.started:
        return show_warning(
            f"{fold(hosts)} left out this time: {fold_tasks(tasks)}",
            hint="dtctl status    shows whether they run; dtctl up    adds hosts that the run was started without",
        )
    verb = "is" if len(tasks) == 1 else "are"
    return show_warning(f"the run continues without {fold(hosts)}: {fold_tasks(tasks)} {verb} not started", hint=_LATER)


def show_moving_ports(taken: DtctlError) -> None:
    """Reports taken ports, before anything is started and when a bar may be moving."""
    with still():
        note(f"{taken.summary}; the hosts choose other ports", *taken.detail.splitlines())


def show_unseen(unseen: UnusedCheckpoint) -> None:
    """Warns of a checkpoint that is not used, before anything is started and when a bar may be moving."""
    with still():
        show_warning(*at_step_zero(unseen))


def show_incomplete(found: Sequence[Checkpoints]) -> None:
    """Warns of the newest checkpoints that are not complete, before anything is started and a bar may be moving."""
    with still():
        for one in found:
            show_warning(*not_complete(one))


def not_complete(found: Checkpoints) -> tuple[str, str]:
    """What is wrong with the newest checkpoint of a directory, and what a trainer may find there."""
    newest, complete = found.report["incomplete"][0], found.report["newest_complete"]
    if (newest["problem"] or "").endswith("is missing"):
        hint = "if other hosts have it: dtctl checkpoints pull    brings all parts together; for the next ones"
        hint += " dirs.output or checkpoint.dir has to be a directory that all of them share"
    elif complete is not None:
        hint = f"the newest complete one is {complete['prefix']}; after a failure dtctl sets the damaged one aside"
    else:
        hint = "dtctl checkpoints    shows which others there are; there is no complete one in this directory"
    return f"the newest checkpoint in {found.where}, {newest['prefix']}, is not complete: {newest['problem']}", hint


def at_step_zero(unseen: UnusedCheckpoint) -> tuple[str, str]:
    """The reason, and how to continue from the saved checkpoint."""
    run = unseen.run or "an earlier run"
    if unseen.checkpoint is None:
        return (
            f"this run may begin at step 0: {run} was led from {unseen.host}, which is not part of this one",
            f"what it saved on {unseen.host} alone is not visible on {unseen.lead}: copy it there first",
        )
    from dtctl.render.checkpoints import position  # seldom needed by `up`

    step = position(unseen.checkpoint) or "a checkpoint"
    path = f"{unseen.directory}/{unseen.checkpoint['prefix']}"
    moved = unseen.host != unseen.lead
    why = (
        f"this run is led from {unseen.lead}, which does not see it"
        if moved
        else "this run does not use that directory"
    )
    return (
        f"this run begins at step 0: {run} saved {step} in {path} on {unseen.host}, and {why}",
        "to continue from it, stop this run, and "
        + (f"copy it to {unseen.lead}, or " if moved else "")
        + f"let dirs.output, checkpoint.dir or the trainer's arguments name {path.rpartition('/')[0]}",
    )


def show_replacement(exchange: Replacement) -> None:
    """Shows what the user must still do."""
    old, new, file = exchange.old, exchange.new, exchange.cluster.file
    spare = f", and take {new} out of its spares" if exchange.was_spare else ""
    note(
        f"{new} has taken the place of {old}", f"to make it last, write {new} for {old} into the jobs of {file}{spare}"
    )
    if exchange.moves_the_lead:
        show_warning(
            f"the lead moved with {old}: training continues from its checkpoints only if {new} has the same directory",
            hint="dtctl checkpoints    lists the checkpoints",
        )


def show_unknown_end(hosts: Sequence[str], run: str) -> None:
    show_warning(*_unknown_end(hosts, run))


def unknown_end(hosts: Sequence[str], run: str, again: str) -> PreflightError:
    """The refusal to start beside tasks that may still act."""
    summary, detail = _unknown_end(hosts, run)
    there = f"start {fold(hosts)}, or connect to the network again, and type the command again"
    return PreflightError(summary, detail=detail, hint=f"{there}; or, if nothing runs there: {again}")


def _unknown_end(hosts: Sequence[str], run: str) -> tuple[str, str]:
    what = f"{fold(hosts)} gave no answer: tasks of {run} may still run there, and write the same checkpoints"
    return what, "a host that is cut off holds its tasks only in a run on three hosts or more, by most of its voters"


def awaiting_end(hosts: Sequence[str], seconds: int) -> str:
    """The status line of a start that waits."""
    return f"{fold(hosts)} gave no answer: its tasks are held or ended in {seconds} s; then the new ones start"


def show_next_steps() -> None:
    note(
        "  dtctl logs -f    follows the output", "dtctl status     shows the progress", "dtctl stop       stops the run"
    )

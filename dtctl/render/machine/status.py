"""The machine form of a run's status, with the names of TFJob where it has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.reasons import Because, sentence, why_of
from dtctl.agent.records.whole_run import Incident
from dtctl.operations.figures import Figures, figures_of
from dtctl.operations.findings import fails, problems_of
from dtctl.operations.snapshot import Coordination, RunStatus, TaskStatus, Verdict, recovered_after_s, steps_lost
from dtctl.render.events import warnings
from dtctl.render.findings import filled, happened, last_lines, remedies, words
from dtctl.render.format import iso_utc
from dtctl.render.gpus import every
from dtctl.render.machine.document import checkpoints, errors, picked, reasoned
from dtctl.render.roster import gpus_of

if TYPE_CHECKING:
    from dtctl.agent.records.vitals import Gpu
    from dtctl.model import Revision
    from dtctl.operations.findings import Checked, Finding
    from dtctl.operations.up.result import UpResult


def run_status(status: RunStatus) -> dict[str, Any]:
    tasks = status.tasks.values()
    jobs = dict.fromkeys(task.id.job for task in tasks)
    ended = [past["ended"] for task in tasks for past in task.entry["history"]]
    decided, figures = status.verdict.outcome.decided, figures_of(status)
    return {
        **picked(status.record, "cluster run lead success"),
        "conditions": _conditions(status),
        "replicaStatuses": {job: _replicas([task for task in tasks if task.id.job == job]) for job in jobs},
        "startTime": iso_utc(status.record.created),
        **({"revision": revision(known)} if (known := status.record.revision) is not None else {}),
        "completionTime": iso_utc(max(ended)) if decided and ended else None,
        "cause": _cause(status),
        **(_coordination(status.coordination) if status.coordination else {}),
        **({"allocation": picked(status.allocation, _ALLOCATION)} if status.allocation is not None else {}),
        "restarts": figures.restarts,
        "progress": _progress(figures),
        "problems": problems(problems_of(status)),
        "goodput": picked(figures.goodput, _GOODPUT) if figures.goodput is not None else None,
        "tasks": [{**task_status(task), **_more(status, task)} for task in tasks],
        "gpus": [{"host": host, **gpu_document(gpu)} for host, gpu in every(status)],
        "checkpoints": [checkpoints(found) for found in status.checkpoints],
        "errors": errors(status.errors),
    }


def revision(known: Revision | None) -> dict[str, Any] | None:
    return picked(known, "commit branch remote changed=changedFiles untracked=untrackedFiles note") if known else None


def _progress(figures: Figures) -> dict[str, Any]:
    """The progress; of a program that names no step, also its position, from which the step is estimated."""
    shown = picked(figures, "step target=targetStep rate=stepsPerSecond left_s=secondsLeft loss")
    if figures.position is not None:
        shown["stepIsEstimated"] = True
        shown["position"] = picked(figures.position, "epoch epochs batch batches")
    return shown


def task_status(task: TaskStatus) -> dict[str, Any]:
    entry = task.entry
    progress = "step_time@ rate=stepsPerSecond loss progress=outputTime@ cpu=cpus memory_bytes complaint(text since@)"
    return {
        **picked(task, "id=task host state entry.attempt restarts entry.pid entry.ready entry.step"),
        "stepLine": (entry["step_line"] or None) if entry["step"] is not None else None,
        **picked(entry, f"{progress} since@ next_start@"),
        **reasoned(task.why),
        **picked(task, "exit.code=exitCode exit.signal entry.asked=askedToEnd exit.killed_after_s exit.left_behind"),
        **picked(entry, "history[attempt started@ ended@ code=exitCode signal asked=askedToEnd cause? step]"),
    }


def _more(status: RunStatus, task: TaskStatus) -> dict[str, Any]:
    own = [gpu["index"] for gpu in gpus_of(status, [task])]
    return {"address": status.record.addresses.get(task.id), "gpus": own}


_ALLOCATION = "engine job state phase reason position left_s=secondsLeft nodes"
_GOODPUT = "share since@ elapsed_s seconds gains[kind share from_s? to_s? task count=losses?]"


def _conditions(status: RunStatus) -> list[dict[str, Any]]:
    """The current condition, then the past ones, oldest first."""
    if status.coordination is not None:
        now, past = status.coordination.view["condition"], status.coordination.view["conditions"]
        conditions = [(status.verdict, now["since"]), *((Verdict.of_condition(one), one["since"]) for one in past)]
    else:
        since = [task.entry["since"] for task in status.tasks.values() if task.entry["since"] is not None]
        conditions = [(status.verdict, max(since, default=status.record.created))]
    return [_condition(*one, holds=number == 0) for number, one in enumerate(conditions)]


def _condition(verdict: Verdict, since: float, *, holds: bool) -> dict[str, Any]:
    outcome = verdict.outcome.value
    return {
        "type": outcome,
        "status": "True" if holds else "False",
        "reason": f"Run{outcome}",
        "message": sentence(verdict.why),
        "why": list(verdict.why),
        "lastTransitionTime": iso_utc(since),
    }


def _replicas(tasks: list[TaskStatus]) -> dict[str, int]:
    states = [task.state.value for task in tasks]
    counted = {"active": states.count("running") + states.count("starting") + states.count("stalled")}
    return counted | {name: states.count(name) for name in ("succeeded", "failed", "stopped", "lost")}


def _cause(status: RunStatus) -> dict[str, Any] | None:
    """The task that failed first, with the end of its log."""
    cause = status.verdict.cause
    return None if cause is None else {"task": str(cause), "logTail": status.tasks[cause].exit["tail"]}


def _coordination(coordination: Coordination) -> dict[str, Any]:
    return {
        "phase": coordination.view["phase"],
        "waitingFor": _sentence(coordination.view["waits_for"]),
        "warnings": warnings(coordination.view),
        "incidents": [_incident(incident) for incident in coordination.view["incidents"]],
        "hosts": [
            {"host": host, **picked(one, "connected heard@ over absent"), "drained": host in coordination.drained_hosts}
            for host, one in {**coordination.contacts, **coordination.idle}.items()
        ],
    }


def _sentence(record: Because | None) -> str | None:
    return (sentence(why_of(record)) or None) if record is not None else None


def _incident(incident: Incident) -> dict[str, Any]:
    return {
        **picked(incident, "task host"),
        **reasoned(why_of(incident)),
        **picked(incident, "noticed@ tasks=restarted"),
        "collateral": [{"task": other["task"], **reasoned(why_of(other))} for other in incident["collateral"]],
        **picked(incident, "step back_to=backToStep"),
        "stepsLost": steps_lost(incident),
        **picked(incident, "begun=startedAgain@ recovered@"),
        "recoveredAfterSeconds": recovered_after_s(incident),
        "givenUp": _sentence(incident["given_up"]),
    }


def gpu_document(gpu: Gpu) -> dict[str, Any]:
    names = "index name driver lost busy used_bytes memory_bytes degrees clock_mhz most_clock_mhz lanes throttled"
    return picked(gpu, f"{names} ecc_errors xid given=tasks users[pid name user used_bytes run task]")


def problems(found: Iterable[Finding], *, typed: str | None = None) -> list[dict[str, Any]]:
    """The problems, the most important first. `typed`: the command that shows them, which is not proposed."""
    return [_problem(one, typed) for one in found]


def _problem(finding: Finding, typed: str | None) -> dict[str, Any]:
    seen = finding.seen
    return {
        "signature": finding.signature.name,
        "level": finding.signature.level.name.lower(),
        **picked(seen, "tasks hosts"),
        "what": happened(seen) or None,
        "means": filled(finding.signature.means, words(finding)),
        "lastLines": last_lines(finding),
        "over": seen.over,
        "remedies": remedies(finding, typed),
        **picked(seen, f"end({_END})"),
        "waiting": [{"task": str(one.task), "seconds": round(one.for_s, 1), "says": one.text} for one in seen.waiting],
    }


_END = "code=exitCode signal at=time@ cause? times=timesInARow restarted@"


def checked(outcome: Checked) -> dict[str, Any]:
    return {
        "passed": not outcome.failed and not outcome.errors,
        "hosts": list(outcome.hosts),
        "seconds": round(outcome.seconds, 3),
        "problems": [_finding(one) for one in outcome.found if fails(one)],
        "warnings": [_finding(one) for one in outcome.found if not fails(one)],
        "topics": {topic: [_line(line) for line in lines] for topic, lines in outcome.lines.items()},
        "errors": errors(outcome.errors),
    }


def in_passing(outcome: UpResult) -> dict[str, Any]:
    """The field of the checks in the document of `up`."""
    return {"checked": checked(outcome.checked) if outcome.checked else None}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "signature": finding.signature.name,
        "level": finding.signature.level.name.lower(),
        **picked(finding.seen, "hosts tasks"),
        "means": filled(finding.signature.means, words(finding)),
        "remedies": remedies(finding),
        **picked(finding.seen, "fields"),
    }


def _line(one: Any) -> dict[str, Any]:
    """A fact of a topic: a value of each host, or a statement."""
    return picked(one, "what values=hosts" if hasattr(one, "values") else "kind fields")

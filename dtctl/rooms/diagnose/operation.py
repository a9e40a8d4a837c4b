"""Asks each host of a run once about itself and its tasks, and finds what is wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING

from dtctl.agent.records.vitals import DiagnoseResult
from dtctl.agent.run import traceback
from dtctl.agent.run.cause import is_harmless
from dtctl.agent.run.policy import may_follow
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, grouped
from dtctl.operations.client import Conversations, Request, ask_hosts, knows_no_run
from dtctl.operations.client.plausible import check_tasks
from dtctl.operations.coordinator import request_of_status, status_by_coordinator, status_of_hosts
from dtctl.operations.findings import ENDED, ENDED_SOMEHOW, End, Facts, Finding, Level, Match, Signature
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus
from dtctl.rooms.diagnose.signatures import BY_FACTS, BY_STATE, IN_LOGS
from dtctl.rooms.diagnose.waits import waits

if TYPE_CHECKING:
    from pathlib import Path

    from dtctl.agent.records.answers import StatusResult
    from dtctl.bundle import Bundle
    from dtctl.operations.run_record import RunRecord
    from dtctl.transport.seam import Transport


_LOG_LINES = 60
"""The last lines of a log whose cause matches no signature."""

_LAST_LINES = 10
_LONGEST_LINE = 300
"""The most characters of a line in the end of an unrecognised log."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """All findings; for a run that has succeeded or was stopped only those that apply after the end."""
    outcome = facts.status.verdict.outcome
    rows = [row for row in BY_FACTS if row.after_end or outcome not in (Outcome.STOPPED, Outcome.SUCCEEDED)]
    found = [] if outcome is Outcome.STOPPED else [*_of_ends(facts), *_of_complaints(facts)]
    found += [Finding(row, seen) for row in rows for seen in row.find(facts)]
    found = _causes_of_losses(facts, found)
    current = [_first(facts, one) for one in _without_repeats(one for one in found if not one.seen.over)]
    past = [] if outcome.decided else _of_the_past(found)
    return tuple(sorted([*_without_collateral(current), *past], key=lambda one: one.order))


def _causes_of_losses(facts: Facts, found: list[Finding]) -> list[Finding]:
    """Ends of restarted tasks count as current as long as other tasks suffer from them.

    The loss of a connection is not over, and the task that it was lost to was killed, and runs again.
    """
    losses = [one for one in found if one.signature.follows == "ends" and not one.seen.over]
    suffer = [began for loss in losses if (began := _began(facts, loss)) is not None]

    def is_cause(one: Finding) -> bool:
        at = _began(facts, one) if one.seen.end is not None and one.seen.over else None
        return at is not None and one.signature.follows != "ends" and any(may_follow(lost, at) for lost in suffer)

    return [dataclasses.replace(one, seen=_current(one.seen)) if is_cause(one) else one for one in found]


def _began(facts: Facts, one: Finding) -> float | None:
    """When its tasks have ended, or have begun to complain: seconds before now, and so negative."""
    if one.seen.end is not None:
        return -facts.age(one.seen.end.at) if one.seen.end.at else None
    return -float(one.seen.fields["said_s"]) if one.seen.complaint else None


def _current(seen: Match) -> Match:
    return dataclasses.replace(seen, over=False)


def _of_the_past(found: Iterable[Finding]) -> list[Finding]:
    """Losses that were overcome, without those that followed from another."""
    over = [one for one in found if one.seen.over]
    causes = [one for one in over if one.signature.follows != "ends"]
    return [dataclasses.replace(one, signature=_at(one.signature, Level.NOTE)) for one in causes or over]


def _at(row: Signature, level: Level) -> Signature:
    return dataclasses.replace(row, level=level)


def _first(facts: Facts, one: Finding) -> Finding:
    cause = facts.status.verdict.cause
    is_end = one.seen.end is not None or one.signature.name == "stalled"
    first = cause is not None and is_end and cause in one.seen.tasks
    return dataclasses.replace(one, first=first or one.signature.name == "not_started")


def _of_ends(facts: Facts) -> Iterator[Finding]:
    """One finding for tasks that ended in the same way, with the first row that fits their end."""
    waiting = waits(facts)
    known = [
        (task, *fitting, ended)
        for task in facts.tasks
        if (ended := facts.end_of(task)) is not None and (fitting := _row_of(facts, task, ended)) is not None
    ]
    alike = grouped((_likeness(*one), one) for one in known)
    for group in alike.values():
        tasks = tuple(task.id for task, _, _, _ in group)
        first, row, fields, end = min(group, key=lambda one: one[3].at or 0.0)
        who = tuple(one for task in tasks for one in waiting.get(task, ()))
        if row.name == ENDED_SOMEHOW and (lines := _last_lines(end.log)):
            fields = {**fields, "log_of": str(first.id), "last_lines": lines}
        fields = {"address": facts.address(first.id), "resumes_from": _resumes_from(facts), **fields}
        hosts = tuple(dict.fromkeys(task.host for task, _, _, _ in group))
        yield Finding(row, Match(tasks, hosts, fields, end, waiting=who, over=end.over))


def _resumes_from(facts: Facts) -> str | None:
    """What the next run continues from; None while this one goes on, and restarts its tasks by itself."""
    return "the newest checkpoint" if facts.status.verdict.outcome.decided else None


def _likeness(task: TaskStatus, row: Signature, fields: Mapping[str, object], end: End) -> object:
    kept = (task.state in ENDED, end.over)
    return row.name, end.code, end.signal, end.cause, kept, tuple(sorted(map(repr, fields.items())))


def _last_lines(log: str) -> tuple[str, ...]:
    lines = traceback.lines_of(log)
    start = traceback.start_of(lines)
    shown = lines if start is None else traceback.folded(lines[start:])
    return tuple(line[:_LONGEST_LINE] for line in shown if line.strip())[-_LAST_LINES:]


def _row_of(facts: Facts, task: TaskStatus, end: End) -> tuple[Signature, dict[str, object]] | None:
    """The row and its fields. An exit with 0 is only checked for errors that the trainer took for success. A success is
    only looked at for what its trainer takes for one.
    """
    log = "\n".join(line for line in end.log.splitlines()[-_LOG_LINES:] if not is_harmless(line))
    if end.code == 0 and task.state not in ENDED:
        return next((one for one in _fitting(facts, task, log) if one[0].name == "diverged"), None)
    for text in (end.cause, log if not end.cause or _VAGUE.match(end.cause) else ""):
        known = next(_fitting(facts, task, text), None)
        if known is not None:
            return known
    for row in BY_STATE:
        fields = row.join(facts, task, {})
        if fields is not None:
            return row, dict(fields)
    return None


_VAGUE = re.compile(r"(?:Graph execution error|exit(?:ed)? |Check failed|RuntimeError: *$|[A-Za-z]+Error: *$)")


def _fitting(facts: Facts, task: TaskStatus, text: str) -> Iterator[tuple[Signature, dict[str, object]]]:
    for row in IN_LOGS if text else ():
        matched = re.search(row.pattern, text)
        if matched is None:
            continue
        words = {name: " ".join(value.split())[:_LONGEST_LINE] for name, value in matched.groupdict().items() if value}
        joined = row.join(facts, task, words)
        if joined is not None:
            yield row, {**words, **joined}


def _of_complaints(facts: Facts) -> Iterator[Finding]:
    """Complaints of running tasks about themselves; complaints about another task are shown with that task."""
    named = {one.task for who in waits(facts).values() for one in who}
    for task in facts.tasks:
        text = facts.complaint(task)
        known = next(_fitting(facts, task, text), None) if text and task.id not in named else None
        if known is None or task.entry["complaint"] is None:
            continue
        row, fields = known
        since = {"said_s": facts.age(task.entry["complaint"]["since"])}
        level = Level.SLOWS if row.name == "peer_lost" else Level.BLOCKS
        yield Finding(_at(row, level), Match((task.id,), (task.host,), {**fields, **since}, complaint=text))


def _without_repeats(found: Iterable[Finding]) -> list[Finding]:
    """One finding for each row and its tasks or hosts; without the host of a straggler, and a disk that ended a
    task.
    """
    kept: list[Finding] = []
    said: dict[str, set[object]] = {}
    for one in found:
        family = one.signature.family
        about: set[object] = set(one.seen.hosts if family in ("disk", "slow") else one.seen.tasks)
        if about and about <= said.get(family, set()):
            continue
        said.setdefault(family, set()).update(about)
        kept.append(one)
    return kept


def _without_collateral(found: list[Finding]) -> list[Finding]:
    """Without lost connections, which follow from what ended or blocks, if anything else is found."""
    causes = [one for one in found if one.signature.level <= Level.BLOCKS and one.signature.follows != "ends"]
    kept = [one for one in found if one.first or not causes or one.signature.follows != "ends"]
    return [one for one in kept if one.signature.follows != "anything" or causes in ([], [one])]


@dataclass(frozen=True)
class Diagnosis:
    """`found`: the most important first. `errors`: hosts that could not be asked, and why."""

    facts: Facts
    found: tuple[Finding, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)

    @property
    def status(self) -> RunStatus:
        return self.facts.status


def diagnose(record: RunRecord, transport: Transport) -> Diagnosis:
    """Asks each host over one connection for its status and then for its measurements.

    The coordinator is asked first: hosts that it reports as away are given up soon.
    """
    with Conversations(record, transport, record.task_hosts) as hosts:
        answers = hosts.ask_hosts(request_of_status(record), [record.coordinator])
        for answer in list(answers.values()):
            if answer["coordination"] is not None and answer["inventory"] is not None:
                reported = status_by_coordinator(record.as_known(answer["inventory"]), answer)
                hosts.expect_away(reported.coordination.lost_hosts if reported.coordination is not None else ())
        answers.update(
            hosts.ask_hosts(request_of_status(record), [host for host in record.task_hosts if host not in answers])
        )
        status = _status(record, transport, answers, hosts.errors)
        with_run = [host for host, answer in answers.items() if answer["run"] == status.record.run]
        found = hosts.ask_hosts(_request(status.record), with_run)
        errors = dict(hosts.errors)
    unasked = [host for host in status.record.task_hosts if host not in record.task_hosts and host not in status.errors]
    more = ask_hosts(status.record, transport, _request(status.record), unasked)
    scanned = cache(lambda: _scanned(record.file))
    facts = Facts(status, {**found, **more.results}, lambda path: code.left_out(path) if (code := scanned()) else None)
    errors = {**status.errors, **errors, **more.errors}
    return Diagnosis(facts, findings(facts), {host: why for host, why in errors.items() if not knows_no_run(why)})


def of_failed_start(status: RunStatus) -> Diagnosis:
    """The diagnosis of a start that failed before anything ran."""
    facts = Facts(status)
    return Diagnosis(facts, findings(facts), status.errors)


def in_short(status: RunStatus) -> tuple[Finding, ...]:
    """The current problems by the status alone: no host is asked."""
    return tuple(one for one in findings(Facts(status)) if not one.seen.over)


def _status(
    record: RunRecord, transport: Transport, answers: Mapping[str, StatusResult], errors: Mapping[str, DtctlError]
) -> RunStatus:
    """The status as the coordinator reports it, else as the hosts do."""
    for answer in answers.values():
        if answer["coordination"] is not None and answer["inventory"] is not None:
            return status_by_coordinator(record.as_known(answer["inventory"]), answer)
    return status_of_hosts(record, transport, errors, answers)


def _scanned(file: Path | None) -> Bundle | None:
    """The code as the cluster file describes it now; None if it cannot be read."""
    from dtctl.config.load import load_cluster
    from dtctl.operations.sending import scan_code

    try:
        return scan_code(load_cluster(file)) if file is not None else None
    except DtctlError:
        return None


def _request(record: RunRecord) -> Request[DiagnoseResult]:
    def check(host: Host, answer: DiagnoseResult) -> None:
        check_tasks("tasks", answer["tasks"], record.names_on(host.name))

    return Request("diagnose", DiagnoseResult, check=check)

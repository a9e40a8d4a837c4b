"""Problems of a run as text: the finding, its meaning, and the commands to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from dtctl.agent.records.reasons import sentence, signal_name
from dtctl.model import TaskId
from dtctl.operations.failures import Failure, failure_of
from dtctl.operations.findings import End, Finding, Match, Span, Wait, problems_of
from dtctl.operations.snapshot import RunStatus
from dtctl.render.failure import circumstances, excerpt, failure_sentence, next_command
from dtctl.render.format import clock, count, duration, fold, size, spans

OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
FIELD = re.compile(r"\{(\w+)\}")
_MOST_CAUSE = 300
_FEW_LINES = 3
"""Lines of a log in `status`."""
_FLOPS = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))


_READ = {
    "at": "@HOST",
    "from": "@HOST",
    "from_host": "OTHER_HOST",
    "hosts": "HOST",
    "from_hosts": "OTHER_HOST",
    "tasks": "TASK",
    "resumes_from": "the newest checkpoint",
}


def pattern_of(template: str) -> str:
    """A template for readers: its fields as words in capitals, without what is said only where it is known."""
    return FIELD.sub(lambda match: _READ.get(match[1], match[1].upper()), OPTIONAL.sub("", template))


def problem_lines(status: RunStatus) -> list[str]:
    """The most severe problem that `status` knows, its cause and the next command; empty if there is none."""
    found, failure = problems_of(status), failure_of(status)
    if failure is not None:
        lines = [failure_sentence(failure), circumstances(failure), *advice(failure, found)]
        more = sum(not one.first for one in found)
    elif found:
        lines = paragraph(found[0], shown=found[0].first, most_lines=_FEW_LINES)
        more = len(found) - 1
    else:
        return []
    head = [f"problem: {lines[0]}", *(f"  {line}" for line in lines[1:])]
    return head + ([f"  {count(more, 'more problem')}: dtctl diagnose"] if more else [])


def ended_in_problem(status: RunStatus) -> frozenset[TaskId]:
    """The tasks whose end `problem_lines` reports."""
    failure = failure_of(status)
    if failure is not None:
        return frozenset(failure.tasks)
    found = problems_of(status)
    reported = found and found[0].seen.end is not None and not found[0].first
    return frozenset(found[0].seen.tasks if reported else ())


def advice_lines(status: RunStatus) -> list[str]:
    """The reason for the run's failure and the commands to type, below the end of its log; empty if that is enough."""
    first = next((found for found in problems_of(status) if found.first and found.is_known), None)
    return paragraph(first, shown=True) if first is not None else []


def failure_lines(failure: Failure, status: RunStatus, *, with_excerpt: bool = True) -> list[str]:
    """The end of a failed run in full, once: the sentence, how often and where, the excerpt, and the next commands."""
    lines = excerpt(failure.end.log) if with_excerpt else []
    return [
        failure_sentence(failure),
        circumstances(failure),
        *(f"  {line}" for line in lines),
        *advice(failure, problems_of(status)),
    ]


def advice(failure: Failure, found: Iterable[Finding]) -> list[str]:
    """What a known error means, and what to do about it; of the program's own error what shows its log."""
    known = next((one for one in found if one.first and one.is_known), None)
    return paragraph(known, shown=True) if known is not None else [next_command(failure)]


def paragraph(
    finding: Finding, *, shown: bool = False, most_lines: int | None = None, typed: str | None = None
) -> list[str]:
    """The finding as lines. `shown`: the lines above already show how its tasks ended, and the end of their log.

    `typed`: the command that shows it, which is not proposed.
    """
    known = {name: word for name, word in words(finding).items() if not (shown and name == "log_of")}
    what, means = happened(finding.seen), filled(finding.signature.means, known)
    head = [] if shown and not finding.seen.waiting else [what] if what else []
    lines = last_lines(finding)[-most_lines:] if most_lines else last_lines(finding)
    if shown and finding.seen.end is not None:
        lines = []
    return [
        *head,
        means,
        *(f"  {line}" for line in lines),
        *remedies(finding, typed),
    ]


def last_lines(found: Finding) -> list[str]:
    """The last lines of the log, for an end without a known signature."""
    return list(found.seen.fields.get("last_lines", ()))


def remedies(found: Finding, typed: str | None = None) -> list[str]:
    """The commands to type, or the things to do, without those that need an unknown field, and without `typed`."""
    known = words(found)
    lines = [filled(one, known) for one in found.signature.remedy if set(FIELD.findall(one)) <= known.keys()]
    return [line for line in lines if typed is None or line.split()[:2] != ["dtctl", typed]]


def happened(seen: Match) -> str:
    """The finding and the tasks that wait for it; empty if the signature's own sentence includes that."""
    names = fold_tasks(seen.tasks)
    if seen.end is not None:
        if seen.waiting:
            return f"{_waited(seen.waiting)} for {names} on {_place(seen)}, which {_ended(seen.end)}"
        return f"{names} on {fold(seen.hosts)} {_ended(seen.end)}"
    if seen.complaint:
        return f"{names} on {fold(seen.hosts)} has logged this for {duration(seen.fields['said_s'])}: {seen.complaint}"
    if seen.waiting:
        return f"{_waited(seen.waiting)} for {names} on {_place(seen)}"
    return ""


def _place(seen: Match) -> str:
    return str(seen.fields.get("address") or fold(seen.hosts))


def _waited(waiting: Iterable[Wait]) -> str:
    who = list(waiting)
    verb = "has" if len(who) == 1 else "have"
    return f"{fold_tasks([one.task for one in who])} {verb} waited {duration(max(one.for_s for one in who))}"


def _ended(end: End) -> str:
    """How a task ended, as in `exited 1 at 10:02:11, the third time: ModuleNotFoundError: ...`."""
    if end.signal is not None:
        how = f"was killed by {signal_name(end.signal)}"
    elif end.code is not None:
        how = f"exited {end.code}"
    else:
        how = f"has ended ({sentence(end.how)})" if end.how else "has ended"
    at = f" at {clock(end.at)}" if end.at else ""
    times = f", {end.times} times in a row" if end.times > 1 else ""
    again = f" (restarted at {clock(end.restarted)}, and runs)" if end.over and end.restarted else ""
    cause = f": {end.cause[:_MOST_CAUSE]}" if end.cause else ""
    return f"{how}{at}{times}{again}{cause}"


def filled(template: str, known: Mapping[str, str]) -> str:
    """The template with its fields. Parts in brackets are left out unless all of their fields are known."""

    def part(match: re.Match[str]) -> str:
        return match[1] if set(FIELD.findall(match[1])) <= known.keys() else ""

    shown = OPTIONAL.sub(part, template)
    return FIELD.sub(lambda match: known.get(match[1], "?"), shown)


def words(finding: Finding) -> dict[str, str]:
    """The fields of a finding as text for people."""
    seen = finding.seen
    shown = {name: value for name, value in seen.fields.items() if name != "last_lines"}
    known = {name: valued(name, value) for name, value in shown.items() if value not in (None, "")}
    if seen.tasks:
        known.update(tasks=fold_tasks(seen.tasks), task=str(seen.fields.get("log_of") or seen.tasks[0]))
    if seen.hosts:
        known.update(hosts=fold(seen.hosts), host=seen.hosts[0], at=_at(seen.hosts))
    if seen.fields.get("from_hosts"):
        known.update(from_host=seen.fields["from_hosts"][0], **{"from": _at(seen.fields["from_hosts"])})
    return known


def _at(hosts: Iterable[str]) -> str:
    """Hosts in the form of a command's argument, for any shell."""
    return shlex.quote(f"@{fold(hosts)}")


def valued(name: str, value: Any) -> str:
    """A field as text for people; its name determines the unit (diagnosis.signature.Fields)."""
    if isinstance(value, Span):
        return f"{valued(name, value.least)} to {valued(name, value.most)}"
    if name == "versions":
        return ", ".join(f"{version} on {fold(hosts)}" for version, hosts in value)
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return spans(value, ", ")
    if isinstance(value, tuple):
        return fold_tasks(value) if value and isinstance(value[0], TaskId) else str(fold(value))
    if name.endswith("_s"):
        return duration(value)
    if name.endswith("_at"):
        return clock(value)
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("_flops"):
        unit, name = next((one for one in _FLOPS if value >= one[0]), _FLOPS[-1])
        return f"{value / unit:.3g} {name}"
    if name.endswith("_share") or name == "memory_low":
        return f"{100 * value:.0f} %"
    if name == "checkpoints that fit" and value > _MOST_FITTING:
        return f"more than {_MOST_FITTING}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


_MOST_FITTING = 1000
"""More checkpoints than anybody keeps."""


def fold_tasks(tasks: Iterable[TaskId]) -> str:
    """The tasks as a folded list: worker:[0-3],ps:1"""
    return fold(map(str, tasks))

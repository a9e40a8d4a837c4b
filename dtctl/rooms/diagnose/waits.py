"""Finds which tasks wait for which: by the complaints in logs, and by the state of the tasks that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import sentence, why_of
from dtctl.agent.records.run_state import Hang, Intent
from dtctl.agent.records.values import HangKind
from dtctl.agent.records.vitals import Unreached
from dtctl.model import TaskId, TaskState, grouped
from dtctl.operations.findings import ENDED, LIVING, Facts, Find, Match, Wait
from dtctl.operations.snapshot import Coordination, TaskStatus

PATIENCE_S = 20.0
"""How long a task may wait for another that starts: importing TensorFlow alone takes ten seconds."""

PROVEN_HANG_S = 1800.0
"""A task that has made steps for this long since a hang does not hang repeatedly."""

FOR_OTHERS = re.compile(
    r"CreateSession still waiting|Waiting for model to be ready|tasks to connect|stragglers: /job|heartbeat|"
    r"(?i:unavailable|deadline.?exceeded|failed to connect|connection (?:refused|timed out|reset)|socket closed)|"
    r"No route to host|Network is unreachable|Name or service not known|name resolution|DNS resolution failed|"
    r"Graph handle is not found|incarnation|PSUnavailableError"
)
"""Lines in a log that complain about another task."""

_FOR_INIT = "model to be ready"
INIT_S = 60.0
"""Workers ask every half minute whether the lead has initialized the model."""

_IP = re.compile(r"[\d.]+\Z|\[|[0-9a-fA-F]*:")
"""An IP address, for which no resolver is needed."""

_DEVICE = re.compile(r"/job:([\w.-]+)(?:/replica:\d+)?/task:(\d+)")
_ADDRESS = re.compile(r"(?:ipv4:)?([\w.-]+:\d{2,5})\b")


@lru_cache(maxsize=2)
def waits(facts: Facts) -> Mapping[TaskId, tuple[Wait, ...]]:
    """Task -> the live tasks that wait for it."""
    found: dict[TaskId, list[Wait]] = {}
    places = _AddressBook(facts)
    for task in facts.tasks:
        text = facts.complaint(task)
        if not text or not FOR_OTHERS.search(text) or task.entry["complaint"] is None:
            continue
        wait = Wait(task.id, task.host, facts.age(task.entry["complaint"]["since"]), text)
        target = places.meant(task, text)
        if target is not None and (wait.for_s >= INIT_S or _FOR_INIT not in text):
            found.setdefault(target, []).append(wait)
    return {target: tuple(who) for target, who in found.items()}


class _AddressBook:
    """The names, devices and addresses of tasks as logs mention them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._addresses = {facts.address(task.id): task.id for task in facts.tasks}
        self._ports = grouped((address.rpartition(":")[2], task) for address, task in self._addresses.items())
        self._out = [task.id for task in facts.tasks if _standing(facts, task) in ("ended", "away", "frozen")]

    def meant(self, task: TaskStatus, text: str) -> TaskId | None:
        """The other task that a line is about: by its device, by its address, or because only one is possible."""
        named = [TaskId(job, int(index)) for job, index in _DEVICE.findall(text)]
        addresses = _ADDRESS.findall(text)
        by_port = [self._ports.get(address.rpartition(":")[2], []) for address in addresses]
        lead = [self._facts.status.record.lead] if _FOR_INIT in text else []
        found = [
            *(one for one in named if one in self._facts.status.tasks),
            *(self._addresses[address] for address in addresses if address in self._addresses),
            *(tasks[0] for tasks in by_port if len(tasks) == 1),
            *lead,
            *(self._out if len(self._out) == 1 else []),
        ]
        return next((one for one in found if one != task.id), None)


def _standing(facts: Facts, task: TaskStatus) -> str:
    vitals = facts.vitals(task)
    if task.state in ENDED:
        return "ended"
    if task.state in (TaskState.STOPPED, TaskState.SUCCEEDED):
        return "over"
    if task.state is TaskState.LOST:
        return "away"
    if task.state is TaskState.STALLED or (vitals is not None and vitals["frozen"]):
        return "frozen"
    listens = (
        vitals["listens"] if vitals is not None else task.entry["ready"]
    )  # `ready` says less about a program that does not serve
    makes_steps = task.entry["step"] is not None  # of this attempt: a start begins without one
    return "listens" if task.state is TaskState.RUNNING and (listens or makes_steps) else "starting"


def over(facts: Facts) -> Iterator[Match]:
    """Tasks that have ended successfully, too early for others."""
    for target, who in waits(facts).items():
        task = facts.status.tasks[target]
        if _standing(facts, task) == "over":
            yield _seen(facts, task, who, state=task.state.value, ended_at=task.entry["since"])


def not_listening(facts: Facts) -> Iterator[Match]:
    """Tasks that still do not listen after the time that a start takes."""
    for target, who in waits(facts).items():
        task = facts.status.tasks[target]
        if _standing(facts, task) == "starting" and max(one.for_s for one in who) >= PATIENCE_S:
            yield _seen(facts, task, who, state=task.state.value, state_s=facts.age(task.entry["since"]))


def unreachable(*problems: str) -> Find:
    """Tasks that listen, and to which other hosts cannot connect for such a reason.

    A program that serves nobody listens nowhere, and its port refuses everybody: nothing is wrong with that. Where
    packets get lost, only of hosts that answer the controller: an unreachable host may accept no connections.
    """

    def find(facts: Facts) -> Iterator[Match]:
        waiting = waits(facts)
        for task in facts.tasks:
            if "timeout" in problems and task.host not in facts.hosts:
                continue
            from_hosts = _without_way(facts, task, lambda one: one["problem"] in problems)
            if from_hosts and (_serves(facts, task) or problems == ("unresolved",)):
                text = next(iter(from_hosts.values()))["text"]
                who = tuple(one for one in waiting.get(task.id, ()) if one.host in from_hosts)
                yield _seen(facts, task, who, from_hosts=tuple(from_hosts), text=text)

    return find


def _serves(facts: Facts, task: TaskStatus) -> bool:
    vitals = facts.vitals(task)
    return task.state is TaskState.RUNNING and vitals is not None and vitals["listens"]


def _without_way(facts: Facts, task: TaskStatus, is_meant: Callable[[Unreached], bool]) -> dict[str, Unreached]:
    tried = {host: facts.unreached(host, task.id) for host in facts.hosts}
    return {host: one for host, one in tried.items() if one is not None and is_meant(one)}


def unexplained(facts: Facts) -> Iterator[Match]:
    """Tasks that listen but are waited for."""
    for target, who in waits(facts).items():
        task = facts.status.tasks[target]
        tried = [facts.unreached(one.host, target) for one in who]
        if _standing(facts, task) == "listens" and not any(tried) and max(one.for_s for one in who) >= PATIENCE_S:
            yield _seen(facts, task, who)


def never_ready(facts: Facts) -> Iterator[Match]:
    """Tasks that never listened on their ports, so that the start waited in vain."""
    for one in facts.status.verdict.unready:
        task = facts.status.tasks.get(one)
        if task is not None:
            yield _seen(facts, task, ())


_HINTS = 4
"""The number of lines of the remedy in signatures.ini; the last one holds all further hints."""


def not_started(facts: Facts) -> Iterator[Match]:
    """The start that failed before anything ran, with what `up` has shown."""
    error = facts.status.not_started
    if error is not None:
        hints = [line.strip() for line in error.hint.splitlines() if line.strip()]
        shown = [*hints[: _HINTS - 1], "; ".join(hints[_HINTS - 1 :])]
        named = {f"hint_{number}" if number > 1 else "hint": line for number, line in enumerate(shown, 1) if line}
        lines = tuple(line for line in error.detail.splitlines() if line.strip())
        yield Match(fields={"summary": error.summary, "last_lines": lines, **named})


def timed_out(facts: Facts) -> Iterator[Match]:
    """The host that was unreachable for so long that the run failed."""
    gone = facts.status.verdict.gone
    if gone is not None:
        tasks = tuple(task.id for task in facts.on(gone["host"]))
        yield Match(tasks, (gone["host"],), {"away_s": gone["seconds"]})


def frozen(facts: Facts) -> Iterator[Match]:
    waiting = waits(facts)
    for task in facts.tasks:
        vitals = facts.vitals(task)
        if _hangs(task, "frozen") is not None or (vitals is not None and vitals["frozen"]):
            yield _seen(facts, task, waiting.get(task.id, ()), pid=task.entry["pid"])


def left_locks(facts: Facts) -> Iterator[Match]:
    """Tasks that wait for a lock of PyTorch's compiled extensions that a killed process has left."""
    locked = [(one, task) for task in facts.tasks if (one := facts.vitals(task)) is not None and one["left_lock"]]
    for (host, lock), tasks in grouped(((task.host, one["left_lock"]), task.id) for one, task in locked).items():
        yield Match(tuple(tasks), (host,), {"lock": lock, "typed_lock": shlex.quote(lock)})


def stalled(facts: Facts) -> Iterator[Match]:
    for task in facts.tasks:
        hang = _hangs(task, "silent")
        if hang is not None:
            seconds, frame = hang["seconds"], task.exit["evidence"]["hung_in"] or None
            lives = task.state is TaskState.STALLED
            then = {"live": str(task.id), "restarts": "restarts"} if lives else {"ended": str(task.id)}
            yield _seen(facts, task, waits(facts).get(task.id, ()), silent_s=seconds, frame=frame, **then)


def hung(facts: Facts) -> Iterator[Match]:
    """Tasks that were restarted because they hung."""
    for task in facts.tasks:
        hangs = facts.hangs(task) if task.state in LIVING and not facts.status.verdict.outcome.decided else []
        if hangs:
            at, reason = hangs[-1]
            times = _times(len(hangs))
            over = len(hangs) == 1 or (task.entry["step"] is not None and facts.age(at) >= PROVEN_HANG_S)
            fields = {"times": times, "last_at": at, **({"reason": reason} if reason else {})}
            yield Match((task.id,), (task.host,), fields, over=over)


def ps_ended(facts: Facts) -> Iterator[Match]:
    """ps tasks that exited with 0 although the run still needed them."""
    coordination = facts.status.coordination
    incidents = coordination.view["incidents"] if coordination is not None else ()
    ended = [one["task"] for one in incidents if one["loss"] == "ps_ended"]
    for task in facts.tasks:
        if count := ended.count(str(task.id)):
            yield Match((task.id,), (task.host,), {"times": _times(count)})


def at_barrier(facts: Facts) -> Iterator[Match]:
    """Losses of one task after which all waited for each other, until all were restarted."""
    coordination = facts.status.coordination
    incidents = coordination.view["incidents"] if coordination is not None else ()
    lost = [one["task"] for one in incidents if one["loss"] == "at_barrier"]
    tasks = [task for task in facts.tasks if str(task.id) in lost]
    if tasks:
        hosts = tuple(dict.fromkeys(task.host for task in tasks))
        yield Match(tuple(task.id for task in tasks), hosts, {"times": _times(len(lost))})


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _hangs(task: TaskStatus, kind: HangKind) -> Hang | None:
    """The hang for which the task is ended, or was, if it is of this kind."""
    hang = task.entry["hang"] if task.state is TaskState.STALLED or task.state in ENDED else None
    return hang if hang is not None and hang["kind"] == kind else None


def away(facts: Facts) -> Iterator[Match]:
    """Hosts that the coordinator reports as unreachable."""
    coordination = facts.status.coordination
    waiting, arbiters = waits(facts), facts.status.record.arbiters
    for host in (
        coordination.lost_hosts if coordination is not None and not facts.status.verdict.outcome.decided else ()
    ):
        tasks = tuple(task.id for task in facts.on(host))
        assert coordination is not None
        who = tuple(one for task in tasks for one in waiting.get(task, ()))
        spares = tuple(
            name for name in coordination.idle if coordination.idle[name]["connected"] and name not in arbiters
        )
        taken = {"spares": spares} if spares and _is_awaited(coordination, host, tasks) else {}
        fields = {"away_s": facts.age(coordination.contacts[host]["heard"]), **taken}
        yield Match(tasks, (host,), fields, waiting=who)


def _is_awaited(coordination: Coordination, host: str, tasks: Iterable[TaskId]) -> bool:
    """Whether some task of the host is to run: it is not stopped, and only the host itself holds it."""
    from dtctl.agent.run import drains  # few runs lose a host

    known = coordination.view["intents"]
    intents = [known.get(str(task), made(Intent)) for task in tasks]
    return any(one["want"] != "stop" and not drains.holders({"": one}).keys() - {host} for one in intents)


def unconfirmed_claims(facts: Facts) -> Iterator[Match]:
    """Claims of voters about the coordinator's election that no majority confirms."""
    coordination = facts.status.coordination
    for alert in coordination.view["alerts"] if coordination is not None else ():
        if alert["topic"].startswith("claims_"):
            yield Match((), (alert["host"] or "",), {"claim": sentence(why_of(alert))})


def short_of_target(facts: Facts) -> Iterator[Match]:
    """A run that has succeeded before the step that its file asks for; `status` shows the warning itself."""
    coordination = facts.status.coordination
    for alert in coordination.view["alerts"] if coordination is not None and facts.hosts else ():
        if alert["topic"] == "target_missed":
            yield Match((), (), {"alert": sentence(why_of(alert))})


def bad_hosts(facts: Facts) -> Iterator[Match]:
    """Hosts that the last failures of the run were all on, as the coordinator has found."""
    coordination = facts.status.coordination
    for alert in coordination.view["alerts"] if coordination is not None else ():
        host = alert["host"]
        if alert["topic"] == "bad_host" and host is not None:
            yield Match(tuple(task.id for task in facts.on(host)), (host,), {"reason": sentence(why_of(alert))})


def coordinator_away(facts: Facts) -> Iterator[Match]:
    """The coordinator's host, if it is unreachable and in the run."""
    why = facts.status.away
    if why is not None and not why.elsewhere and facts.on(why.host):
        yield Match(tuple(task.id for task in facts.on(why.host)), (why.host,), {"why": why.cause.summary})


def silent(facts: Facts) -> Iterator[Match]:
    """Hosts whose agents have never connected to the coordinator."""
    coordination = facts.status.coordination
    if coordination is None or facts.status.verdict.outcome.decided or facts.age(facts.status.began) < PATIENCE_S:
        return
    unheard = [
        host for host, contact in coordination.contacts.items() if not contact["connected"] and contact["heard"] is None
    ]
    hosts = tuple(host for host in unheard if host not in coordination.absent_hosts)
    if hosts:
        tasks = tuple(task.id for host in hosts for task in facts.on(host))
        yield Match(
            tasks,
            hosts,
            {"missing": sentence(why_of(coordination.view["waits_for"])), "age_s": facts.age(facts.status.began)},
        )


def _seen(facts: Facts, task: TaskStatus, who: tuple[Wait, ...], **fields: object) -> Match:
    address = facts.address(task.id)
    name, _, port = address.rpartition(":")
    places = {"address": address, "port": port, **({} if _IP.match(name) else {"name": name})}
    from_hosts = {"from_hosts": tuple(dict.fromkeys(one.host for one in who))}
    return Match((task.id,), (task.host,), {**places, **from_hosts, **fields}, waiting=who)

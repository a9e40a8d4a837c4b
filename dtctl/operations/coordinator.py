"""Asks a run over one connection, to its coordinator's host; if that is away, asks every host."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from dtctl.agent.records.answers import RestartResult, StatusResult, StopResult
from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.records.run_state import ahead_s, on_clock
from dtctl.agent.records.spec import Inventory, hosts_of
from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.client import Request, ask_hosts, knows_no_run
from dtctl.operations.client.plausible import check_status
from dtctl.operations.snapshot import (
    NOT_THERE,
    Coordination,
    CoordinatorUnreachable,
    Outcome,
    RunStatus,
    TaskStatus,
    Verdict,
    seen_now,
    verdict_by_hosts,
)
from dtctl.transport.seam import Session, Transport
from dtctl.transport.wire import untrue

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import State
    from dtctl.agent.records.vitals import Machine
    from dtctl.model import Host, TaskId
    from dtctl.operations.run_record import RunRecord

Answer = StatusResult | StopResult | RestartResult
R = TypeVar("R", StatusResult, StopResult, RestartResult)
A = TypeVar("A")

SLOW_CONNECT_S = 3.0
"""If connecting to the coordinator's host takes longer than this, the other hosts are asked who coordinates."""

Own = Mapping[str, Any]
"""Host -> its answer about its own part of the run, for hosts that were asked as the coordinator."""


def ask_run(
    record: RunRecord,
    transport: Transport,
    request: Callable[[RunRecord, Own], A],
    *,
    away: CoordinatorUnreachable | None = None,
    reads: bool = False,
) -> tuple[RunRecord, A, Own]:
    """The answer of the run's coordinator, on whichever host it is, with the record that found it and other answers.

    `request` asks the coordinator's host of a record; it is passed the answers so far. `away`: that host has just
    failed, and is not tried again. `reads`: the request is `status`, whose answers can be used again.

    This is the only rule for a coordinator that is away: the cluster file's coordinator is asked, then all hosts where
    the run is, then the coordinator that they name; a connection that takes long counts as away once the hosts name
    another. Raises CoordinatorUnreachable, with the status that the hosts
    report, if that fails too; each command decides what it then asks of each host.
    """
    if away is None:
        try:
            return record, request(record, {}), {}
        except DtctlError as error:
            away = coordinator_away(record.coordinator, error)
    own: Own = away.own
    own_answer = own.get(record.coordinator) if reads else None
    found = away.found
    if found is not None:  # they name another coordinator
        known = found.record
    elif own_answer is not None and own_answer["inventory"] is not None:  # the cluster file has changed since the start
        known = record.as_known(own_answer["inventory"])
    else:
        found = status_of_hosts(record, transport, away.unreachable, own if reads else None)
        known = found.record
    if known.coordinator != record.coordinator:
        try:
            return known, request(known, own), own
        except DtctlError as error:
            away = coordinator_away(known.coordinator, error)
            own = {**own, **away.own}
    if found is None:
        found = status_of_hosts(record, transport, away.unreachable, own)
    raise CoordinatorUnreachable(away.host, away.cause, own, found) from away


First = Callable[["RunRecord", Session], "RunRecord"]
"""Asks something else first, in the same conversation; returns the record that the request then uses."""


def ask_coordinator(record: RunRecord, transport: Transport, wanted: Request[R], first: First | None = None) -> R:
    """The answer about the whole run. Raises CoordinatorUnreachable, and what the coordinator's host refuses.

    Nothing is asked of a host that is connected to only after others were found to name another coordinator.
    """
    host = record.coordinator
    try:
        with closing(_connected(record, transport)) as session:
            answer = wanted.put(first(record, session) if first else record, session)
    except DtctlError as error:
        raise coordinator_away(host, error) from error
    if answer["coordination"] is None:
        raise CoordinatorUnreachable(host, why_alone(record.cluster, host, answer), {host: answer})
    return answer


def _connected(record: RunRecord, transport: Transport) -> Session:
    """A conversation with the coordinator's host. If connecting takes long, the others are asked who coordinates.

    Raises CoordinatorUnreachable where they name another host, and as Transport.open.
    """
    host = record.route_to(record.coordinator)
    opening: Future[Session] = Future()
    threading.Thread(target=_open, args=(transport, host, opening), daemon=True, name=f"open-{host.name}").start()
    if not wait([opening], SLOW_CONNECT_S).done:
        late = TransportError(f"{host.name} could not be connected to within {SLOW_CONNECT_S:g} s")
        found = status_of_hosts(record, transport, {host.name: late})
        if found.record.coordinator != host.name and not opening.done():
            opening.add_done_callback(_close)
            raise CoordinatorUnreachable(host.name, late, found=found)
    return opening.result()


def _open(transport: Transport, host: Host, opening: Future[Session]) -> None:
    try:
        opening.set_result(transport.open(host))
    except BaseException as error:  # raised in the thread that waits for it
        opening.set_exception(error)


def _close(opening: Future[Session]) -> None:
    if opening.exception() is None:
        opening.result().close()


def ask_about(
    record: RunRecord,
    transport: Transport,
    wanted: Callable[[RunRecord, Own], Request[R]],
    first: First | None = None,
    *,
    away: CoordinatorUnreachable | None = None,
    reads: bool = False,
) -> tuple[RunRecord, R, Own]:
    """`ask_run` by `ask_coordinator`; the record is the run as its coordinator knows it. `wanted`: what is asked."""

    def request(asked: RunRecord, own: Own) -> R:
        return ask_coordinator(asked, transport, wanted(asked, own), first)

    asked, answer, own = ask_run(record, transport, request, away=away, reads=reads)
    assert answer["inventory"] is not None
    return asked.as_known(answer["inventory"]), answer, own


def why_alone(cluster: str, host: str, answer: Answer) -> AgentError:
    """Why a host answered only for its own part of the run."""
    why = answer["away"]
    if why is not None:
        return AgentError(why["code"], why["summary"], detail=why["detail"], hint=why["hint"], host=host)
    if answer["run"] is None:
        return AgentError("no_run", f"there is no run of {cluster} on {host}", host=host)
    return AgentError("not_coordinator", f"{host} does not coordinate run {answer['run']}", host=host)


def coordinator_away(host: str, error: DtctlError) -> CoordinatorUnreachable:
    """The error as CoordinatorUnreachable. Raises the error itself if it means something else."""
    if isinstance(error, CoordinatorUnreachable):
        return error
    if isinstance(error, TransportError) or (isinstance(error, AgentError) and error.code in NOT_THERE):
        return CoordinatorUnreachable(host, error)
    raise error


def request_of_status(
    record: RunRecord, *, guess: bool = False, dirs: Mapping[str, Sequence[str]] = {}
) -> Request[StatusResult]:
    """`guess`: checkpoints are looked for where no setting leads, too, which may take a while.

    `dirs`: where a host without a run looks for them.
    """
    return Request(
        "status",
        StatusResult,
        lambda host: {"guess": guess, "dirs": list(dirs.get(host.name, ()))},
        lambda host, answer: check_status(record.cluster, host.name, answer),
    )


def ask_whole_run(record: RunRecord, session: Session) -> tuple[RunRecord, StatusResult]:
    """The coordinator's answer, and the run as it knows it. Raises AgentError if the host does not coordinate the run.

    The cluster file may have changed since the run was started.
    """
    answer = request_of_status(record).put(record, session)
    if answer["coordination"] is None or answer["inventory"] is None:
        raise why_alone(record.cluster, session.host.name, answer)
    return record.as_known(answer["inventory"]), answer


def status_by_coordinator(record: RunRecord, answer: StatusResult) -> RunStatus:
    """The run as the coordinator's answer to `status` describes it."""
    assert answer["coordination"] is not None
    coordination = Coordination.of(answer["coordination"], record.roster, record.idle_hosts)
    return RunStatus(
        record=record,
        tasks=coordination.tasks,
        verdict=seen_now(coordination.verdict, coordination.tasks),
        checkpoints=tuple(Checkpoints(record.coordinator, checkpoint) for checkpoint in answer["checkpoints"]),
        time=answer["time"],
        coordination=coordination,
        machines=_machines({host: one["state"] for host, one in coordination.contacts.items()}),
    )


def status_of_hosts(
    record: RunRecord,
    transport: Transport,
    failed: Mapping[str, DtctlError] | None = None,
    answered: Mapping[str, StatusResult] | None = None,
    *,
    guess: bool = False,
) -> RunStatus:
    """The status from the reports of all hosts about their own parts; hosts that do not answer are in `errors`.

    Hosts in `failed` are not asked, nor those that have `answered`.

    If hosts report several runs, `agreed` chooses one. `guess`: see request_of_status.
    """
    answers, errors = dict(answered or {}), dict(failed or {})
    unasked = [name for name in record.hosts if name not in {**answers, **errors}]
    outcomes = ask_hosts(record, transport, request_of_status(record, guess=guess), unasked)
    answers, errors = {**answers, **outcomes.results}, {**errors, **outcomes.errors}
    inventory = agreed(record, answers)
    known = record if inventory is None else record.as_known(inventory)
    if inventory is not None:
        unasked = [name for name in dict.fromkeys(known.roster.values()) if name not in record.hosts]
        more = ask_hosts(known, transport, request_of_status(known, guess=guess), unasked)
        answers, errors = {**answers, **more.results}, {**errors, **more.errors}
        for host, error in dissenters(inventory, answers).items():
            del answers[host]
            errors[host] = error
    nothing = Verdict(Outcome.CREATED, (fact("no_run"),))
    return _put_together(
        known, answers, errors, verdict_by_hosts(inventory, answers) if inventory is not None else nothing
    )


def _put_together(
    known: RunRecord, answers: Mapping[str, StatusResult], errors: Mapping[str, DtctlError], verdict: Verdict
) -> RunStatus:
    with_run = {host: answer for host, answer in answers.items() if answer["run"] is not None}
    silent = {host for host, answer in answers.items() if answer["run"] is None}
    silent |= {host for host, error in errors.items() if knows_no_run(error)}
    why = dict.fromkeys(silent, fact("run_unknown"))
    why.update({host: fact("way_unknown", host=host) for host in known.unknown_hosts})
    clock = with_run.get(known.coordinator) or next(iter(with_run.values()), None)
    time = clock["time"] if clock else 0.0
    return RunStatus(
        record=known,
        tasks={
            task: task_of(task, host, known, with_run.get(host), time, why.get(host))
            for task, host in known.roster.items()
        },
        verdict=verdict,
        checkpoints=tuple(
            Checkpoints(host, report)
            for host in sorted(with_run, key=lambda name: name != known.coordinator)
            for report in with_run[host]["checkpoints"]
        ),
        time=time,
        errors={
            host: error for host, error in errors.items() if host not in known.idle_hosts and not knows_no_run(error)
        },
        without_run=tuple(name for name in known.hosts if name in silent),
        machines=_machines({host: answer["state"] for host, answer in with_run.items()}),
    )


def _machines(states: Mapping[str, State | None]) -> dict[str, Machine]:
    return {host: state["machine"] for host, state in states.items() if state is not None and state["machine"]}


def task_of(
    task: TaskId, host: str, record: RunRecord, answer: StatusResult | None, time: float, why_none: Fact | None = None
) -> TaskStatus:
    """Converts a task's report. `time`: the clock by which it is shown."""
    if answer is None:
        return TaskStatus.unknown(task, host, why_none or fact("no_answer"))
    entry = answer["state"]["tasks"].get(str(task)) if answer["state"] else None
    if entry is None or answer["run"] != record.run:
        return TaskStatus.unknown(task, host, fact("other_run"))
    return TaskStatus.of(task, host, on_clock(entry, ahead_s(time, answer["time"])))


def agreed(record: RunRecord, answers: Mapping[str, StatusResult]) -> Inventory | None:
    """The run that most hosts agree on, or None when no host has one.

    Only a host that has a part in a run counts among those that report it, and only those count together that report
    the same of it: its id, age, and every task's place at its start. The newest run that two hosts or more report is
    accepted. Of its coordinator, and of who has taken whose place, most of them count, and then the newest.
    Where no two agree, that of the lead's host (as the cluster file, or the record of this machine, says) is, and then
    the newest. So a single host that lies outvotes no two others, with any age of its run; what it reports of other
    hosts' tasks counts only if no other host answers.
    """
    hosts_of_run: dict[str, list[str]] = {}
    runs: dict[str, Inventory] = {}
    for host, answer in answers.items():
        inventory = answer["inventory"]
        if inventory is not None and host in hosts_of(inventory):
            key = _key(inventory)
            runs[key] = inventory
            hosts_of_run.setdefault(key, []).append(host)

    def weight(key: str) -> tuple[bool, bool, float]:
        hosts = hosts_of_run[key]
        return len(hosts) > 1, record.coordinator in hosts and not shared, runs[key]["created"]

    shared = any(len(hosts) > 1 for hosts in hosts_of_run.values())
    if not hosts_of_run:
        return None
    reports = [answers[host]["inventory"] for host in hosts_of_run[max(hosts_of_run, key=weight)]]
    inventories = [each for each in reports if each is not None]
    placed = _most(inventories, lambda each: (each["moved"]["number"], json.dumps(each["moved"], sort_keys=True)))
    elected = _most(inventories, lambda each: (each["term"], each["elected"] or ""))
    run = (placed or min(inventories, key=lambda each: each["moved"]["number"])).copy()
    run["term"], run["elected"] = (elected["term"], elected["elected"]) if elected is not None else (0, None)
    return run


def _most(inventories: Sequence[Inventory], version: Callable[[Inventory], tuple[int, str]]) -> Inventory | None:
    """The inventory that most hosts report, the newest of several: a host that is cut off knows no newer one.

    None where no two of several agree: the lead's host is asked.
    """
    votes = Counter(map(version, inventories))
    found = max(votes, key=lambda vote: (votes[vote], vote))
    agrees = votes[found] > 1 or len(votes) == 1
    return next(each for each in inventories if version(each) == found) if agrees else None


def dissenters(run: Inventory, answers: Mapping[str, StatusResult]) -> dict[str, DtctlError]:
    """Hosts whose inventory of the same run differs from the accepted one."""
    return {
        host: untrue(host, f"disagrees with the other hosts about run {run['run']}")
        for host, answer in answers.items()
        if answer["inventory"] is not None
        and answer["inventory"]["run"] == run["run"]
        and _key(answer["inventory"]) != _key(run)
    }


def _key(inventory: Inventory) -> str:
    """The part of an inventory on which all hosts agree.

    They may learn at different times of a new coordinator or of moved tasks.
    """
    roster, joined = inventory["roster"], inventory["moved"]["joined"]
    spares = {host: spare for host, spare in inventory["spares"].items() if host not in joined}
    if spares or inventory["voting"]:  # addresses change with the places of tasks
        roster = [
            {**member, "host": member["slot"] or member["host"], "slot": None, "address": None} for member in roster
        ]
    later = {"roster": roster, "spares": spares, "moved": None, "term": 0, "elected": None}
    return json.dumps({**inventory, **later}, sort_keys=True)

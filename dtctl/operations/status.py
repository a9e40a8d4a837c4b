"""What has become of a run: its coordinator is asked, or else every host; and which runs the hosts know."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dtctl.agent.records.answers import DamagedRun, RunsResult
from dtctl.agent.records.answers import ForeignRun as ForeignEntry
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, UsageError, did_you_mean
from dtctl.model import Host, SshSettings, TaskId, TaskState, grouped
from dtctl.operations.client.conversation import Request, ask, knows_no_run
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.coordinator import ask_about, request_of_status, status_by_coordinator, status_of_hosts, task_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable, RunStatus, Verdict
from dtctl.transport.seam import Transport

_LOST_CONNECT_S = 3.0


def status(record: RunRecord, transport: Transport, away: CoordinatorUnreachable | None = None) -> RunStatus:
    """By one connection where the coordinator can be asked; `away`: its host has failed just now.

    Raises DtctlError only for an answer that no other host can replace.
    """
    try:
        known, answer, _ = ask_about(
            record, transport, lambda asked, _: request_of_status(asked), away=away, reads=True
        )
    except CoordinatorUnreachable as nowhere:
        if nowhere.found is None:
            raise
        return dataclasses.replace(nowhere.found, away=nowhere)
    found = status_by_coordinator(known, answer)
    if found.coordination and found.coordination.in_doubt:  # it may have been replaced while it was cut off
        every = status_of_hosts(found.record, transport)
        if every.record.created > found.record.created or every.record.coordinator != found.record.coordinator:
            return status(every.record, transport)
    return _with_lost_hosts(found, transport)


def placed(record: RunRecord, transport: Transport) -> RunRecord:
    """With its tasks where they are now, as far as its hosts can say: what is wrong with one, the command reports."""
    try:
        found = status(record, transport)
    except DtctlError:
        return record
    return dataclasses.replace(found.record, run=record.run or found.record.run) if found.time else record


def with_storage(found: RunStatus, *, fresh: bool = False) -> RunStatus:
    """And the checkpoints at the storage URLs of the run, which no host knows of; `fresh`: as they are now."""
    if not found.record.checkpoint_urls:
        return found
    from dtctl.operations.checkpoints.urls import at_urls

    return dataclasses.replace(found, checkpoints=(*found.checkpoints, *at_urls(found.record, fresh=fresh)))


def with_checkpoints(record: RunRecord, transport: Transport) -> RunStatus:
    """By every host, with all checkpoints: those that no setting leads to, and those in storage as they are now."""
    return with_storage(status_of_hosts(record, transport, guess=True), fresh=True)


def _with_lost_hosts(found: RunStatus, transport: Transport) -> RunStatus:
    """Asks the hosts that the coordinator has lost directly, which also revives their agents."""
    lost = found.coordination.lost_hosts if found.coordination else ()
    if not lost:
        return found
    hosts = {name: _with_short_timeout(host) if name in lost else host for name, host in found.record.hosts.items()}
    asked = dataclasses.replace(found.record, hosts=hosts)
    outcomes = ask(asked, transport, request_of_status(asked), [name for name in lost if name in hosts])
    answers = outcomes.results
    replaced = {
        task: task_of(task, host, found.record, answers[host], found.time)
        for task, host in found.record.roster.items()
        if host in answers and answers[host]["run"] == found.record.run
    }
    refused = {host: error for host, error in outcomes.errors.items() if isinstance(error, AgentError)}
    return dataclasses.replace(
        found,
        tasks={**found.tasks, **replaced},
        errors={host: error for host, error in refused.items() if not knows_no_run(error)},
    )


def _with_short_timeout(host: Host) -> Host:
    """A lost host is usually down: it gets only a few seconds to connect."""
    if not isinstance(host.reach, SshSettings):
        return host
    timeout_s = min(host.reach.connect_timeout_s, _LOST_CONNECT_S)
    return dataclasses.replace(host, reach=dataclasses.replace(host.reach, connect_timeout_s=timeout_s))


def status_elsewhere(error: CoordinatorUnreachable, record: RunRecord, transport: Transport) -> RunStatus:
    """For a watch whose coordinator is away or has no run: all hosts are asked once.

    Raises the error of the coordinator's host if the others do not know the run either.
    """
    found = status(record, transport, error if error.unreachable else None)
    if found.coordination is None and (error.elsewhere or not found.time):
        raise error.cause
    return found


NEAR = 3
"""How many runs are named to someone who has named none of them."""


@dataclass(frozen=True)
class KnownRun:
    """A run as the hosts that were asked know it."""

    run: str
    cluster: str
    created: float
    live: bool
    """On one of its hosts at least something still runs or is to be started."""
    hosts: tuple[str, ...]
    tasks: Mapping[TaskId, TaskState]
    verdict: Verdict | None = None
    """As its coordinator last reported it; None if the coordinator's host gave no answer, or has none."""
    by: str = ""
    """user@host of the person who started it, as its hosts say."""


@dataclass(frozen=True)
class ForeignRun:
    """A live run of another account of the hosts; nothing more of it can be seen."""

    run: str
    account: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class KnownRuns:
    """`runs` newest first; `errors`: the hosts that gave no answer."""

    runs: tuple[KnownRun, ...]
    damaged: tuple[DamagedRun, ...]
    errors: Mapping[str, DtctlError]
    foreign: tuple[ForeignRun, ...] = ()


def known_runs(record: RunRecord, transport: Transport, *, every_cluster: bool = False) -> KnownRuns:
    """All of the cluster's runs that the hosts know. `every_cluster`: those of others, too, by the hosts that were
    asked: their own names for these are not this file's."""

    def check(host: Host, answer: RunsResult) -> None:
        for number, known in enumerate(answer["runs"]):
            if known["cluster"] != record.cluster and not every_cluster:
                raise wrong(f"runs.{number}.cluster", record.cluster, known["cluster"])
            check_run(known["cluster"], None, known["run"], f"runs.{number}.run")

    fields = {"cluster": None} if every_cluster else {}
    outcomes = ask(record, transport, Request("runs", RunsResult, lambda _: fields, check), record.hosts)
    found: dict[str, KnownRun] = {}
    verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for host, answer in outcomes.results.items():
        for entry in answer["runs"]:
            own = entry["cluster"] == record.cluster
            if (own and entry["host"] != host) or (entry["run"], entry["host"]) in seen:
                continue  # of another host that shares this one's home directory, and speaks for itself
            seen.add((entry["run"], entry["host"]))
            known = found.get(entry["run"])
            if entry["condition"]:
                verdicts[entry["run"]].append(Verdict.of_condition(entry["condition"]))
            tasks = {TaskId.parse(task): TaskState(state) for task, state in entry["tasks"].items()}
            found[entry["run"]] = KnownRun(
                run=entry["run"],
                cluster=entry["cluster"],
                created=entry["created"],
                live=entry["live"] or bool(known and known.live),
                hosts=tuple(dict.fromkeys((*(known.hosts if known else ()), host))),
                tasks={**(known.tasks if known else {}), **tasks},
                by=entry["by"],
            )
    found = {run: dataclasses.replace(known, verdict=_only(verdicts[run])) for run, known in found.items()}
    return KnownRuns(
        tuple(sorted(found.values(), key=lambda run: run.created, reverse=True)),
        tuple(one for host, answer in outcomes.results.items() for one in answer["damaged"] if one["host"] == host),
        outcomes.errors,
        _foreign({host: answer["foreign"] for host, answer in outcomes.results.items()}),
    )


def _foreign(found: Mapping[str, Sequence[ForeignEntry]]) -> tuple[ForeignRun, ...]:
    hosts = grouped(((one["run"], one["account"]), host) for host, each in found.items() for one in each)
    return tuple(ForeignRun(run, account, tuple(there)) for (run, account), there in hosts.items())


def check_known(record: RunRecord, transport: Transport, remembered: Sequence[str]) -> None:
    """Raises UsageError when no host knows the run: a slip in its id is not to look like a run that has ended.

    It is not raised while a host cannot be asked.
    """
    assert record.run is not None
    form = f"{record.cluster}-DATE-TIME-XXXX"
    if not record.run.startswith(f"{record.cluster}-"):
        raise unknown(record.run, f"this is {record.cluster}, whose runs are named {form}", remembered)
    known = known_runs(record, transport)
    there = [*(one.run for one in known.runs), *(one["run"] for one in known.damaged)]
    if record.run not in there and not known.errors:
        raise unknown(record.run, f"no host of {record.cluster} knows it", [*there, *remembered])


def unknown(run: str, why: str, known: Sequence[str]) -> UsageError:
    """With those of the known runs that may have been meant."""
    newest = ", ".join(list(dict.fromkeys(known))[:NEAR])
    return UsageError(
        f"there is no run {run!r}",
        detail=why,
        hint=did_you_mean(run, known)
        or (f"the newest: {newest}" if newest else "dtctl runs    lists a cluster's runs"),
    )


def _only(verdicts: list[Verdict]) -> Verdict | None:
    """A run has one coordinator: where several hosts say that they are it, none is believed."""
    return verdicts[0] if len(verdicts) == 1 else None

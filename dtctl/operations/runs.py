"""Finds the runs that the hosts know."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dtctl.agent.records.answers import DamagedRun, RunsResult
from dtctl.agent.records.answers import ForeignRun as ForeignEntry
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError, did_you_mean
from dtctl.model import Host, TaskId, TaskState, grouped
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Verdict
from dtctl.transport.seam import Transport

NEAR = 3
"""The number of runs that are suggested if none of them was named."""


@dataclass(frozen=True)
class KnownRun:
    """A run as the hosts that were asked know it."""

    run: str
    cluster: str
    created: float
    live: bool
    """Whether something still runs, or is to be started, on at least one of its hosts."""
    hosts: tuple[str, ...]
    tasks: Mapping[TaskId, TaskState]
    verdict: Verdict | None = None
    """The verdict that the coordinator last reported; None if its host gave no answer, or has none."""
    by: str = ""
    """user@host of the person who started it, as its hosts report it."""
    commit: str = ""
    """The commit of its code."""


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
    foreign_hidden: tuple[str, ...] = ()
    """Hosts that hide the processes of other accounts, and so their runs."""


def known_runs(record: RunRecord, transport: Transport, *, every_cluster: bool = False) -> KnownRuns:
    """All of the cluster's runs that the hosts know. `every_cluster`: those of others, too, whose hosts have the names
    of their own cluster files.
    """

    def check(host: Host, answer: RunsResult) -> None:
        for number, known in enumerate(answer["runs"]):
            if known["cluster"] != record.cluster and not every_cluster:
                raise wrong(f"runs.{number}.cluster", record.cluster, known["cluster"])
            check_run(known["cluster"], None, known["run"], f"runs.{number}.run")

    fields = {"cluster": None} if every_cluster else {}
    asked = dataclasses.replace(record, hosts={**record.others, **record.hosts})  # an earlier run may be on others
    request = Request("runs", RunsResult, lambda _: fields, check)
    outcomes = ask_hosts(asked, ImpatientTransport(transport, asked), request, asked.hosts)
    found: dict[str, KnownRun] = {}
    verdicts: defaultdict[str, list[Verdict]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for host, answer in outcomes.results.items():
        for entry in answer["runs"]:
            own = entry["cluster"] == record.cluster
            if (own and entry["host"] != host) or (entry["run"], entry["host"]) in seen:
                continue  # the run of another host that shares this home directory, and reports for itself
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
                hosts=tuple(dict.fromkeys((*(known.hosts if known else ()), entry["host"]))),
                tasks={**(known.tasks if known else {}), **tasks},
                by=entry["by"],
                commit=entry["commit"],
            )
    found = {run: dataclasses.replace(known, verdict=_only(verdicts[run])) for run, known in found.items()}
    return KnownRuns(
        tuple(sorted(found.values(), key=lambda run: run.created, reverse=True)),
        tuple(one for host, answer in outcomes.results.items() for one in answer["damaged"] if one["host"] == host),
        {host: error for host, error in outcomes.errors.items() if host in record.hosts},
        _foreign({host: answer["foreign"] for host, answer in outcomes.results.items()}),
        tuple(host for host, answer in outcomes.results.items() if answer["foreign_hidden"]),
    )


def with_run(known: KnownRuns, run: KnownRun) -> KnownRuns:
    """The runs with one more, which no host knows."""
    runs = sorted((*known.runs, run), key=lambda one: one.created, reverse=True)
    return dataclasses.replace(known, runs=tuple(runs))


def _foreign(found: Mapping[str, Sequence[ForeignEntry]]) -> tuple[ForeignRun, ...]:
    hosts = grouped(((one["run"], one["account"]), host) for host, each in found.items() for one in each)
    return tuple(ForeignRun(run, account, tuple(there)) for (run, account), there in hosts.items())


def check_known(record: RunRecord, transport: Transport, remembered: Sequence[str]) -> None:
    """Raises UsageError when no host knows the run, so that a mistyped id does not look like a run that has ended.

    It is not raised while a host cannot be asked.
    """
    assert record.run is not None
    form = f"{record.cluster}-DATE-TIME-XXXX"
    if not record.run.startswith(f"{record.cluster}-"):
        raise unknown(record.run, f"this is {record.cluster}, whose runs are named {form}", remembered)
    known = known_runs(record, transport)
    there = [*(run.run for run in known.runs), *(one["run"] for one in known.damaged)]
    if record.run not in there and not known.errors:
        raise unknown(record.run, f"no host of {record.cluster} knows it", [*there, *remembered])


def unknown(run: str, why: str, known: Sequence[str]) -> UsageError:
    """The error for an unknown run, with the known runs that may have been meant."""
    newest = ", ".join(list(dict.fromkeys(known))[:NEAR])
    return UsageError(
        f"there is no run {run!r}",
        detail=why,
        hint=did_you_mean(run, known)
        or (f"the newest: {newest}" if newest else "dtctl runs    lists a cluster's runs"),
    )


def _only(verdicts: list[Verdict]) -> Verdict | None:
    """The coordinator's answer; none if several hosts claim to be the run's coordinator."""
    return verdicts[0] if len(verdicts) == 1 else None

"""End the tasks of a run, and remove what dtctl made for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from dtctl.agent.records import answers as records
from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host
from dtctl.operations.client import Conversations, Request, is_damaged
from dtctl.operations.client.persistent import PersistentTransport
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.gc import GcResult, Written, collect, without_duplicates
from dtctl.operations.run_record import RunRecord
from dtctl.operations.runs import known_runs
from dtctl.operations.stop import (
    Before,
    OnStopping,
    StopOrder,
    StopResult,
    check_ended,
    listener,
    result_of,
    stop,
    unseen,
)
from dtctl.operations.waiting import without_machines
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Waiters:
    """The hosts that report which others gave no answer when a run ended, and those with an agent that ends such tasks
    on their return.
    """

    reporters: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True)
class DownResult:
    stop: StopResult
    removed: Mapping[str, tuple[str, ...]]
    """Host -> ids of the runs that were removed there."""
    kept: tuple[Written, ...]
    """Files that the cluster's trainers wrote into their working directory, which are kept."""
    unasked: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts without a task that gave no answer: an earlier run may have left something there."""
    awaited: Mapping[str, Waiters] = field(default_factory=dict)
    """Hosts on which tasks of a removed run may still run."""


def down(
    record: RunRecord,
    transport: Transport,
    order: StopOrder,
    report: OnStopping = unseen,
    before: Before | None = None,
) -> DownResult:
    """Stops everything, then clears the hosts on which nothing survived. `report` and `before` as for `stop`.

    Runs that are over go from hosts that have no task any more, too, unless the record is about one run.
    Each host has one connection, and all are opened while the coordinator is asked: some hosts are far. A run that
    waits for machines is taken out of the queue first.
    """
    if (held := without_machines(record)) is not None and held.phase == "pending":
        left = stop(record, transport, tuple(record.roster), order, report, before)
        with PersistentTransport(transport) as kept:
            cleared = _down(record, kept, transport, order, report, None)
        ended = dataclasses.replace(cleared.stop, stopped=left.stopped, already=())
        return dataclasses.replace(cleared, stop=ended)
    with PersistentTransport(transport) as kept:
        kept.expect(record.routes_to(record.hosts)[0])
        return _down(record, kept, transport, order, report, before)


def _down(
    record: RunRecord,
    transport: Transport,
    fresh: Transport,
    order: StopOrder,
    report: OnStopping,
    before: Before | None,
) -> DownResult:
    """`fresh`: opens new connections, also to hosts that `transport` has just given up."""
    stopped = stop(record, transport, tuple(record.roster), order, report, before)
    known = stopped.known or record
    unreachable = known.routes_to(known.unknown_hosts)[1]
    record = dataclasses.replace(known, run=record.run, hosts={**record.hosts, **known.hosts})
    with Conversations(record, transport, record.hosts) as conversations:
        unclear = {survivor.host for survivor in stopped.survivors}
        failed = {
            host for host, error in stopped.errors.items() if not is_damaged(error)
        }  # a damaged run can be removed
        clear = [host for host in record.hosts if host not in {*unclear, *failed, *stopped.absent}]
        without_task = {name: host for name, host in known.others.items() if name not in record.hosts}
        others = dataclasses.replace(record, hosts=without_task)
        left = _clear_others(others, transport)
        reached = [host for host in clear if host not in conversations.errors]
        reached += _cleared(others, transport, left)
        answers = conversations.ask_hosts(_removal(record, order, report, reached), clear)
        rest = result_of(record, conversations, answers.items())
    awaited = _awaited(answers)
    if returned := _returned(record, stopped, awaited, answers):
        with Conversations(record.with_short_timeouts(returned), fresh, returned) as conversations:
            late = conversations.ask_hosts(_removal(record, order, report, [*reached, *returned]))
            rest = rest.and_then(result_of(record, conversations, late.items()))
        answers = {**answers, **late}
    without_answer = {
        host: TransportError(
            f"{host} gave no answer when its run ended: tasks may still run there",
            detail=f"reported by {fold(one.reporters)}",
            hint="dtctl down    again, once it answers",
        )
        for host, one in awaited.items()
        if host not in {**stopped.errors, **rest.errors}
    }
    return DownResult(
        awaited=awaited,
        stop=dataclasses.replace(
            stopped,
            promised=(),
            unwritten=tuple(host for host in stopped.unwritten if not _is_removed(answers.get(host))),
            stopped=tuple(dict.fromkeys((*stopped.stopped, *rest.stopped))),
            killed={**rest.killed, **stopped.killed},
            survivors=stopped.survivors + rest.survivors,
            errors={
                **{host: error for host, error in stopped.errors.items() if host not in answers},
                **rest.errors,
                **without_answer,
                **unreachable,
            },
        ),
        removed={
            **{host: tuple(answer["removed"]) for host, answer in answers.items()},
            **{
                host: tuple(run["run"] for run in found["runs"])
                for host, found in left.remains.items()
                if found["runs"]
            },
        },
        kept=(
            *without_duplicates((host, one) for host, answer in answers.items() for one in answer["kept"]),
            *left.kept,
        ),
        # A host that is waited for is among `errors` already, with who ends and removes what is left there.
        unasked={host: error for host, error in left.errors.items() if host not in awaited},
    )


def _returned(
    record: RunRecord,
    stopped: StopResult,
    awaited: Collection[str],
    answers: Mapping[str, records.DownResult],
) -> list[str]:
    """Hosts that gave no answer to `stop`, and have returned since: the coordinator has heard that their tasks ended.

    No cleanup is pending for these hosts.
    """
    if not any(answer["over"] for answer in answers.values()):
        return []
    away = [host for host, error in stopped.errors.items() if isinstance(error, TransportError)]
    return [host for host in away if host in record.hosts and host not in {*awaited, *answers}]


def _is_removed(answer: records.DownResult | None) -> bool:
    """Whether nothing of a run is left on the host: what was not written there matters no more."""
    return answer is not None and bool(answer["removed"]) and not answer["survivors"]


def _awaited(answers: Mapping[str, records.DownResult]) -> dict[str, Waiters]:
    """Hosts of runs that have not ended everywhere, by those that report it."""
    found: dict[str, Waiters] = {}
    over = {run for answer in answers.values() for run in answer["over"]}
    for host, answer in answers.items():
        for run, names in answer["awaits"].items():
            for name in names if run not in over else ():
                before = found.get(name, Waiters())
                waiting = (*before.waiting, host) if run in answer["waits"] else before.waiting
                found[name] = Waiters(_unique(*before.reporters, host), _unique(*waiting))
    return found


def _unique(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _clear_others(record: RunRecord, transport: Transport) -> GcResult:
    """Removes the cluster from hosts that have no task of it any more.

    A live run there belongs to another cluster file.
    """
    if record.run is not None or not record.hosts:
        return GcResult({}, {})
    return collect(record, transport, dry_run=False, every_cluster=False, over=True)


def _cleared(record: RunRecord, transport: Transport, left: GcResult) -> list[str]:
    """The other hosts without a live run of the cluster: none has to wait for them."""
    if not left.remains:
        return []
    hosts = {name: record.hosts[name] for name in left.remains}
    known = known_runs(dataclasses.replace(record, hosts=hosts), transport)
    live = {host for run in known.runs if run.live for host in run.hosts}
    return [host for host in hosts if host not in live and host not in known.errors]


def _removal(
    record: RunRecord, order: StopOrder, report: OnStopping, reached: Sequence[str]
) -> Request[records.DownResult]:
    """The request to remove the record's run, or everything of the cluster on a host, with tasks of any name.

    `reached`: the hosts that get it. Others may still have something of these runs.
    """

    def check(host: Host, answer: records.DownResult) -> None:
        for run in answer["removed"]:
            check_run(record.cluster, record.run, run, "removed")
        for run, hosts in answer["awaits"].items():
            check_run(record.cluster, record.run, run, "awaits")
            if not {*reached}.isdisjoint(hosts):
                raise wrong("awaits", "hosts that gave no answer", hosts)
        for one in answer["kept"]:
            if one["cluster"] not in (record.cluster, None):
                raise wrong("kept", f"that of {record.cluster}", one["cluster"])
        if record.run is not None:
            check_ended(answer, record.names_on(host.name))

    frames = listener(record, report)
    fields = {**order.fields(), "reached": list(reached)}
    return Request("down", records.DownResult, lambda _: fields, check, order.patience_s(record), frames)

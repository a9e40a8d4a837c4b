"""Determines when the tasks of a stopped run certainly act no more, also on hosts that gave no answer.

A host that misses its coordinator holds its tasks still by itself (dtctl/agent/coordinate/fence.py), and lets them
continue only if the coordinator answers, which nobody does after the end of the run. Time alone decides, therefore:
since the coordinator last heard the host, or, without a coordinator, since the stop of most voters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from dtctl.agent.records.answers import LeftOpen, Prepared
from dtctl.agent.records.spec import LEASED_S, held_within_s
from dtctl.dataclass import dataclass
from dtctl.operations.client import ask_hosts
from dtctl.operations.coordinator import request_of_status
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.stop import StopResult
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Unended:
    """Hosts that gave no answer when their run was stopped. `wait_s`: their tasks act no more after this time; None:
    that cannot be known, because a host that is cut off does not know it, or the run is of an earlier dtctl.
    """

    run: str
    hosts: tuple[str, ...]
    wait_s: float | None


def unended(run: str, stopped: StopResult) -> Unended | None:
    """Hosts whose end a stop has left open. None: every task has ended, or no host knows the run any more."""
    known = stopped.known
    if known is None:
        return None
    ended = {*stopped.stopped, *stopped.already}
    without = {*stopped.absent, *stopped.inactive}
    open_ = (host for task, host in known.roster.items() if task not in ended and host not in without)
    hosts = tuple(host for host in dict.fromkeys(open_) if host in stopped.errors or host in known.unknown_hosts)
    if not hosts:
        return None
    return Unended(run, hosts, wait_s(known, hosts, stopped.silent_s))


def left_open(prepared: Mapping[str, Prepared]) -> list[Unended]:
    """Runs that ended before this command, as hosts report them, with the hosts that did not confirm their end."""
    found: dict[str, list[LeftOpen]] = {}
    for answer in prepared.values():
        if (one := answer["left_open"]) is not None:
            found.setdefault(one["run"], []).append(one)
    open_ = []
    for run, reports in found.items():
        hosts = dict.fromkeys(host for report in reports for host in report["hosts"] if host not in prepared)
        waits = [report["wait_s"] for report in reports]
        known = [wait for wait in waits if wait is not None]
        if hosts:
            open_.append(Unended(run, tuple(hosts), max(known) if len(known) == len(waits) else None))
    return open_


def wait_s(known: RunRecord, hosts: Collection[str], silent_s: Mapping[str, float | None] | None) -> float | None:
    """`silent_s`: how long the coordinator, which has its lease, has not heard each host that it has lost; None without
    such a coordinator. Then most voters have to be among the hosts that were reached.
    """
    if known.hold_s is None:
        return None
    limit_s = held_within_s(known.hold_s)
    if silent_s is not None:
        return max(max(0.0, limit_s - (silent_s.get(host) or 0.0)) for host in hosts)
    return LEASED_S + limit_s if len(hosts) <= (known.voting - 1) // 2 else None


def out_of_reach(found: RunStatus, transport: Transport) -> tuple[str, ...]:
    """Hosts with live tasks that neither the coordinator nor this machine reaches."""
    if found.verdict.outcome.decided or not found.time:
        return ()
    live = dict.fromkeys(found.record.roster[task] for task, status in found.tasks.items() if not status.state.final)
    if found.coordination is None:
        return tuple(host for host in live if host in found.errors or host in found.record.unknown_hosts)
    lost = [host for host in live if host in found.coordination.lost_hosts]
    record = found.record
    asked = ask_hosts(record, transport, request_of_status(record), [host for host in lost if host in record.hosts])
    return tuple(host for host in lost if host not in asked.results)


def unknown_ends(found: RunStatus, transport: Transport) -> tuple[str, ...]:
    """The hosts among these for which it is unknown, after a stop, whether their tasks still act."""
    hosts = out_of_reach(found, transport)
    coordination = found.coordination
    silent_s: Mapping[str, float] | None = {} if coordination is not None and coordination.view["leased"] else None
    return hosts if hosts and wait_s(found.record, hosts, silent_s) is None else ()


def pause(seconds: float, report: Callable[[int], None]) -> None:
    """Waits; `report` is called with the seconds that are left, once a second."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        report(math.ceil(left))
        time.sleep(min(left, 1.0))

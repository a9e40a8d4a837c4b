"""The traffic of this host's tasks by the kernel's counters of each connection.

Sockets are matched to tasks by the inodes in /proc/PID/fd, and to other ends by the addresses that the plan knows; if
both ends are on this host, by each other.
"""

from __future__ import annotations

import _thread
import os
import socket
import struct
import time

from ...host import ports, sock_diag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

    from ...host.sock_diag import Counters, Socket
    from ...records.spec import Member
    from .records import Flow

    End = Tuple[bytes, int]

AGAIN_S = 300.0
"""When a name that could not be resolved is tried again."""


class Addresses:
    """The tasks by the addresses that they are reached at. Names are resolved by a thread, which may hang."""

    def __init__(self, roster: Sequence[Member]) -> None:
        self._tasks: Dict[End, str] = {}
        self._hosts: Dict[bytes, Set[str]] = {}
        self._only: Dict[str, Optional[str]] = {}
        """Host -> its task, if it has just one."""
        self._unresolved: Dict[str, List[Tuple[int, Member]]] = {}
        self._next = 0.0
        self._at_work = False
        for member in roster:
            self._only[member["host"]] = None if member["host"] in self._only else member["task"]
            name, _, port = (member["address"] or "").rpartition(":")
            if port.isdigit():
                address = sock_diag.packed(name.strip("[]"))
                if address is not None:
                    self._add(address, int(port), member)
                else:
                    self._unresolved.setdefault(name, []).append((int(port), member))

    def _add(self, address: bytes, port: int, member: Member) -> None:
        self._tasks[address, port] = member["task"]
        self._hosts.setdefault(address, set()).add(member["host"])

    def resolve(self, now: float) -> None:
        """Begins to resolve the names that are left."""
        if self._unresolved and not self._at_work and now >= self._next:
            self._at_work, self._next = True, now + AGAIN_S
            try:
                _thread.start_new_thread(self._resolve, ())
            except RuntimeError:  # too many threads: later
                self._at_work = False

    def _resolve(self) -> None:
        for name, members in list(self._unresolved.items()):
            try:
                found = {str(one[4][0]) for one in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
            except (OSError, UnicodeError):
                continue
            for address in filter(None, map(sock_diag.packed, found)):
                for port, member in members:
                    self._add(address, port, member)
            self._unresolved.pop(name, None)
        self._at_work = False

    def task_at(self, end: End) -> Optional[str]:
        return self._tasks.get(end)

    def host_at(self, address: bytes) -> Optional[str]:
        """The one host that has the address: hosts of the inventory may be the same machine."""
        found = self._hosts.get(address, ())
        return next(iter(found)) if len(found) == 1 else None

    def only_task_on(self, host: str) -> Optional[str]:
        return self._only.get(host)


class _Known:
    """A connection of a task, and its counters at the last sample."""

    __slots__ = ("before", "task")

    def __init__(self, task: str) -> None:
        self.task = task
        self.before: Optional[Counters] = None


class Traffic:
    """`problem`: why nothing is known."""

    def __init__(self, host: str, roster: Sequence[Member]) -> None:
        self.problem = ""
        self._host = host
        self._hosts = {member["task"]: member["host"] for member in roster}
        self._addresses = Addresses(roster)
        self._known: Dict[bytes, Optional[_Known]] = {}
        """Cookie of a socket -> its connection; None: it belongs to no task."""
        self._is_first = True

    def sample(self, pids: Mapping[str, Iterable[int]]) -> List[Flow]:
        """What was carried since the last sample, by task and other end. `pids`: the processes of each task."""
        self._addresses.resolve(time.monotonic())
        try:
            mine = os.geteuid()
            found = [one for one in sock_diag.dumped(*sock_diag.CONNECTED, info=True) if one.user == mine and one.inode]
        except (OSError, struct.error, IndexError):
            self.problem = "refused"
            return []
        self.problem = ""
        self._match(found, pids)
        flows = self._flows([(one, known) for one in found for known in [self._known[one.cookie]] if known is not None])
        self._is_first = False
        return flows

    def _match(self, found: List[Socket], pids: Mapping[str, Iterable[int]]) -> None:
        """Finds the tasks of new sockets, and forgets those that are gone."""
        known = self._known
        if any(one.cookie not in known for one in found):
            tasks = {inode: task for task, own in pids.items() for pid in own for inode in ports.inodes_of(pid)}
            for one in found:
                if one.cookie not in known:
                    task = tasks.get(one.inode)
                    known[one.cookie] = None if task is None else _Known(task)
        self._known = {one.cookie: known[one.cookie] for one in found}

    def _flows(self, found: List[Tuple[Socket, _Known]]) -> List[Flow]:
        ends = [one.ends() for one, _ in found]
        here = {pair: known.task for pair, (_, known) in zip(ends, found)}
        flows: Dict[Tuple[str, Optional[str], Optional[str]], Flow] = {}
        for (own, other), (one, known) in zip(ends, found):
            counters = one.counters()
            if counters is None:
                self.problem = "unsupported"
                continue
            before, known.before = known.before, counters
            if before is None and self._is_first:
                continue  # it may have been carrying data for hours
            peer, host = self._other_end(here.get((other, own)), other)
            key = known.task, peer, host
            if key not in flows:
                flows[key] = _flow_of(*key)
            _count(flows[key], before, counters)
        return list(flows.values())

    def _other_end(self, here: Optional[str], other: End) -> Tuple[Optional[str], Optional[str]]:
        """The task and the host."""
        task = here or self._addresses.task_at(other)
        if task is not None:
            return task, self._hosts[task]
        host = self._host if other[0] in _LOOPBACK else self._addresses.host_at(other[0])
        if host is None or host == self._host:
            return None, host  # another program of this host, as nothing of a task is at that end
        return self._addresses.only_task_on(host), host


_LOOPBACK = (b"\x7f\0\0\1", b"\0" * 15 + b"\1")


def _flow_of(task: str, peer: Optional[str], host: Optional[str]) -> Flow:
    return {
        "task": task,
        "peer": peer,
        "host": host,
        "sent_bytes": 0,
        "received_bytes": 0,
        "resent": 0,
        "busy_s": None,
        "rtt_us": 0,
        "connections": 0,
    }


def _count(flow: Flow, before: Optional[Counters], now: Counters) -> None:
    sent = now.acked - (before.acked if before is not None else 0)
    received = now.received - (before.received if before is not None else 0)
    flow["sent_bytes"] += max(0, sent)
    flow["received_bytes"] += max(0, received)
    flow["resent"] += max(0, now.resent - (before.resent if before is not None else 0))
    flow["connections"] += 1
    if sent > 0 or received > 0:
        flow["rtt_us"] = max(flow["rtt_us"], now.rtt_us)
    if now.busy_us is not None:
        busy_us = now.busy_us - ((before.busy_us or 0) if before is not None else 0)
        flow["busy_s"] = round(max(flow["busy_s"] or 0.0, busy_us / 1e6), 3)

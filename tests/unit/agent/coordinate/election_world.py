"""A network of electing hosts in simulated time: messages that are late, lost or doubled, and faults by schedule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

from dtctl.agent.coordinate.election import Election
from tests.unit.agent.coordinate.electing import Agent, Message, Violation, Voter, Witness, first_disk

COORDINATOR = "the coordinator"
"""A host of a fault: the one that coordinates when the fault strikes."""

QUARTER = (8 / 9, 10 / 9)
"""Speeds of clocks: between any two of them lies a quarter at most."""


class Fault(NamedTuple):
    at: float
    kind: str
    hosts: tuple[str, ...]
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:6.2f} {self.kind} {', '.join(self.hosts)} for {self.lasts:.1f} s"


class Caller(NamedTuple):
    """What surrounds an Election, and how it may be wrong."""

    election: type[Election] = Election
    voter: type[Voter] = Voter
    syncs: bool = True
    """What was written survives a reboot."""
    reads_clock_last: bool = True
    """After the message, so that no pause lies between."""


class Machine:
    """Runs a voter's process. Its clock counts from its boot."""

    def __init__(self, voter: Voter, rate: float) -> None:
        self.voter, self.rate = voter, rate
        self.booted = 0.0
        self.is_up = True
        self.is_destroyed = False
        self.paused_at = self.paused_until = 0.0
        self.stalls_for = 0.0
        """It pauses when it is about to send."""
        self.crashes = ""
        """`before write`, `before send` or `after send`: when its disk changes next."""
        self.written = voter.disk
        self.wakes_at = float("inf")

    def now(self, time: float) -> float:
        return (time - self.booted) * self.rate


class Network:
    def __init__(self, seed: int, voters: Sequence[str], others: Sequence[str], caller: Caller) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.caller = caller
        self.witness = Witness()
        disk, names = first_disk(voters[0]), [*voters, *others]
        self.machines = {
            name: Machine(caller.voter(name, voters, names, disk, self.witness), self.random.uniform(*QUARTER))
            for name in voters
        }
        self.agents = {name: Agent(name, voters, disk, self.witness) for name in others}
        self.majority = len(voters) // 2 + 1
        self.leases_exclude = True
        self.cut: Counter[tuple[str, str]] = Counter()
        self.loss = self.doubles = 0.0
        self.delay_s = 0.02
        self.spread = 1.0
        """Of the random numbers of the voters: with a small one they become candidates together."""
        self.story: list[str] | None = None
        self._noted: dict[str, str] = {}
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def begin(self) -> None:
        for machine in self.machines.values():
            machine.voter.begin(machine.now(self.time), self._spread, self.caller.election)
            self._turn(machine)

    def _spread(self) -> float:
        return self.random.random() * self.spread

    def at(self, time: float, act: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._queue, (time, self._count, act, args))

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Whether `done` came true."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.time, _, act, args = heappop(queue)
            act(*args)
            if done is not None and done():
                return True
        self.time = max(self.time, end)
        return False

    def lose_late(self) -> None:
        """What is still under way for a second: a late lease would be a sign of life."""
        late = self.time + 1.0
        self._queue[:] = [event for event in self._queue if event[2] != self._deliver or event[0] <= late]
        heapify(self._queue)

    def coordinator(self) -> Machine | None:
        """That of the newest term that has a lease."""
        leading = [machine for machine in self.machines.values() if self._has_lease(machine)]
        return max(leading, key=lambda machine: machine.voter.election.ballot["term"], default=None)

    def _has_lease(self, machine: Machine) -> bool:
        return machine.is_up and machine.voter.election.has_lease(machine.now(self.time))

    def ask(self) -> None:
        """For another decision."""
        for machine in self.machines.values():
            if machine.is_up and machine.voter.election.leads:
                machine.voter.is_asked = True
                self._wake_at(machine, self.time)

    def tell(self, text: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.time:6.2f} {text}")

    def _turn(self, machine: Machine) -> None:
        voter, time = machine.voter, self.time
        now = machine.now(time)
        ballot = voter.election.ballot
        messages = voter.step(now)
        changed = voter.disk is not machine.written or voter.election.ballot is not ballot
        if changed and machine.crashes:
            self._crash(machine, messages)
            return
        machine.written = voter.disk
        if messages and machine.stalls_for:
            machine.paused_at, machine.paused_until, machine.stalls_for = time, time + machine.stalls_for, 0.0
            self.at(machine.paused_until, self._send_late, machine, voter.process, messages)
        else:
            for host, message in messages:
                self._send(voter.name, host, message)
        if self.story is not None:
            self._note(machine)
        self._wake_at(machine, machine.booted + voter.election.due() / machine.rate + 1e-6)

    def _note(self, machine: Machine) -> None:
        """What has changed."""
        voter, ballot = machine.voter, machine.voter.election.ballot
        knows = f"knows {ballot['coordinator']}" if ballot["coordinator"] else f"votes for {ballot['voted']}"
        leads = ", leads" if voter.election.leads else ""
        lease = " with a lease" if voter.election.has_lease(machine.now(self.time)) else ""
        memo = f"memo {voter.disk.version[0]}.{voter.disk.version[1]} of {len(voter.disk.memo)} decisions"
        text = f"{voter.process}: term {ballot['term']}, {knows}{leads}{lease}; {memo}"
        if self._noted.get(voter.name) != text:
            self._noted[voter.name] = text
            self.tell(text)

    def _crash(self, machine: Machine, messages: Iterable[tuple[str, Message]]) -> None:
        self.tell(f"{machine.voter.name} dies {machine.crashes}")
        if machine.crashes == "before write":
            machine.voter.disk = machine.written
        elif machine.crashes == "after send":
            self._send_late(machine, machine.voter.process, messages)
        machine.crashes = ""
        self.stop(machine)
        self.at(self.time + 1.0, self.start, machine)

    def stop(self, machine: Machine) -> None:
        machine.is_up = False
        machine.wakes_at = float("inf")

    def start(self, machine: Machine) -> None:
        if not machine.is_up and not machine.is_destroyed:
            machine.is_up, machine.paused_until, machine.stalls_for = True, 0.0, 0.0
            machine.voter.begin(machine.now(self.time), self._spread, self.caller.election)
            self.tell(f"{machine.voter.name} begins, in term {machine.voter.election.ballot['term']}")
            self._turn(machine)

    def _wake_at(self, machine: Machine, time: float) -> None:
        if time < machine.wakes_at:
            machine.wakes_at = max(time, machine.paused_until)
            self.at(machine.wakes_at, self._wake, machine, machine.wakes_at)

    def _wake(self, machine: Machine, wakes_at: float) -> None:
        if machine.is_up and machine.wakes_at == wakes_at:
            machine.wakes_at = float("inf")
            if machine.paused_until > self.time:
                self._wake_at(machine, machine.paused_until)
            else:
                self._turn(machine)

    def _send_late(self, machine: Machine, process: str, messages: Iterable[tuple[str, Message]]) -> None:
        if machine.is_up and machine.voter.process == process:
            for host, message in messages:
                self._send(machine.voter.name, host, message)

    def _send(self, sender: str, host: str, message: Message) -> None:
        if self.cut[sender, host] or (self.loss and self.random.random() < self.loss):
            return
        self.at(self.time + self.random.random() * self.delay_s, self._deliver, sender, host, message)
        if self.doubles and self.random.random() < self.doubles:
            self.at(self.time + self.random.random() * 20.0, self._deliver, sender, host, message)

    def _deliver(self, sender: str, host: str, message: Message) -> None:
        machine = self.machines.get(host)
        if machine is None:
            for receiver, answer in self.agents[host].receive(sender, message, 0.0):
                self._send(host, receiver, answer)
        elif not machine.is_up:
            return
        elif machine.paused_until > self.time:
            self.at(machine.paused_until, self._deliver, sender, host, message)
        else:
            was_paused = machine.paused_until == self.time and not self.caller.reads_clock_last
            now = machine.now(machine.paused_at if was_paused else self.time)
            answers = machine.voter.receive(sender, message, now)
            if message["type"] == "order":
                machine.written = machine.voter.disk  # it was before it was obeyed
            for receiver, answer in answers:
                self._send(host, receiver, answer)
            self._turn(machine)
            if message["type"] == "granted":
                self._check_leases(machine)

    def _check_leases(self, machine: Machine) -> None:
        if not self.leases_exclude or not self._has_lease(machine):
            return
        for other in self.machines.values():
            if other is not machine and self._has_lease(other):
                raise Violation(f"{machine.voter.process} and {other.voter.process} have a lease")

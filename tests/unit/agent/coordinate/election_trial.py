"""Elections under faults that a seed chooses; a violation is shrunk to the faults that it needs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.unit.agent.coordinate.electing import Violation
from tests.unit.agent.coordinate.election_world import COORDINATOR, Caller, Fault, Machine, Network

FAULTS_END_S = 45.0
ELECTED_S = 30.0
"""After the last fault, or the last sign of life of a coordinator."""

REACHED_S = 30.0
"""From then until all that run know the coordinator, and its next decision."""

MOST_LINES = 36
"""Of a story: with the faults it fits on one screen."""

CRASHES = ("dies before write", "dies before send", "dies after send")
HOST_FAULTS = ("kill", "kill", "reboot", "pause", "pause", "stall", *CRASHES)
DECISIONS = ("decision", "decision, dies before send", "decision, dies after send")
LINK_FAULTS = ("isolate", "isolate", "mute", "deaf", "cut", "cut one way", "split", "split one way")
WEATHER = ("loss", "slow", "doubles")
LASTS_S = (0.2, 2.0, 6.0, 9.0, 11.0, 14.0, 20.0)

ENDINGS = ("", "", "destroyed", "cut off", "mute")
"""What follows when all is well again."""


class Trial:
    """Of one seed. `faults`: instead of those that the seed chooses."""

    elected_s, reached_s = ELECTED_S, REACHED_S

    def __init__(self, seed: int, caller: Caller | None = None, faults: Sequence[Fault] | None = None) -> None:
        self.seed = seed
        chosen = random.Random(f"faults of {seed}")
        self.voters = "abcdefg"[: chosen.choice((2, 3, 3, 3, 3, 4, 5, 5, 6, 7))]
        others = "xy"[: chosen.randrange(3)]
        self.ending = chosen.choice(ENDINGS)
        self.network = Network(seed, self.voters, others, caller or Caller())
        self.is_wild = chosen.random() < 0.1
        if self.is_wild:  # clocks that do not keep the quarter
            self.network.leases_exclude = False
            for machine in self.network.machines.values():
                machine.rate = chosen.choice((0.3, 0.7, 1.0, 1.5, 3.0))
        self.planned = _chosen(chosen, self.voters)
        self.faults = self.planned if faults is None else faults
        self._decide_at = [chosen.uniform(0.5, FAULTS_END_S) for _ in range(chosen.randint(2, 6))]
        self.network.spread = chosen.choice((1.0, 1.0, 0.1, 0.02))
        self.network.delay_s = chosen.choice((0.02, 0.02, 0.3))
        self.longest_s = 0.0
        """Without a coordinator after the faults."""

    def run(self) -> None:
        """Raises Violation."""
        network = self.network
        network.begin()
        for fault in self.faults:
            network.at(fault.at, self._strike, fault)
        for at in self._decide_at:
            network.at(at, network.ask)
        network.run_until(max((fault.at + fault.lasts for fault in self.faults), default=FAULTS_END_S))
        self._end_faults()
        if len(self._running()) < network.majority or self.is_wild:
            network.run_until(network.time + 10.0)
            return
        self._settles("the end of the faults")
        if self.ending == "destroyed" and len(self._running()) > network.majority:
            self._destroy(self._coordinator())
            self._settles("the loss of the coordinator")
        elif self.ending == "mute" and len(self._running()) > network.majority:
            self._mute_coordinator()
        elif self.ending == "cut off":
            self._cut_off()

    def _settles(self, what: str) -> None:
        network, begin = self.network, self.network.time
        if not network.run_until(begin + self.elected_s, lambda: network.coordinator() is not None):
            raise Violation(f"no coordinator {self.elected_s:.0f} s after {what}")
        self.longest_s = max(self.longest_s, network.time - begin)
        for delay_s in (1.0, 6.0, 11.0):  # whoever is being elected just then does not hear it
            network.at(network.time + delay_s, network.ask)
        known = len(network.witness.decided[1])
        if not network.run_until(network.time + self.reached_s, lambda: self._has_reached_all(known + 1)):
            raise Violation(f"a decision has not reached all {self.elected_s + self.reached_s:.0f} s after {what}")

    def _has_reached_all(self, generation: int) -> bool:
        network = self.network
        hosts = [*(machine.voter for machine in self._running()), *network.agents.values()]
        return all(host.disk.started >= generation for host in hosts)

    def _mute_coordinator(self) -> None:
        """It hears nothing, and is heard: its leases must not keep the others from an election for ever."""
        network, old = self.network, self._coordinator()
        network.tell(f"{old.voter.name} hears nothing any more")
        for name in network.machines:
            network.cut[name, old.voter.name] += 1
        limit = network.time + 2 * ELECTED_S
        if not network.run_until(limit, lambda: network.coordinator() not in (None, old)):
            raise Violation(f"no other coordinator {2 * ELECTED_S:.0f} s after this one has become deaf")

    def _cut_off(self) -> None:
        """One that was cut off, or whose links are lame, deposes no coordinator that a majority supports."""
        network, coordinator = self.network, self._coordinator()
        other = next((machine for machine in self._running() if machine is not coordinator), None)
        if other is None or len(self._running()) - 1 < network.majority:
            return
        before = coordinator.voter.election.ballot["term"]
        network.tell(f"{other.voter.name} is cut off")
        for name in network.machines:
            network.cut[name, other.voter.name] += 1
            network.cut[other.voter.name, name] += 1
        network.run_until(network.time + 25.0)
        network.tell("the links are whole again")
        network.cut.clear()
        network.run_until(network.time + 12.0)
        after = coordinator.voter.election.ballot["term"]
        if network.coordinator() is not coordinator or after != before:
            raise Violation(f"{other.voter.name}, which was cut off, has deposed the coordinator of term {before}")

    def _coordinator(self) -> Machine:
        found = self.network.coordinator()
        assert found is not None
        return found

    def _running(self) -> list[Machine]:
        return [machine for machine in self.network.machines.values() if not machine.is_destroyed]

    def _end_faults(self) -> None:
        network = self.network
        network.cut.clear()
        network.loss, network.doubles, network.delay_s, network.spread = 0.0, 0.0, 0.02, 1.0
        network.lose_late()
        for machine in network.machines.values():
            machine.crashes, machine.stalls_for = "", 0.0
            machine.paused_until = min(machine.paused_until, network.time)
            network.start(machine)
        network.tell("all faults are over")

    def _strike(self, fault: Fault) -> None:
        network = self.network
        hosts = [self._named(host) for host in fault.hosts]
        network.tell(f"{fault.kind} {', '.join(hosts)} for {fault.lasts:.1f} s")
        if fault.kind in WEATHER:
            self._weather(fault)
        elif fault.kind in LINK_FAULTS:
            pairs = _pairs(fault.kind, hosts, self.voters)
            network.cut.update(pairs)
            network.at(network.time + fault.lasts, network.cut.subtract, pairs)
        else:
            struck = network.machines.get(hosts[0])
            if struck is not None:
                self._strike_host(fault, struck)

    def _named(self, host: str) -> str:
        if host != COORDINATOR:
            return host
        leading = [machine for machine in self.network.machines.values() if machine.voter.election.leads]
        newest = max(leading, key=lambda machine: machine.voter.election.ballot["term"], default=None)
        return newest.voter.name if newest is not None else self.voters[0]

    def _strike_host(self, fault: Fault, machine: Machine) -> None:
        network = self.network
        if not machine.is_up:
            return
        if fault.kind in ("kill", "reboot"):
            network.stop(machine)
            network.at(network.time + fault.lasts, network.start, machine)
            if fault.kind == "reboot":
                network.at(network.time + fault.lasts / 2, self._boot, machine)
        elif fault.kind == "pause":
            machine.paused_at, machine.paused_until = network.time, network.time + fault.lasts
        elif fault.kind == "stall":
            machine.stalls_for = fault.lasts
        elif fault.kind == "destroy":
            self._destroy(machine)
        else:
            if fault.kind in DECISIONS:
                network.ask()
            if fault.kind != "decision":
                machine.crashes = fault.kind.rpartition("dies ")[2]

    def _boot(self, machine: Machine) -> None:
        machine.booted = self.network.time
        if not self.network.caller.syncs:
            machine.voter.disk = machine.voter.before

    def _destroy(self, machine: Machine) -> None:
        self.network.tell(f"{machine.voter.name} is destroyed")
        self.network.stop(machine)
        machine.is_destroyed = True

    def _weather(self, fault: Fault) -> None:
        network = self.network
        name, usual, value = {
            "loss": ("loss", 0.0, 0.4),
            "slow": ("delay_s", 0.02, 8.0 if fault.lasts > 10.0 else 1.0),
            "doubles": ("doubles", 0.0, 0.3),
        }[fault.kind]
        setattr(network, name, value)
        network.at(network.time + fault.lasts, setattr, network, name, usual)


def _chosen(chosen: random.Random, voters: str) -> list[Fault]:
    faults = []
    kinds = (*HOST_FAULTS, *DECISIONS, *LINK_FAULTS, *WEATHER)
    some = [chosen.choice(kinds) for _ in range(3)]
    """Most of a trial's faults are of few kinds, so that those meet."""
    moments = [chosen.uniform(0.0, FAULTS_END_S) for _ in range(chosen.randint(1, 3))]
    for _ in range(chosen.randint(2, 12)):
        kind = chosen.choice(some) if chosen.random() < 0.6 else chosen.choice(kinds)
        hosts = chosen.sample(voters, 2)
        if chosen.random() < 0.4:
            hosts[0] = COORDINATOR
        lasts = chosen.choice(LASTS_S) * chosen.uniform(0.9, 1.1)
        at = chosen.choice(moments) + chosen.expovariate(0.5) if chosen.random() < 0.7 else chosen.uniform(0.0, 45.0)
        faults.append(Fault(min(at, FAULTS_END_S - lasts), kind, tuple(hosts), lasts))
    if chosen.random() < 0.15:
        at, (first, second) = chosen.uniform(5.0, FAULTS_END_S - 30.0), chosen.sample(voters, 2)
        faults.append(Fault(at, "cut", (COORDINATOR, first), 25.0))
        begin, lasts = at + chosen.uniform(0.0, 10.0), chosen.uniform(8.0, 14.0)
        faults.append(Fault(begin, "pause", (second, first), lasts))
        faults.append(Fault(begin + lasts - 2.0, "cut one way", (COORDINATOR, second), 8.0))
    if chosen.random() < 0.15:
        host = chosen.choice((COORDINATOR, voters[-1]))
        faults.append(Fault(chosen.uniform(0.0, FAULTS_END_S), "destroy", (host,), 0.0))
    return sorted(faults)


def _pairs(kind: str, hosts: Sequence[str], voters: str) -> list[tuple[str, str]]:
    """Senders and receivers between which nothing passes."""
    first, second = hosts[0], hosts[1]
    group = {first} if kind in ("isolate", "mute", "deaf") else {first, second}
    if kind.startswith("cut"):
        out = [(first, second)]
    else:
        out = [(one, other) for one in group for other in voters if other not in group]
    back = [(other, one) for one, other in out]
    if kind == "deaf":
        return back
    return out if kind in ("mute", "cut one way", "split one way") else out + back


def reported(trial: Trial, caller: Caller | None = None, kind: type[Trial] | None = None) -> str:
    """The story of a violation: with the fewest faults that were found to be needed."""
    kind = kind or Trial
    text = _violation(kind, trial.seed, caller, trial.planned)
    faults = [*trial.planned]
    for fault in sorted(trial.planned, reverse=True):
        fewer = [other for other in faults if other is not fault]
        if _violation(kind, trial.seed, caller, fewer) is not None:
            faults = fewer
    last = kind(trial.seed, caller, faults)
    last.network.story = []
    try:
        last.run()
    except Violation as violation:
        text = str(violation)
    lines = last.network.story
    left_out = [f"... {len(lines) - MOST_LINES} lines"] if len(lines) > MOST_LINES else []
    return "\n".join([f"seed {trial.seed}, voters {', '.join(trial.voters)}: {text}", *left_out, *lines[-MOST_LINES:]])


def _violation(kind: type[Trial], seed: int, caller: Caller | None, faults: Sequence[Fault]) -> str | None:
    try:
        kind(seed, caller, faults).run()
    except Violation as violation:
        return str(violation)
    return None

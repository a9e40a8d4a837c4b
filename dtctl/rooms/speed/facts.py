"""What was measured in a time span, over all hosts: as shares of time, and bytes a second. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple

from dtctl.agent.rooms.speed.adding import added
from dtctl.agent.rooms.speed.records import Flow, Parameters, Sample, Save, TaskUse
from dtctl.model import TaskId


class Minute(NamedTuple):
    """The samples of hosts for the same minute, and what is known of the run's checkpoints and of its strategy."""

    hosts: Mapping[str, Sample]
    parameters: Parameters | None = None
    saves: Sequence[Save] = ()
    strategy: str | None = None


class Resent(NamedTuple):
    """What goes to or from a host and was sent again: its share, and segments a second."""

    share: float
    segments: float
    rtt_s: float
    """The longest round-trip time of these connections, in seconds."""


class Link(NamedTuple):
    """One direction of a host's busiest interface, in bits a second."""

    sends: bool
    bits: float
    most_bits: float | None
    """The speed of the hardware; None: unknown."""

    @property
    def share(self) -> float | None:
        return self.bits / self.most_bits if self.most_bits else None


_CLIENTS = ("chief", "master", "client")
_SYNCHRONOUS = {"async-ps": False, "sync-ps": True, "mirrored": True, "ddp": True, "in-graph": True}
"""ps-strategy deals steps out to workers, and kvstore may be either."""
_SEGMENT_BYTES = 1448
"""What a packet of 1500 bytes carries."""


def merged(minutes: Sequence[Minute]) -> Facts | None:
    """The facts of several minutes, the newest of which is the first."""
    if not minutes:
        return None
    hosts = {}
    for host in {name for minute in minutes for name in minute.hosts}:
        whole = added([minute.hosts[host] for minute in reversed(minutes) if host in minute.hosts])
        if whole is not None:
            hosts[host] = whole
    return Facts(minutes[0]._replace(hosts=hosts))


class Facts:
    """`minute` may be a longer time span, too."""

    def __init__(self, minute: Minute) -> None:
        self.hosts = minute.hosts
        self.parameters = minute.parameters
        self.saves = minute.saves
        self.strategy = minute.strategy
        self.uses: dict[str, TaskUse] = {}
        self.places: dict[str, str] = {}
        for host, sample in minute.hosts.items():
            for task, use in sample["tasks"].items():
                self.uses[task], self.places[task] = use, host

    @cached_property
    def servers(self) -> list[str]:
        """The tasks that hold the parameters."""
        return self._tasks(lambda job: job == "ps")

    @cached_property
    def workers(self) -> list[str]:
        """The tasks that train."""
        return self._tasks(lambda job: job not in ("ps", "evaluator", "tensorboard"))

    @cached_property
    def trainers(self) -> list[str]:
        """Those of the workers that compute: the client of in-graph training does not."""
        if self.strategy != "in-graph":
            return self.workers
        return [task for task in self.workers if TaskId.parse(task).job not in _CLIENTS] or self.workers

    @property
    def is_synchronous(self) -> bool | None:
        """Whether each worker waits for all others in each step; None: unknown."""
        return _SYNCHRONOUS.get(self.strategy or "")

    def _tasks(self, fits: object) -> list[str]:
        assert callable(fits)
        return sorted((task for task in self.uses if fits(TaskId.parse(task).job)), key=TaskId.parse)

    def tasks_on(self, host: str) -> list[str]:
        return [task for task, place in self.places.items() if place == host]

    def cpu(self, task: str) -> float:
        """Processors that it kept busy."""
        return _share(self.uses[task]["cpu_s"], self.uses[task]["seconds"])

    def thread(self, task: str) -> float:
        """The share of time in which its busiest thread ran."""
        return min(1.0, _share(self.uses[task]["thread_s"] or 0.0, self.uses[task]["seconds"]))

    def throttled(self, task: str) -> float:
        return min(1.0, _share(self.uses[task]["throttled_s"] or 0.0, self.uses[task]["seconds"]))

    def waits(self, task: str) -> float:
        """The share of the time in which its threads wanted to run that they had no processor."""
        waits_s = self.uses[task]["waits_s"] or 0.0
        return _share(waits_s, waits_s + self.uses[task]["cpu_s"])

    def lost(self, task: str) -> float:
        """Seconds a second in which its threads could have run and had no processor, added up."""
        return _share(self.uses[task]["waits_s"] or 0.0, self.uses[task]["seconds"])

    def wants(self, task: str) -> float:
        """Processors that its threads used or waited for."""
        return _share((self.uses[task]["waits_s"] or 0.0) + self.uses[task]["cpu_s"], self.uses[task]["seconds"])

    def works(self, task: str) -> float:
        """The share of its time in which a worker computes, or would if it had a processor.

        One whose GPU does nothing trains on processors.
        """
        gpu = self.gpu(task)
        wanted = min(1.0, self.wants(task) + self.throttled(task))
        return max(gpu, min(1.0, self.cpu(task))) if gpu else wanted

    def idle(self, task: str) -> float:
        """The share of its time in which a worker neither computes nor waits for processors, other tasks or saves."""
        return 1.0 - min(1.0, self.works(task) + (self.on_network(task) or 0.0) + self.saving(task))

    def saving(self, task: str) -> float:
        """The share of its time in which it made no step while it wrote to disks."""
        return min(1.0, _share(self.uses[task]["saving_s"] or 0.0, self.uses[task]["seconds"]))

    def gpu(self, task: str) -> float | None:
        gpu_s = self.uses[task]["gpu_s"]
        return None if gpu_s is None else min(1.0, _share(gpu_s, self.uses[task]["seconds"]))

    def busy(self, host: str) -> float | None:
        """Processors of a host that were busy."""
        sample = self.hosts[host]
        return None if sample["busy_s"] is None else _share(sample["busy_s"], sample["seconds"])

    def others(self, host: str) -> float | None:
        """Processors that programs outside the run kept busy; what is below the tasks' ticks counts as none."""
        busy = self.busy(host)
        own = sum(map(self.cpu, self.tasks_on(host)))
        return None if busy is None else max(0.0, busy - own)

    def stolen(self, host: str) -> float:
        """The share of the time of its processors that other guests of the machine took."""
        sample = self.hosts[host]
        return min(1.0, _share(sample["stolen_s"] or 0.0, sample["seconds"] * sample["cpus"]))

    def swapped(self, host: str) -> float:
        """Bytes a second."""
        return _share(self.hosts[host]["swapped_bytes"], self.hosts[host]["seconds"])

    def links(self, host: str) -> list[Link]:
        """Both directions of the interface that carries the most."""
        sample = self.hosts[host]
        found = [
            Link(sends, 8 * _share(carried, sample["seconds"]), one["bits_a_second"])
            for one in sample["interfaces"].values()
            for sends, carried in ((True, one["sent_bytes"]), (False, one["received_bytes"]))
        ]
        best = {sends: max((one for one in found if one.sends is sends), default=None) for sends in (True, False)}
        return [one for one in best.values() if one is not None]

    @cached_property
    def matrix(self) -> dict[tuple[str, str], float]:
        """Bytes a second from task to task, by the end that knows of more."""
        found: dict[tuple[str, str], float] = {}
        for sample in self.hosts.values():
            for flow in sample["flows"]:
                if flow["peer"] is not None:
                    task, peer = flow["task"], flow["peer"]
                    for pair, carried in (((task, peer), flow["sent_bytes"]), ((peer, task), flow["received_bytes"])):
                        found[pair] = max(found.get(pair, 0.0), _share(carried, sample["seconds"]))
        return found

    def received(self, task: str) -> float:
        """Bytes a second that a task receives from other tasks."""
        return sum(carried for (_, peer), carried in self.matrix.items() if peer == task)

    def exchanged(self, worker: str) -> float:
        """Bytes a second between a worker and the servers, as many in each of its steps."""
        pairs = [pair for server in self.servers for pair in ((worker, server), (server, worker))]
        return sum(self.matrix.get(pair, 0.0) for pair in pairs)

    def resent(self, host: str) -> Resent:
        """The segments to or from a host that its tasks or their peers have sent again."""
        resent = sent = seconds = 0.0
        rtt_us = 0
        for name, sample in self.hosts.items():
            for flow in sample["flows"]:
                if flow["host"] not in (None, name) and host in (name, flow["host"]):
                    resent += flow["resent"]
                    sent += flow["sent_bytes"]
                    rtt_us = max(rtt_us, flow["rtt_us"])
            seconds = max(seconds, sample["seconds"])
        segments = resent + sent / _SEGMENT_BYTES
        return Resent(_share(resent, segments), _share(resent, seconds), rtt_us / 1e6)

    def rtt_s(self, but: str) -> float | None:
        """The median of the round-trip times between other hosts than this one, in seconds; None: there are none."""
        known = [
            flow["rtt_us"] / 1e6
            for name, sample in self.hosts.items()
            for flow in sample["flows"]
            if flow["host"] not in (None, name, but) and name != but and flow["rtt_us"]
        ]
        return median(known) if known else None

    def elsewhere(self, task: str) -> float:
        """Bytes a second that a task receives from machines that are not of the run."""
        return self._sum(task, lambda flow: flow["host"] is None, "received_bytes")

    def carried(self, task: str) -> float:
        """Bytes a second that a task sends and receives."""
        return self._sum(task, lambda flow: True, "sent_bytes") + self._sum(task, lambda flow: True, "received_bytes")

    def _sum(self, task: str, fits: object, name: str) -> float:
        assert callable(fits)
        sample = self.hosts[self.places[task]]
        carried = sum(flow[name] for flow in sample["flows"] if flow["task"] == task and fits(flow))  # type: ignore[literal-required]
        return _share(carried, sample["seconds"])

    def under_way(self, task: str, peer: str) -> float | None:
        """The share of time in which data was on its way from one task to another; None: unknown.

        The sender knows. Where a host has several tasks, a server knows only the host that it answers.
        """
        sample = self.hosts[self.places[task]]
        own = [flow for flow in sample["flows"] if flow["task"] == task]
        exact = [flow for flow in own if flow["peer"] == peer]
        near = [flow for flow in own if flow["peer"] is None and flow["host"] == self.places.get(peer)]
        return _busy(exact or near, sample["seconds"])

    def waits_for(self, worker: str, server: str) -> float | None:
        """The share of a worker's time in which data was on its way to or from a server: one after the other."""
        both = [self.under_way(server, worker), self.under_way(worker, server)]
        known = [one for one in both if one is not None]
        return min(1.0, sum(known)) if known else None

    def waits_for_certain(self, worker: str, share: float | None) -> float | None:
        """The part of a share of data under way in which a worker does nothing else: not all of it is a wait."""
        return None if share is None else min(share, 1.0 - self.works(worker))

    def on_network(self, worker: str) -> float | None:
        """The share of a worker's time in which data was on its way to or from any other task, at most."""
        peers = self.servers or [task for task in self.workers if task != worker]
        known = [one for one in (self.waits_for(worker, peer) for peer in peers) if one is not None]
        return max(known) if known else None

    def computes(self, worker: str) -> tuple[float, float]:
        """The share of a worker's time in which it computes: at least, and at most.

        At least: as if it had used all processors that it could at once. At most: as if only one at a time.
        """
        gpu = self.gpu(worker)
        cpu = self.cpu(worker)
        cpus = max(1, self.hosts[self.places[worker]]["cpus"])
        least, most = min(1.0, max(cpu / cpus, self.thread(worker))), min(1.0, cpu)
        return (gpu, max(gpu, most)) if gpu is not None else (least, max(least, most))

    @property
    def rate(self) -> float | None:
        """Steps a second: of the worker that reports the most."""
        known = [use["rate"] for task, use in self.uses.items() if task in self.workers and use["rate"]]
        return max(known, default=None)


def _busy(flows: Sequence[Flow], seconds: float) -> float | None:
    known = [flow["busy_s"] for flow in flows if flow["busy_s"] is not None]
    return min(1.0, _share(max(known), seconds)) if known else None


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0

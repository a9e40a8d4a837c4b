"""Which tasks take part in an attempt of tasks that train together, and how each sees the others: pure functions.

Surplus tasks, and tasks of a host that was left out, take no part. The others are numbered without gaps, in their old
order: frameworks identify a task by its index in the list of its job.

Slots are the hosts to which `up` has given tasks. A run's spec is written once. If hosts were replaced, this module
computes the current roster, and the current tasks of this host, from it.
"""

from __future__ import annotations

from ..records.kinds import InvalidValue
from ..records.spec import Inventory, Member, added_by, batch_share, hosts_of, job_of, trainers_of
from .drains import needs_the_run, scaled_down
from .outcome import is_left_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Dict, Iterable, Iterator, List, Sequence

    from ..records.run_state import Intents
    from ..records.spec import Moved, Spec


class Gang:
    """Replaces marks about tasks that train together, as seen by one of them."""

    def __init__(self, roster: Sequence[Member], lead: str, task: str, without: Collection[str]) -> None:
        out = set(tasks_in(without))
        members = [one for one in roster if one["task"] not in out]
        self._task = task
        self._addresses: Dict[str, Dict[str, str]] = {}
        for member in members:
            self._addresses.setdefault(job_of(member["task"]), {})[member["task"]] = member["address"] or ""
        self._hosts = {member["task"]: member["host"] for member in members}
        self._ranks = [one for one in trainers_of(members, lead) if one in self._hosts]

    def name(self, mark: str) -> str:
        """The text that replaces a mark."""
        own = self._hosts.get(self._task)
        beside = [rank for rank in self._ranks if self._hosts[rank] == own]
        nodes = list(dict.fromkeys(self.address(rank, "HOST") for rank in self._ranks))
        if mark == "INDEX":
            return _place(list(self._addresses.get(job_of(self._task), ())), self._task)
        if mark == "RANK":
            return _place(self._ranks, self._task)
        if mark == "LOCAL_RANK":
            return _place(beside, self._task)
        if mark == "NODE":
            return _place(list(dict.fromkeys(self._hosts[rank] for rank in self._ranks)), own or "")
        if mark == "NODELIST":
            return ",".join(nodes)
        return str({"SIZE": len(self._ranks), "LOCAL_SIZE": len(beside), "NODES": len(nodes)}[mark])

    def address(self, task: str, part: str) -> str:
        address = self._addresses.get(job_of(task), {}).get(task, "")
        host, _, port = address.rpartition(":")
        return {"ADDRESS": address, "HOST": host.strip("[]"), "PORT": port}[part]

    def addresses(self, job: str) -> List[str]:
        return list(self._addresses.get(job, {}).values())

    def batch(self, whole: int) -> str:
        return str(batch_share(whole, self._task, self._ranks))


def _place(tasks: List[str], task: str) -> str:
    return str(tasks.index(task)) if task in tasks else ""


def ranges(tasks: Iterable[str]) -> List[str]:
    """Ranges such as worker:1-3, in the order of their indexes: each of a thousand tasks may list five hundred."""
    found: List[List[int]] = []
    jobs: List[str] = []
    for task in tasks:
        job, index = job_of(task), int(task.rpartition(":")[2])
        if jobs and jobs[-1] == job and found[-1][-1] == index - 1:
            found[-1][1:] = [index]
        else:
            jobs.append(job)
            found.append([index])
    return ["%s:%s" % (job, "-".join(map(str, ends))) for job, ends in zip(jobs, found)]


def tasks_in(some: Iterable[str]) -> Iterator[str]:
    for each in some:
        job, _, indexes = each.rpartition(":")
        first, _, last = indexes.partition("-")
        yield from ("%s:%d" % (job, index) for index in range(int(first), int(last or first) + 1))


def out_with(run: Inventory, host: str, intents: Intents) -> List[str]:
    """The tasks that take no part when this host is left out."""
    out = [task for task, intent in intents.items() if is_left_out(intent)]
    own = [one["task"] for one in run["roster"] if one["host"] == host and intents[one["task"]]["want"] != "stop"]
    return [*out, *(task for task in own if task not in out)]


def goes_on_without(run: Inventory, host: str, intents: Intents) -> bool:
    """Whether the run continues with fewer while the host is away (`min_workers`)."""
    return run["min_workers"] is not None and may_lack(run, out_with(run, host, intents))


def may_scale(run: Inventory, job: str, beyond: Collection[str], intents: Intents) -> bool:
    """Whether the job may be scaled so that these tasks are surplus; none of them is new if it grows."""
    held = scaled_down(job, intents)
    return all(task in held for task in beyond) or may_lack(run, out_beyond(job, beyond, intents))


def out_beyond(job: str, beyond: Collection[str], intents: Intents) -> List[str]:
    """The tasks that take no part when these tasks of a job are surplus."""
    held = scaled_down(job, intents)
    out = [task for task, intent in intents.items() if is_left_out(intent) and task not in held]
    return [*out, *(task for task in beyond if task not in out)]


def may_lack(run: Inventory, gone: Collection[str]) -> bool:
    """Whether the run can train without these tasks, possibly after a restart of all."""
    trains = trainers_of(run["roster"], run["lead"])
    left = [task for task in trains if task not in gone]
    needed = {one["task"] for one in run["roster"] if one["task"] in gone and needs_the_run(one, run["strategy"])}
    if needed:
        is_resized = run["resizes"] and run["lead"] not in needed and needed <= set(trains)
        if not is_resized or not set(map(job_of, needed)) <= set(map(job_of, left)):
            return False
    return len(left) == len(trains) or len(left) >= (run["min_workers"] or 1)


def with_moves(spec: Spec, moved: Moved) -> Spec:
    """The spec of `up`, after these moves. Raises InvalidValue if they cannot be of its run."""
    spec = _with_joined(spec, moved)
    slots = {slot: host for slot, host in moved["slots"].items() if host != slot}
    _check(spec, moved, slots)
    own = spec["host"]
    tasks = [] if own in slots else list(spec["tasks"])
    for slot in [slot for slot, host in slots.items() if host == own]:
        tasks += spec["slots"][slot]
    roster = [_placed(spec, member, slots) for member in with_added(spec["roster"], moved)]
    after: Spec = {**spec, "moved": moved, "tasks": tasks, "roster": roster}
    unknown = set(moved["bad"]).difference(hosts_of(after))
    if unknown:
        raise InvalidValue.at(("moved", "bad"), "hosts of the run", min(unknown))
    return after


def _with_joined(spec: Spec, moved: Moved) -> Spec:
    check_joined(spec, moved)
    if not moved["joined"]:
        return spec
    recovery = spec["recovery"]
    if recovery["replace_s"] is None:
        recovery = {**recovery, "replace_s": moved["replace_s"]}
    after: Spec = {**spec, "spares": {**moved["joined"], **spec["spares"]}, "recovery": recovery}
    return after


def check_joined(spec: Spec, moved: Moved) -> None:
    """Requires that hosts that have joined are no others of the run, and can take its tasks. Raises InvalidValue.

    `spec`: of `up`. That of a host that has joined lists it among its spares.
    """
    added = added_by(moved)
    new = {member["task"] for member in added}
    begun_with = [member for member in spec["roster"] if member["task"] not in new]
    tasks = {member["task"] for member in begun_with}
    others = {member["slot"] or member["host"] for member in begun_with}.union(spec["arbiters"])
    for host, spare in moved["joined"].items():
        known = spec["spares"].get(host)
        if not spec["movable"] or host in others or (known is not None and known != spare):
            raise InvalidValue.at(("moved", "joined", host), "a host that is new to a run whose tasks can move", host)
        if not tasks.issuperset(spare["addresses"]):
            raise InvalidValue.at(("moved", "joined", host, "addresses"), "tasks of the roster", [*spare["addresses"]])
        for member in spare["tasks"]:
            is_own = member["host"] == host and member["slot"] is None
            if not (is_own and spec["resizes"] and member["role"] == "worker"):
                place = ("moved", "joined", host, "tasks")
                raise InvalidValue.at(place, "its own workers, in a run whose tasks train together", member)
    _check_added(begun_with, added)


def _check_added(begun_with: Iterable[Member], added: Iterable[Member]) -> None:
    """Requires that added tasks continue the numbers of their jobs."""
    counts: Dict[str, int] = {}
    for member in begun_with:
        counts[job_of(member["task"])] = counts.get(job_of(member["task"]), 0) + 1
    for member in added:
        job = job_of(member["task"])
        if job not in counts or member["task"] != "%s:%d" % (job, counts[job]):
            expected = "the next task of a job, %s:%d" % (job, counts.get(job, 0))
            raise InvalidValue.at(("moved", "joined", member["host"], "tasks"), expected, member["task"])
        counts[job] += 1


def _placed(spec: Spec, member: Member, slots: Dict[str, str]) -> Member:
    host = slots.get(member["host"])
    if host is None:
        return member
    address = spec["spares"][host]["addresses"][member["task"]]
    return {**member, "host": host, "address": address, "slot": member["host"]}


def with_added(roster: Iterable[Member], moved: Moved) -> List[Member]:
    """The roster with the tasks of hosts that have joined at its end, in the same order on every host."""
    added = added_by(moved)
    new = {member["task"] for member in added}
    return [*(member for member in roster if member["task"] not in new), *added]


def _check(spec: Spec, moved: Moved, slots: Dict[str, str]) -> None:
    for slot, host in slots.items():
        tasks = [member["task"] for member in with_added(spec["roster"], moved) if member["host"] == slot]
        can = spec["spares"][host]["addresses"] if host in spec["spares"] else {}
        if not tasks or not all(task in can for task in tasks) or (host == spec["host"] and slot not in spec["slots"]):
            raise InvalidValue.at(("moved", "slots", slot), "a spare that can take this place", host)


def leaving(before: Spec, after: Spec) -> List[str]:
    """The tasks that this host no longer has."""
    kept = {task["id"] for task in after["tasks"]}
    return [task["id"] for task in before["tasks"] if task["id"] not in kept]

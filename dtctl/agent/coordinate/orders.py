"""Which orders the hosts were sent, which of them their agents have confirmed, and which they are sent now."""

from __future__ import annotations

from ..run.hangs import has_never_hung, trains_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Optional, Set, Tuple

    from ..records.messages import Orders
    from ..records.run_state import Intent
    from .view import View

    Jobs = Dict[str, "_Job"]


START_S = 30.0
STARTS = 2
"""A start of a task may take so many times as long as the lead's, and so many seconds, until it has done nothing."""


def first_steps(view: View, host: str, jobs: Optional[Jobs] = None) -> Dict[str, float]:
    """Of the tasks of a host that might have hung since their start: how long their peers took for the first step.

    `jobs`: what is found out about each job on the way, for other hosts that are asked after at the same moment.
    """
    jobs = {} if jobs is None else jobs
    found = {task: _peers_took(view, task, jobs) for task in view.tasks_on(host) if _has_told_nothing(view, task)}
    return {task: took_s for task, took_s in found.items() if took_s is not None}


def _has_told_nothing(view: View, task: str) -> bool:
    """Where every step needs every worker, a silent one takes part in what its peers report."""
    entry = view.entry(task)
    if entry["step"] is not None or entry["state"] != "running":
        return False
    return trains_alone(view.roster[task], view.spec["strategy"]) and has_never_hung(entry)


def _peers_took(view: View, task: str, jobs: Jobs) -> Optional[float]:
    """None where not every peer reports steps, unless it has never done anything while the lead trained."""
    lead_s = view.entry(view.lead)["first_step_s"]
    if lead_s and _has_done_nothing(view, task, lead_s):
        return lead_s
    name = task.partition(":")[0]
    if name not in jobs:
        jobs[name] = _Job(view, name)
    return jobs[name].others_took(task)


def _has_done_nothing(view: View, task: str, lead_s: float) -> bool:
    """Many programs let the lead alone speak. Who is idle since its start has not trained in silence either."""
    entry = view.entry(task)
    if entry["idle_since"] is None or entry["since"] is None:
        return False
    return entry["idle_since"] - entry["since"] <= START_S + STARTS * lead_s


class _Job:
    """Its workers, as they are now: they are gone through once, however many of them are asked after."""

    def __init__(self, view: View, name: str) -> None:
        alike = [task for task in view.with_role("worker") if task.partition(":")[0] == name]
        wanted = [task for task in alike if view.intents[task]["want"] == "run" and not view.final(task)]
        entries = {task: view.entry(task) for task in wanted}
        self._took = {task: entry["first_step_s"] for task, entry in entries.items()}
        self._silent = {task for task, entry in entries.items() if entry["step"] is None or not entry["first_step_s"]}

    def others_took(self, task: str) -> Optional[float]:
        """The longest; None where one has reported nothing, and where there are no others."""
        if len(self._silent) > (task in self._silent):
            return None
        return max((took_s for other, took_s in self._took.items() if other != task), default=None)


class OrderBook:
    """By this coordinator, since each host's last hello."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._versions: Dict[str, Dict[str, int]] = {}
        self._confirmed: Dict[str, Dict[str, int]] = {}
        self._beside: Dict[str, Tuple[bool, Dict[str, float], bool]] = {}
        """Whether the run recovers, first steps, and whether anything may be started."""
        self._over: Set[str] = set()

    def forget(self, host: str, may_start: bool) -> None:
        """`may_start`: as in the host's welcome."""
        self._versions[host] = {}
        self._over.discard(host)
        self._beside[host] = (False, {}, may_start)

    def confirm(self, host: str, offered: Mapping[str, Intent]) -> None:
        """What the agent there holds itself to, whoever has asked it for that."""
        self._confirmed[host] = _versions(offered)
        sent = self._versions.setdefault(host, {})
        sent.update({task: max(version, sent.get(task, 0)) for task, version in _versions(offered).items()})

    def is_confirmed(self, host: str) -> bool:
        """The agent there has confirmed everything that is wanted of its tasks."""
        known = self._confirmed.get(host, {})
        return all(known.get(task, 0) >= self._view.intents[task]["version"] for task in self._view.tasks_on(host))

    def that_all_is_over(self, host: str) -> bool:
        return host in self._over

    def news(self, *, recovering: bool, may_go: Callable[[str], bool], may_start: bool) -> List[Tuple[str, Orders]]:
        """What has not been sent yet to hosts that can be reached; it counts as sent then."""
        hosts = [host for host, known in self._view.hosts.items() if known["connected"]]
        jobs: Jobs = {}
        return [
            (host, orders) for host in hosts for orders in self._orders(host, recovering, may_start, may_go(host), jobs)
        ]

    def _orders(self, host: str, recovering: bool, may_start: bool, over: bool, jobs: Jobs) -> List[Orders]:
        sent = self._versions.setdefault(host, {})
        wanted, tasks = self._view.intents, self._view.tasks_on(host)
        intents = {task: wanted[task].copy() for task in tasks if wanted[task]["version"] > sent.get(task, 0)}
        steps = first_steps(self._view, host, jobs)
        beside = (recovering, steps, may_start)
        if not intents and (host in self._over or not over) and beside == self._beside.get(host, (False, {}, True)):
            return []
        self._beside[host] = beside
        sent.update(_versions(intents))
        if over:
            self._over.add(host)
        return [
            {
                "type": "orders",
                "intents": intents,
                "mending": recovering,
                "first_steps": steps,
                "may_start": may_start,
                "over": over,
            }
        ]


def _versions(intents: Mapping[str, Intent]) -> Dict[str, int]:
    return {task: intent["version"] for task, intent in intents.items()}

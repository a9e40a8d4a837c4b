"""What the hosts have been told, what of it their agents have confirmed, and what they are to be told now."""

from __future__ import annotations

from . import peers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Set, Tuple

    from ..records.messages import Orders
    from ..records.run_state import Intent
    from .view import View


class Told:
    """By this coordinator, since each host's last hello."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._versions: Dict[str, Dict[str, int]] = {}
        self._confirmed: Dict[str, Dict[str, int]] = {}
        self._beside: Dict[str, Tuple[bool, Dict[str, float], bool]] = {}
        """Whether somebody is mended, first steps, and whether anything may be started."""
        self._over: Set[str] = set()

    def forget(self, host: str, may_start: bool) -> None:
        """`may_start`: as the host's welcome says."""
        self._versions[host] = {}
        self._over.discard(host)
        self._beside[host] = (False, {}, may_start)

    def confirm(self, host: str, offered: Mapping[str, Intent]) -> None:
        """What the agent there holds itself to, whoever has asked it for that."""
        self._confirmed[host] = _versions(offered)
        told = self._versions.setdefault(host, {})
        told.update({task: max(version, told.get(task, 0)) for task, version in _versions(offered).items()})

    def is_confirmed(self, host: str) -> bool:
        """The agent there has said that it knows of everything that is wanted of its tasks."""
        known = self._confirmed.get(host, {})
        return all(known.get(task, 0) >= self._view.intents[task]["version"] for task in self._view.tasks_on(host))

    def that_all_is_over(self, host: str) -> bool:
        return host in self._over

    def news(self, *, mending: bool, may_go: Callable[[str], bool], may_start: bool) -> List[Tuple[str, Orders]]:
        """What hosts that can be reached have not been told yet; they count as told then."""
        hosts = [host for host, known in self._view.hosts.items() if known["connected"]]
        jobs: peers.Jobs = {}
        return [
            (host, orders) for host in hosts for orders in self._orders(host, mending, may_start, may_go(host), jobs)
        ]

    def _orders(self, host: str, mending: bool, may_start: bool, over: bool, jobs: peers.Jobs) -> List[Orders]:
        told = self._versions.setdefault(host, {})
        wanted, tasks = self._view.intents, self._view.tasks_on(host)
        intents = {task: wanted[task].copy() for task in tasks if wanted[task]["version"] > told.get(task, 0)}
        first_steps = peers.first_steps(self._view, host, jobs)
        beside = (mending, first_steps, may_start)
        if not intents and (host in self._over or not over) and beside == self._beside.get(host, (False, {}, True)):
            return []
        self._beside[host] = beside
        told.update(_versions(intents))
        if over:
            self._over.add(host)
        return [
            {
                "type": "orders",
                "intents": intents,
                "mending": mending,
                "first_steps": first_steps,
                "may_start": may_start,
                "over": over,
            }
        ]


def _versions(intents: Mapping[str, Intent]) -> Dict[str, int]:
    return {task: intent["version"] for task, intent in intents.items()}

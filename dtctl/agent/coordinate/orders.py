"""The orders that each host was sent and has confirmed, those to send now, and those that wait.

Orders wait while a majority of the voters does not hold the decisions that they follow from.
"""

from __future__ import annotations

from ..host import errors
from ..run.hangs import has_never_hung, trains_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

    from ..records.messages import Orders
    from ..records.run_state import Entry, Intent
    from ..records.spec import Moved
    from ..records.whole_run import RunView
    from .view import View
    from .voting import Voter


NOBODY: Mapping[str, float] = {}
START_S = 30.0
STARTS = 2
"""A start of a task may take so many times as long as the lead's, and so many seconds, until it has done nothing."""


def first_steps(view: View) -> Dict[str, float]:
    """Task that may have hung since its start -> how long its peers took for the first step.

    A task is left out if not every peer reports steps, unless it has done nothing at all while the lead trained.
    """
    found: Dict[str, float] = {}
    jobs: Dict[str, Tuple[Set[str], float]] = {}
    lead_s = view.entry(view.lead)["first_step_s"]
    for task in view.with_role("worker"):
        entry = view.entry(task)
        if not _is_silent(view, task, entry):
            continue
        if lead_s and _has_done_nothing(entry, lead_s):
            found[task] = lead_s
            continue
        job = task.partition(":")[0]
        if job not in jobs:
            jobs[job] = _peers(view, job)
        silent, longest_s = jobs[job]
        if longest_s and silent <= {task}:
            found[task] = longest_s
    return found


def _is_silent(view: View, task: str, entry: Entry) -> bool:
    """Whether its silence may be a hang: where every step needs every worker, it takes part in its peers' steps."""
    if entry["step"] is not None or entry["state"] != "running":
        return False
    return trains_alone(view.roster[task], view.spec["strategy"]) and has_never_hung(entry)


def _has_done_nothing(entry: Entry, lead_s: float) -> bool:
    """Whether a task is idle since its start. Otherwise it may train: in many programs only the lead reports steps."""
    if entry["idle_since"] is None or entry["since"] is None:
        return False
    return entry["idle_since"] - entry["since"] <= START_S + STARTS * lead_s


def _peers(view: View, job: str) -> Tuple[Set[str], float]:
    """The workers of a job that have reported no step, and the longest first step of the others."""
    alike = [task for task in view.with_role("worker") if task.partition(":")[0] == job]
    wanted = {task: view.entry(task) for task in alike if view.intents[task]["want"] == "run" and not view.final(task)}
    took = {task: entry["first_step_s"] for task, entry in wanted.items() if entry["step"] is not None}
    return {task for task in wanted if not took.get(task)}, max(took.values(), default=0.0)


_AT_FIRST: Mapping[str, Any] = {
    "recovering": False,
    "first_steps": {},
    "left_behind": {},
    "may_start": True,
    "kept": True,
}
"""The values that an agent assumes for the fields other than intents."""


class OrderBook:
    """The orders that this coordinator has sent since each host's last hello."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._versions: Dict[str, Dict[str, int]] = {}
        self._confirmed: Dict[str, Dict[str, int]] = {}
        self._beside: Dict[str, Mapping[str, Any]] = {}
        """The fields other than intents that each host was sent last."""
        self._over: Set[str] = set()

    def forget(self, host: str, *, kept: bool) -> None:
        """`kept`: as in the host's hello. Until its orders have come the host starts nothing, if it was restarted."""
        self._versions[host] = {}
        self._over.discard(host)
        self._beside[host] = {**_AT_FIRST, "may_start": False, "kept": kept}

    def confirm(self, host: str, offered: Mapping[str, Intent]) -> None:
        """The intents that the agent there follows, whether they are this coordinator's or a person's."""
        self._confirmed[host] = _versions(offered)
        sent = self._versions.setdefault(host, {})
        sent.update({task: max(version, sent.get(task, 0)) for task, version in _versions(offered).items()})

    def is_confirmed(self, host: str) -> bool:
        """The agent there has confirmed everything that is wanted of its tasks."""
        known = self._confirmed.get(host, {})
        return all(known.get(task, 0) >= self._view.intents[task]["version"] for task in self._view.tasks_on(host))

    def is_over(self, host: str) -> bool:
        return host in self._over

    def news(
        self,
        *,
        recovering: bool,
        done: Collection[str],
        may_start: bool,
        kept: bool,
        behind: Mapping[str, float] = NOBODY,
        awaits: Sequence[str] = (),
    ) -> List[Tuple[str, Orders]]:
        """New orders for connected hosts, which count as sent then. `done`: hosts that may leave the run.

        `behind`: tasks that a cut may have left hanging. `awaits`: hosts that those which leave need not wait for, and
        others will.
        """
        steps = first_steps(self._view)
        found = []
        for host in [host for host, known in self._view.hosts.items() if known["connected"]]:
            own = {task: steps[task] for task in self._view.tasks_on(host) if task in steps}
            left = {task: behind[task] for task in self._view.tasks_on(host) if task in behind}
            beside = {"recovering": recovering, "first_steps": own, "may_start": may_start, "kept": kept}
            beside["left_behind"] = left
            orders = self._orders(host, beside, host in done)
            if orders is not None:
                orders["awaits"] = list(awaits) if orders["over"] else []
                found.append((host, orders))
        return found

    def _orders(self, host: str, beside: Mapping[str, Any], over: bool) -> Optional[Orders]:
        sent = self._versions.setdefault(host, {})
        wanted, tasks = self._view.intents, self._view.tasks_on(host)
        intents = {task: wanted[task].copy() for task in tasks if wanted[task]["version"] > sent.get(task, 0)}
        if not intents and (host in self._over or not over) and beside == self._beside.get(host, _AT_FIRST):
            return None
        self._beside[host] = beside
        sent.update(_versions(intents))
        if over:
            self._over.add(host)
        orders: Any = {"type": "orders", "intents": intents, "over": over, **beside}
        return orders  # type: ignore[no-any-return]


def _versions(intents: Mapping[str, Intent]) -> Dict[str, int]:
    return {task: intent["version"] for task, intent in intents.items()}


PUBLISH_S = 8.0
"""The interval between two memos if there is no decision."""


class Commits:
    """Holds orders until a majority of voters has their decision, if others may be elected. `voter`: of this host."""

    def __init__(self, voter: Voter, now: float) -> None:
        self._voter = voter
        self._published = (0, 0)
        self._publish_at = now
        self._moves = 0
        self._held: List[Tuple[Tuple[int, int], str, Orders]] = []
        """Held orders, each with the version of the memo that contains its decision."""
        self._end: Optional[Tuple[int, int]] = None
        """The first version in which the outcome is decided."""

    def publish(self, view: RunView, now: float, *, at_once: bool) -> None:
        """Publishes the view to the voters, one of which would be the next coordinator."""
        if not self._voter.election.leads or not (at_once or now >= self._publish_at):
            return
        try:
            self._published = self._voter.publish(view, now)
            self._moves = view["moved"]["number"]
        except OSError as error:
            errors.note("memo: %s" % error)
        self._publish_at = now + PUBLISH_S

    def has_published(self, moved: Moved) -> bool:
        return self._moves >= moved["number"]

    def has(self, moved: Moved) -> bool:
        """Whether a majority holds these moves, so that the next coordinator knows them."""
        return self.has_published(moved) and self._voter.election.committed >= self._published > (0, 0)

    @property
    def knows_end(self) -> bool:
        return self._end is not None

    def note_end(self) -> None:
        """The outcome is decided, as the newest memo says."""
        self._end = self._published

    def waits(self, now: float) -> bool:
        """Whether orders that are given now wait for the voters."""
        return bool(self._held) or self._awaits_voters(now)

    def hold(self, host: str, message: Orders) -> None:
        self._held.append((self._published, host, message))

    def released(self, view: View, decided: bool, now: float) -> Iterator[Tuple[str, Orders]]:
        """The held orders to send now."""
        while self._held and self._voter.election.committed >= self._held[0][0]:
            _, host, message = self._held.pop(0)
            yield host, message
        if self._held and decided and not self._awaits_voters(now):
            held, self._held = self._held, []
            for _, host, message in held:  # tasks that were to be started before must end now
                intents = {task: view.intents[task].copy() for task in message["intents"]}
                yield host, {**message, "intents": intents}

    def _awaits_voters(self, now: float) -> bool:
        """Whether new orders must wait for the voters.

        They do not without a lease, as then nothing is started, nor once a majority knows the outcome: ever fewer
        voters remain, because hosts without tasks leave.
        """
        if not self._voter.election.has_lease(now):
            return False
        return self._end is None or self._voter.election.committed < self._end

"""What is wanted of each task: the rule by which intents are merged, and intent.json as the supervisor follows it."""

from __future__ import annotations

from ..host import errors, paths, processes
from ..records.reasons import Fact, because, why_of
from . import drains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    from ..records.run_state import Intent, IntentFile, Intents
    from .runfiles import RunFiles


AWAIT_S = 86400.0
"""How long the agents of a run that was ended wait for one that was away, or for the coordinator, to come."""


def change(intent: Intent, **fields: Any) -> None:
    """Changes one task's intent. Every change must go through here, because the version counts them."""
    changed: Any = dict(fields, version=intent["version"] + 1)
    intent.update(changed)


def stopped(held: Mapping[str, Intent], *, by: str, why: Fact) -> Intents:
    """Orders to stop all that is not stopped yet."""
    orders = {task: intent.copy() for task, intent in held.items() if intent["want"] != "stop"}
    for intent in orders.values():
        change(intent, want="stop", by=by, **because([why]))
    return orders


def newer(mine: Mapping[str, Intent], theirs: Mapping[str, Intent]) -> Dict[str, Intent]:
    """The intents in `theirs` that override `mine`: the one with the higher version wins."""
    return {task: each for task, each in theirs.items() if task in mine and each["version"] > mine[task]["version"]}


def contradicted(mine: Mapping[str, Intent], theirs: Mapping[str, Intent]) -> List[str]:
    """Tasks of which `theirs` holds something else with the same version."""
    same = [task for task, each in theirs.items() if task in mine and each["version"] == mine[task]["version"]]
    return [task for task in same if wish(theirs[task]) != wish(mine[task])]


def wish(intent: Intent) -> Tuple[object, ...]:
    """What an intent demands, without its origin."""
    return intent["want"], intent["generation"], drains.is_drained(intent)


def is_cancelled(wanted: Mapping[str, Intent]) -> bool:
    """Whether the coordinator's host, or this one, has taken back the start."""
    return bool(wanted) and all(
        intent["want"] == "stop" and {"rolled_back", "session_lost"} & {one["kind"] for one in why_of(intent)}
        for intent in wanted.values()
    )


class IntentFollower:
    """intent.json, read again when it has changed, and the orders from elsewhere that belong in it.

    An order holds as soon as it is taken; on a full disk it is written later. A file that is damaged is
    put aside, and what is followed is written in its place, as that of a run that is kept: what was damaged may have
    been kept. Raises only when there has never been anything to follow.
    """

    def __init__(
        self, files: RunFiles, fallback: Optional[IntentFile] = None, report: Callable[[str], None] = errors.note
    ) -> None:
        """`fallback` is followed where the file is damaged from the beginning. `report` receives every damage."""
        self.report = report
        self.lost_session = False
        """The session that began the run ended before it was kept."""
        self._files = files
        self._seen: object = None
        self._unwritten: Intents = {}
        self._keeps = False
        """Kept by `keep`, which is not on the disk yet."""
        self._tasks = list(fallback["tasks"]) if fallback is not None else []
        try:
            self.value = self._on_disk()
        except paths.Damaged:
            if fallback is None:
                raise
            self.value = fallback
            self._replace_damaged()

    def read(self) -> None:
        try:
            self._follow()
        except OSError as error:
            errors.note("intent: %s" % error)
        if self._unwritten or self._keeps:
            self._write()

    def _follow(self) -> None:
        try:
            self._refresh()
            session = self.value["session"]
            if session is not None and not self._keeps and processes.find(session) is None:
                self._refresh()  # the last that it did may have been to write that the run is kept
                self.lost_session = self.value["session"] is not None
        except paths.Damaged:
            self._replace_damaged()

    def _refresh(self) -> None:
        seen = paths.version(self._files.intent_path)
        if seen is None or seen != self._seen:
            self.value = self._on_disk()
            self.lost_session = False
            self._seen = seen

    def take(self, orders: Mapping[str, Intent]) -> bool:
        """True when there was anything new in them."""
        valid = newer(self.value["tasks"], orders)
        if valid:
            self._unwritten.update(valid)
            self._write()
        return bool(valid)

    def keep(self) -> bool:
        """The run is kept, even without its session. True when no session is left that could see to the rest."""
        was_lost, self.lost_session = self.lost_session, False
        if self.value["session"] is not None:
            self._keeps = True
            self._write()
        return was_lost

    def settled(self) -> bool:
        """True when intent.json matches what is followed; call it with the intent lock held."""
        try:
            return not (self._unwritten or self._keeps) and self._on_disk()["serial"] == self.value["serial"]
        except paths.Damaged:
            return False

    def _on_disk(self) -> IntentFile:
        intent = self._files.intent()
        lacking = [task for task in self._tasks if task not in intent["tasks"]]
        if lacking:
            raise paths.Damaged("%s is damaged: it has no intent for %s" % (self._files.intent_path, lacking[0]))
        return intent

    def _replace_damaged(self) -> None:
        with self._files.intent_lock():
            try:
                self.value = self._on_disk()  # a session has written since
            except paths.Damaged as damage:
                self.value["serial"] += 1
                if not self.lost_session:
                    self.value["session"] = None
                done = self._files.replace_damaged(self._files.intent_path, self.value)
                self.report("%s; %s" % (damage, done))
        self._seen = None

    def _write(self) -> None:
        try:
            with self._files.intent_lock():
                intent = self._on_disk()
                orders = newer(intent["tasks"], self._unwritten)
                intent["tasks"].update(orders)
                if self._keeps:
                    intent["session"] = None
                if orders or self._keeps:
                    intent["serial"] += 1
                    urgent = any(order["want"] == "stop" for order in orders.values())
                    self._files.write_intent(intent, urgent)
            self._unwritten, self._keeps = {}, False
            self.value = intent
            self._seen = None  # a session may have written since: the next reading shows
        except (OSError, paths.Damaged) as error:
            errors.note("intent: %s" % error)
            self.value["tasks"].update(newer(self.value["tasks"], self._unwritten))

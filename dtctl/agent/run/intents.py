"""The intents of tasks: the rule by which they are merged, and intent.json as the supervisor follows it.

At the end: orders that an agent gives its own tasks when its host shuts down, is cut off, or was replaced. Then it
stops tasks that its host no longer has, and the next agent starts with the rest.
"""

from __future__ import annotations

from ..host import errors, paths, processes
from ..records.kinds import InvalidValue, made
from ..records.reasons import Fact, because, fact
from ..records.run_state import RunEnd
from ..records.values import FINAL
from . import drains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple

    from ..records.run_state import Entries, How, Intent, IntentFile, Intents
    from ..records.spec import Moved, Spec
    from ..records.values import HoldKind
    from .runfiles import RunFiles

AWAIT_S = 86400.0
"""How long the agents of an ended run wait for an unreachable one, or for the coordinator, to reconnect."""


def change(intent: Intent, **fields: Any) -> None:
    """Changes one task's intent. Every change must go through here, because the version counts them.

    An order without holds, or without an end of the run, ends those of the order before. What is known of a bad host
    outlives the run, for the next one.
    """
    if "want" in fields:
        ends = fields["want"] in ("stop", "finish")
        holds = [one for one in intent["holds"] if ends and drains.is_bad([one])]
        fields = {"holds": holds, "released": None, "ends_as": None, **fields}
    changed: Any = dict(fields, version=intent["version"] + 1)
    intent.update(changed)


def stopped(held: Mapping[str, Intent], *, by: str, why: Fact, ends_as: Optional[RunEnd] = None) -> Intents:
    """Orders to stop all that is not stopped yet."""
    orders = {task: intent.copy() for task, intent in held.items() if intent["want"] != "stop"}
    for intent in orders.values():
        change(intent, want="stop", by=by, ends_as=ends_as, **because([why]))
    return orders


def to_end(held: Mapping[str, Intent], tasks: Collection[str], how: How, *, ends_run: bool) -> Intents:
    """A person's request: the tasks are to stop, and with `ends_run` the whole run, as each of `held` says then."""
    orders = {task: intent.copy() for task, intent in held.items() if task in tasks or ends_run}
    for task, intent in orders.items():
        stop: Dict[str, Any] = {"want": "stop", **how} if task in tasks else {}
        change(intent, **stop, **({"ends_run": how} if ends_run else {}))
    return orders


def newer(mine: Mapping[str, Intent], theirs: Mapping[str, Intent]) -> Dict[str, Intent]:
    """The intents in `theirs` that override `mine`: the one with the higher version wins."""
    return {task: each for task, each in theirs.items() if task in mine and each["version"] > mine[task]["version"]}


def contradicted(mine: Mapping[str, Intent], theirs: Mapping[str, Intent]) -> List[str]:
    """Tasks with the same version in both, but different intents."""
    same = [task for task, each in theirs.items() if task in mine and each["version"] == mine[task]["version"]]
    return [task for task in same if wish(theirs[task]) != wish(mine[task])]


def wish(intent: Intent) -> Tuple[object, ...]:
    """The content of an intent, without its origin."""
    return intent["want"], intent["generation"], drains.is_drained(intent)


ABANDONED = made(RunEnd, outcome="Stopped", start="abandoned")
CANCELLED = made(RunEnd, outcome="Stopped", start="cancelled")


def is_cancelled(wanted: Mapping[str, Intent]) -> bool:
    """Whether the coordinator's host, or this one, has cancelled the start."""
    given = [intent["ends_as"] for intent in wanted.values() if intent["want"] == "stop"]
    starts = [one["start"] if one is not None else None for one in given]
    return 0 < len(given) == len(wanted) and all(start in ("cancelled", "abandoned") for start in starts)


class IntentFollower:
    """Reads intent.json again when it has changed, and adds orders of the coordinator to it.

    An order applies at once; on a full disk it is written later. A damaged file is set aside, and the followed intents
    are written in its place, as for a kept run, since the damaged one may have been kept. Raises only if there has
    never been an intent to follow.
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
        self._known: Intents = {}
        """The intents in the file when it was last read or written here."""
        try:
            self.value = self._on_disk()
            self._note_known(self.value)
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
            self._put_requests_first(self.value)
            self.lost_session = False
            self._seen = seen

    def take(self, orders: Mapping[str, Intent]) -> bool:
        """Takes newer orders; returns whether there were any."""
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

    def _put_requests_first(self, intent: IntentFile) -> None:
        """What a session has written since the file was last read comes after orders that are not in the file: it has
        read an older intent than the one that is followed.
        """
        for task, order in self._unwritten.items():
            found, before = intent["tasks"].get(task), self._known.get(task)
            if found and before and before["version"] < found["version"] <= order["version"]:
                generation = order["generation"] + max(0, found["generation"] - before["generation"])
                latest: Any = {**found, "version": order["version"] + 1, "generation": generation}
                self._unwritten[task] = latest
        self._note_known(intent)

    def _note_known(self, intent: IntentFile) -> None:
        self._known = {task: one.copy() for task, one in intent["tasks"].items()}

    def settled(self) -> bool:
        """Whether intent.json matches the followed intents; call it with the intent lock held."""
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
                self._put_requests_first(intent)
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
            self._note_known(intent)
            self._seen = None  # a session may have written since: the next reading shows
        except (OSError, paths.Damaged) as error:
            errors.note("intent: %s" % error)
            self.value["tasks"].update(newer(self.value["tasks"], self._unwritten))


GRACE_S = 75.0
"""The longest grace period of trainers when their host shuts down.

The agent receives SIGTERM then: its tasks save and end, and are held until an agent starts again. The system sends
SIGTERM to the trainers at the same moment, and all that is left is killed after 90 s (DefaultTimeoutStopSec of
systemd). So the agent holds its tasks by itself, and the coordinator learns it from that.
"""

LIMIT_S = 85.0
REPORT_S = 2.0
"""The time within which the reports to the coordinator are sent, and its orders received."""


def to_leave(spec: Spec, wanted: Intents, entries: Entries) -> Intents:
    """The intents that end the tasks of this host and hold them."""
    return to_hold(drains.SHUTTING_DOWN, min(spec["grace_s"], GRACE_S), spec, wanted, entries)


def to_hold(kind: HoldKind, grace_s: float, spec: Spec, wanted: Intents, entries: Entries) -> Intents:
    """The same for a reason of this kind."""
    members = {member["task"]: member for member in spec["roster"]}
    orders: Intents = {}
    for task, intent in wanted.items():
        if intent["want"] in ("run", "hold") and not drains.is_drained(intent):
            fields = drains.hold(intent, entries[task], gang=members[task]["scope"] == "gang")
            fields.update(holds=[drains.of_host(kind, spec["host"], spec["host"])], grace_s=grace_s, by=spec["host"])
            orders[task] = intent.copy()
            change(orders[task], **fields, **because([fact(kind, host=spec["host"])]))
    return orders


def to_return(spec: Spec, wanted: Intents) -> Intents:
    """Orders that undo `to_leave`: the coordinator lets the tasks run."""
    members = {member["task"]: member for member in spec["roster"]}
    orders: Intents = {}
    for task, intent in wanted.items():
        one = drains.holders({task: intent}).get(spec["host"])
        if one is not None and one["kind"] == drains.SHUTTING_DOWN:
            fields = drains.release(intent, spec["host"], members[task], spec["strategy"])
            orders[task] = intent.copy()
            change(orders[task], **fields, by=spec["host"], grace_s=None)
    return orders


def has_left(entries: Entries, since: float, now: float) -> bool:
    """Whether the agent may end: nothing runs, and that is reported, or the system is about to kill it."""
    going = any(entry["state"] not in (*FINAL, "pending", "backoff") for entry in entries.values())
    return now - since >= (LIMIT_S if going else REPORT_S)


def to_move(files: RunFiles, spec: Spec, moved: Moved, wanted: Intents) -> Optional[Intents]:
    """The intents that stop tasks the host no longer has, at once: other hosts may have them. None for invalid moves.

    The answer contains them also when they are already obeyed.
    """
    from . import gang  # few runs have spares

    try:
        leaving = set(gang.leaving(spec, gang.with_moves(files.original(), moved)))
    except InvalidValue as wrong:
        errors.note("moves: %s" % wrong)
        return None
    held = {task: intent for task, intent in wanted.items() if task in leaving}
    ended = stopped(held, by="coordinator", why=fact("moved_away", host=spec["host"]))
    for intent in ended.values():
        intent["grace_s"] = 0.0
    return {**held, **ended}


def write_moves(files: RunFiles, moved: Moved) -> bool:
    """Whether the next agent will read it."""
    try:
        files.write_moved(moved)
    except OSError as error:  # a full disk: later
        errors.note("moves: %s" % error)
        return False
    return True

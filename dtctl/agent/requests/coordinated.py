"""A run as a whole, on its coordinator's host: sessions read cluster.json, ask by requests.json, and wait."""

from __future__ import annotations

import time

from ..host import fifo, paths
from ..host.errors import Refused, damaged
from ..records.answers import MOST_PROCESSES
from ..records.reasons import because, fact
from ..records.spec import inventory_of
from ..records.whole_run import MOST_REQUESTS, RequestBook, RunView
from ..run import outcome, policy
from . import runs
from .seen import SeenRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..protocol.conversation import Conversation
    from ..records.answers import RestartResult, RunResult, States, StopResult, Survivor
    from ..records.requests import RestartRequest, StopRequest, WatchRequest
    from ..records.run_state import Entry, State
    from ..records.spec import Spec
    from ..records.whole_run import Contact, PostedRequest

BIRTH_LIMIT_S = 10.0
"""How long a coordinator that has just been started may take to write its first cluster.json."""

REACH_S = 5.0
"""How long an agent that is away is waited for; a revived coordinator is dialled again within that time, as a rule."""

AWAY_S = 30.0
"""A decided run counts as over although a host has not been heard for this long."""

SILENT_S = 30.0
"""A coordinator writes cluster.json three times as often, whether anything has changed or not."""

ANSWER_S = 10.0
"""A coordinator that has not looked at its requests by then is frozen, or hangs on a disk."""

END_LIMIT_S = 15.0
RESTART_LIMIT_S = 60.0


class WholeRun:
    """All tasks of a run, as its coordinator knows them. Raises Refused on a host that does not coordinate it."""

    def __init__(self, talk: Conversation, run: runs.Run) -> None:
        self.id = run.id
        self.grace_s = run.spec["grace_s"]
        self.hosts = {member["task"]: member["host"] for member in run.spec["roster"]}
        self._talk = talk
        self._run = run
        self._seen = SeenRecord(run.files.path("cluster.json"), RunView)
        self._problem = ""
        if not coordinates(run):
            raise Refused("not_coordinator", "this host does not coordinate run %s" % run.id)
        self.inventory = inventory_of(run.spec)

    def view(self) -> RunView:
        """cluster.json, of a coordinator that is alive unless the run has ended: what a dead one has left is old."""
        since = 0.0 if self._run.supervised() or self._run.finished() else time.time()
        self._run.keep_supervised()
        deadline = time.monotonic() + BIRTH_LIMIT_S
        found = self.peek()
        while found is None or found["time"] < since:
            if time.monotonic() > deadline and self._problem:
                raise damaged(self._problem)
            if time.monotonic() > deadline:
                raise Refused("internal", "the coordinator does not start", paths.tail(self._run.files.agent_log))
            time.sleep(0.02)
            found = self.peek()
        silent_s = time.time() - found["time"]
        if silent_s > SILENT_S and not self._run.finished():
            raise Refused("not_answering", "the coordinator has shown no sign of life for %.0f s" % silent_s)
        return found

    def peek(self) -> Optional[RunView]:
        """cluster.json as it is; None before the coordinator has written one, or again one that holds."""
        try:
            found = self._seen.read()
        except paths.Damaged as problem:
            self._problem = str(problem)
            return None
        self._problem = ""
        return found

    def tasks(self, named: Optional[List[str]]) -> List[str]:
        """The ids that are named, in the order of the roster; None means all. Refuses those that are not there."""
        unknown = [task for task in named or [] if task not in self.hosts]
        if unknown:
            raise Refused("bad_request", "%s: no such task in run %s" % (", ".join(unknown[:10]), self.id))
        return [task for task in self.hosts if named is None or task in named]

    def entry(self, view: RunView, task: str) -> Optional[Entry]:
        """The task as its agent last told it; None when its host has never been heard."""
        state = self._contact(view, task)["state"]
        return state["tasks"].get(task) if state else None

    def _contact(self, view: RunView, task: str) -> Contact:
        return view["hosts"].get(self.hosts[task]) or _NONE_YET

    def has_ended(self, view: RunView, task: str) -> bool:
        entry = self.entry(view, task)
        return entry is not None and entry["state"] in policy.FINAL

    def is_over(self, view: RunView, now: float) -> bool:
        """Nothing runs any more, but for tasks of hosts that have been away for long: those end when they are back."""
        contacts = view["hosts"].values()
        decided = view["condition"]["type"] in outcome.DECIDED
        return decided and not any(
            (contact["connected"] or now - (contact["heard"] or 0) < AWAY_S) and not _all_final(contact["state"])
            for contact in contacts
        )

    def unreached(self, view: RunView, tasks: List[str]) -> List[str]:
        """Hosts of these tasks that the coordinator has no contact with."""
        return list(dict.fromkeys(self.hosts[task] for task in tasks if not self._contact(view, task)["connected"]))

    def post(self, request: PostedRequest) -> int:
        """Lays a request before the coordinator, which carries it out whatever becomes of this session; its serial."""
        files = self._run.files
        path = files.path("requests.json")
        with files.intent_lock():
            book = _book(path)
            view = self.peek()
            done = view["request_serial"] if view is not None else 0
            open_ = [one for one in book["requests"] if one["serial"] > done]
            if len(open_) >= MOST_REQUESTS:
                raise Refused("not_answering", "the coordinator has not taken the last %d requests" % len(open_))
            request["serial"] = max(book["serial"], done) + 1
            now: RequestBook = {"serial": request["serial"], "requests": [*open_, request]}
            files.write_urgent(path, now)
            fifo.ring(files.wake_path)
        self._run.supervise()
        return request["serial"]

    def until(self, done: Callable[[RunView], bool], limit_s: float) -> bool:
        """Whether cluster.json came to be so in time. A coordinator that is killed is replaced. Raises as `pause`."""

        def look() -> bool:
            self._run.keep_supervised()
            view = self.peek()
            return view is not None and done(view)

        return self._talk.wait(look, limit_s)


def _book(path: str) -> RequestBook:
    """Reads requests.json. A damaged one is put aside: nobody can carry out what was in it."""
    try:
        book = paths.read_record(path, RequestBook)
    except paths.Damaged:
        paths.put_aside(path)
        book = None
    return book or {"serial": 0, "requests": []}


_NONE_YET: Contact = {"connected": False, "heard": None, "over": False, "state": None}
"""What the coordinator has of a host that it does not tell of."""


def leads(spec: Spec) -> bool:
    """Whether the lead task, which restores and saves, is on this host, and with it the coordinator."""
    return coordinators_port(spec) is not None


def coordinators_port(spec: Spec) -> Optional[int]:
    """None on the hosts that it does not listen on."""
    coordinator = spec["coordinator"]
    return coordinator["port"] if coordinator is not None and coordinator["host"] == spec["host"] else None


def coordinates(run: runs.Run) -> bool:
    """Whether this host's supervisor decides for the run."""
    return leads(run.spec)


def _all_final(state: Optional[State]) -> bool:
    return state is not None and all(entry["state"] in policy.FINAL for entry in state["tasks"].values())


def watch(talk: Conversation, request: WatchRequest) -> RunResult:
    """Sends cluster.json whenever it has changed; with `until_final` it ends when there is nothing to wait for."""
    whole = WholeRun(talk, runs.need(talk, request))
    sent = request["since_serial"] or 0

    def look(view: RunView) -> bool:
        nonlocal sent
        if view["serial"] > sent:
            sent = view["serial"]
            states: States = {"run": whole.id, "state": None, "coordination": view}
            talk.send("states", states)
        return request["until_final"] and whole.is_over(view, time.time())

    whole.view()
    whole.until(look, float("inf"))
    return {"run": whole.id}


def stop(talk: Conversation, request: StopRequest) -> StopResult:
    """Returns when the tasks have ended on every host that the coordinator reaches, or it is clear that some do not."""
    whole = WholeRun(talk, runs.need(talk, request))
    tasks = whole.tasks(request["tasks"])
    before = whole.view()
    to_stop = [task for task in tasks if not whole.has_ended(before, task)]
    if to_stop:
        serial = whole.post(
            {
                "serial": 0,
                "kind": "stop",
                "tasks": request["tasks"],
                "grace_s": request["grace_s"],
                "by": request["by"],
                **because(request["why"] or [fact("stopped")]),
            }
        )
        patience = time.monotonic() + REACH_S
        grace = whole.grace_s if request["grace_s"] is None else request["grace_s"]

        def ended(view: RunView) -> bool:
            open_ = [task for task in to_stop if not whole.has_ended(view, task)]
            away = whole.unreached(view, open_)
            waiting = [task for task in open_ if whole.hosts[task] not in away]
            return view["request_serial"] >= serial and not waiting and not (away and time.monotonic() < patience)

        if not whole.until(lambda view: view["request_serial"] >= serial, ANSWER_S):
            raise Refused("not_answering", "the coordinator has not taken the request within %.0f s" % ANSWER_S)
        whole.until(ended, 2 * grace + END_LIMIT_S)  # ps tasks end after the others
    return _stopped(whole, tasks, to_stop)


def _stopped(whole: WholeRun, tasks: List[str], to_stop: List[str]) -> StopResult:
    after = whole.view()
    open_ = [task for task in tasks if not whole.has_ended(after, task)]
    entries = {task: entry for task in tasks for entry in [whole.entry(after, task)] if entry is not None}
    stopped = [task for task in to_stop if task in entries and entries[task]["state"] == "stopped"]
    unreached = whole.unreached(after, open_)
    survivors: List[Survivor] = []
    for task, entry in entries.items():
        survivors += [{"task": task, "pid": one["pid"], "command": one["command"]} for one in entry["left"]]
        silent = task not in open_ or whole.hosts[task] in unreached
        if entry["pid"] is not None and not silent and not entry["left"]:
            survivors.append({"task": task, "pid": entry["pid"], "command": "(not ended in time)"})
    return {
        "run": whole.id,
        "stopped": stopped,
        "already": [task for task in tasks if task not in stopped and task not in open_],
        "survivors": survivors[:MOST_PROCESSES],
        "omitted": max(0, len(survivors) - MOST_PROCESSES),
        "unreached": unreached,
        "coordination": after,
        "inventory": whole.inventory,
    }


def restart(talk: Conversation, request: RestartRequest) -> RestartResult:
    """Returns when the tasks have new attempts; those of hosts that are away get theirs when they are back."""
    whole = WholeRun(talk, runs.need(talk, request))
    tasks = whole.tasks(request["tasks"])
    before = whole.view()
    if before["condition"]["type"] in outcome.DECIDED:
        what = "%(type)s, %(reason)s" % before["condition"]
        raise Refused("run_ended", "run %s has ended: %s" % (whole.id, what), hint="dtctl up    starts a new one")
    serial = whole.post(
        {
            "serial": 0,
            "kind": "restart",
            "tasks": tasks,
            "grace_s": None,
            "by": request["by"],
            **because([fact("restart")]),
        }
    )

    def begun(view: RunView, task: str) -> bool:
        entry, intent = whole.entry(view, task), view["intents"].get(task)
        if entry is None or intent is None or entry["generation"] < intent["generation"]:
            return False
        return entry["state"] not in ("pending", "starting")

    def all_begun(view: RunView) -> bool:
        open_ = [task for task in tasks if not begun(view, task)]
        away = whole.unreached(view, open_)
        # before the request is taken the intents are still the old ones
        return view["request_serial"] >= serial and all(whole.hosts[task] in away for task in open_)

    in_time = whole.until(all_begun, whole.grace_s + RESTART_LIMIT_S)
    after = whole.view()
    unreached = whole.unreached(after, [task for task in tasks if not begun(after, task)])
    if not in_time:
        why = after["missing"] or "it goes on trying"
        raise Refused("internal", "the tasks have not started again yet", why, "dtctl status    shows how far it is")
    here = [task for task in tasks if whole.hosts[task] not in unreached]
    return {
        "run": whole.id,
        "tasks": {task: entry for task in here for entry in [whole.entry(after, task)] if entry is not None},
        "unreached": unreached,
        "coordination": after,
        "inventory": whole.inventory,
    }

"""A run as a whole, on its coordinator's host: sessions read cluster.json, ask by requests.json, and wait."""

from __future__ import annotations

import time

from . import paths, policy, runs, wake
from .conversation import field
from .coordination import outcome
from .errors import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from .conversation import Conversation

    View = Dict[str, Any]

BIRTH_LIMIT_S = 10.0
"""How long a coordinator that has just been started may take to write its first cluster.json."""

REACH_S = 5.0
"""How long an agent that is away is waited for; a revived coordinator is dialled again within that time, as a rule."""

AWAY_S = 30.0
"""A host that was not heard for so long keeps nobody from calling a decided run over."""

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
        self.grace_s = float(run.spec["grace_s"])
        self.inventory = run.spec.get("inventory")
        self.hosts: Dict[str, str] = {place["task"]: place["host"] for place in run.spec["roster"]}
        self._talk = talk
        self._run = run
        if not coordinates(run):
            raise Refused("not_coordinator", "this host does not coordinate run %s" % run.id)

    def view(self) -> View:
        """cluster.json, of a coordinator that is alive unless the run has ended: what a dead one has left is old."""
        since = 0.0 if self._run.supervised() or self._run.finished() else time.time()
        self._run.keep_supervised()
        deadline = time.monotonic() + BIRTH_LIMIT_S
        found = self.peek()
        while found is None or found["time"] < since:
            if time.monotonic() > deadline:
                raise Refused("internal", "the coordinator does not start", paths.tail(self._run.files.agent_log))
            time.sleep(0.02)
            found = self.peek()
        silent_s = time.time() - found["time"]
        if silent_s > SILENT_S and not self._run.finished():
            raise Refused("not_answering", "the coordinator has shown no sign of life for %.0f s" % silent_s)
        return found

    def peek(self) -> Optional[View]:
        """cluster.json as it is; None before the coordinator has written one."""
        return paths.read_json(self._run.files.path("cluster.json"))

    def tasks(self, request: Mapping[str, Any]) -> List[str]:
        """The ids that a request names, in the order of the roster; null means all."""
        named = field(request, "tasks", list, type(None))
        unknown = [str(task) for task in named or [] if task not in self.hosts]
        if unknown:
            raise Refused("bad_request", "%s: no such task in run %s" % (", ".join(unknown), self.id))
        return [task for task in self.hosts if named is None or task in named]

    def entry(self, view: View, task: str) -> Optional[Mapping[str, Any]]:
        """The task as its agent last told it; None when its host has never been heard."""
        state = view["hosts"][self.hosts[task]]["state"]
        return state["tasks"].get(task) if state else None

    def has_ended(self, view: View, task: str) -> bool:
        entry = self.entry(view, task)
        return entry is not None and entry["state"] in policy.FINAL

    def is_over(self, view: View, now: float) -> bool:
        """Nothing runs any more, but for tasks of hosts that have been away for long: those end when they are back."""
        contacts = view["hosts"].values()
        decided = view["condition"]["type"] in outcome.DECIDED
        return decided and not any(
            (contact["connected"] or now - (contact["heard"] or 0) < AWAY_S) and not _all_final(contact["state"])
            for contact in contacts
        )

    def unreached(self, view: View, tasks: List[str]) -> List[str]:
        """Hosts of these tasks that the coordinator has no contact with."""
        hosts = dict.fromkeys(self.hosts[task] for task in tasks)
        return [host for host in hosts if not view["hosts"][host]["connected"]]

    def post(self, kind: str, tasks: Optional[List[str]], **fields: Any) -> int:
        """Lays a request before the coordinator; it is carried out whatever becomes of this session."""
        files = self._run.files
        with files.intent_lock():
            book = paths.read_json(files.path("requests.json")) or {"serial": 0, "requests": []}
            done = (self.peek() or {"request_serial": 0})["request_serial"]
            open_ = [one for one in book["requests"] if one["serial"] > done]
            serial: int = max(book["serial"], done) + 1
            open_.append(dict(fields, serial=serial, kind=kind, tasks=tasks))
            files.write_urgent(files.path("requests.json"), {"serial": serial, "requests": open_})
            wake.ring(files.wake_path)
        self._run.supervise()
        return serial

    def until(self, done: Callable[[View], bool], limit_s: float) -> bool:
        """Whether cluster.json came to be so in time. A coordinator that is killed is replaced. Raises as `pause`."""

        def look() -> bool:
            self._run.keep_supervised()
            view = self.peek()
            return view is not None and done(view)

        return self._talk.wait(look, limit_s)


def coordinates(run: runs.Run) -> bool:
    """Whether this host is the one whose supervisor decides for the run."""
    coordinator = run.spec.get("coordinator")
    return coordinator is not None and bool(coordinator["host"] == run.spec["host"])


def _all_final(state: Optional[Mapping[str, Any]]) -> bool:
    return bool(state) and all(entry["state"] in policy.FINAL for entry in (state or {})["tasks"].values())


def watch(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Sends cluster.json whenever it has changed; with `until_final` it ends when there is nothing to wait for."""
    whole = WholeRun(talk, runs.need(talk, request))
    sent = field(request, "since_serial", int, type(None)) or 0
    until_final = bool(request.get("until_final"))

    def look(view: View) -> bool:
        nonlocal sent
        if view["serial"] > sent:
            sent = view["serial"]
            talk.send("states", run=whole.id, coordination=view)
        return until_final and whole.is_over(view, time.time())

    whole.view()
    whole.until(look, float("inf"))
    return {"run": whole.id}


def stop(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns when the tasks have ended on every host that the coordinator reaches, or it is clear that some do not."""
    whole = WholeRun(talk, runs.need(talk, request))
    grace_s = field(request, "grace_s", int, float, type(None))
    tasks = whole.tasks(request)
    before = whole.view()
    to_stop = [task for task in tasks if not whole.has_ended(before, task)]
    if to_stop:
        fields = {name: str(request.get(name) or "") for name in ("reason", "by")}
        serial = whole.post("stop", request.get("tasks"), grace_s=grace_s, **fields)
        patience = time.monotonic() + REACH_S
        grace = whole.grace_s if grace_s is None else float(grace_s)

        def ended(view: View) -> bool:
            open_ = [task for task in to_stop if not whole.has_ended(view, task)]
            away = whole.unreached(view, open_)
            waiting = [task for task in open_ if whole.hosts[task] not in away]
            return view["request_serial"] >= serial and not waiting and not (away and time.monotonic() < patience)

        if not whole.until(lambda view: bool(view["request_serial"] >= serial), ANSWER_S):
            raise Refused("not_answering", "the coordinator has not taken the request within %.0f s" % ANSWER_S)
        whole.until(ended, 2 * grace + END_LIMIT_S)  # ps tasks end after the others
    return _stopped(whole, tasks, to_stop)


def _stopped(whole: WholeRun, tasks: List[str], to_stop: List[str]) -> Dict[str, Any]:
    after = whole.view()
    entries = {task: whole.entry(after, task) or {"state": "pending"} for task in tasks}
    stopped = [task for task in to_stop if entries[task]["state"] == "stopped"]
    open_ = [task for task in tasks if entries[task]["state"] not in policy.FINAL]
    unreached = whole.unreached(after, open_)
    left = {task: entries[task].get("left") for task in tasks}
    for task in open_:
        if whole.hosts[task] not in unreached and entries[task].get("pid"):
            left[task] = left[task] or [{"pid": entries[task]["pid"], "command": "(not ended in time)"}]
    return {
        "run": whole.id,
        "stopped": stopped,
        "already": [task for task in tasks if task not in stopped and task not in open_],
        "survivors": [dict(one, task=task) for task in tasks for one in left[task] or ()],
        "unreached": unreached,
        "coordination": after,
        "inventory": whole.inventory,
    }


def restart(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns when the tasks have new attempts; those of hosts that are away get theirs when they are back."""
    whole = WholeRun(talk, runs.need(talk, request))
    tasks = whole.tasks(request)
    before = whole.view()
    if before["condition"]["type"] in outcome.DECIDED:
        what = "%(type)s, %(reason)s" % before["condition"]
        raise Refused("run_ended", "run %s has ended: %s" % (whole.id, what), hint="dtctl up    starts a new one")
    serial = whole.post("restart", tasks, grace_s=None, reason="restart", by=str(request.get("by") or ""))

    def begun(view: View, task: str) -> bool:
        entry = whole.entry(view, task)
        fresh = entry is not None and entry["generation"] >= view["intents"][task]["generation"]
        return fresh and entry is not None and entry["state"] not in ("pending", "starting")

    def all_begun(view: View) -> bool:
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
    entries = {task: whole.entry(after, task) for task in here}
    told = {"tasks": entries, "unreached": unreached, "coordination": after, "inventory": whole.inventory}
    return dict(told, run=whole.id)

"""How sessions read a run, send requests about its tasks, and wait.

On the coordinator's host for the whole run, by cluster.json and requests.json; otherwise for the tasks of this host, by
state.json and intent.json.
"""

from __future__ import annotations

import os
import time

from ..host import errors, paths, wake
from ..host.errors import NO_ROOM, Refused, damaged
from ..records.kinds import made
from ..records.reasons import because, fact, sentence, why_of
from ..records.spec import Member, coordinates, job_of
from ..records.values import FINAL, READ_ONLY
from ..records.whole_run import MOST_REQUESTS, Contact, PostedRequest, RequestBook, RunView, is_waiting
from ..run import drains, intents, outcome
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Tuple

    from ..conversation import Conversation
    from ..records.answers import Survivor
    from ..records.requests import DrainRequest, JoinRequest, UndrainRequest
    from ..records.run_state import Entry, How, IntentFile, Intents, State


BIRTH_LIMIT_S = 10.0
"""How long a coordinator that has just been started may take to write its first cluster.json."""

DISK_LOOK_S = 1.0
"""How long that may take until its disk is inspected, and then the interval: a full one keeps the file from coming."""

FULL_DISK = "the coordinator cannot write its view of the run: its disk is full"

AWAY_S = 30.0
"""A decided run counts as over although a host has been unreachable for this long."""

SILENT_S = 30.0
"""A coordinator writes cluster.json three times as often, whether anything has changed or not."""

COORDINATOR_LOOK_S = 1.0
"""How often a session that waits reads whether its host still coordinates the run."""


class NotTaken(Refused):
    """The request was not carried out, as far as this host knows: the coordinator has not taken it, or is another."""


class RunHandle:
    """The tasks of this host, as its own agent knows them, if no coordinator answers, or if it is on another host.

    `away`: why this host's coordinator does not answer. A coordinator that the agent reaches receives the changed
    intents.
    """

    answer_s = float("inf")
    is_written = True
    """Whether requests are on the disk when they are posted."""

    def __init__(self, run: runs.Run, away: Optional[Refused] = None) -> None:
        self.away = away
        self.view: Optional[RunView] = None
        self.hosts = {member["task"]: member["host"] for member in run.spec["roster"]}
        self._run = run
        self._own = [task["id"] for task in run.spec["tasks"]]
        self._state: Optional[State] = None

    def refresh(self) -> None:
        self._state = self._run.state()

    def tasks(self, named: Optional[List[str]]) -> List[str]:
        return [task for task in self._own if named is None or task in named]

    def absent(self, named: Optional[List[str]]) -> List[str]:
        return []

    def first_to_end(self, named: Optional[List[str]], others_ended: bool) -> List[str]:
        """The tasks to stop first.

        Only the controller, which queries all hosts, knows when tasks of other hosts have ended.
        """
        asked = [task for task in self.hosts if named is None or task in named]
        first = outcome.without_servers(self._run.spec["roster"], asked)
        return self.tasks(asked if others_ended or not first else first)

    def waits_for(self, named: Optional[List[str]], tasks: List[str]) -> bool:
        """Whether to wait for tasks, or for the end of the run, which may depend on other hosts."""
        return bool(tasks) or (named is None and not self._run.finished())

    def entry(self, task: str) -> Optional[Entry]:
        assert self._state is not None
        return self._state["tasks"][task]

    def intents(self) -> Intents:
        """The intents of the known tasks."""
        return self._run.intent()["tasks"]

    def generation(self, task: str) -> Optional[int]:
        intent = self.intents().get(task)
        return intent["generation"] if intent is not None else None

    def unreached(self, tasks: List[str]) -> List[str]:
        return []

    def awaited(self, tasks: List[str]) -> List[str]:
        """Hosts that are away, and for which the recovery waits that holds these tasks."""
        return []

    def may_dial(self, hosts: List[str], within_s: float) -> bool:
        """Whether one of these unreachable hosts may connect at any moment, as it would have done `within_s` ago."""
        return False

    def refuse_ended(self) -> None:
        """Does nothing: only the coordinator knows whether the run has ended."""

    def waits(self, task: str) -> bool:
        """Whether it cannot start yet: for a drained host, or for one that is away though others need its tasks.

        Without its coordinator it waits for that.
        """
        intent = self.intents().get(task)
        return intent is not None and intent["want"] == "hold"

    def why_waiting(self) -> str:
        return ""

    def post_stop(self, named: Optional[List[str]], tasks: List[str], how: How) -> int:
        def end_tasks(intent: IntentFile) -> None:
            intent["tasks"].update(intents.to_end(intent["tasks"], tasks, how, ends_run=named is None))
            if named is None and not self._own:
                intent["ends_run"] = how

        return self._run.change(end_tasks)

    def post_restart(self, tasks: List[str], by: str) -> int:
        def restart_tasks(intent: IntentFile) -> None:
            for task in tasks:
                entry = intent["tasks"][task]
                again = {"want": "run", "generation": entry["generation"] + 1, "restarts": 0}
                intents.change(entry, **again, grace_s=None, by=by, **because([fact("restart")]))

        return self._run.change(restart_tasks)

    def idle(self) -> List[str]:
        """Hosts of the run without a task that may be drained."""
        return []

    def post_drain(self, request: DrainRequest) -> int:
        """Writes a drain into the intents; the coordinator receives it from this host's agent."""
        host, grace_s, by = request["drained"] or "", request["grace_s"], request["by"]
        members, hold = self.members(), drains.of_host(drains.DRAINED, host, by)

        def hold_tasks(intent: IntentFile) -> None:
            for task in self._own:
                entry, wanted = self.entry(task), intent["tasks"][task]
                if members[task]["host"] == host and wanted["want"] != "stop" and entry is not None:
                    fields = drains.hold(wanted, entry, gang=members[task]["scope"] == "gang")
                    holds = drains.with_hold(wanted, hold)
                    fields.update(holds=holds, grace_s=grace_s, by=by)
                    intents.change(wanted, **fields, **because(drains.why_held(holds)))

        return self._run.change(hold_tasks)

    def post_undrain(self, request: UndrainRequest) -> int:
        """The coordinator starts them, once it is back."""
        host, by, members = request["drained"] or "", request["by"], self.members()

        def release_tasks(intent: IntentFile) -> None:
            for task in drains.tasks_of(host, intent["tasks"]):
                fields = drains.release(intent["tasks"][task], host, members[task], self._run.spec["strategy"])
                intents.change(intent["tasks"][task], **fields, grace_s=None, by=by)

        return self._run.change(release_tasks)

    def members(self) -> Dict[str, Member]:
        return {member["task"]: member for member in self._run.spec["roster"]}

    def has_taken(self, serial: int) -> bool:
        return self._state is not None and self._state["intent_serial"] >= serial

    def longest_end_s(self, grace_s: float) -> float:
        return grace_s

    def survivors(self, tasks: List[str]) -> List[Survivor]:
        return self._run.survivors(tasks)

    def until(self, done: Callable[[], bool], limit_s: float) -> bool:
        def refresh(state: State) -> bool:
            self._state = state
            return done()

        return self._run.until(refresh, limit_s) is not None


class WholeRun(RunHandle):
    """All tasks of a run, as its coordinator knows them, on the coordinator's host.

    `refresh` raises Refused if no coordinator answers.
    """

    answer_s = 10.0
    """How long the coordinator may take to accept a request.

    A coordinator that has not read its requests by then is frozen, or hangs on a disk.
    """

    def __init__(self, talk: Conversation, run: runs.Run) -> None:
        super().__init__(run)
        self._talk = talk
        self._read: Optional[RunView] = None
        self._version: Optional[Tuple[int, int, int]] = None
        self._problem = ""
        self._look_at = time.monotonic() + COORDINATOR_LOOK_S

    def refresh(self) -> None:
        """Reads cluster.json, of a live coordinator unless the run has ended: the file of a dead one is outdated."""
        since = 0.0 if self._run.supervised() or self._run.finished() else time.time()
        self._run.keep_supervised()
        look_at_disk = time.monotonic() + DISK_LOOK_S
        deadline = time.monotonic() + BIRTH_LIMIT_S
        found = self.peek()
        while found is None or found["time"] < since:
            if time.monotonic() > deadline and self._problem:
                raise damaged(self._problem)
            if time.monotonic() > deadline:
                raise Refused("internal", "the coordinator does not start", paths.tail(self._run.files.agent_log))
            if time.monotonic() >= look_at_disk:
                look_at_disk = time.monotonic() + DISK_LOOK_S
                if not paths.has_room(self._run.files.path("cluster.json")):
                    raise Refused("not_answering", FULL_DISK, "", NO_ROOM)
            time.sleep(0.02)
            found = self.peek()
        silent_s = time.time() - found["time"]
        if silent_s > SILENT_S and not self._run.finished():
            raise Refused("not_answering", "the coordinator has been silent for %.0f s" % silent_s)

    def peek(self) -> Optional[RunView]:
        """The current cluster.json, read only if the file has changed; None before a valid one is written."""
        path = self._run.files.path("cluster.json")
        try:
            version = paths.version(path)
            if version is None:
                return None
            if version != self._version:
                self._read = paths.read_record(path, RunView)
                self._version = version
        except paths.Damaged as problem:
            self._problem = str(problem)
            return None
        self._problem = ""
        self.view = self._read or self.view
        return self._read

    def tasks(self, named: Optional[List[str]]) -> List[str]:
        known = [task for task in self.hosts if named is None or task in named]
        return [task for task in known if not self._contact(task)["absent"]]

    def absent(self, named: Optional[List[str]]) -> List[str]:
        """Hosts of these tasks that the run continues without."""
        without = [task for task in self.hosts if self._contact(task)["absent"] and (named is None or task in named)]
        return list(dict.fromkeys(self.hosts[task] for task in without))

    def first_to_end(self, named: Optional[List[str]], others_ended: bool) -> List[str]:
        """All of the tasks: the coordinator decides which end first."""
        return self.tasks(named)

    def waits_for(self, named: Optional[List[str]], tasks: List[str]) -> bool:
        """Whether there is anything to request if these are the tasks that have not ended."""
        return bool(tasks)

    def entry(self, task: str) -> Optional[Entry]:
        """The task as its agent last reported it; None when its host has never been connected."""
        state = self._contact(task)["state"]
        return state["tasks"].get(task) if state else None

    def intents(self) -> Intents:
        assert self.view is not None
        return self.view["intents"]

    def unreached(self, tasks: List[str]) -> List[str]:
        """Hosts of these tasks that the coordinator has no contact with."""
        return list(dict.fromkeys(self.hosts[task] for task in tasks if not self._contact(task)["connected"]))

    def awaited(self, tasks: List[str]) -> List[str]:
        assert self.view is not None
        held = [one["tasks"] for one in self.view["incidents"] if is_waiting(one) and not one["own"]]
        with_them = {other for together in held if not set(together).isdisjoint(tasks) for other in together}
        return self.unreached([task for task in with_them if self.intents()[task]["want"] != "stop"])

    def may_dial(self, hosts: List[str], within_s: float) -> bool:
        assert self.view is not None
        agent = self._run.state()["agent"]
        heard = [self.view["hosts"][host]["heard"] or 0.0 for host in hosts if host in self.view["hosts"]]
        newest = max([*heard, agent["since"] if agent is not None else 0.0])
        return bool(hosts) and abs(time.time() - newest) < within_s

    def refuse_ended(self) -> None:
        """Raises Refused where the run has ended."""
        assert self.view is not None
        if self.view["condition"]["type"] in outcome.DECIDED:
            condition = self.view["condition"]
            what = "%s, %s" % (condition["type"], sentence(why_of(condition)))
            raise Refused("run_ended", "run %s has ended: %s" % (self._run.id, what), hint=_NEW_RUN)

    def waits(self, task: str) -> bool:
        intent = self.intents()[task]
        returning = [name for name, one in self.intents().items() if drains.is_returning(one)]
        return drains.is_drained(intent) or (drains.is_returning(intent) and bool(self.unreached(returning)))

    def why_waiting(self) -> str:
        """What the start waits for, and why."""
        assert self.view is not None
        return sentence(why_of(self.view["waits_for"]))

    def post_stop(self, named: Optional[List[str]], tasks: List[str], how: How) -> int:
        return self._post(made(PostedRequest, serial=0, kind="stop", tasks=named, **how))

    def post_restart(self, tasks: List[str], by: str) -> int:
        return self._post(
            made(PostedRequest, serial=0, kind="restart", tasks=tasks, by=by, **because([fact("restart")]))
        )

    def idle(self) -> List[str]:
        assert self.view is not None
        return [host for host in self.view["hosts"] if host not in self.hosts.values()]

    def post_drain(self, request: DrainRequest) -> int:
        return self._post_maintenance("drain", request, request["grace_s"])

    def post_undrain(self, request: UndrainRequest) -> int:
        return self._post_maintenance("undrain", request, None)

    def post_join(self, request: JoinRequest) -> int:
        about = {"joins": request["joins"], "replace_s": request["replace_s"], "by": request["by"]}
        return self._post(made(PostedRequest, serial=0, kind="join", **about, **because([])))

    def _post_maintenance(self, kind: str, request: UndrainRequest, grace_s: Optional[float]) -> int:
        about = {"host": request["drained"], "job": request["job"], "count": request["count"], "by": request["by"]}
        return self._post(made(PostedRequest, serial=0, kind=kind, grace_s=grace_s, **about))

    def _post(self, request: PostedRequest) -> int:
        """Posts a request to the coordinator, which carries it out even if this session ends; its serial.

        Raises NotTaken where no file can hold the request, so that each host is asked. A stop can be obeyed in memory:
        for that it raises OSError.
        """
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
            try:
                files.write_urgent(path, now)
            except OSError as full:
                if request["kind"] == "stop" or not errors.is_full(full):
                    raise
                raise NotTaken("not_answering", FULL_DISK, "", NO_ROOM) from None
            wake.ring(files.wake_path)
        self._run.supervise()
        return request["serial"]

    def has_taken(self, serial: int) -> bool:
        """Whether the coordinator has accepted a request; before that the intents are the old ones."""
        return self.view is not None and self.view["request_serial"] >= serial

    def longest_end_s(self, grace_s: float) -> float:
        return 2 * grace_s  # servers end after the others

    def survivors(self, tasks: List[str]) -> List[Survivor]:
        """The remaining processes: those on this host, and those of connected hosts by their reports."""
        here = self._run.spec["host"]
        found = self._run.survivors([task for task in tasks if self.hosts[task] == here])
        for task in tasks:
            entry = self.entry(task)
            if entry is None or self.hosts[task] == here:
                continue
            found += [{"task": task, "pid": one["pid"], "command": one["command"]} for one in entry["left"]]
            silent = entry["state"] in FINAL or not self._contact(task)["connected"]
            if entry["pid"] is not None and not silent and not entry["left"]:
                found.append({"task": task, "pid": entry["pid"], "command": "(not ended in time)"})
        return found

    def until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Whether `done` came true in time. A coordinator that is killed is replaced.

        Raises as `pause`, and NotTaken when another host has been elected: cluster.json does not change any more.
        """

        def refresh() -> bool:
            self._run.keep_supervised()
            self._refuse_superseded()
            return self.peek() is not None and done()

        return self._talk.wait(refresh, limit_s)

    def _refuse_superseded(self) -> None:
        now = time.monotonic()
        if self._run.spec["voters"] and now >= self._look_at:
            self._look_at = now + COORDINATOR_LOOK_S
            spec = self._run.files.spec()
            if not coordinates(spec):
                raise NotTaken("not_answering", "%s coordinates the run now" % spec["coordinator"]["host"])

    def _contact(self, task: str) -> Contact:
        assert self.view is not None
        return self.view["hosts"].get(self.hosts[task]) or _NONE_YET


def _book(path: str) -> RequestBook:
    """Reads requests.json. A damaged one is put aside: what was in it cannot be carried out."""
    try:
        book = paths.read_record(path, RequestBook)
    except paths.Damaged:
        paths.put_aside(path)
        book = None
    return book or {"serial": 0, "requests": []}


_NONE_YET = made(Contact)
"""The record of a host that the coordinator does not report."""

_NEW_RUN = "dtctl up    starts a new one"


def is_over(view: RunView, now: float) -> bool:
    """Whether no task runs, except on hosts that have been away for long: those end on their return."""
    decided = view["condition"]["type"] in outcome.DECIDED
    return decided and not any(
        (contact["connected"] or now - (contact["heard"] or 0) < AWAY_S) and not _all_final(contact["state"])
        for contact in view["hosts"].values()
    )


def _all_final(state: Optional[State]) -> bool:
    return state is not None and all(entry["state"] in FINAL for entry in state["tasks"].values())


def reached(talk: Conversation, run: runs.Run) -> RunHandle:
    """The whole run on the coordinator's host, unless that does not answer."""
    if not coordinates(run.spec):
        return RunHandle(run)
    if READ_ONLY in os.environ and not run.finished():
        return RunHandle(run, Refused("not_answering", "the run's machines have been given back"))
    whole = WholeRun(talk, run)
    try:
        whole.refresh()
    except Refused as away:
        return RunHandle(run, away)
    return whole


def refuse_strangers(handle: RunHandle, run: runs.Run, named: Optional[List[str]]) -> None:
    """Tasks that no host of the run has."""
    unknown = [task for task in named or [] if task not in handle.hosts]
    if unknown:
        raise Refused("bad_request", "%s: no such task in run %s" % (", ".join(unknown[:10]), run.id))


def refuse_drained(handle: RunHandle, tasks: List[str]) -> None:
    """Tasks that are held because of a drained host."""
    wanted = handle.intents()
    for task in tasks:
        if task in wanted and drains.is_drained(wanted[task]):
            one = next(iter(drains.holders({task: wanted[task]}).values()))
            hint = handle.why_waiting()
            if one["kind"] == drains.SCALED_DOWN:
                hint = "dtctl scale %s=N    starts it again" % job_of(one["holder"])
            elif drains.drained_hosts({task: wanted[task]}):
                hint = "dtctl undrain %s    starts it again" % one["holder"]
            raise Refused("not_started", "%s is held: %s" % (task, sentence(why_of(wanted[task]))), hint=hint)


def has_ended(handle: RunHandle, task: str) -> bool:
    entry = handle.entry(task)
    return entry is not None and entry["state"] in FINAL


def is_drained(handle: RunHandle, task: str) -> bool:
    """Whether none of its processes is left and it waits for the end of a drain, or it has ended."""
    entry, intent = handle.entry(task), handle.intents().get(task)
    if entry is None or intent is None or entry["state"] in FINAL:
        return entry is not None and entry["state"] in FINAL
    is_held = drains.is_drained(intent) and entry["generation"] >= intent["generation"]
    return is_held and entry["state"] == "pending"

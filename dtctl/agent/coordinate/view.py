"""The coordinator's view of the run: its file cluster.json, and values derived from it."""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, because, fact
from ..records.run_state import Entry, Hold, Intent, Intents
from ..records.spec import Member, RecoverySpec, Spec, Stage, added_by, comes_back_alone, hosts_of, job_of
from ..records.values import FINAL, Role, TaskState
from ..records.whole_run import (
    MOST_INCIDENTS,
    MOST_WARNINGS,
    Alert,
    Condition,
    Contact,
    Incident,
    RunView,
    has_steps,
    is_open,
    is_waiting,
)
from ..run import drains, gang, goodput, hangs, intents, outcome
from ..run.cause import names_damaged_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, TypedDict, TypeVar, Union

    from ..records.messages import Events, Hello, News, TaskProgress
    from ..records.values import AlertTopic, Loss

    T = TypeVar("T")
    FromAgent = Union[Hello, News, TaskProgress, Events]

    class LostAttempt(TypedDict):
        """The attempt with which an incident begins, and when it ended."""

        attempt: int
        ended: float


UNKNOWN = made(Entry, generation=0)
"""The entry of a task whose host has never been in touch."""


def first_view(spec: Spec, wall: float) -> RunView:
    """cluster.json of a run that has just begun."""
    created = made(Condition, type="Created", cause=None, since=wall, **because([fact("no_task_runs")]))
    return made(
        RunView,
        serial=0,
        run=spec["run"],
        time=wall,
        elapsed_s=0.0,
        phase="starting",
        condition=created,
        conditions=[],
        hosts={host: {"absent": host in spec["absent"] or _has_yet_to_join(spec, host)} for host in hosts_of(spec)},
        intents={member["task"]: {"want": "hold"} for member in spec["roster"]},
        incidents=[],
        restarts=0,
        request_serial=0,
        waits_for=because([]),
        account=goodput.begun(wall),
        moved=spec["moved"],
    )


def is_of(view: RunView, spec: Spec) -> bool:
    """Whether a view that was read from the disk is about the tasks and hosts of the run.

    Of the two, one may know of hosts that have joined, and the other not yet.
    """
    tasks = {member["task"] for member in spec["roster"]}
    hosts, joined = set(hosts_of(spec)), {*spec["moved"]["joined"], *view["moved"]["joined"]}
    has_hosts = hosts - joined <= set(view["hosts"]) <= hosts | joined
    added = {member["task"] for moved in (spec["moved"], view["moved"]) for member in added_by(moved)}
    has_tasks = tasks - added <= set(view["intents"]) <= tasks | added
    return view["run"] == spec["run"] and has_hosts and has_tasks


def take_in_joined(view: RunView, spec: Spec) -> None:
    """Adds the hosts that have joined since the view was written, as absent until their agents connect.

    The tasks that they add are surplus until `scale`: none that train are restarted for them.
    """
    for host in spec["moved"]["joined"]:
        if host not in view["hosts"]:
            view["hosts"][host] = made(Contact, absent=True)
    new = [member["task"] for member in spec["roster"] if member["task"] not in view["intents"]]
    going = [intent for intent in view["intents"].values() if intent["want"] == "run"]
    for task in new:
        hold = as_surplus(view, spec, task)
        # version 2: an agent begins with 1, and without a hold
        view["intents"][task] = made(
            Intent, version=2, want="hold", holds=[hold], by=hold["by"], **because([hold["why"]])
        )
    for intent in going if new else ():
        out = [*gang.tasks_in(intent["without"]), *new]
        intents.change(intent, without=gang.ranges(out))


def as_surplus(view: RunView, spec: Spec, task: str) -> Hold:
    """The hold of a task that a host has added, which `scale` has yet to let run."""
    job = job_of(task)
    held = [one for one in drains.holders(view["intents"]).values() if one["kind"] == drains.SCALED_DOWN]
    counts = [one["count"] or 0 for one in held if job_of(one["holder"]) == job]
    count = counts[0] if counts else sum(job_of(other) == job for other in view["intents"] if other != task)
    return drains.beyond(job, min(count, int(task.rpartition(":")[2])), spec["controller"], [task])[task]


def _has_yet_to_join(spec: Spec, host: str) -> bool:
    has_place = any(member["host"] == host and member["slot"] for member in spec["roster"])
    return host in spec["moved"]["joined"] and not has_place


class View:
    """`data` is what cluster.json holds. A roster that changes needs another View."""

    def __init__(self, spec: Spec, data: RunView) -> None:
        self.spec = spec
        self.data = data
        self.recovery: RecoverySpec = spec["recovery"]
        self.roster: Dict[str, Member] = {member["task"]: member for member in spec["roster"]}
        self.stages: List[Stage] = spec["stages"]
        self._on: Dict[str, List[str]] = {host: [] for host in data["hosts"]}
        for task, place in self.roster.items():
            self._on[place["host"]].append(task)
        self._contact = {task: data["hosts"][place["host"]] for task, place in self.roster.items()}
        self._with_role: Dict[Tuple[Role, ...], List[str]] = {}
        self._held = {task for stage in self.stages if stage["held"] for task in stage["tasks"]}
        self._steps: Dict[str, Optional[int]] = {task: self.entry(task)["step"] for task in self.roster}
        """The step of each task when steps were last counted."""
        self._newest: Optional[str] = None
        """The trainer with the newest step then."""
        self.lead = spec["lead"]
        self.coordinator = spec["coordinator"]
        self.own_host = self.coordinator["host"]

    @property
    def tasks(self) -> List[str]:
        return list(self.roster)

    @property
    def hosts(self) -> Dict[str, Contact]:
        return self.data["hosts"]

    @property
    def intents(self) -> Intents:
        return self.data["intents"]

    def problem(self, host: str, message: FromAgent) -> Optional[str]:
        """Why a host's message cannot be true, though it is a record: it reports its own tasks, and no others."""
        own = {*self.tasks_on(host)}
        if message["type"] == "events":
            odd = {event["task"] for event in message["events"] if event is not None} - own - self._once_on(host)
        elif message["type"] == "progress":
            if self.hosts[host]["state"] is None:
                return "it reports progress before its state"
            odd = message["tasks"].keys() - own
        else:
            return self._problem_of_state(host, message, own)
        return "it reports %s, which is not its own task" % min(odd) if odd else None

    def _problem_of_state(self, host: str, message: Union[Hello, News], own: Set[str]) -> Optional[str]:
        state, run = message["state"], self.spec["run"]
        if message["type"] == "hello" and message["run"] != run:
            return "this is the coordinator of run %s" % run
        if message["type"] == "hello" and host == self.own_host:
            return "%s is the coordinator's own host" % host
        if (state["run"], state["host"]) != (run, host):
            return "it reports the state of %s in run %s" % (state["host"], state["run"])
        for what, tasks in (("state", state["tasks"].keys()), ("intents", message["intents"].keys())):
            if tasks != own:
                return "its %s are not those of its own tasks (%s)" % (what, ", ".join(sorted(tasks ^ own)[:3]))
        return None

    def advance(self, host: str, message: TaskProgress) -> None:
        """Takes it into the host's state."""
        state = self.hosts[host]["state"]
        assert state is not None, "without one the message was rejected"
        state["serial"] = message["serial"]
        if "machine" in message:
            state["machine"] = message["machine"]
        for task, changed in message["tasks"].items():
            fields: Any = changed
            state["tasks"][task].update(fields)

    def tasks_on(self, host: str) -> List[str]:
        return self._on[host]

    def slot(self, task: str) -> str:
        """The host that `up` has put it on."""
        return self.roster[task]["slot"] or self.roster[task]["host"]

    def _once_on(self, host: str) -> Set[str]:
        """The tasks that run on the host, or may have run there."""
        spare = self.spec["spares"].get(host)
        own = (task for task, member in self.roster.items() if member["slot"] == host)
        return {*own, *(spare["addresses"] if spare is not None else ())}

    def role(self, task: str) -> Role:
        return self.roster[task]["role"]

    def own(self, task: str) -> bool:
        """Whether its agent restarts it without the coordinator."""
        return comes_back_alone(self.role(task), self.roster[task]["scope"])

    def waited_for(self, task: str) -> bool:
        """Whether other tasks may be silent while it is away."""
        return hangs.is_waited_for(self.roster[task], self.spec["strategy"])

    def with_role(self, *roles: Role) -> List[str]:
        found = self._with_role.get(roles)
        if found is None:
            found = self._with_role[roles] = [task for task in self.roster if self.role(task) in roles]
        return found

    def entry(self, task: str) -> Entry:
        """The task as its agent last reported it, however long ago."""
        state = self._contact[task]["state"]
        return UNKNOWN if state is None else state["tasks"].get(task, UNKNOWN)

    def state(self, task: str) -> TaskState:
        return self.entry(task)["state"]

    def host_of(self, task: str) -> Contact:
        """The contact of the host that has it."""
        return self._contact[task]

    def reached(self, task: str) -> bool:
        """Whether its agent is connected."""
        return self._contact[task]["connected"]

    def awaited(self, task: str) -> bool:
        """Whether other tasks may wait for its return."""
        return self.waited_for(task) and not self.final(task) and not self.drained(task)

    def all_in_touch(self) -> bool:
        """Whether the agents of all tasks that others wait for are connected."""
        return all(self.reached(task) for task in self.present if self.awaited(task))

    @property
    def trainers(self) -> List[str]:
        """The tasks whose steps count as the run's."""
        return self.with_role("lead", "worker")

    def absent(self, task: str) -> bool:
        """Whether the run was started without its host."""
        return self._contact[task]["absent"]

    @property
    def present(self) -> List[str]:
        """The tasks of hosts that have a part in the run."""
        return [task for task in self.tasks if not self.absent(task)]

    def current(self, task: str) -> bool:
        """Whether its agent reports the wanted generation."""
        return self.entry(task)["generation"] >= self.intents[task]["generation"]

    def ready(self, task: str) -> bool:
        """Whether other tasks may connect to it."""
        entry = self.entry(task)
        return self.reached(task) and self.current(task) and entry["ready"] and entry["state"] == "running"

    def trains(self, task: str) -> bool:
        """Whether it has reported a step since its start."""
        entry = self.entry(task)
        return self.current(task) and entry["state"] == "running" and entry["step"] is not None

    def final(self, task: str) -> bool:
        return self.state(task) in FINAL

    def idle(self, task: str) -> bool:
        """Whether it waits for permission to run, and nothing of an older generation is left."""
        return self.state(task) == "pending" and self.current(task)

    def drained(self, task: str) -> bool:
        """Whether a drained host is the reason that it is held."""
        return drains.is_drained(self.intents[task])

    def drained_hosts(self) -> List[str]:
        """The hosts that a person has drained, with tasks or without."""
        idle = [host for host, known in self.hosts.items() if known["drained"] is not None]
        return [*drains.drained_hosts(self.intents), *idle]

    def left_out(self) -> List[str]:
        """Tasks that take no part in what trains together; none where each trains by itself."""
        if not self.spec["resizes"]:
            return []
        out = [task for task, intent in self.intents.items() if outcome.is_left_out(intent)]
        return [task for task in out if drains.needs_the_run(self.roster[task], self.spec["strategy"])]

    def facts(self) -> outcome.Facts:
        """The facts that decide the outcome. Tasks of a host that has never connected are lost, unless it is absent."""
        known = {task: self.entry(task) for task in self.roster}
        entries = {task: entry for task, entry in known.items() if entry is not UNKNOWN}
        absent = [task for task in self.roster if self.absent(task)]
        away = [task for task in self.roster if not self.reached(task)]
        return outcome.Facts(self.roster, self.spec["fail_fast"], entries, self.intents, absent, away)

    def is_held(self, task: str) -> bool:
        """Whether it starts only when the tasks that it needs are ready; others start at once and wait themselves."""
        return task in self._held

    def waits(self, task: str) -> bool:
        """Whether other tasks must be ready before it can train: it is held, or was started early."""
        intent = self.intents[task]
        waits = intent["want"] == "hold" or (intent["want"] == "run" and intent["early"])
        return waits and not drains.is_drained(intent)

    def wanted(self, tasks: Iterable[str], **fields: Any) -> None:
        """Changes the intents of these tasks."""
        for task in tasks:
            intents.change(self.intents[task], **fields)

    def warn(self, why: List[Fact]) -> None:
        """Adds a warning that `status` shows until the end of the run."""
        self._set_alerts([*self.data["alerts"], made(Alert, **because(why))])

    def replace_alert(self, topic: AlertTopic, now: Optional[Fact], host: Optional[str] = None) -> bool:
        """Replaces the warning about this topic and host. False when nothing has changed."""
        held = [one for one in self.data["alerts"] if (one["topic"], one["host"]) == (topic, host)]
        others = [one for one in self.data["alerts"] if one not in held]
        new = [made(Alert, topic=topic, host=host, **because([now]))] if now is not None else []
        if held != new:
            self._set_alerts([*others, *new])
        return held != new

    def _set_alerts(self, alerts: List[Alert]) -> None:
        self.data["alerts"] = _without_oldest(alerts, lambda one: one["topic"] == "other", MOST_WARNINGS)

    def step(self) -> Optional[int]:
        """The newest step that the lead or a worker has named, or None: not one that is counted from positions."""
        entries = [self.entry(task) for task in self.trainers]
        return max(
            (one["step"] for one in entries if one["step"] is not None and one["position"] is None), default=None
        )

    def note_steps(self) -> None:
        """Counts in `advances` that a trainer has reported another step since the last call."""
        steps = {task: self.entry(task)["step"] for task in self.trainers}
        if any(step not in (None, self._steps[task]) for task, step in steps.items()):
            self.data["advances"] += 1
        self._steps.update(steps)
        known = [task for task, step in steps.items() if step is not None]
        self._newest = max(known, key=lambda task: steps[task] or 0, default=None)

    def has_new_steps(self, host: str) -> bool:
        """Whether a trainer there has reported another step since `note_steps`."""
        own = [task for task in self.tasks_on(host) if self.role(task) in ("lead", "worker")]
        return any(self.entry(task)["step"] not in (None, self._steps[task]) for task in own)

    def open_incident(
        self,
        task: str,
        ending: LostAttempt,
        loss: Loss,
        why: List[Fact],
        tasks: List[str],
        wall: float,
        *,
        cause: str = "",
        step: Optional[int] = None,
    ) -> Incident:
        """A new incident, already among those of the view. `step`: the run's, where it is known."""
        known = self.data["incidents"]
        incident: Incident = {
            "id": known[-1]["id"] + 1 if known else 1,
            "task": task,
            "host": self.roster[task]["host"],
            "attempt": ending["attempt"],
            "loss": loss,
            "damaged_file": names_damaged_file(cause),
            "cause": cause,
            "ended": ending["ended"],
            "noticed": wall,
            **because(why),
            "scope": self.roster[task]["scope"],
            "tasks": tasks,
            "own": self.own(task) and tasks == [task],
            "collateral": [],
            "step": self.step() if step is None else step,
            "steps_at_restart": {},
            "advances": 0,
            "back_to": None,
            "begun": None,
            "recovered": None,
            "given_up": None,
        }
        known.append(incident)
        return incident

    def open_incidents(self) -> Iterator[Incident]:
        return filter(is_open, self.data["incidents"])

    def forget_incidents(self) -> None:
        """Forgets the oldest incidents that are over."""
        known = self.data["incidents"]
        if len(known) > MOST_INCIDENTS:
            self.data["incidents"] = _without_oldest(known, lambda one: not is_open(one), MOST_INCIDENTS)

    def waiting_incidents(self) -> Iterator[Incident]:
        return filter(is_waiting, self.data["incidents"])

    def held_by_incidents(self) -> Set[str]:
        """Tasks that must not be released yet."""
        return {task for one in self.waiting_incidents() for task in one["tasks"]}

    def incident_of(self, task: str) -> Optional[Incident]:
        """The newest open incident that restarts this task."""
        found = [one for one in self.open_incidents() if task in one["tasks"]]
        return found[-1] if found else None

    def begin_incident(self, incident: Incident, wall: float) -> None:
        """Lets the incident's tasks start. Steps reported before now do not count as recovery."""
        incident["begun"] = wall
        incident["steps_at_restart"] = {} if self._newest is None else {self._newest: self._steps[self._newest]}
        incident["advances"] = self.data["advances"]

    def is_back(self, incident: Incident) -> bool:
        """Whether its tasks are ready again or have ended."""
        return incident["begun"] is not None and all(self.ready(task) or self.final(task) for task in incident["tasks"])

    def is_recovering(self) -> bool:
        """Whether a task that others wait for is not back yet."""
        lost = [one for one in self.open_incidents() if not self.is_back(one)]
        return any(self.waited_for(task) for one in lost for task in one["tasks"])

    def trains_again(self, incident: Incident) -> bool:
        """Whether its tasks are back and have reported a step since (in a run whose programs report steps)."""
        if not self.is_back(incident):
            return False
        if not has_steps(incident):
            return True
        return self.data["advances"] != incident["advances"]


def _without_oldest(every: List[T], may_go: Callable[[T], bool], most: int) -> List[T]:
    """The same without the oldest of those that may go, so that at most so many of them are left."""
    kept = [one for one in every if may_go(one)][-most:]
    ids = {id(one) for one in kept}
    return [one for one in every if id(one) in ids or not may_go(one)]


def awaited_hosts(spec: Spec, data: RunView) -> List[str]:
    """Other hosts of which it is not known, after the end of the run, that their tasks have ended."""
    with_tasks = {member["host"] for member in spec["roster"]} | {member["slot"] for member in spec["roster"]}
    return [
        host
        for host, known in data["hosts"].items()
        if host in with_tasks and host != spec["host"] and not (known["over"] or known["absent"])
    ]

"""All that the coordinator knows: its file cluster.json, and questions to it."""

from __future__ import annotations

from .. import intents, policy, shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping

    Entry = Mapping[str, Any]

UNKNOWN: Entry = shapes.entry({"generation": 0})
"""The entry of a task whose host has not been heard yet."""


def first_view(spec: Mapping[str, Any], wall: float) -> Dict[str, Any]:
    """cluster.json of a run that has just begun."""
    hosts = dict.fromkeys(place["host"] for place in spec["roster"])
    return {
        "version": 1,
        "serial": 0,
        "run": spec["run"],
        "time": wall,
        "elapsed_s": 0.0,
        "phase": "starting",
        "condition": {"type": "Created", "reason": "no task runs yet", "cause": None, "since": wall},
        "conditions": [],
        "warnings": [],
        "hosts": {host: {"connected": False, "heard": None, "over": False, "state": None} for host in hosts},
        "intents": {place["task"]: shapes.first_intent("hold") for place in spec["roster"]},
        "incidents": [],
        "restarts": 0,
        "request_serial": 0,
        "missing": None,
    }


class View:
    """`data` is what cluster.json holds; the spec's roster and stages never change."""

    def __init__(self, spec: Mapping[str, Any], data: Dict[str, Any]) -> None:
        self.spec = spec
        self.data = data
        self.recovery: Mapping[str, Any] = spec["recovery"]
        self.roster: Dict[str, Mapping[str, Any]] = {place["task"]: place for place in spec["roster"]}
        self.stages: List[Mapping[str, Any]] = spec["stages"]
        self._on: Dict[str, List[str]] = {host: [] for host in data["hosts"]}
        for task, place in self.roster.items():
            self._on[place["host"]].append(task)
        self._stage = {task: stage for stage in self.stages for task in stage["tasks"]}
        self.lead: str = spec["lead"]

    @property
    def tasks(self) -> List[str]:
        return list(self.roster)

    @property
    def hosts(self) -> Dict[str, Dict[str, Any]]:
        hosts: Dict[str, Dict[str, Any]] = self.data["hosts"]
        return hosts

    @property
    def intents(self) -> Dict[str, Dict[str, Any]]:
        held: Dict[str, Dict[str, Any]] = self.data["intents"]
        return held

    def host_of(self, task: str) -> str:
        return str(self.roster[task]["host"])

    def tasks_on(self, host: str) -> List[str]:
        return self._on[host]

    def role(self, task: str) -> str:
        return str(self.roster[task]["role"])

    def own(self, task: str) -> bool:
        """Its agent restarts it without asking."""
        return self.roster[task]["scope"] == "task" and self.role(task) not in ("lead", "ps")

    def serves(self, task: str) -> bool:
        """Others need it to their end. Earlier controllers, which did not say who serves, knew ps alone."""
        told = self.roster[task]["serves"]
        return self.role(task) == "ps" if told is None else bool(told)

    def with_role(self, *roles: str) -> List[str]:
        return [task for task in self.roster if self.role(task) in roles]

    def entry(self, task: str) -> Entry:
        """The task as its agent last told it, however long ago."""
        state = self.hosts[self.host_of(task)]["state"]
        return state["tasks"].get(task, UNKNOWN) if state else UNKNOWN

    def state(self, task: str) -> str:
        return str(self.entry(task)["state"])

    def reached(self, task: str) -> bool:
        """Its agent can be told something now."""
        return bool(self.hosts[self.host_of(task)]["connected"])

    def current(self, task: str) -> bool:
        """What its agent tells is of the generation that is wanted."""
        return int(self.entry(task)["generation"]) >= int(self.intents[task]["generation"])

    def ready(self, task: str) -> bool:
        """Others may begin to talk to it."""
        entry = self.entry(task)
        return self.reached(task) and self.current(task) and bool(entry["ready"]) and entry["state"] == "running"

    def final(self, task: str) -> bool:
        return self.state(task) in policy.FINAL

    def awaited_by(self, task: str) -> List[str]:
        """The tasks that have to be ready before this one starts."""
        stage = self._stage.get(task)
        if stage is None:
            return []
        return [other for index in stage["after"] for other in self.stages[index]["tasks"]]

    def wanted(self, tasks: Iterable[str], **fields: Any) -> None:
        """Changes what is wanted of these tasks."""
        for task in tasks:
            intents.change(self.intents[task], **fields)

    def step(self) -> Any:
        """The newest step that the lead or a worker has told, or None."""
        steps = [self.entry(task)["step"] for task in self.with_role("lead", "worker")]
        return max((step for step in steps if step is not None), default=None)

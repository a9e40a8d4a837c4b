"""What has become of a run: the coordinator's word, or the same decider's where only its hosts can be asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.run import outcome
from dtctl.model import TaskId
from dtctl.transport.wire import untrue

if TYPE_CHECKING:
    from dtctl.agent.records.answers import StatusResult
    from dtctl.agent.records.run_state import Entry, Intent
    from dtctl.agent.records.spec import Inventory
    from dtctl.agent.records.whole_run import Condition
    from dtctl.errors import DtctlError
    from dtctl.operations.history.record import RunRecord


class Outcome(str, Enum):
    """TFJob's words for a run (kubeflow training-operator, pkg/apis JobConditionType), and Stopped."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def decided(self) -> bool:
        return self.value in outcome.DECIDED


@dataclass(frozen=True)
class Verdict:
    """What has become of a run, and why."""

    outcome: Outcome
    why: tuple[Fact, ...]
    cause: TaskId | None = None
    """The task whose failure came first; of a failed run only."""

    @classmethod
    def of(cls, kind: str, why: Iterable[Fact], cause: str | None) -> Verdict:
        """As records have it."""
        return cls(Outcome(kind), tuple(why), TaskId.parse(cause) if cause else None)

    @classmethod
    def of_condition(cls, condition: Condition) -> Verdict:
        return cls.of(condition["type"], why_of(condition), condition["cause"])


def judge(run: Inventory, answers: Mapping[str, StatusResult]) -> Verdict:
    """What the hosts' own states say of the run; the tasks of hosts without an answer about it are lost."""
    facts = _facts(run, answers)
    found = outcome.decided(facts) or outcome.decided_elsewhere(facts)
    found = found or outcome.standing(facts, outcome.waits_for_restart(facts))
    if found is not None:
        return Verdict.of(found.kind, found.why, found.cause)
    if len(facts.in_state("pending", "starting")) == len(facts.roster):
        return Verdict(Outcome.CREATED, (fact("no_task_runs"),))
    return Verdict(Outcome.RUNNING, (fact("tasks_run", count=0, of=len(facts.roster)),))


def _facts(run: Inventory, answers: Mapping[str, StatusResult]) -> outcome.Facts:
    entries: dict[str, Entry] = {}
    intents: dict[str, Intent] = {}
    for answer in answers.values():
        if answer["run"] == run["run"] and answer["state"] is not None:
            entries.update(answer["state"]["tasks"])
            intents.update(answer["intents"])
    roster = {member["task"]: member for member in run["roster"]}
    absent = [task for task, member in roster.items() if member["host"] in run["absent"] and task not in entries]
    return outcome.Facts(roster, run["fail_fast"], entries, intents, absent)


def agreed(record: RunRecord, answers: Mapping[str, StatusResult]) -> Inventory | None:
    """The run that is believed, or None when no host has one.

    Only a host that has a task in a run counts among those that tell of it, and only those count together that tell the
    same of it: its id, its age, and every task's place. The newest run that two hosts or more tell of is believed.
    Where no two agree, that of the lead's host (as the cluster file, or the record of this machine, says) is, and then
    the newest. So a single host that lies outvotes no two others, whatever age it claims for its run; what it says of
    other hosts' tasks counts only if there is nobody else to ask.
    """
    told: dict[str, list[str]] = {}
    runs: dict[str, Inventory] = {}
    for host, answer in answers.items():
        inventory = answer["inventory"]
        if inventory is not None and any(member["host"] == host for member in inventory["roster"]):
            key = _key(inventory)
            runs[key] = inventory
            told.setdefault(key, []).append(host)

    def weight(key: str) -> tuple[bool, bool, float]:
        return len(told[key]) > 1, record.coordinator in told[key] and not shared, runs[key]["created"]

    shared = any(len(hosts) > 1 for hosts in told.values())
    return runs[max(told, key=weight)] if told else None


def dissenters(run: Inventory, answers: Mapping[str, StatusResult]) -> dict[str, DtctlError]:
    """Hosts that disagree with what is believed about the same run."""
    return {
        host: untrue(host, f"disagrees with the other hosts about run {run['run']} than what is believed of it")
        for host, answer in answers.items()
        if answer["inventory"] is not None
        and answer["inventory"]["run"] == run["run"]
        and _key(answer["inventory"]) != _key(run)
    }


def _key(inventory: Inventory) -> str:
    return json.dumps(inventory, sort_keys=True)

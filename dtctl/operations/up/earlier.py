"""What a run begins from: a checkpoint that is there already, or step 0 though an earlier run has saved one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtctl.agent.records.answers import Prepared
from dtctl.operations.checkpoints import Checkpoint, Checkpoints, newest_of_run, read_checkpoint, read_checkpoints
from dtctl.operations.memory.record import RunRecord


@dataclass(frozen=True)
class Unseen:
    """What an earlier run has saved, and the one that starts will not find."""

    host: str
    run: str | None
    """None: a run that was removed since."""
    directory: str = ""
    checkpoint: Checkpoint | None = None
    """None: `host` is not asked any more, so nobody knows what lies there."""
    lead: str = ""
    """The host where the new run's lead is."""


def earlier(prepared: Mapping[str, Prepared]) -> Checkpoints | None:
    """In the newest of the directories that the hosts have looked into, or of those that the lead's will look into."""
    found = [each for host, answer in prepared.items() for each in read_checkpoints(host, answer["checkpoints"])]
    seen = [(host, one) for host, answer in prepared.items() for one in answer["saved"] if one["seen"]]
    for host, one in seen:
        newest_seen = read_checkpoint(one["checkpoint"])
        found.append(Checkpoints(host, one["dir"], newest_seen, (), (newest_seen,)))
    newest = newest_of_run(found)
    return newest if newest and newest.newest_complete else None


def unseen(prepared: Mapping[str, Prepared], record: RunRecord, previous: RunRecord | None) -> Unseen | None:
    """The newest checkpoint that is out of sight, where none is in sight. `previous`: the last run of this file."""
    lead = record.coordinator
    if earlier(prepared):
        return None
    told = [(host, one) for host, answer in prepared.items() for one in answer["saved"] if not one["seen"]]
    if told:
        host, newest = max(told, key=lambda one: one[1]["checkpoint"]["time"])
        return Unseen(host, newest["run"], newest["dir"], read_checkpoint(newest["checkpoint"]), lead)
    if previous is not None and previous.run and not previous.is_local and previous.coordinator not in record.hosts:
        return Unseen(previous.coordinator, previous.run, lead=lead)
    return None

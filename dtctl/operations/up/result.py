"""What `up` has done, and what the run begins from: a checkpoint, or step 0 though an earlier run has saved one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dtctl.agent.records.answers import Prepared
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId
from dtctl.operations.checkpoints import Checkpoint, Checkpoints, newest_of_run, read_checkpoint, read_checkpoints
from dtctl.operations.checks.checking import Checked
from dtctl.operations.client.conversation import Progress
from dtctl.operations.client.ending import Ending
from dtctl.operations.client.tasks import TaskStatus
from dtctl.operations.history.record import RunRecord
from dtctl.operations.stop import StopResult
from dtctl.operations.stopping import Stopping
from dtctl.operations.up.watching import FailedStart
from dtctl.transport.seam import Session, Transport


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


@dataclass(frozen=True)
class UpResult:
    """`started` is empty when the run was there already and nothing has changed."""

    run: str
    started: Mapping[TaskId, TaskStatus]
    ended: tuple[TaskId, ...]
    """Tasks that no longer run, if the run was there already."""
    replaced: Mapping[str, StopResult] = field(default_factory=dict)
    """Runs that were replaced, and how they ended."""
    earlier: Checkpoints | None = None
    """Where the lead's host has a complete checkpoint already."""
    without_revival: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which nothing brings the agent back after a restart of the machine, and why."""
    revival: Mapping[str, str] = field(default_factory=dict)
    """Host -> what brings the agent back there: `systemd` or `cron`."""
    new_revival: Mapping[str, str] = field(default_factory=dict)
    """The same of the hosts on which it was written just now."""
    aside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host -> where files of trainers are now that stood where the code has one."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""
    unseen: Unseen | None = None
    """What an earlier run has saved, if this one begins at step 0 beside it."""
    checked: Checked | None = None
    """What the hosts told of themselves by the way."""
    absent: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts that the run goes on without, and why."""
    lead: Session | None = None
    """The conversation with the coordinator's host, which is still open."""
    failed: FailedStart | None = None
    """Why its tasks could not be started for good, as far as they were watched."""
    joined: Mapping[TaskId, TaskStatus] = field(default_factory=dict)
    """Tasks of hosts that have joined a run that was there already, and was started without them."""


class GoingOn:
    """A transport that begins with a conversation which is open already."""

    def __init__(self, transport: Transport, session: Session | None) -> None:
        self._transport, self._session = transport, session

    def open(self, host: Host) -> Session:
        session, self._session = self._session, None
        if session is not None and session.host.name == host.name:
            return session
        return self._transport.open(host)


class UpReport:
    """What `up` reports as it goes on; nobody watches. What `consent` or `stopping` raises cancels the start."""

    def __call__(self, progress: Progress) -> None:
        """From the threads of the hosts."""

    def checked(self, checked: Checked) -> None:
        """What the hosts reported about themselves, once all are prepared."""

    def at_zero(self, unseen: Unseen) -> None:
        """An earlier run has saved a checkpoint that this one does not see."""

    def consent(self, runs: Collection[str]) -> None:
        """These runs are to be replaced."""

    def stopping(self, found: Ending) -> None:
        """What of a run that is replaced is still there, before it is stopped."""

    def stopped(self, told: Stopping) -> None:
        """How far that is, where it takes long."""


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

"""The health of a host and of its tasks, as `diagnose` reports it."""

from ...records.kinds import AtMost, Default, Dict, List, OneOf, Optional, Record
from ...records.values import MOST_TASKS, Count, Epoch, Line, Name, Path, Port, TaskName
from ...records.vitals import Busy, Disk, Machine, Processors

MOST_UNREACHED = 1000


MOST_LOG = 16_384


class Unreached(Record):
    """A task of another host whose address cannot be connected to from here."""

    task: TaskName
    address: Line
    problem: OneOf["refused", "timeout", "no_route", "denied", "unresolved", "other"]
    text: Line
    """The system's error."""


class Diverged(Record):
    """A scalar whose newest value is NaN or infinite."""

    path: Path
    tag: AtMost[str, 1000]
    step: Count


class TaskVitals(Record):
    """The current state of a task."""

    cpu: Default[Optional[Processors], None]
    memory_bytes: Default[Optional[Count], None]
    frozen: Default[bool, False]
    """Stopped by a signal."""
    port: Default[Optional[Port], None]
    listens: Default[bool, False]
    """Whether a process of the run listens on its port."""
    holder: Default[Line, ""]
    """Another process that listens there."""
    python: Default[Line, ""]
    """The program with which it is started."""
    managed: Default[bool, False]
    """Whether the system's package manager owns that Python, so that pip refuses to install (PEP 668)."""
    packages: Default[AtMost[Dict[AtMost[str, 100], AtMost[str, 100]], 100], {}]
    """Versions of frameworks, as that Python has them."""
    log: Default[AtMost[str, MOST_LOG], ""]
    """The end of its newest log, secrets masked."""
    lost_log: Default[AtMost[str, MOST_LOG], ""]
    """The end of the log of the last attempt that ended unexpectedly, if another has begun since."""


class DiagnoseResult(Record):
    """The state of one host and of its part of a run."""

    run: Name
    time: Epoch
    machine: Machine
    disks: Default[AtMost[List[Disk], 100], []]
    busy: Default[AtMost[List[Busy], 10], []]
    unreached: Default[AtMost[List[Unreached], MOST_UNREACHED], []]
    diverged: Default[AtMost[List[Diverged], 100], []]
    tasks: AtMost[Dict[TaskName, TaskVitals], MOST_TASKS]

"""The stacks of the processes of a task, as `dump` reports them."""

from ...records.kinds import AtMost, Default, List, OneOf, Optional, Record
from ...records.requests import Request
from ...records.values import MOST_PROCESSES, Count, Line, Pid, Reason, TaskName, Tasks, TaskState
from ...records.vitals import MOST_STACKS, MOST_THREADS, Stack, Thread

Missing = OneOf[
    "not_python",
    "off",
    "no_handler",
    "replaced",
    "closed",
    "blocked",
    "stopped",
    "young",
    "not_delivered",
    "no_answer",
    "ended",
    "no_time",
]
"""Why the faulthandler of a process was not triggered, or gave no answer."""


class ProcessDump(Record):
    """One process of a task."""

    pid: Pid
    command: Line
    way: Optional[OneOf["py-spy", "faulthandler"]]
    """The source of the stacks; null: there are none."""
    stacks: AtMost[List[Stack], MOST_STACKS]
    stacks_omitted: Default[Count, 0]
    missing: Default[Optional[Missing], None]
    said: Default[Reason, ""]
    """The output of py-spy if it could not read them."""
    threads: AtMost[List[Thread], MOST_THREADS]
    threads_omitted: Default[Count, 0]


class Dump(Record):
    """The frame `dump`: the processes of one task, the trainer first."""

    task: TaskName
    attempt: Count
    state: TaskState
    processes: AtMost[List[ProcessDump], MOST_PROCESSES]
    omitted: Default[Count, 0]
    """The number of processes for which there was no room."""


class DumpRequest(Request):
    """Requests the stacks of live trainers."""

    tasks: Default[Optional[Tasks], None]
    """null: all on this host."""

"""What agents tell of the stacks of live trainers."""

from .kinds import AtMost, Form, List, OneOf, Optional, Record, Usual
from .words import Count, Line, Pid, Reason, TaskName, TaskState

MOST_PROCESSES = 64
MOST_STACKS = 512
MOST_FRAMES = 200
MOST_THREADS = 512
LONGEST_NAME = 200
LONGEST_PATH = 500

_Name = AtMost[str, LONGEST_NAME]

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
"""Why the faulthandler of a process was not asked, or has not answered."""


class Frame(Record):
    """One call; `line` null where it is not known."""

    function: _Name
    file: AtMost[str, LONGEST_PATH]
    line: Optional[Count]


class Stack(Record):
    """The Python calls of one thread, innermost first."""

    thread: Form[str, 18, r"0x[0-9a-f]+", "the number of a thread in hex"]
    """As Python's `threading.get_ident` tells it."""
    name: _Name
    """Empty where it is not known."""
    tid: Optional[Pid]
    """Its number in the kernel, where it is known."""
    main: bool
    active: Optional[bool]
    """It was at work, and did not wait; null: not known."""
    gil: Optional[bool]
    frames: AtMost[List[Frame], MOST_FRAMES]
    omitted: Count
    """Further frames, at least so many."""


class Thread(Record):
    """One thread as the kernel tells it."""

    tid: Pid
    name: Line
    state: Line
    """As in `S (sleeping)`."""
    wchan: Line
    """Where in the kernel it waits; empty where this user may not know it."""
    kernel: AtMost[List[Line], 32]
    """Its stack in the kernel, where this user may read that."""


class ProcessDump(Record):
    """One process of a task."""

    pid: Pid
    command: Line
    way: Optional[OneOf["py-spy", "faulthandler"]]
    """Who has told the stacks; null: there are none."""
    stacks: AtMost[List[Stack], MOST_STACKS]
    stacks_omitted: Usual[Count, 0]
    missing: Usual[Optional[Missing], None]
    said: Usual[Reason, ""]
    """By py-spy, when it could not tell."""
    threads: AtMost[List[Thread], MOST_THREADS]
    threads_omitted: Usual[Count, 0]


class Dump(Record):
    """The frame `dump`: the processes of one task, the trainer first."""

    task: TaskName
    attempt: Count
    state: TaskState
    processes: AtMost[List[ProcessDump], MOST_PROCESSES]
    omitted: Usual[Count, 0]
    """Processes that there was no room for."""

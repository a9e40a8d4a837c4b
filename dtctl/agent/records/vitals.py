"""How machines and processes do: what agents sample while a run continues, and what `diagnose` gathers."""

from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Pattern, Record, Within
from .values import MOST_TASKS, Count, Epoch, Line, Name, Path, Pid, Port, Reason, TaskName, TaskState

MOST_UNREACHED = 1000
MOST_LOG = 16_384
MOST_GPUS = 64

Share = Within[float, 0, 1]
Processors = Within[float, 0, 1e6]
"""How many a process keeps busy; two and a half: 2.5."""


class Waiting(Record):
    """The share of the last 10 s in which something had to wait for it (/proc/pressure); null: it is not known."""

    cpu: Default[Optional[Share], None]
    memory: Default[Optional[Share], None]
    io: Default[Optional[Share], None]


Throttle = OneOf["thermal", "power_cap", "power_brake", "hardware"]
"""What lowers a GPU's clock: its temperature, its power limit, the power supply, or its protection in general."""


class GpuUser(Record):
    """A process that has memory of a GPU."""

    pid: Pid
    name: AtMost[str, 100]
    user: AtMost[str, 100]
    used_bytes: Default[Optional[Count], None]
    run: Default[Optional[Name], None]
    """Of dtctl's, with its task; null: none of this user's."""
    task: Default[Optional[TaskName], None]


class Gpu(Record):
    """A GPU as its driver reports it."""

    index: Count
    name: Default[AtMost[str, 200], ""]
    driver: Default[AtMost[str, 100], ""]
    lost: Default[bool, False]
    """It does not answer its driver any more; none of its figures is known."""
    busy: Default[Optional[Share], None]
    """In the mean since the sample before."""
    used_bytes: Default[Count, 0]
    memory_bytes: Default[Count, 0]
    degrees: Default[Optional[Count], None]
    clock_mhz: Default[Optional[Count], None]
    most_clock_mhz: Default[Optional[Count], None]
    lanes: Default[Optional[Count], None]
    """Of PCIe."""
    throttled: Default[AtMost[List[Throttle], 4], []]
    ecc_errors: Default[Count, 0]
    """Uncorrected, since the driver was loaded."""
    xid: Default[Optional[Count], None]
    """The last error that the driver reported since the agent was started, by its number."""
    given: Default[AtMost[List[TaskName], 1000], []]
    """Tasks of the run that may use it."""
    users: Default[AtMost[List[GpuUser], 100], []]


class Gpus(Record):
    """The GPUs of a host."""

    problem: Default[OneOf["", "no_driver", "silent", "error"], ""]
    """Why they are unknown. silent: the driver does not return."""
    text: Default[Line, ""]
    """The driver's words."""
    each: Default[AtMost[List[Gpu], MOST_GPUS], []]


class Disk(Record):
    """What is left where a run writes."""

    path: Path
    free_bytes: Count
    size_bytes: Count
    free_files: Default[Optional[Count], None]
    """null: the file system has no such limit."""


FULL_SHARE = 0.01
FULL_BYTES = 100 << 20
"""Less than this is left on a disk that is full."""


def is_full(disk: Disk) -> bool:
    return disk["free_bytes"] < min(FULL_BYTES, FULL_SHARE * disk["size_bytes"]) or disk["free_files"] == 0


class Machine(Record):
    """A host, as its agent sampled it; shares are of the time since the sample before."""

    time: Epoch
    cpus: Count
    load: Within[float, 0, 1e9]
    """Of the last minute."""
    busy: Default[Optional[Share], None]
    """Of its processors."""
    stolen: Default[Optional[Share], None]
    """Of its processors, by other guests of the machine that it is a guest of."""
    memory_bytes: Count
    available_bytes: Count
    resent: Default[Optional[Share], None]
    """Of the TCP segments that it sent, those that had to be sent again."""
    waiting: Waiting
    gpus: Default[Optional[Gpus], None]
    """null: it has none, or they were not read yet."""
    full: Default[Optional[Disk], None]
    """The disk of the run's directory, where that is full: then the agent cannot write what it sees."""


class Complaint(Record):
    """A line of a log that reports what its task waits for, or cannot do."""

    text: Line
    since: Epoch
    """When the first of its kind was seen; a step ends it."""
    last: Epoch


class Busy(Record):
    """A process that is none of the run's, and keeps the host's processors busy."""

    pid: Pid
    name: AtMost[str, 100]
    user: AtMost[str, 100]
    cpu: Processors


class Unreached(Record):
    """A task of another host whose address cannot be connected to from here."""

    task: TaskName
    address: Line
    problem: OneOf["refused", "timeout", "no_route", "denied", "unresolved", "other"]
    text: Line
    """The system's words."""


class Diverged(Record):
    """A scalar whose newest value is no number any more."""

    path: Path
    tag: AtMost[str, 1000]
    step: Count


class TaskVitals(Record):
    """A task, looked at now."""

    cpu: Default[Optional[Processors], None]
    memory_bytes: Default[Optional[Count], None]
    frozen: Default[bool, False]
    """Stopped by a signal."""
    port: Default[Optional[Port], None]
    listens: Default[bool, False]
    """A process of the run listens on its port."""
    holder: Default[Line, ""]
    """Who else does."""
    python: Default[Line, ""]
    """The program that it is started with."""
    packages: Default[AtMost[Dict[AtMost[str, 100], AtMost[str, 100]], 100], {}]
    """Versions of what trains, as that Python has them."""
    log: Default[AtMost[str, MOST_LOG], ""]
    """The end of its newest log, secrets masked."""
    lost_log: Default[AtMost[str, MOST_LOG], ""]
    """The end of the log of the last attempt that ended unasked, where another has begun since."""


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

    thread: Pattern[str, 18, r"0x[0-9a-f]+", "the number of a thread in hex"]
    """As Python's `threading.get_ident` returns it."""
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
    """One thread as the kernel shows it."""

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
    """The source of the stacks; null: there are none."""
    stacks: AtMost[List[Stack], MOST_STACKS]
    stacks_omitted: Default[Count, 0]
    missing: Default[Optional[Missing], None]
    said: Default[Reason, ""]
    """What py-spy printed when it could not read them."""
    threads: AtMost[List[Thread], MOST_THREADS]
    threads_omitted: Default[Count, 0]


class Dump(Record):
    """The frame `dump`: the processes of one task, the trainer first."""

    task: TaskName
    attempt: Count
    state: TaskState
    processes: AtMost[List[ProcessDump], MOST_PROCESSES]
    omitted: Default[Count, 0]
    """Processes that there was no room for."""

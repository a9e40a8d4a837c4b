"""The health of machines and processes: samples of agents during a run, and the facts for `diagnose`."""

from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Pattern, Record, Within
from .values import MOST_TASKS, Count, Epoch, Line, Name, Path, Pid, Port, TaskName

MOST_GPUS = 64

Share = Within[float, 0, 1]
Processors = Within[float, 0, 1e6]
"""The number of processors that a process keeps busy, such as 2.5."""


class Waiting(Record):
    """The share of the last 10 s in which processes waited for the resource (/proc/pressure); null: unknown."""

    cpu: Default[Optional[Share], None]
    memory: Default[Optional[Share], None]
    io: Default[Optional[Share], None]


Throttle = OneOf["thermal", "power_cap", "power_brake", "hardware"]
"""What lowers a GPU's clock: its temperature, its power limit, the power supply, or its protection in general."""


class GpuUser(Record):
    """A process that uses memory of a GPU."""

    pid: Pid
    name: AtMost[str, 100]
    user: AtMost[str, 100]
    used_bytes: Default[Optional[Count], None]
    run: Default[Optional[Name], None]
    """The run of dtctl with its task; null: no run of this user."""
    task: Default[Optional[TaskName], None]


class Gpu(Record):
    """A GPU as its driver reports it."""

    index: Count
    name: Default[AtMost[str, 200], ""]
    driver: Default[AtMost[str, 100], ""]
    lost: Default[bool, False]
    """Whether it no longer answers its driver; all its figures are unknown."""
    busy: Default[Optional[Share], None]
    """The mean since the previous sample."""
    used_bytes: Default[Count, 0]
    memory_bytes: Default[Count, 0]
    degrees: Default[Optional[Count], None]
    clock_mhz: Default[Optional[Count], None]
    most_clock_mhz: Default[Optional[Count], None]
    lanes: Default[Optional[Count], None]
    """The number of its PCIe lanes."""
    throttled: Default[AtMost[List[Throttle], 4], []]
    ecc_errors: Default[Count, 0]
    """Uncorrected errors since the driver was loaded."""
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
    """The driver's message."""
    each: Default[AtMost[List[Gpu], MOST_GPUS], []]


USED_SHARE = 0.1
"""A GPU counts as used by unknown processes from this share of its memory on: a desktop takes less."""


class Disk(Record):
    """The free space of a disk that a run writes to."""

    path: Path
    free_bytes: Count
    size_bytes: Count
    free_files: Default[Optional[Count], None]
    """null: the file system has no such limit."""


FULL_SHARE = 0.01
FULL_BYTES = 100 << 20
"""A disk with less free space than this counts as full."""


def is_full(disk: Disk) -> bool:
    return disk["free_bytes"] < min(FULL_BYTES, FULL_SHARE * disk["size_bytes"]) or disk["free_files"] == 0


class Machine(Record):
    """A host, as its agent sampled it; shares are of the time since the previous sample."""

    time: Epoch
    cpus: Count
    load: Within[float, 0, 1e9]
    """The load average of the last minute."""
    busy: Default[Optional[Share], None]
    """The busy share of its processors."""
    stolen: Default[Optional[Share], None]
    """The share of its processors' time that other guests of the same machine took."""
    memory_bytes: Count
    available_bytes: Count
    resent: Default[Optional[Share], None]
    """The share of its sent TCP segments that were retransmitted."""
    waiting: Waiting
    gpus: Default[Optional[Gpus], None]
    """null: it has none, or they were not queried yet."""
    full: Default[Optional[Disk], None]
    """The disk of the run's directory, if it is full: then the agent cannot save its observations."""


class Complaint(Record):
    """A line of a log that reports what its task waits for, or cannot do."""

    text: Line
    since: Epoch
    """The time of the first of its kind; a step ends it."""
    last: Epoch


class Busy(Record):
    """A process outside the run that keeps the host's processors busy."""

    pid: Pid
    name: AtMost[str, 100]
    user: AtMost[str, 100]
    cpu: Processors


MOST_PROCESSES = 64
MOST_STACKS = 512
MOST_FRAMES = 200
MOST_THREADS = 512
LONGEST_NAME = 200
LONGEST_PATH = 500

_Name = AtMost[str, LONGEST_NAME]


class Frame(Record):
    """One call; `line` null: unknown."""

    function: _Name
    file: AtMost[str, LONGEST_PATH]
    line: Optional[Count]


class Stack(Record):
    """The Python calls of one thread, innermost first."""

    thread: Pattern[str, 18, r"0x[0-9a-f]+", "the number of a thread in hex"]
    """The number that Python's `threading.get_ident` returns."""
    name: _Name
    """The name of the thread; empty: unknown."""
    tid: Optional[Pid]
    """Its number in the kernel, if known."""
    main: bool
    active: Optional[bool]
    """Whether it was running, not waiting; null: unknown."""
    gil: Optional[bool]
    frames: AtMost[List[Frame], MOST_FRAMES]
    omitted: Count
    """The number of omitted frames, at least."""


class Thread(Record):
    """One thread as the kernel reports it."""

    tid: Pid
    name: Line
    state: Line
    """The state with its letter, such as `S (sleeping)`."""
    wchan: Line
    """The kernel function in which it waits; empty if this user may not read it."""
    kernel: AtMost[List[Line], 32]
    """Its stack in the kernel, if this user may read that."""


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
    left_lock: Default[Line, ""]
    """The lock of one of PyTorch's compiled extensions for which it waits, and which no process holds."""
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

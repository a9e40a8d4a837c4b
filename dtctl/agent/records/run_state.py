"""Intents and states of tasks: intent.json, state.json and the files of an attempt."""

from .kinds import AtMost, Default, Dict, List, NotRequired, Optional, Pattern, Record, Within
from .reasons import Because, Why
from .spec import Container
from .values import (
    MOST_TASKS,
    BundleId,
    By,
    Count,
    Epoch,
    Hex32,
    Line,
    Name,
    Path,
    Pid,
    Reason,
    Seconds,
    SignalNumber,
    Tail,
    TaskName,
    TaskRange,
    TaskState,
    Variables,
    Want,
)
from .vitals import Complaint, Machine, Processors, Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HISTORY = 50
MOST_LEFT = 1000

Key = Pattern[str, 4096, r"[^\0\ud800-\udc7f\udd00-\udfff]*", "text that an environment can hold"]
"""DTCTL_KEY of an attempt."""


PerSecond = Within[float, 0, 1e12]
Loss = Pattern[str, 64, r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|nan|inf)", "a number"]


class Process(Record):
    """A process for ever: by its pid, when it was started (field 22 of /proc/PID/stat), and the boot it belongs to."""

    pid: Pid
    start_time: Count
    boot_id: Line


class AgentProcess(Process):
    """A supervisor, and since when it is at work."""

    since: Default[Epoch, 0.0]


class How(Because):
    """How a person asks for an end."""

    by: By
    grace_s: Default[Optional[Seconds], None]


class Intent(Because):
    """The wanted state of one task. Of two intents the one with the higher version applies."""

    want: Default[Want, "run"]
    generation: Default[Count, 1]
    version: Default[Count, 1]
    """Counts every change."""
    restarts: Default[Count, 0]
    """The task's number of restarts when this generation begins."""
    grace_s: Default[Optional[Seconds], None]
    by: Default[By, ""]
    early: Default[bool, False]
    """Whether it may start before the tasks that it needs are ready: a failure until then does not count."""
    ends_run: Default[Optional[How], None]
    """The whole run is to end, as a session on the task's host was asked."""
    after: Default[Count, 0]
    """Attempts are numbered from the one after this: it was the last on another host."""
    without: Default[AtMost[List[TaskRange], MOST_TASKS], []]
    """Tasks that take no part in what trains together with this one, since it was last let run (run/gang.py)."""


Intents = Dict[TaskName, Intent]


class IntentFile(Record):
    """intent.json."""

    serial: Count
    session: Default[Optional[Process], None]
    """The session that began the run; null once the run is kept."""
    ends_run: Default[Optional[How], None]
    """The reason to end the run, on a host without tasks; as in an intent."""
    tasks: Intents


class Ending(Record):
    """exit.json: how an attempt ended. An error without a code: it could not be run, and may be tried again."""

    code: Default[Optional[Within[int, 0, 255]], None]
    signal: Default[Optional[SignalNumber], None]
    error: Default[Optional[Reason], None]
    why: Default[Why, []]
    """The same as facts."""
    ended: Default[Optional[Epoch], None]


class Left(Record):
    """A process that outlives SIGKILL."""

    pid: Pid
    command: Line


class Exit(Ending):
    """An ending as state.json has it."""

    retry: Default[bool, True]
    """Whether a task may restart after this kind of exit."""
    left_behind: Default[AtMost[List[Left], MOST_LEFT], []]
    """Processes that were still there when the trainer had ended by itself; they were ended."""
    killed_after_s: Default[Optional[Seconds], None]
    """The grace period after which a stopped task was killed."""
    tail: Default[Tail, ""]
    """The last lines of the log, secrets masked."""


class Past(Record):
    """One attempt that has ended."""

    attempt: Count
    started: Epoch
    ended: Epoch
    asked: bool
    """dtctl had asked for the exit."""
    code: Default[Optional[Within[int, 0, 255]], None]
    signal: Default[Optional[SignalNumber], None]
    cause: Default[Reason, ""]
    """The cause of its end, by its log."""
    step: Default[Optional[Count], None]
    """The last that it reported."""
    short_of_memory: Default[bool, False]
    """The kernel of its host ended processes for want of memory meanwhile."""
    hung: Default[bool, False]
    """Whether it was killed because it hung."""
    why: Default[Why, []]
    """How the hang was detected, and where the task hung."""
    early: Default[bool, False]
    """Whether it failed before the tasks that it needs were ready, which does not count."""


class Entry(Because):
    """A task in state.json."""

    state: Default[TaskState, "pending"]
    attempt: Default[Count, 0]
    restarts: Default[Count, 0]
    generation: Default[Count, 1]
    version: Default[Count, 0]
    """The version of the intent that it follows."""
    pid: Default[Optional[Pid], None]
    start_time: Default[Optional[Count], None]
    program: Default[Line, ""]
    """The program of its newest attempt, usually a Python."""
    since: Default[Optional[Epoch], None]
    next_start: Default[Optional[Epoch], None]
    ready: Default[bool, False]
    """Whether one of its processes listens on its port; or, without a port, whether it runs."""
    step: Default[Optional[Count], None]
    """The last in its log."""
    step_line: Default[Line, ""]
    """The line of the log that `step` was read from, secrets masked."""
    step_time: Default[Optional[Epoch], None]
    rate: Default[Optional[PerSecond], None]
    """Steps a second, at the last one."""
    loss: Default[Optional[Loss], None]
    """The last in its log, in the log's own digits."""
    progress: Default[Optional[Epoch], None]
    """When its log last grew."""
    longest_gap_s: Default[Seconds, 0.0]
    """The longest gap between two signs of progress."""
    first_step_s: Default[Seconds, 0.0]
    """The longest time from the start of an attempt to its first step; 0: there was no step."""
    ready_s: Default[Seconds, 0.0]
    """The longest that an attempt took until it was ready; 0: none was, or it was not seen."""
    cpu: Default[Optional[Processors], None]
    """Processors that the trainer, and what it has started, kept busy lately."""
    memory_bytes: Default[Optional[Count], None]
    """Resident, of the same processes."""
    most_memory_bytes: Default[Count, 0]
    """The most that was ever seen, in all attempts; 0: none was."""
    throttled: Default[Optional[Share], None]
    """In which share of the time lately their control group had used up what it may; null: nothing limits it."""
    idle_since: Default[Optional[Epoch], None]
    """Since when they have done nothing at all: no processor, no bytes, no output but complaints of others."""
    complaint: Default[Optional[Complaint], None]
    """The newest in its log since the last step."""
    left: Default[AtMost[List[Left], MOST_LEFT], []]
    exit: Default[Optional[Exit], None]
    """The exit of the newest attempt; kept until the next one begins."""
    asked: Default[bool, False]
    """dtctl has asked for the exit."""
    history: Default[AtMost[List[Past], HISTORY], []]


APART_S = 60.0
"""Clocks that differ by less are taken for right."""


def ahead_s(clock: float, other: float) -> float:
    """How far one clock is ahead of another, from times read at about the same moment."""
    return clock - other if abs(clock - other) >= APART_S else 0.0


def on_clock(entry: Entry, ahead_s: float) -> Entry:
    """The entry with its times converted to another clock, which is `ahead_s` ahead."""
    if not ahead_s:
        return entry

    def moved(record: "Any", *names: str) -> "Any":
        times = {name: max(0.0, record[name] + ahead_s) for name in names if record[name] is not None}
        return {**record, **times}

    fields = {
        "complaint": entry["complaint"] and moved(entry["complaint"], "since", "last"),
        "history": [moved(past, "started", "ended") for past in entry["history"]],
    }
    shown: Entry = moved({**entry, **fields}, "since", "next_start", "step_time", "progress", "idle_since")
    return shown


class Advance(Record):
    """The fields of an Entry that change with a task's progress and load."""

    step: NotRequired[Optional[Count]]
    step_line: NotRequired[Line]
    step_time: NotRequired[Optional[Epoch]]
    rate: NotRequired[Optional[PerSecond]]
    loss: NotRequired[Optional[Loss]]
    progress: NotRequired[Optional[Epoch]]
    longest_gap_s: NotRequired[Seconds]
    first_step_s: NotRequired[Seconds]
    cpu: NotRequired[Optional[Processors]]
    memory_bytes: NotRequired[Optional[Count]]
    most_memory_bytes: NotRequired[Count]
    throttled: NotRequired[Optional[Share]]
    idle_since: NotRequired[Optional[Epoch]]
    complaint: NotRequired[Optional[Complaint]]


Entries = Dict[TaskName, Entry]


class State(Record):
    """state.json: the state of the tasks of one host."""

    version: Default[Within[int, 1, 1], 1]
    serial: Default[Count, 1]
    intent_serial: Default[Count, 0]
    """The serial of the followed intent.json."""
    run: Name
    host: Name
    agent: Default[Optional[AgentProcess], None]
    finished: Default[bool, False]
    """Whether all tasks are final and the supervisor has ended."""
    machine: Default[Optional[Machine], None]
    unseen: Default[Optional[AtMost[List[Path], 100]], None]
    """Directories of checkpoints that are not those that the lead's host has; null: it has not been found out."""
    tasks: Entries


class Holder(Record):
    """The lock of a cluster on a host: which controller is at work there."""

    by: By
    since: Epoch
    command: Default[Line, ""]
    pid: Default[Optional[Count], None]
    """The controller's process id on its machine."""
    session: Default[Optional[Process], None]
    """On this host."""
    gone: Default[bool, False]
    """The controller is; the session is about to end."""


class Keeper(Record):
    """The parent of a trainer."""

    pid: Pid
    start_time: Count


class Start(Record):
    """start.json: written once, before exec, by the keeper; or, with pid null, by a supervisor that gave up on it."""

    pid: Default[Optional[Pid], None]
    start_time: Default[Optional[Count], None]
    boot_id: Default[Optional[Line], None]
    keeper: Default[Optional[Keeper], None]
    started: Epoch
    key: Default[Key, ""]
    argv: Default[List[str], []]
    contained: Default[bool, False]
    """`pid` is that of the program which runs the trainer in a container, and ends with it."""


class MadeEnvironment(Record):
    """environment.json: written last, so an environment without it is not whole."""

    python: Path
    path: Default[AtMost[List[Path], 100], []]
    """Directories that come first in PATH."""
    variables: Default[Variables, {}]
    """Others that it sets."""
    container: Default[Optional[Container], None]


MOST_PATHS = 1_000_000


class Copy(Record):
    """A file of the code as it was when it had just been copied."""

    sha256: BundleId
    signature: AtMost[str, 100]
    """Size, times of modification and of change in ns, and inode: more digits than every reader of JSON can hold."""


class DataFolder(Record):
    """place.json of a directory of data."""

    dir: Path
    bundle: BundleId
    """The bundle of the newest push."""
    made: bool
    """The directory was made for it."""
    of_others: Default[AtMost[List[Path], MOST_PATHS], []]
    """Files of the bundle that existed before."""


class Code(Record):
    """code.json. A trainer may write to it, as to all that is its user's: what it claims is looked at again."""

    id: Hex32
    """Identifies the directory; equal on hosts that share it."""
    run: Default[Optional[Name], None]
    """The run for which it was last prepared."""
    bundle: Default[Optional[BundleId], None]
    files: Default[AtMost[Dict[Path, Copy], MOST_PATHS], {}]
    links: Default[AtMost[Dict[Path, Path], MOST_PATHS], {}]
    """Those of the push, and one to each file that the setup has made."""
    dirs: Default[AtMost[List[Path], MOST_PATHS], []]

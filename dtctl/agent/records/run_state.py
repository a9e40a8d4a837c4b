"""The intent and the state of each task: intent.json, state.json and the files of an attempt."""

from .kinds import AtMost, Default, Dict, List, NotRequired, OneOf, Optional, Pattern, Record, Within, made
from .reasons import Because, Fact, Why
from .spec import Container
from .values import (
    MOST_HOLDS,
    MOST_TASKS,
    BundleId,
    By,
    Count,
    Epoch,
    Fault,
    HangKind,
    Hex32,
    HolderName,
    HoldKind,
    Line,
    Name,
    Path,
    Pid,
    Port,
    Reason,
    Repair,
    Seconds,
    SignalNumber,
    StartEnd,
    Tail,
    TaskName,
    TaskRange,
    Tasks,
    TaskState,
    Variables,
    Want,
)
from .vitals import Complaint, Machine, Processors, Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HISTORY = 50
MOST_REPAIRS = 100
"""The most results of a repair that are reported."""
MOST_LEFT = 1000

Key = Pattern[str, 4096, r"[^\0\ud800-\udc7f\udd00-\udfff]*", "text that an environment can hold"]
"""DTCTL_KEY of an attempt."""


PerSecond = Within[float, 0, 1e12]
Loss = Pattern[str, 64, r"[-+]?(?:[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|nan|inf)", "a number"]


class Process(Record):
    """Identifies a process permanently: its pid, its start (field 22 of /proc/PID/stat), and its boot."""

    pid: Pid
    start_time: Count
    boot_id: Line


class AgentProcess(Process):
    """A supervisor, and since when it works."""

    since: Default[Epoch, 0.0]


class RunEnd(Record):
    """What an order to stop all tasks means for the run."""

    outcome: OneOf["Succeeded", "Failed", "Stopped"]
    cause: Default[Optional[TaskName], None]
    """The task that failed."""
    start: Default[Optional[StartEnd], None]
    """How the start ended, if it was not complete."""
    hung: Default[bool, False]
    """Whether the task that failed hung."""
    replaced: Default[bool, False]
    """Whether another run of the cluster takes its place."""


REPLACED = made(RunEnd, outcome="Stopped", replaced=True)


class How(Because):
    """A person's request to end the run."""

    by: By
    ends_as: Default[Optional[RunEnd], None]
    """null: the run is stopped."""
    grace_s: Default[Optional[Seconds], None]


class Hold(Record):
    """What keeps a task from running, until a person, a host or the coordinator releases it (run/drains.py)."""

    kind: HoldKind
    holder: HolderName
    """The host, or, where a job is scaled down, the surplus task itself. No host is named like a task."""
    by: Default[By, ""]
    """Who requested it."""
    count: Default[Optional[Count], None]
    """The number of tasks to which the job is scaled."""
    why: Fact
    """The hold as people read it."""


class Release(Record):
    """The end of a hold."""

    host: Default[Optional[Name], None]
    """The host that is in service again."""
    together: bool
    """Whether the task waits until all that need each other can start."""


class Intent(Because):
    """The desired state of one task. Of two intents, the one with the higher version applies."""

    want: Default[Want, "run"]
    holds: Default[AtMost[List[Hold], MOST_HOLDS], []]
    """The holds, while `want` is `hold`: the task cannot start before all of these are released."""
    released: Default[Optional[Release], None]
    """The last release, while nothing has been ordered since."""
    generation: Default[Count, 1]
    version: Default[Count, 1]
    """Counts every change."""
    restarts: Default[Count, 0]
    """The value to which the task's count is set when this generation begins."""
    grace_s: Default[Optional[Seconds], None]
    by: Default[By, ""]
    early: Default[bool, False]
    """Whether it may start before the tasks that it needs are ready: a failure until then does not count."""
    ends_as: Default[Optional[RunEnd], None]
    """The effect of the order on the run, while `want` is `stop`; null: the run is stopped, or only the task is."""
    ends_run: Default[Optional[How], None]
    """The request to end the whole run that a session on the task's host received."""
    after: Default[Count, 0]
    """Attempts are numbered from the one after this: it was the last on another host."""
    without: Default[AtMost[List[TaskRange], MOST_TASKS], []]
    """Tasks that do not train together with this one, since it was last allowed to run (run/gang.py)."""
    repair: Default[Optional[Repair], None]
    """The repair, while the lead is held: its host sets damaged checkpoints aside before the next attempt restores one.
    """


Intents = Dict[TaskName, Intent]


class IntentFile(Record):
    """intent.json."""

    serial: Count
    session: Default[Optional[Process], None]
    """The session that started the run; null once the run is kept."""
    ends_run: Default[Optional[How], None]
    """The same as in an intent, for a host without tasks."""
    tasks: Intents


class Letter(Record):
    """A stop that a session sends to its host's agent where no file can be written (run/letters.py)."""

    id: Name
    pid: Count
    descriptor: Count
    """The end of a pipe in the process `pid`, for the answers."""
    tasks: Tasks
    """Those to stop."""
    how: How
    ends_run: bool
    """Whether the whole run is to end."""


class ProcessLimit(Record):
    """A limit of a process that was set (`ulimit`)."""

    option: AtMost[str, 10]
    """The option of `ulimit`, as in `-v`."""
    value: Count
    """Bytes, seconds or a number."""
    text: Line
    """The value with its unit, as `ulimit` takes it."""


class Obstacle(Record):
    """What kept a program from being run: the program, and the system's error."""

    what: Line
    text: Reason


class Ending(Record):
    """exit.json: how an attempt ended. A fault without a code: it could not be run, and may be tried again."""

    code: Default[Optional[Within[int, 0, 255]], None]
    signal: Default[Optional[SignalNumber], None]
    fault: Default[Optional[Fault], None]
    """Why it has no exit status of its own."""
    shortage: Default[bool, False]
    """Whether its host lacked something that it needs to start a process."""
    cannot_run: Default[Optional[Obstacle], None]
    why: Default[Why, []]
    """The fault, or what is special about the status, as people read it."""
    ended: Default[Optional[Epoch], None]
    limits: Default[AtMost[List[ProcessLimit], 10], []]
    """The limits of its process that were set (`ulimit`)."""
    cpu_s: Default[Optional[Seconds], None]
    """The CPU time that it has used, with that of its children that it waited for."""


class Left(Record):
    """A process that outlives SIGKILL."""

    pid: Pid
    command: Line


class HeldPort(Record):
    """The port that a task needs, held by another process."""

    port: Port
    holder: Reason
    """The process, as people read it."""


class FullDisk(Record):
    """A file system without room."""

    path: Line
    own: bool
    """Whether it is the one of the run's files."""


class Evidence(Record):
    """What the agent found when an attempt had ended: possible causes of the end."""

    port: Default[Optional[HeldPort], None]
    oom_kills: Default[Count, 0]
    """The processes that the kernel killed meanwhile for lack of memory."""
    limits: Default[AtMost[List[ProcessLimit], 10], []]
    """The limits of the process that may have caused it."""
    full_disks: Default[AtMost[List[FullDisk], 10], []]
    hung_in: Default[Reason, ""]
    """Where it hung."""


class Exit(Ending):
    """An ending as in state.json."""

    evidence: Default[Evidence, {}]

    retry: Default[bool, True]
    """Whether an attempt with such an exit may be repeated."""
    left_behind: Default[AtMost[List[Left], MOST_LEFT], []]
    """Processes that remained when the trainer had exited by itself; they were ended."""
    killed_after_s: Default[Optional[Seconds], None]
    """The grace period after which it was killed, because it had not ended on request."""
    tail: Default[Tail, ""]
    """The last lines of the log, secrets masked."""


class Past(Record):
    """One attempt that has ended."""

    attempt: Count
    started: Epoch
    ended: Epoch
    asked: bool
    """Whether dtctl requested the exit."""
    code: Default[Optional[Within[int, 0, 255]], None]
    signal: Default[Optional[SignalNumber], None]
    cause: Default[Reason, ""]
    """The cause of its end, by its log."""
    step: Default[Optional[Count], None]
    """The last step that it reported."""
    step_time: Default[Optional[Epoch], None]
    first_step: Default[Optional[Count], None]
    first_step_time: Default[Optional[Epoch], None]
    shortage: Default[bool, False]
    """Whether its host lacked something that passes: processes, or memory."""
    short_of_memory: Default[bool, False]
    """Whether the kernel of its host killed processes for lack of memory during it."""
    hung: Default[bool, False]
    """Whether it was ended because it hung."""
    why: Default[Why, []]
    """How the hang was detected, and where it hung."""
    early: Default[bool, False]
    """Whether it failed before the tasks that it needs were ready, which does not count as a failure."""


class LostCheckpoint(Record):
    """A checkpoint that cannot be restored, in a directory without a sound one."""

    path: Reason
    problem: Reason
    elsewhere: Default[Optional[Reason], None]
    """The path of one that may be sound, in another directory."""


class Repaired(Record):
    """How the lead's host has carried out the order to repair."""

    attempt: Count
    """The lead's last attempt before that."""
    how: Repair
    done: Default[AtMost[List[Reason], MOST_REPAIRS], []]
    step: Default[Optional[Count], None]
    """The step of the newest complete checkpoint; null: there is none, or it is unknown."""
    lost: Default[Optional[LostCheckpoint], None]


class Hang(Record):
    """How a hang was detected."""

    kind: HangKind
    seconds: Seconds
    """How long there was no sign of progress, or the process was stopped."""


class Position(Record):
    """Where a program is within an epoch, as its log names it: a batch, or an example."""

    epoch: Default[Optional[Count], None]
    epochs: Default[Optional[Count], None]
    batch: Default[Optional[Count], None]
    batches: Default[Optional[Count], None]
    first_epoch: Default[Count, 1]
    """The number of its first epoch, 0 or 1."""


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
    hang: Default[Optional[Hang], None]
    """The hang for which its last attempt was ended, until the next one begins."""
    unwritten: Default[bool, False]
    """Whether its process has ended, and the exit cannot be written."""
    hold: Default[Optional[Hold], None]
    """The first hold of its intent, while the task is pending."""
    next_start: Default[Optional[Epoch], None]
    ready: Default[bool, False]
    """Whether it is ready: a process of its own listens on its port, or it runs if it has no port."""
    step: Default[Optional[Count], None]
    """The last step in its log; with a position, the batches of its epochs that it has done, as far as is known."""
    steps: Default[Optional[Count], None]
    """The steps of the whole training, as its log names them."""
    position: Default[Optional[Position], None]
    """The last position in the log of a program that names no step; it stays until a later attempt reports one."""
    step_line: Default[Line, ""]
    """The line of the log that `step` was read from, secrets masked."""
    step_time: Default[Optional[Epoch], None]
    """When the line of the step was written, as far as the log shows it."""
    first_step: Default[Optional[Count], None]
    """The first step in the log of its newest attempt."""
    first_step_time: Default[Optional[Epoch], None]
    """When that was written; null until it is known, which may take one look longer than the step."""
    step_gap_s: Default[Seconds, 0.0]
    """The time between the last two reports of a step, or from the start to the first."""
    rate: Default[Optional[PerSecond], None]
    """Steps a second, at the last step."""
    loss: Default[Optional[Loss], None]
    """The last loss in its log, in the log's own digits."""
    progress: Default[Optional[Epoch], None]
    """When its log last grew."""
    longest_gap_s: Default[Seconds, 0.0]
    """The longest time between two signs of progress."""
    first_step_s: Default[Seconds, 0.0]
    """The longest time from the start of an attempt to its first step; 0: there was no step."""
    ready_s: Default[Seconds, 0.0]
    """The longest time until an attempt was ready; 0: none was, or it was not observed."""
    cpu: Default[Optional[Processors], None]
    """The number of processors that the trainer and its child processes kept busy lately."""
    memory_bytes: Default[Optional[Count], None]
    """The resident memory of the same processes."""
    most_memory_bytes: Default[Count, 0]
    """The most memory that was measured in all attempts; 0: none was."""
    throttled: Default[Optional[Share], None]
    """The share of recent time in which their control group had used up its quota; null: no limit."""
    idle_since: Default[Optional[Epoch], None]
    """The time since when they have been idle: no processor time, no bytes, no output but complaints about others."""
    still_since: Default[Optional[Epoch], None]
    """The same, whatever its host receives, which may be for other programs."""
    complaint: Default[Optional[Complaint], None]
    """The newest complaint in its log since the last step."""
    left: Default[AtMost[List[Left], MOST_LEFT], []]
    held: Default[bool, False]
    """Whether its processes are stopped by a signal, because its host is cut off from the coordinator."""
    exit: Default[Optional[Exit], None]
    """The exit of the last attempt, or of `failed_attempt`, until the next one begins."""
    failed_attempt: Default[Count, 0]
    """The attempt by whose end it has failed, if a later one was stopped because the start had failed; else 0."""
    asked: Default[bool, False]
    """Whether dtctl requested the exit."""
    repaired: Default[Optional[Repaired], None]
    """The newest repair of the checkpoints, in the lead's entry."""
    history: Default[AtMost[List[Past], HISTORY], []]


APART_S = 60.0
"""Clocks that differ by less count as equal."""


def ahead_s(clock: float, other: float) -> float:
    """How far `clock` is ahead of `other`, if both were read at about the same time; 0 for a small difference."""
    return clock - other if abs(clock - other) >= APART_S else 0.0


def on_clock(entry: Entry, ahead_s: float) -> Entry:
    """The entry with its times by another clock, which is ahead of the entry's by `ahead_s`."""
    if not ahead_s:
        return entry

    def moved(record: "Any", *names: str) -> "Any":
        times = {name: max(0.0, record[name] + ahead_s) for name in names if record[name] is not None}
        return {**record, **times}

    fields = {
        "complaint": entry["complaint"] and moved(entry["complaint"], "since", "last"),
        "history": [moved(past, "started", "ended", "step_time", "first_step_time") for past in entry["history"]],
    }
    shown: Entry = moved(
        {**entry, **fields},
        *("since", "next_start", "step_time", "first_step_time", "progress", "idle_since", "still_since"),
    )
    return shown


class Advance(Record):
    """The changes of a task's progress and load: fields of its Entry."""

    step: NotRequired[Optional[Count]]
    steps: NotRequired[Optional[Count]]
    position: NotRequired[Optional[Position]]
    step_line: NotRequired[Line]
    step_time: NotRequired[Optional[Epoch]]
    first_step: NotRequired[Optional[Count]]
    first_step_time: NotRequired[Optional[Epoch]]
    step_gap_s: NotRequired[Seconds]
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
    still_since: NotRequired[Optional[Epoch]]
    complaint: NotRequired[Optional[Complaint]]


Entries = Dict[TaskName, Entry]


class State(Record):
    """state.json: the state of the tasks of one host."""

    version: Default[Within[int, 1, 1], 1]
    serial: Default[Count, 1]
    intent_serial: Default[Count, 0]
    """The serial of the intent.json that is followed."""
    run: Name
    host: Name
    agent: Default[Optional[AgentProcess], None]
    finished: Default[bool, False]
    """Whether all tasks are final and the supervisor has ended."""
    machine: Default[Optional[Machine], None]
    unseen: Default[Optional[AtMost[List[Path], 100]], None]
    """Checkpoint directories that differ from those of the lead's host; null: unknown."""
    tasks: Entries


class LetterAnswer(Record):
    """The agent's answer to a letter that it obeys."""

    letter: Name
    state: State


class Holder(Record):
    """The lock of a cluster on a host: the controller that works there."""

    by: By
    since: Epoch
    command: Default[Line, ""]
    pid: Default[Optional[Count], None]
    """The pid of the controller's process, on its machine."""
    session: Default[Optional[Process], None]
    """The session on this host."""
    gone: Default[bool, False]
    """Whether the controller has disconnected; the session is about to end."""


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
    """Whether `pid` is the program that runs the trainer in a container, and ends with it."""


class MadeEnvironment(Record):
    """environment.json: written last, so that an environment without it is incomplete."""

    python: Path
    path: Default[AtMost[List[Path], 100], []]
    """Directories that come first in PATH."""
    variables: Default[Variables, {}]
    """Other variables that it sets."""
    container: Default[Optional[Container], None]


MOST_PATHS = 1_000_000


class Copy(Record):
    """A file of the code as it was right after it was copied."""

    sha256: BundleId
    signature: AtMost[str, 100]
    """Size, times of modification and of change in ns, and inode: more digits than every reader of JSON can hold."""


class DataFolder(Record):
    """place.json of a directory of data."""

    dir: Path
    bundle: BundleId
    """The bundle of the newest push."""
    made: bool
    """Whether the directory was created for it."""
    of_others: Default[AtMost[List[Path], MOST_PATHS], []]
    """Files of the bundle that existed before."""


class Code(Record):
    """code.json. A trainer may write to it, as to all files of its user, so its contents are verified."""

    id: Hex32
    """The id of the directory, the same on hosts that share it."""
    run: Default[Optional[Name], None]
    """The run for which it was last prepared."""
    bundle: Default[Optional[BundleId], None]
    files: Default[AtMost[Dict[Path, Copy], MOST_PATHS], {}]
    links: Default[AtMost[Dict[Path, Path], MOST_PATHS], {}]
    """Links of the push, and one to each file that the setup has created."""
    dirs: Default[AtMost[List[Path], MOST_PATHS], []]

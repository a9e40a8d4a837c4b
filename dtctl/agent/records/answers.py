"""The answers of an agent to a controller: one record for each frame, and for the result of each request."""

from .checkpoints import Checkpoint as Checkpoint
from .checkpoints import CheckpointReport as CheckpointReport
from .checkpoints import OutputMark as OutputMark
from .checkpoints import Reports, Saved
from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from .run_state import Entries, Intents, State
from .spec import MOST_VOTERS, CoordinatorAddress, Inventory
from .starting import Credentials
from .values import (
    MOST_CLUSTERS,
    MOST_DAMAGED,
    MOST_FILES,
    MOST_PROCESSES,
    MOST_RUNS,
    MOST_SETUP_LOG,
    MOST_SETUP_LOGS,
    MOST_TAKEN,
    MOST_TASKS,
    BundleId,
    By,
    Count,
    Epoch,
    Hex64,
    Line,
    Name,
    Path,
    Pid,
    Port,
    Reason,
    Seconds,
    SignalNumber,
    StopPhase,
    TaskName,
    Tasks,
    TaskState,
    Topics,
)
from .whole_run import Condition, RunView

Text = AtMost[str, 65536]
Files = AtMost[List[Path], MOST_FILES]


class Greeting(Record):
    """The first frame."""

    protocol: Count
    python: Line
    hostname: Line
    user: Line
    home: Line
    root: Line
    pid: Pid
    time: Epoch
    free_bytes: Count
    cpus: Count
    system: Default[Line, ""]
    """The operating system, its kernel and the kind of processor."""
    memory_bytes: Default[Count, 0]
    fork_server: Default[Line, ""]
    """The path of the socket of the process that forks the next sessions."""


class Lacking(Record):
    """Sent in place of the greeting: the host lacks the program, or its copy is damaged. The controller sends it."""


class Refused(Record):
    """The frame `error`, after which the conversation is over."""

    code: Line
    summary: Text
    detail: Default[Text, ""]
    hint: Default[Text, ""]


class Alive(Record):
    """The frame `beat`: the session is still at work."""

    at: Default[Line, ""]
    """Its current work: `checkpoints`, `bundle`, `setup`, ..., or the request's name."""
    for_s: Default[Seconds, 0.0]
    """How long it has been at that. It may hang, for example in a file system that does not answer."""


class PhaseProgress(Record):
    """The progress of some work."""

    phase: Line
    done_bytes: Default[Count, 0]
    total_bytes: Default[Count, 0]
    text: Default[Text, ""]


class BlockAt(Record):
    """A block of one of the bundle's files."""

    index: Count
    number: Count


class Fed(Record):
    """`fed`: what a host has received from its feeder since it connected to it; it awaits a `feeder_review`."""

    received_bytes: Count


class Need(Record):
    """The manifest of the bundle, or these of its files, by their index in it."""

    manifest: Default[bool, False]
    files: Default[AtMost[List[Count], 1_000_000], []]
    digests: Default[AtMost[List[Count], 1_000_000], []]
    """Files of which the digests of all blocks are wanted."""
    blocks: Default[AtMost[List[BlockAt], 1_000_000], []]
    """Blocks that are requested; they are sent after the files."""
    port: Default[Optional[Port], None]
    """The port at which the host relays its files to the other hosts of a push; it awaits a `feeder`."""


class TakenPort(Record):
    """A port that the run needs and another process has."""

    port: Port
    whose: Line
    """A task, or `the coordinator`."""
    holder: Line


class Facts(Record):
    """The results of a host's checks: with `prepared`, and as the frame `looked`."""

    facts: Default[Optional[Topics], None]
    """The answers to the questions of `up` or `look`."""
    facts_s: Default[Seconds, 0.0]
    """How long the checks took."""


class Joining(Record):
    """The data that a host needs to join a live run that was started without it."""

    inventory: Inventory
    credentials: AtMost[Dict[Name, Credentials], 4096]
    """Host -> its credentials."""


class CodeFile(Record):
    """A file of a bundle, as its manifest lists it."""

    mode: Count
    size: Count
    sha256: Hex64


class JoinResult(Record):
    """What a host needs to join a live run that is new in the cluster file, as the coordinator's host knows it."""

    run: Name
    digest: Line
    """The digest with which the run was started."""
    bundle: Optional[BundleId]
    file: Optional[CodeFile]
    """The cluster file in the bundle; null: it has none at this path."""
    movable: bool
    inventory: Inventory
    coordinator: CoordinatorAddress
    voters: AtMost[List[CoordinatorAddress], MOST_VOTERS]
    replace_s: Optional[Seconds]
    awaited: AtMost[List[Name], 4096]
    """Hosts that have been added, and whose agents have not connected yet."""


class LeftOpen(Record):
    """An ended run of which hosts gave no answer then."""

    run: Name
    hosts: AtMost[List[Name], 4096]
    wait_s: Optional[Within[float, 0, 1000]]
    """How long their tasks may still act; null: unknown."""


class Prepared(Facts):
    """The host is ready; no task has been started."""

    unchanged: bool
    run: Name
    current: Optional[Name]
    replaces: Optional[Name]
    checkpoints: Default[Reports, []]
    saved: Default[AtMost[List[Saved], 100], []]
    """Checkpoints of earlier runs, the newest first."""
    outputs: Default[AtMost[List[OutputMark], 100], []]
    """The marks of output directories that are not empty."""
    taken: Default[AtMost[List[TakenPort], MOST_TAKEN], []]
    free_from: Default[AtMost[List[Port], 100], []]
    """Ports from which on as many are free as any host of the run needs."""
    joining: Default[Optional[Joining], None]
    """Set by the coordinator's host for a run that continues unchanged and was started without some of its hosts."""
    left_open: Default[Optional[LeftOpen], None]
    """The cluster's last run here, if it has ended and its tasks may still act elsewhere."""


class Started(Record):
    """The tasks that were started."""

    run: Name
    tasks: Entries


class States(Record):
    """The state of one host's tasks, and on the coordinator's host that of the whole run."""

    run: Name
    state: Default[Optional[State], None]
    coordination: Default[Optional[RunView], None]


class Log(Record):
    """The bytes from `offset` to `end` of an attempt's log, written before `time`."""

    task: TaskName
    attempt: Count
    offset: Count
    end: Count
    time: Epoch
    truncated: Default[bool, False]
    without_gpus: Default[bool, False]
    """The task is to use no GPU: its host has none, or it may use none of them."""


class Output(Record):
    """Output of a command: 1 is its stdout, 2 its stderr."""

    stream: Count


class UpResult(Record):
    """The run is kept."""

    run: Name
    unchanged: bool
    reboot: Default[Optional[OneOf["systemd", "cron"]], None]
    """The service that restarts it after a reboot of the machine."""
    reboot_new: Default[bool, False]
    """Whether the entry for it is new."""
    reboot_why: Default[Optional[Reason], None]
    """Why there is none."""
    reboot_unsure: Default[Optional[Reason], None]
    """Why it is unknown whether it will."""
    aside: Default[Files, []]
    """New paths of trainers' files that were moved because the code has a file of the same name."""
    pruned: Default[AtMost[List[Name], 10_000], []]
    """Old runs that were removed."""


class PushResult(Record):
    """The result of a push."""

    bundle: Line
    sent_files: Count


class Coordinated(Record):
    """The coordinator's view of the run, in every answer of its host."""

    coordination: Default[Optional[RunView], None]
    """Null if the coordinator does not answer."""
    away: Default[Optional[Refused], None]
    """Why the coordinator does not answer; null if it does."""


class StatusResult(Coordinated):
    """`run` null: there is none."""

    run: Optional[Name]
    time: Epoch
    problem: Default[Optional[Reason], None]
    """Why the current run is unknown, if it is."""
    agent_alive: Default[bool, False]
    inventory: Default[Optional[Inventory], None]
    state: Default[Optional[State], None]
    intents: Default[Intents, {}]
    """The intents of this host's tasks."""
    checkpoints: Default[Reports, []]


class RunResult(Record):
    """The result of requests whose answers were sent as frames before it."""

    run: Name


class KnownRun(Record):
    """A run as one host knows it."""

    run: Name
    cluster: Name
    host: Name
    created: Epoch
    live: bool
    tasks: Dict[TaskName, TaskState]
    condition: Default[Optional[Condition], None]
    """The condition that its coordinator recorded last; null on the other hosts."""
    by: Default[By, ""]
    """user@host of the person who started it."""
    commit: Default[Line, ""]
    """The commit of its code; "" if that was in no repository."""


class DamagedRun(Record):
    """A run with damaged files, which `down` and `gc` remove, or with unreadable files, which stays."""

    run: Name
    host: Name
    cluster: Optional[Name]
    problem: Reason


class ForeignRun(Record):
    """A live run of another account of the host: what the command line of its agent shows."""

    run: Name
    account: Name


class RunsResult(Record):
    """The runs of the host."""

    runs: AtMost[List[KnownRun], MOST_RUNS]
    """The newest, oldest first."""
    omitted: Default[Count, 0]
    """The number of runs for which the list has no room."""
    damaged: Default[AtMost[List[DamagedRun], MOST_DAMAGED], []]
    foreign: Default[AtMost[List[ForeignRun], MOST_DAMAGED], []]
    """Live runs of other accounts; only if the request is for all clusters."""
    foreign_hidden: Default[bool, False]
    """Whether /proc hides the processes of other accounts (hidepid), and so their runs."""


class Survivor(Record):
    """A process that outlives SIGKILL. `task` null: that of an unknown task."""

    task: Default[Optional[TaskName], None]
    pid: Pid
    command: Line


Survivors = AtMost[List[Survivor], MOST_PROCESSES]


Killed = AtMost[Dict[TaskName, Seconds], MOST_TASKS]


class Ended(Record):
    """The result of stopping tasks."""

    stopped: Tasks
    killed: Default[Killed, {}]
    """Stopped tasks that were killed after ignoring SIGTERM, each with its grace period."""
    already: Tasks
    """Tasks that had ended before, or were ending by themselves."""
    survivors: Survivors
    omitted: Default[Count, 0]
    """The number of survivors for which the list has no room."""


class Changed(Coordinated):
    """The request for the tasks is executed: on one host, or with `coordination` in the whole run."""

    run: Name
    unreached: Default[AtMost[List[Name], 4096], []]
    """Unreachable hosts, where it is not executed."""
    inventory: Inventory


class StopResult(Changed, Ended):
    """The tasks have ended, or cannot be ended."""

    waiting: Default[Tasks, []]
    """Servers that end after all other tasks on all hosts; the client confirms that with `others_ended`."""
    unwritten: Default[bool, False]
    """Whether the host's agent obeys in memory, as no file can be written: one that is started anew does not know it.
    """


class Departing(Record):
    """One task that is being stopped."""

    way: StopPhase
    for_s: Default[Optional[Seconds], None]
    """Time from SIGTERM until its end or now; null: no SIGTERM was sent, or it was sent before this request."""
    signal: Default[Optional[SignalNumber], None]
    """The signal that ended it."""


class Stopping(Record):
    """Changes of tasks that are being stopped since the last such frame; at most one frame a second."""

    grace_s: Seconds
    tasks: AtMost[Dict[TaskName, Departing], MOST_TASKS]


class RestartResult(Changed):
    """The tasks with their new attempts."""

    tasks: Entries


class ReadmitResult(Record):
    """Whether this host is meant, and had been left out of the last run."""

    readmitted: bool


class Written(Record):
    """Files that trainers wrote in their working directory."""

    cluster: Default[Optional[Name], None]
    id: AtMost[str, 100]
    """The same on hosts that share the directory."""
    path: Path
    """The path of the directory."""
    files: Count
    size_bytes: Count


class DownResult(Ended):
    """The tasks that were stopped, and the runs that were removed."""

    removed: AtMost[List[Name], 10_000]
    """Runs."""
    kept: AtMost[List[Written], MOST_CLUSTERS]
    """Directories of this cluster with files of trainers, which stay."""
    awaits: Default[AtMost[Dict[Name, AtMost[List[Name], 4096]], 10_000], {}]
    """Run -> hosts that gave no answer when it ended."""
    waits: Default[AtMost[List[Name], 10_000], []]
    """Runs of which an agent stays here, which ends the tasks there when such a host comes back."""
    over: Default[AtMost[List[Name], 10_000], []]
    """Runs that this host has coordinated, and that have ended everywhere: others may have left before they knew."""


class PortsResult(Record):
    """The ports that were chosen."""

    tasks: AtMost[Dict[TaskName, Port], MOST_TASKS]
    coordinator: Optional[Port]


class EventsResult(Record):
    """The number of the next line."""

    run: Name
    next: Count
    passed_over: Default[Count, 0]
    """The number of requested lines that are damaged."""


class SetupLog(Record):
    """The end of a log of the preparation of a start."""

    path: Path
    text: AtMost[str, 2 * MOST_SETUP_LOG]


class SetupLogsResult(Record):
    """Logs of the last start: of creating the environment, and of the setup."""

    logs: AtMost[List[SetupLog], MOST_SETUP_LOGS]

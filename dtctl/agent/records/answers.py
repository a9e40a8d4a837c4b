"""The answers of an agent to a controller: one record for each frame, and for the result of each request."""

from .checkpoints import Checkpoint as Checkpoint
from .checkpoints import CheckpointReport as CheckpointReport
from .checkpoints import FilePart, Landing, Reports, Saved, Stored
from .checkpoints import OutputMark as OutputMark
from .checks import MOST_PLACES, CheckFacts
from .checks import DataHeld as DataHeld
from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Record
from .run_state import Entries, Intents, State
from .spec import Inventory
from .starting import Credentials
from .tensorboard import CaughtUp, ChannelWord, EventFile, Points, TakenWord, TensorboardReady
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
    By,
    Count,
    Epoch,
    ExitCode,
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
)
from .vitals import Dump
from .whole_run import Condition, HistoryEvent, RunView

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
    """Sent in place of the greeting: the agent's program is missing or damaged on the host and must be sent."""


class Refused(Record):
    """The frame `error`, after which the conversation is over."""

    code: Line
    summary: Text
    detail: Default[Text, ""]
    hint: Default[Text, ""]


class Alive(Record):
    """The frame `beat`: the session is still at work."""

    at: Default[Line, ""]
    """The current activity: `checkpoints`, `bundle`, `setup`, ..., or the request's name."""
    for_s: Default[Seconds, 0.0]
    """The duration of that activity. It may hang, for example in a file system that does not respond."""


class Progress(Record):
    """How far something has come."""

    phase: Line
    done_bytes: Default[Count, 0]
    total_bytes: Default[Count, 0]
    text: Default[Text, ""]


class BlockAt(Record):
    """A block of one of the bundle's files."""

    index: Count
    number: Count


class Need(Record):
    """The manifest of the bundle, or these of its files, by their index in it."""

    manifest: Default[bool, False]
    files: Default[AtMost[List[Count], 1_000_000], []]
    digests: Default[AtMost[List[Count], 1_000_000], []]
    """Files of which the digests of all blocks are wanted."""
    blocks: Default[AtMost[List[BlockAt], 1_000_000], []]
    """Blocks that are sent after the files."""
    port: Default[Optional[Port], None]
    """The port on which the host sends its files to other hosts of a push that relays; it awaits a `feeder`."""


class TakenPort(Record):
    """A port that the run needs and another process has."""

    port: Port
    whose: Line
    """A task, or `the coordinator`."""
    holder: Line


class Facts(Record):
    """The facts of a host's checks: part of `prepared`, and the frame `looked`."""

    facts: Default[Optional[CheckFacts], None]
    """The facts that `up` or `look` asked for."""
    facts_s: Default[Seconds, 0.0]
    """How long it took to find that out."""


class Joining(Record):
    """The data that a host needs to join a live run that was started without it."""

    inventory: Inventory
    credentials: AtMost[Dict[Name, Credentials], 4096]
    """By host."""


class Prepared(Facts):
    """The host is ready, and has started nothing."""

    unchanged: bool
    run: Name
    current: Optional[Name]
    replaces: Optional[Name]
    checkpoints: Default[Reports, []]
    saved: Default[AtMost[List[Saved], 100], []]
    """Checkpoints of earlier runs, the newest first."""
    outputs: Default[AtMost[List[OutputMark], 100], []]
    """The owners of output directories that are not empty."""
    taken: Default[AtMost[List[TakenPort], MOST_TAKEN], []]
    free_from: Default[AtMost[List[Port], 100], []]
    """Ports from which on as many are free as any host of the run needs."""
    joining: Default[Optional[Joining], None]
    """For a run that continues unchanged and was started without some hosts; only from its coordinator's host."""


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


class Output(Record):
    """Output of a command: 1 is its stdout, 2 its stderr."""

    stream: Count


class UpResult(Record):
    """The run is there to stay."""

    run: Name
    unchanged: bool
    reboot: Default[Optional[OneOf["systemd", "cron"]], None]
    """How the agent restarts after a reboot."""
    reboot_new: Default[bool, False]
    """Whether the entry for that is new."""
    reboot_why: Default[Optional[Reason], None]
    """Why there is nothing."""
    aside: Default[Files, []]
    """New paths of trainers' files that were moved because the code has a file of the same name."""
    pruned: Default[AtMost[List[Name], 10_000], []]
    """Old runs that were removed."""


class PushResult(Record):
    """How many files were sent."""

    bundle: Line
    sent_files: Count


class DataPushResult(Record):
    """The files that were sent, and those of others that existed already."""

    bundle: Line
    sent_files: Count
    found_files: Default[Count, 0]
    removed_files: Default[Count, 0]
    """Files of an earlier push that the data set no longer has."""
    port: Default[Optional[Port], None]
    """As `port` of `need`."""


class DataDropped(Record):
    """The files of a directory that were removed and kept."""

    dir: Path
    removed_files: Default[Count, 0]
    freed_bytes: Default[Count, 0]
    kept_files: Default[Count, 0]
    """Files of others, or changed since the push."""


class DataDropResult(Record):
    """The results in the order of the requested directories."""

    at: AtMost[List[DataDropped], MOST_PLACES]


class Coordinated(Record):
    """The fields about the run's coordinator in every answer of its host."""

    coordination: Default[Optional[RunView], None]
    """The coordinator's view, if it answers."""
    away: Default[Optional[Refused], None]
    """Why it does not answer, where it does not."""


class StatusResult(Coordinated):
    """`run` null: there is none."""

    run: Optional[Name]
    time: Epoch
    problem: Default[Optional[Reason], None]
    """Why the current run is unknown, where it is."""
    agent_alive: Default[bool, False]
    inventory: Default[Optional[Inventory], None]
    state: Default[Optional[State], None]
    intents: Default[Intents, {}]
    """The intents of this host's tasks."""
    checkpoints: Default[Reports, []]


class RunResult(Record):
    """The result of requests whose answers came in frames before it."""

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
    """The condition that its coordinator last recorded; null on other hosts."""
    by: Default[By, ""]
    """user@host of the person who started it."""


class DamagedRun(Record):
    """A run whose files do not hold what they should; `down` and `gc` remove it. Or they cannot be read; it stays."""

    run: Name
    host: Name
    cluster: Optional[Name]
    problem: Reason


class ForeignRun(Record):
    """A live run of another account of the host: what the command line of its agent shows."""

    run: Name
    account: Name


class RunsResult(Record):
    """All runs on the host."""

    runs: AtMost[List[KnownRun], MOST_RUNS]
    """The newest, oldest first."""
    omitted: Default[Count, 0]
    """Others that the list has no room for."""
    damaged: Default[AtMost[List[DamagedRun], MOST_DAMAGED], []]
    foreign: Default[AtMost[List[ForeignRun], MOST_DAMAGED], []]
    """Set if all clusters are requested."""


class Survivor(Record):
    """A process that outlives SIGKILL. `task` null: that of an unknown task."""

    task: Default[Optional[TaskName], None]
    pid: Pid
    command: Line


Survivors = AtMost[List[Survivor], MOST_PROCESSES]


Killed = AtMost[Dict[TaskName, Seconds], MOST_TASKS]


class Ended(Record):
    """How the tasks have ended."""

    stopped: Tasks
    killed: Default[Killed, {}]
    """Stopped tasks that did not exit on SIGTERM, with their grace period."""
    already: Tasks
    """Had ended before, or end by themselves at that moment."""
    survivors: Survivors
    omitted: Default[Count, 0]
    """Survivors that the list has no room for."""


class Changed(Coordinated):
    """The requested change of tasks is done: on one host, or with `coordination` in the whole run."""

    run: Name
    unreached: Default[AtMost[List[Name], 4096], []]
    """Hosts that are away and where it is not done."""
    inventory: Inventory


class StopResult(Changed, Ended):
    """The tasks have ended, or cannot be ended."""

    waiting: Default[Tasks, []]
    """Servers that end when nothing else is left on any host: who asks says so with `others_ended`."""


class Leaving(Record):
    """One task that is being stopped."""

    way: StopPhase
    for_s: Default[Optional[Seconds], None]
    """The time from SIGTERM until its end; null: it got none, or before this stop was requested."""
    signal: Default[Optional[SignalNumber], None]
    """The signal that ended it."""


class Stopping(Record):
    """Changes of tasks that are being stopped since the last such frame, at most once a second."""

    grace_s: Seconds
    tasks: AtMost[Dict[TaskName, Leaving], MOST_TASKS]


class RestartResult(Changed):
    """The tasks with their new attempts."""

    tasks: Entries


class Written(Record):
    """Files that trainers wrote to their working directory."""

    cluster: Default[Optional[Name], None]
    id: AtMost[str, 100]
    """The same on hosts that share the directory."""
    path: Path
    """The directory's path."""
    files: Count
    size_bytes: Count


class DownResult(Ended):
    """The result of `down`: tasks that ended and files that were removed."""

    removed: AtMost[List[Name], 10_000]
    """Runs."""
    kept: AtMost[List[Written], MOST_CLUSTERS]
    """Files of the cluster that are kept."""


class PortsResult(Record):
    """The ports that were chosen."""

    tasks: AtMost[Dict[TaskName, Port], MOST_TASKS]
    coordinator: Optional[Port]


class ExecResult(Record):
    """How the command ended."""

    exit_code: Optional[ExitCode]
    signal: Optional[SignalNumber]


class EventsResult(Record):
    """The number of the next line."""

    run: Name
    next: Count
    passed_over: Default[Count, 0]
    """Lines that were asked for and are damaged."""


class Orphan(Record):
    """A process of a run that has ended, or is not there any more."""

    pid: Pid
    command: Line
    run: Name


class DeadRun(Record):
    """A run that is not needed any more."""

    run: Name
    cluster: Optional[Name]
    """null: its files do not name it any more."""
    host: Name
    reason: Reason
    size_bytes: Default[Count, 0]


class SetupLog(Record):
    """The end of a log of what was made before a start."""

    path: Path
    text: AtMost[str, 2 * MOST_SETUP_LOG]


class SetupLogsResult(Record):
    """The output of the last start's environment and setup."""

    logs: AtMost[List[SetupLog], MOST_SETUP_LOGS]


class GcResult(Record):
    """Files and processes that were, or would be, removed."""

    dry_run: bool
    processes: Default[AtMost[List[Orphan], MOST_PROCESSES], []]
    survivors: Default[AtMost[List[Orphan], MOST_PROCESSES], []]
    """Processes that survived SIGKILL."""
    runs: Default[AtMost[List[DeadRun], MOST_RUNS], []]
    bundles: Default[AtMost[List[Line], 10_000], []]
    environments: Default[AtMost[List[Line], 10_000], []]
    files: Default[Files, []]
    written: Default[AtMost[List[Written], MOST_CLUSTERS], []]
    """Removed, or to be removed, as `written` asks for it."""
    kept: Default[AtMost[List[Written], MOST_CLUSTERS], []]
    """The same, left alone."""
    omitted: Default[Count, 0]
    """The number of entries of any kind that do not fit into the lists."""
    freed_bytes: Default[Count, 0]


FRAMES = {
    "greeting": Greeting,
    "lacking": Lacking,
    "error": Refused,
    "beat": Alive,
    "progress": Progress,
    "need": Need,
    "prepared": Prepared,
    "looked": Facts,
    "started": Started,
    "states": States,
    "stopping": Stopping,
    "log": Log,
    "output": Output,
    "event": HistoryEvent,
    "points": Points,
    "dump": Dump,
    "tensorboard_ready": TensorboardReady,
    "piece": ChannelWord,
    "taken": TakenWord,
    "closed": ChannelWord,
    "event_file": EventFile,
    "caught_up": CaughtUp,
    "part": FilePart,
    "landing": Landing,
    "stored": Stored,
}
"""Frame type -> record. The record of a `result` depends on the request."""

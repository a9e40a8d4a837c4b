"""Requests of a controller about an existing run, and the messages within a conversation.

Requests that need more records are in starting.py, checkpoints.py and tensorboard.py.
"""

from .kinds import AtMost, Default, Dict, InvalidValue, List, OneOf, Optional, Record, Within, also
from .reasons import Why
from .run_state import RunEnd
from .spec import MOST_SLOTS, CodePath, Spare
from .values import BundleId, By, Count, Epoch, Line, Name, Path, Port, Seconds, TaskName, Tasks

START = b"\x1e"
"""Written by a session before its greeting; output before it comes from a login shell."""


MOST_CONTEXT = 1000
"""The most lines of context before and after a match in a log."""


class Request(Record):
    """The fields of every request about a run; `run` null means the cluster's current run on this host."""

    type: Line
    cluster: Name
    host: Name
    run: Default[Optional[Name], None]
    pid: Default[Optional[Count], None]
    """The pid of the controller's process, shown by another command that finds the cluster locked."""


class PortsRequest(Request):
    """Requests free ports, which are kept until the `up` that follows in the same conversation."""

    tasks: Tasks
    """Tasks of this host that need a port."""
    coordinator: Default[bool, False]
    """Whether the coordinator needs one, too."""


class PushRequest(Request):
    """Sends a bundle."""

    bundle: BundleId


class StatusRequest(Request):
    """Queries the state of the run."""

    guess: Default[bool, False]
    """Whether to search for checkpoints also where no setting points to."""
    dirs: Default[AtMost[List[Path], 100], []]
    """The directories to search for checkpoints if there is no run here."""


class WatchRequest(Request):
    """Requests the state whenever it changes."""

    for_s: Default[Optional[Seconds], None]
    """The longest duration."""


class LogsRequest(Request):
    """Requests output of tasks."""

    tasks: Default[Optional[Tasks], None]
    """null: all on this host."""
    lines: Default[Optional[Count], None]
    """The number of lines of each task; null: all."""
    since: Default[Optional[Epoch], None]
    until: Default[Optional[Epoch], None]
    """The end of the time range; excludes `follow`."""
    grep: Default[Optional[AtMost[str, 65536]], None]
    """A regular expression."""
    errors: Default[bool, False]
    """Whether to send only tracebacks and lines in which programs report why they end."""
    context: Default[Within[int, 0, MOST_CONTEXT], 0]
    """The number of lines before and after each match."""
    previous: Default[bool, False]
    """The logs of the attempt before the newest one."""
    attempt: Default[Optional[Count], None]
    all_attempts: Default[bool, False]
    """The logs from the first attempt on."""
    follow: Default[bool, False]
    states: Default[bool, False]
    """`states` frames in between, as `watch` sends them."""
    resume: Default[Dict[TaskName, AtMost[List[Count], 2]], {}]
    """Attempt and offset to continue from; takes precedence over `lines` and `since`."""


class RunsRequest(Record):
    """Requests the runs of a cluster, or all runs."""

    type: Line
    cluster: Default[Optional[Name], None]
    host: Default[Optional[Name], None]


class StopRequest(Request):
    """Stops tasks."""

    tasks: Default[Optional[Tasks], None]
    """null: all of the run."""
    grace_s: Default[Optional[Seconds], None]
    why: Default[Why, []]
    by: Default[By, ""]
    ends_as: Default[Optional[RunEnd], None]
    others_ended: Default[bool, False]
    """Whether servers need not wait, because all other tasks have ended on all hosts."""


class RestartRequest(Request):
    """Starts tasks again."""

    tasks: Default[Optional[Tasks], None]
    """null: all of the run."""
    by: Default[By, ""]


class UndrainRequest(Request):
    """Lets the tasks of a drained host run again, or more tasks of a job: `dtctl undrain`, or `scale`."""

    drained: Default[Optional[Name], None]
    """The host; null: it is about a job."""
    job: Default[Optional[Name], None]
    count: Default[Count, 0]
    """The number of the job's tasks that may run: the first ones."""
    by: Default[By, ""]


class DrainRequest(UndrainRequest):
    """Stops the tasks of a host, and holds them and those that cannot continue without them; or tasks of a job."""

    grace_s: Default[Optional[Seconds], None]


class ReadmitRequest(Request):
    """Lets a host take part in the next run that the last one, which has ended, had left out for the failures on it."""

    readmitted: Name


class JoinRequest(Request):
    """Adds hosts to a live run as spares; without hosts, only asks for what these need."""

    file: Default[Optional[CodePath], None]
    """The cluster file's path in the code directory, if it is there."""
    joins: Default[AtMost[Dict[Name, Spare], MOST_SLOTS], {}]
    replace_s: Default[Optional[Seconds], None]
    """The time after which they replace hosts, if the run was started without spares."""
    by: Default[By, ""]


class DownRequest(Request):
    """Stops and removes runs."""

    grace_s: Default[Optional[Seconds], None]
    by: Default[By, ""]
    reached: Default[Optional[AtMost[List[Name], 4096]], None]
    """The hosts that are asked the same now: a run of others that may not have ended is waited for. null: of none."""


EventsRequest = Record(
    "EventsRequest",
    {
        "type": Line,
        "cluster": Name,
        "host": Name,
        "run": Default[Optional[Name], None],
        "pid": Default[Optional[Count], None],
        "from": Default[Optional[Within[int, -(2**53), 2**53]], None],
        "follow": Default[bool, False],
        "whole": Default[bool, False],
    },
)
"""The event history from line `from` on; a negative number counts from its end. `follow`: until the run has ended."""


class ControlMessage(Record):
    """A message without fields. `manifest`: the bundle's manifest, as the bytes of the frame (zlib)."""


class DigestsWord(Record):
    """`digests`: the SHA-256 of each MiB of one of the bundle's files, as the bytes of the frame."""

    index: Count
    """The file's index in the manifest's list."""


class FileWord(Record):
    """`file`: a part of one of the bundle's files or of a block of it, as the bytes of the frame."""

    index: Count
    """The file's index in the manifest's list."""
    encoding: Default[OneOf["raw", "zlib"], "raw"]
    """zlib: the bytes of each frame are a whole stream."""
    last: Default[bool, False]
    """Whether the file, or the block, is complete."""


class FeederWord(Record):
    """`feeder`: the host that has the needed files; none: the controller sends them, in the next frames."""

    address: Default[Line, ""]
    port: Default[Optional[Port], None]


class FeederReviewWord(Record):
    """`feeder_review`: the answer to `fed`; without `stays` the host leaves its feeder, and sends a `need` again."""

    stays: bool


@also(LogsRequest)
def _resumes_at_places(request: LogsRequest) -> None:
    for task, place in request["resume"].items():
        if len(place) != 2:
            raise InvalidValue.at(("resume", task), "an attempt and an offset", place)
    if request["errors"] and request["grep"] is not None:
        raise InvalidValue.at(("errors",), "false, as lines are searched for", True)
    if request["follow"] and request["until"] is not None:
        raise InvalidValue.at(("until",), "null, as the logs are followed", request["until"])

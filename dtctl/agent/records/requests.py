"""Requests about an existing run, and the messages within a conversation.

Requests that need more records are in starting.py, checkpoints.py and tensorboard.py.
"""

from .kinds import AtMost, Default, Dict, InvalidValue, List, OneOf, Optional, Record, Within, also
from .reasons import Why
from .values import BundleId, By, Count, Epoch, Line, Name, Port, Seconds, TaskName, Tasks, refuse_unfit

START = b"\x1e"
"""The bytes that a session writes before its greeting; anything before them is output of a login shell."""


MOST_POINTS = 2000
"""The most points that are sent of a series."""


MOST_CONTEXT = 1000
"""Lines before and after each that was found in a log."""


class Request(Record):
    """The fields of every request about a run; `run` null means the cluster's current run on this host."""

    type: Line
    cluster: Name
    host: Name
    run: Default[Optional[Name], None]
    pid: Default[Optional[Count], None]
    """The controller's process id, which another command shows if it finds the cluster locked."""


class PortsRequest(Request):
    """Asks for free ports, which are kept until the `up` that follows in the same conversation."""

    tasks: Tasks
    """Those of this host that need one."""
    coordinator: Default[bool, False]
    """The coordinator needs one, too."""


class PushRequest(Request):
    """Brings a bundle."""

    bundle: BundleId


class StatusRequest(Request):
    """How the run is."""

    guess: Default[bool, False]
    """Checkpoints are looked for where no setting leads, too."""


class WatchRequest(Request):
    """The same whenever it changes."""

    for_s: Default[Optional[Seconds], None]
    """Ends after so long in any case."""


class LogsRequest(Request):
    """Part of what tasks have printed."""

    tasks: Default[Optional[Tasks], None]
    """null: all on this host."""
    lines: Default[Optional[Count], None]
    """The number of last lines of each task; null: all."""
    since: Default[Optional[Epoch], None]
    until: Default[Optional[Epoch], None]
    """Not with `follow`."""
    grep: Default[Optional[AtMost[str, 65536]], None]
    """A regular expression."""
    errors: Default[bool, False]
    """Only tracebacks and the lines in which programs report why they end."""
    context: Default[Within[int, 0, MOST_CONTEXT], 0]
    """Lines before and after each that was found."""
    previous: Default[bool, False]
    """Only the attempt before the newest."""
    attempt: Default[Optional[Count], None]
    all_attempts: Default[bool, False]
    """All attempts, from the first one on."""
    follow: Default[bool, False]
    states: Default[bool, False]
    """`states` frames in between, as `watch` sends them."""
    resume: Default[Dict[TaskName, AtMost[List[Count], 2]], {}]
    """Attempt and offset to continue from; this holds against `lines` and `since`."""


class MetricsRequest(Request):
    """The scalars that trainers have written for TensorBoard."""

    tags: Default[Optional[AtMost[List[AtMost[str, 1000]], 1000]], None]
    """Tags, or patterns as of file names; null: all."""
    points: Default[Within[int, 1, MOST_POINTS], MOST_POINTS]
    """The most of each series, evenly spread."""
    follow: Default[bool, False]


class DumpRequest(Request):
    """The stacks of live trainers."""

    tasks: Default[Optional[Tasks], None]
    """null: all on this host."""


class RunsRequest(Record):
    """The runs of a cluster, or all."""

    type: Line
    cluster: Default[Optional[Name], None]
    host: Default[Optional[Name], None]


class StopRequest(Request):
    """Ends tasks."""

    tasks: Default[Optional[Tasks], None]
    """null: all of the run."""
    grace_s: Default[Optional[Seconds], None]
    why: Default[Why, []]
    by: Default[By, ""]
    others_ended: Default[bool, False]
    """Servers need not wait: nothing else is left on any host."""


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
    """How many of the job's tasks are to run: the first ones."""
    by: Default[By, ""]


class DrainRequest(UndrainRequest):
    """Ends the tasks of a host, and holds them and those that cannot continue without them; or tasks of a job."""

    grace_s: Default[Optional[Seconds], None]


class DownRequest(Request):
    """Ends and removes."""

    grace_s: Default[Optional[Seconds], None]
    by: Default[By, ""]


class ExecRequest(Request):
    """Runs one command."""

    argv: List[str]
    task: Default[Optional[TaskName], None]
    """The task whose environment is used, and whose secrets are masked."""
    cwd: Default[OneOf["code", "home"], "home"]


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


class GcRequest(Record):
    """Finds and removes what dead runs have left, of one cluster or of all."""

    type: Line
    cluster: Default[Optional[Name], None]
    host: Name
    dry_run: Default[bool, False]
    all: Default[bool, False]
    written: Default[bool, False]
    """Includes files that trainers wrote to working directories of clusters without a run."""
    over: Default[bool, False]
    """Every run that is over goes, the newest too."""


class ControlMessage(Record):
    """Nothing but its type. `manifest`: and the bundle's, as the bytes of the frame (zlib)."""


class DigestsWord(Record):
    """`digests`: the SHA-256 of each MiB of one of the bundle's files, as the bytes of the frame."""

    index: Count
    """In the manifest's list."""


class FileWord(Record):
    """`file`: a part of one of the bundle's files or of a block of it, as the bytes of the frame."""

    index: Count
    """In the manifest's list."""
    encoding: Default[OneOf["raw", "zlib"], "raw"]
    """zlib: the bytes of each frame are a whole stream."""
    last: Default[bool, False]
    """The file, or the block, is complete."""


class FeederWord(Record):
    """`feeder`: the host that has what is needed; none: the controller sends it, by the next frames."""

    address: Default[Line, ""]
    port: Default[Optional[Port], None]


@also(ExecRequest)
def _is_a_command(request: ExecRequest) -> None:
    if not request["argv"]:
        raise InvalidValue.at(("argv",), "a command", request["argv"])
    refuse_unfit(("argv",), request["argv"])


@also(LogsRequest)
def _resumes_at_places(request: LogsRequest) -> None:
    for task, place in request["resume"].items():
        if len(place) != 2:
            raise InvalidValue.at(("resume", task), "an attempt and an offset", place)
    if request["errors"] and request["grep"] is not None:
        raise InvalidValue.at(("errors",), "false, as lines are searched for", True)
    if request["follow"] and request["until"] is not None:
        raise InvalidValue.at(("until",), "null, as the logs are followed", request["until"])


@also(GcRequest)
def _is_of_one_or_all(request: GcRequest) -> None:
    if not request["all"] and request["cluster"] is None:
        raise InvalidValue.at(("cluster",), "the name of a cluster, or `all`", None)

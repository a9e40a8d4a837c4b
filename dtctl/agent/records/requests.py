"""What a controller asks of an agent: one record for each request and for each further message of a conversation."""

from .checkpoints import MOST_STORED, Arrived, FileSent, is_part
from .checks import MOST_PLACES, Questions
from .hooks import Posts
from .kinds import AtMost, Default, Dict, InvalidValue, List, OneOf, Optional, Pattern, Record, Within, also
from .metrics import FolderAt
from .reasons import Why
from .spec import Paths, Spec, is_alone, refuse_unfit
from .tensorboard import MOST_FOLDERS, ChannelWord, FileHad, TakenWord
from .values import BundleId, By, Count, Epoch, Hex32, Hex64, Line, Name, Path, Pem, Seconds, TaskName, Tasks, Variables

"""Of the conversation between a controller and a session; it is in the greeting."""

START = b"\x1e"
"""What a session writes before its greeting; whatever comes before it is the noise of a login shell."""


MOST_POINTS = 2000
"""That are sent of a series."""


MOST_CONTEXT = 1000
"""Lines before and after each that was found in a log."""


class Request(Record):
    """What every request about a run says; `run` null means the cluster's current run on this host."""

    type: Line
    cluster: Name
    host: Name
    run: Default[Optional[Name], None]
    pid: Default[Optional[Count], None]
    """Of the controller's process, for whoever finds it at work."""


class Credentials(Record):
    """By which the agents of a run know each other: those of one host."""

    key: Pem
    certificate: Pem
    """It names the run and the host."""
    authority: Pem
    """Whose certificates are taken for the run's."""
    knock: Hex64
    """The secret that an agent shows before any TLS."""


class Latecomers(Record):
    """latecomers.json: on the coordinator's host, what the hosts need to join that the run was started without."""

    credentials: AtMost[Dict[Name, Credentials], 4096]


class UpRequest(Request):
    """Prepares a run, starts it on `start`, and rolls it back unless it is kept."""

    spec: Spec
    bundle: Default[Optional[BundleId], None]
    secrets: Default[Optional[Variables], None]
    credentials: Default[Optional[Credentials], None]
    hooks: Default[Posts, []]
    """Those that its coordinator notifies; of the coordinator's host alone."""
    withheld: Default[AtMost[List[Line], 1000], []]
    """Names of variables that no trainer inherits: they hold what hooks need."""
    replace: Default[bool, False]
    file: Default[Line, ""]
    """The cluster file, where the controller has it."""
    outputs: Default[Paths, []]
    """Directories that the run writes to and reads checkpoints from, with marks."""
    ask: Default[Optional[Questions], None]
    """What the host is asked to check before `prepared`."""


class PortsRequest(Request):
    """Asks for free ports, which are kept until the `up` that follows in the same conversation."""

    tasks: Tasks
    """Those of this host that need one."""
    coordinator: Default[bool, False]
    """The coordinator needs one, too."""


class PushRequest(Request):
    """Brings a bundle."""

    bundle: BundleId


class DataPushRequest(Request):
    """Brings a bundle's files into a directory."""

    dir: Path
    """With marks."""
    bundle: BundleId
    overwrite: Default[bool, False]
    """Files that others have put there, and that differ, are replaced."""


class DataRequest(Request):
    """What dtctl has put into these directories: to be looked at, hashed or removed."""

    dirs: AtMost[List[Path], MOST_PLACES]
    """With marks."""


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
    """Of each task; null: all."""
    since: Default[Optional[Epoch], None]
    until: Default[Optional[Epoch], None]
    """Not of what is followed."""
    grep: Default[Optional[AtMost[str, 65536]], None]
    """A regular expression."""
    errors: Default[bool, False]
    """Only tracebacks and the lines in which programs report why they end."""
    context: Default[Within[int, 0, MOST_CONTEXT], 0]
    """Lines before and after each that was found."""
    previous: Default[bool, False]
    """Of the attempt before the newest."""
    attempt: Default[Optional[Count], None]
    all_attempts: Default[bool, False]
    """From the first one on."""
    follow: Default[bool, False]
    states: Default[bool, False]
    """`states` frames in between, as `watch` sends them."""
    resume: Default[Dict[TaskName, AtMost[List[Count], 2]], {}]
    """Attempt and offset to continue from; this holds against `lines` and `since`."""


class CheckpointPath(Record):
    """A checkpoint, as a report names it."""

    dir: Path
    prefix: Path


class Had(Arrived):
    """The beginning of a file that was received before."""

    identity: AtMost[str, 100]


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


class EventFilesRequest(Request):
    """The event files themselves, and what is added to them, until the conversation ends."""

    without: Default[AtMost[List[FolderAt], MOST_FOLDERS], []]
    """Another host sends these."""
    have: Default[AtMost[List[FileHad], 10_000], []]


class VerifyRequest(Request):
    """Reads every byte of checkpoints, as `status` lists them."""

    wanted: AtMost[List[CheckpointPath], 100]
    limit_s: Default[Seconds, 600.0]
    """How long the reading may take."""


class FetchRequest(Request):
    """The files of one checkpoint, or the rest of them."""

    of: CheckpointPath
    files: AtMost[List[AtMost[str, 300]], MOST_STORED]
    """Those that are wanted, if they are there, in this order."""
    have: Default[AtMost[List[Had], 1100], []]
    """What was received of them before."""


class PruneRequest(Request):
    """Removes old checkpoints."""

    dirs: AtMost[List[Path], 100]
    keep: Within[int, 1, 100_000]
    dry_run: Default[bool, False]


class CheckRequest(Request):
    """What the host has of what a run needs; may be asked again and again, as each answer leads to more questions."""

    ask: Questions


class StoreRequest(Request):
    """Takes a checkpoint, moves it into place on `keep`, and names it as the one to be restored."""

    dir: Path
    """With marks."""
    below: Default[Optional[Pattern[str, 200, r"[^/\0]+", "the name of a directory"]], None]
    """A directory in it, which is made if need be."""
    name: Pattern[str, 200, r"[^./\\\"\x00-\x1f\x7f][^/\\\"\x00-\x1f\x7f]*", "the name of a checkpoint"]
    files: AtMost[List[FileSent], MOST_STORED]
    push: Hex32
    """A random name of this attempt, the same for all hosts."""
    by: Default[By, ""]


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
    """Its environment is used, and its secrets' values are masked."""
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
    """With what trainers wrote in the working directories of clusters that have no run any more."""
    over: Default[bool, False]
    """Every run that is over goes, the newest too."""


class ControlMessage(Record):
    """`keep`, `abort` or `alive`: nothing but its type."""


class StartMessage(Record):
    """`start`: what was prepared begins, on all hosts that are there."""

    absent: Default[AtMost[List[Name], 4096], []]
    """Hosts of the roster that the run is started without."""
    latecomers: Default[AtMost[Dict[Name, Credentials], 4096], {}]
    """Those that they will need to join it; for the coordinator's host alone, which keeps it for them."""


class LookWord(Record):
    """`look`: another round of checks before `start`."""

    ask: Questions


class PartWord(Record):
    """`part`: bytes of one of the files of a checkpoint, from `offset` on."""

    name: AtMost[str, 300]
    offset: Count


class ManifestWord(Record):
    """`manifest`: the bundle's, as the bytes of the frame (zlib)."""


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


@also(UpRequest)
def _is_of_its_spec(request: UpRequest) -> None:
    """What the request says is what its spec says."""
    spec = request["spec"]
    if spec["cluster"] != request["cluster"]:
        raise InvalidValue.at(("spec", "cluster"), "the request's cluster, %s" % request["cluster"], spec["cluster"])
    if spec["host"] != request["host"]:
        raise InvalidValue.at(("spec", "host"), "the request's host, %s" % request["host"], spec["host"])
    if spec["bundle"] != request["bundle"]:
        raise InvalidValue.at(("spec", "bundle"), "the request's bundle, %s" % request["bundle"], spec["bundle"])
    if request["credentials"] is None and not is_alone(spec):
        raise InvalidValue.at(("credentials",), "those that a run on several hosts needs", None)
    secrets = request["secrets"] or {}
    refuse_unfit(("secrets",), secrets, secrets.values())
    refuse_unfit(("outputs",), request["outputs"])
    credentials = request["credentials"]
    if credentials is not None:
        refuse_unfit(("credentials",), [credentials["key"], credentials["certificate"], credentials["authority"]])


@also(StoreRequest)
def _is_whole(request: StoreRequest) -> None:
    refuse_unfit(("dir",), [request["dir"]])
    if request["below"] in (".", ".."):
        raise InvalidValue.at(("below",), "the name of a directory", request["below"])
    names = [one["name"] for one in request["files"]]
    if names[-1:] != [request["name"] + ".index"] or len(set(names)) != len(names):
        raise InvalidValue.at(("files",), "the files of %s, each once, the index last" % request["name"], names[-1:])
    for number, name in enumerate(names):
        if not is_part(request["name"], name):
            raise InvalidValue.at(("files", str(number), "name"), "a file of %s" % request["name"], name)


@also(DataPushRequest)
def _is_a_place(request: DataPushRequest) -> None:
    refuse_unfit(("dir",), [request["dir"]])


@also(DataRequest)
def _are_places(request: DataRequest) -> None:
    refuse_unfit(("dirs",), request["dirs"])


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


WORDS = {
    "start": StartMessage,
    "look": LookWord,
    "keep": ControlMessage,
    "abort": ControlMessage,
    "manifest": ManifestWord,
    "digests": DigestsWord,
    "file": FileWord,
    "part": PartWord,
    "alive": ControlMessage,
    "open": ChannelWord,
    "piece": ChannelWord,
    "taken": TakenWord,
    "closed": ChannelWord,
}
"""What a controller says within a request."""

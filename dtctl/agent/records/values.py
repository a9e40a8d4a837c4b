"""The values of records: names, numbers and texts, each with its form and its limits."""

import re
from itertools import chain

from .kinds import AtMost, Dict, InvalidValue, List, OneOf, Pattern, Unshown, Within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Sequence, Tuple

HOME, CODE, PATH, PYTHON = "\0HOME", "\0CODE", "\0PATH", "\0PYTHON"
"""Marks in a spec's texts that only the host can replace. They hold a NUL, which no argument of a user can."""

READ_ONLY = "DTCTL_READ_ONLY"
"""A variable that is set for sessions beside the files of a run whose machines are gone: nothing of it may start."""

_JOB = "[A-Za-z0-9][A-Za-z0-9._-]*"
MARK = re.compile(
    r"\0(?:(HOME|CODE|PATH|PYTHON|INDEX|RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|NODELIST|NODES|NODE)"
    r"|(ADDRESS|HOST|PORT)\((%s:[0-9]{1,6})\)|(HOSTS|QUOTED|SPACED|WORDS|COUNT)\((%s)\)|BATCH\(([0-9]{1,15})\))"
    % (_JOB, _JOB)
)
"""All marks; those from INDEX on depend on the tasks that take part in an attempt (run/gang.py)."""


INDEX = "\0INDEX"
"""The task's index among the tasks of its job that take part."""


def address_mark(task: str, part: str = "ADDRESS") -> str:
    """A mark for the address of a task when another one is started: HOST:PORT, or one part of it."""
    return "\0%s(%s)" % (part, task)


def job_mark(job: str, part: str = "HOSTS") -> str:
    """A mark for the addresses of the tasks of a job that take part in an attempt, or their number: COUNT.

    Addresses are separated by commas; QUOTED: as within a list of JSON; SPACED: by blanks; WORDS: each is an argument.
    """
    return "\0%s(%s)" % (part, job)


def separated(text: str, part: str) -> str:
    """The text with its lists of addresses in another form."""
    return re.sub(r"\0HOSTS(?=\()", "\0" + part, text)


def can_be_given(text: str) -> bool:
    """False for text that no process can be given: with a NUL outside a mark, or with half a character."""
    if "\0" in text and "\0" in MARK.sub("", text):
        return False
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def refuse_unfit(path: "Tuple[str, ...]", *texts: "Iterable[str]") -> None:
    """Refuses texts that no process can be given: arguments, names and values of variables, and paths."""
    for text in chain(*texts):
        if not can_be_given(text):
            raise InvalidValue.at(
                path, "text that a program can be given", Unshown("one with a NUL or half a character")
            )


URL_SCHEMES = ("gs", "s3", "hdfs", "webhdfs", "viewfs", "abfs", "abfss", "az")
"""Schemes that trainers write to and read from."""

READ_SCHEMES = (*URL_SCHEMES, "http", "https")
"""The same, and those that they only read from."""

ANY_URL = r"[A-Za-z][A-Za-z0-9+.-]*://"
"""The beginning of a URL of any scheme."""

_NO_HOST = ("hdfs", "viewfs")
"""Schemes whose server may come from Hadoop's own configuration."""


def url_pattern(schemes: "Sequence[str]") -> str:
    """The pattern of URLs with these schemes.

    A password or a query may be a secret, no variable is expanded, and `::` names another file system to fsspec.
    """
    bare = "|".join(scheme for scheme in schemes if scheme in _NO_HOST)
    named = r"(?:%s)://(?![/@])" % "|".join(schemes)
    start = r"(?:%s|(?:%s):///)" % (named, bare) if bare else named
    return start + r"(?![^/]*:[^/]*@)(?![^\s]*(?:::|\$[A-Za-z_{]))[^\s?#\x00-\x1f\x7f]+"


def is_storage_url(text: str) -> bool:
    return re.match(ANY_URL, text) is not None and re.match(r"(?:%s)\Z" % url_pattern(READ_SCHEMES), text) is not None


_NAMED_BY_DNS = ("hdfs", "webhdfs", "viewfs", "abfs")


def normal_url(place: str) -> str:
    """A normal form, the same for all forms of one storage URL; a path changes only by slashes at its end."""
    scheme, found, rest = place.partition("://")
    if not found:
        return place.rstrip("/") or place
    authority, slash, path = rest.partition("/")
    scheme = "abfs" if scheme == "abfss" else scheme
    if scheme in _NAMED_BY_DNS:
        container, at, server = authority.rpartition("@")
        authority, path = container + at + server.lower(), re.sub("/+", "/", path).lstrip("/")
    return (scheme + found + authority + slash + path).rstrip("/") or place


def paths_of(places: "Iterable[str]") -> "List[str]":
    """The places that are paths on a host."""
    return [place for place in places if not is_storage_url(place)]


def urls_of(places: "Iterable[str]") -> "List[str]":
    return [place for place in places if is_storage_url(place)]


MOST_PLACES = 200
"""The most directories that one request is about."""
MOST_TASKS = 10_000
MOST_HOLDS = 10_000
MOST_PROCESSES = 1000
MOST_RUNS = 10_000
MOST_DAMAGED = 100
MOST_FILES = 10_000
MOST_TAKEN = 100
MOST_CLUSTERS = 10_000
LARGE_BYTES = 16 << 20
"""The least size of a file of which a host may request blocks."""
CHUNK_BYTES = 256 * 1024
"""The most bytes of a file in one frame, before compression (docs/agent.md, "Bundles")."""

BLOCK_BYTES = 1 << 20
MOST_SETUP_LOGS = 2
MOST_SETUP_LOG = 1 << 20

Name = Pattern[str, 200, r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, '.', '_' and '-'"]
"""The name of a cluster, a host or a run: one component of a path."""

TaskName = Pattern[str, 200, r"[A-Za-z0-9][A-Za-z0-9._-]*:[0-9]{1,6}", "a task such as worker:1"]
HolderName = Pattern[str, 200, r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]{1,6})?", "a host, or a task such as worker:1"]
TaskRange = Pattern[str, 200, r"[A-Za-z0-9][A-Za-z0-9._-]*:[0-9]{1,6}(?:-[0-9]{1,6})?", "tasks such as worker:1-3"]
BundleId = Pattern[str, 64, r"[0-9a-f]{64}", "a SHA-256 in hex"]
VariableName = Pattern[str, 4096, r"[^=\0]+", "the name of a variable"]

Path = AtMost[str, 8192]
StorageUrl = Pattern[str, 8192, url_pattern(READ_SCHEMES), "a storage URL"]
"""A URL that trainers open themselves. It is no path, and no host creates or removes it."""
Inode = Pattern[str, 20, r"[0-9]+", "the number of an inode"]
"""A number as text: it may have more digits than some readers of JSON can hold."""
Hex32 = Pattern[str, 32, r"[0-9a-f]{32}", "32 hex digits"]
Hex64 = Pattern[str, 64, r"[0-9a-f]{64}", "64 hex digits"]

Count = Within[int, 0, 2**53]
Port = Within[int, 1, 65535]
Pid = Within[int, 1, 2**31]
ExitCode = Within[int, 0, 255]
SignalNumber = Within[int, 1, 64]
LAST_EPOCH = 1e12
Epoch = Within[float, 0, LAST_EPOCH]
"""Seconds since 1970, by the clock of the host that reports them."""
Seconds = Within[float, 0, 1e9]

MOST_REASON = 4096
Reason = AtMost[str, MOST_REASON]
"""A sentence or two for people."""
By = AtMost[str, 300]
"""Who makes a request: user@host of a controller, or `coordinator`."""
Line = AtMost[str, 4096]
Tail = AtMost[str, 8192]
"""The end of a log."""
Pem = AtMost[str, 65536]

TaskState = OneOf["pending", "starting", "running", "backoff", "stalled", "succeeded", "failed", "stopped"]
FINAL = ("succeeded", "failed", "stopped")
StopPhase = OneOf["waits", "saving", "killed", "ended", "away"]
"""The progress of a stop: the task waits for others, was sent SIGTERM, survived SIGKILL, has ended, or is unknown."""
Want = OneOf["run", "hold", "finish", "stop"]
StartEnd = OneOf["failed", "cancelled", "abandoned"]
"""How a start ended: a task failed, the controller cancelled it, or the controller was lost before it was complete."""
HoldKind = OneOf["drained", "shutting_down", "cut_off", "scaled_down", "left_out", "drained_alone", "bad_host"]
Loss = OneOf["exit", "hung", "ps_ended", "moved", "still_silent", "at_barrier", "never_began"]
"""How tasks were lost: the process of one ended, or hung; a ps exited with 0 too early; a spare takes the place of a
host; or none trains: after a restart, or since the start."""
HangKind = OneOf["silent", "frozen"]
"""How a hang is detected: no sign of progress, or stopped by a signal."""
Fault = OneOf["not_run", "host_restarted", "unknown"]
"""Why an attempt has no exit status of its own: it could not be run, its host restarted, or nobody saw how it ended."""
AlertTopic = OneOf[
    "left_out",
    "target_missed",
    "bad_host",
    "no_spare",
    "agent_gone",
    "coordinator_unreachable",
    "claims_term",
    "claims_candidate",
    "claims_coordinator",
    "claims_end",
    "other",
]
"""What a warning is about: of each, but `other`, there is one for each host. `claims`: what a voter claims and no
majority of the voters confirms."""
Repair = OneOf["quick", "full"]
"""An order to set damaged checkpoints aside: by their files, or also by the bytes of those that look complete."""
Role = OneOf["lead", "ps", "worker", "evaluator", "other"]
Scope = OneOf["task", "with-lead", "gang"]
Outcome = OneOf["Created", "Running", "Restarting", "Suspended", "Succeeded", "Failed", "Stopped"]
Phase = OneOf["starting", "running", "recovering", "finishing", "ended"]
HistoryKind = OneOf["task", "contact", "decision", "condition", "request"]

Tasks = AtMost[List[TaskName], MOST_TASKS]
Variables = Dict[VariableName, str]


def brief(text: str) -> str:
    """The text, shortened to the limit of a reason."""
    return text if len(text) <= MOST_REASON else text[: MOST_REASON - 4] + " ..."


Topics = AtMost[Dict[Name, object], 100]
"""The question, or the facts, of each topic of `check`. Whoever owns the topic checks them (dtctl/agent/rooms)."""

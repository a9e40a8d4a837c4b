"""What a controller asks of an agent: one record for each request and for each further word of a conversation."""

from .kinds import AtMost, Dict, Form, List, OneOf, Optional, Record, Usual, Within
from .spec import Spec
from .words import BundleId, By, Count, Epoch, Line, Name, Pem, Reason, Seconds, TaskName, Tasks, Variables


class Request(Record):
    """What every request says; `run` null means the cluster's current run on this host."""

    type: Line
    cluster: Name
    host: Name
    run: Usual[Optional[Name], None]


class Credentials(Record):
    """By which the agents of a run know each other: those of one host."""

    key: Pem
    certificate: Pem
    """It names the run and the host."""
    authority: Pem
    """Whose certificates are taken for the run's."""
    knock: Form[str, 64, r"[0-9a-f]{64}", "64 hex digits"]
    """The secret by which strangers are told from agents before any TLS."""


class UpRequest(Request):
    """Prepares a run, starts it on the controller's word, and takes it back until that has said `keep`."""

    spec: Spec
    bundle: Usual[Optional[BundleId], None]
    secrets: Usual[Optional[Variables], None]
    credentials: Usual[Optional[Credentials], None]
    replace: Usual[bool, False]


class PushRequest(Request):
    """Brings a bundle."""

    bundle: BundleId


class StatusRequest(Request):
    """How the run is; `whole`: all of it, from its coordinator's host."""

    whole: Usual[bool, False]


class WatchRequest(Request):
    """The same whenever it changes."""

    whole: Usual[bool, False]
    since_serial: Usual[Optional[Count], None]
    until_final: Usual[bool, False]


class LogsRequest(Request):
    """Part of what tasks have printed."""

    tasks: Usual[Optional[Tasks], None]
    lines: Usual[Optional[Count], None]
    """Of each task; null: all."""
    since: Usual[Optional[Epoch], None]
    grep: Usual[Optional[AtMost[str, 65536]], None]
    previous: Usual[bool, False]
    attempt: Usual[Optional[Count], None]
    follow: Usual[bool, False]
    states: Usual[bool, False]
    resume: Usual[Dict[TaskName, AtMost[List[Count], 2]], {}]
    """Attempt and offset to go on from."""


class RunsRequest(Record):
    """The runs of a cluster, or all."""

    type: Line
    cluster: Usual[Optional[Name], None]
    host: Usual[Optional[Name], None]


class StopRequest(Request):
    """Ends tasks."""

    whole: Usual[bool, False]
    tasks: Usual[Optional[Tasks], None]
    grace_s: Usual[Optional[Seconds], None]
    reason: Usual[Reason, ""]
    by: Usual[By, ""]
    everything: Usual[bool, False]
    """The run is to end on other hosts as well."""


class RestartRequest(Request):
    """Starts tasks again."""

    whole: Usual[bool, False]
    tasks: Usual[Optional[Tasks], None]
    by: Usual[By, ""]


class DownRequest(Request):
    """Ends and removes."""

    grace_s: Usual[Optional[Seconds], None]
    by: Usual[By, ""]


class ExecRequest(Request):
    """Runs one command."""

    argv: List[str]
    task: Usual[Optional[TaskName], None]
    cwd: Usual[OneOf["code", "home"], "home"]


EventsRequest = Record(
    "EventsRequest",
    {
        "type": Line,
        "cluster": Name,
        "host": Name,
        "run": Usual[Optional[Name], None],
        "from": Usual[Optional[Within[int, -(2**53), 2**53]], None],
        "follow": Usual[bool, False],
        "whole": Usual[bool, False],
    },
)
"""The story from line `from` on; a negative number counts from its end."""


class GcRequest(Record):
    """Finds and removes what dead runs have left, of one cluster or of all."""

    type: Line
    cluster: Usual[Optional[Name], None]
    host: Name
    dry_run: Usual[bool, False]
    all: Usual[bool, False]


REQUESTS = {
    "up": UpRequest,
    "push": PushRequest,
    "status": StatusRequest,
    "watch": WatchRequest,
    "logs": LogsRequest,
    "runs": RunsRequest,
    "stop": StopRequest,
    "restart": RestartRequest,
    "down": DownRequest,
    "exec": ExecRequest,
    "events": EventsRequest,
    "gc": GcRequest,
}

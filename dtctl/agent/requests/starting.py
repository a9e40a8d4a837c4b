"""Prepares the host for a run's tasks: directories, ports, and the checkpoints to continue from."""

from __future__ import annotations

import os
import time

from ..checkpoints import directories, reading
from ..host import outputs, paths, ports
from ..host.errors import Refused, from_os_error
from ..records.spec import Spec, link_port, ports_of
from ..records.values import MOST_TAKEN
from ..run import environment
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterable, List, Set, Tuple

    from ..conversation import Conversation
    from ..records.answers import PortsResult, TakenPort
    from ..records.checkpoints import Reports, Saved
    from ..records.requests import PortsRequest
    from ..records.starting import UpRequest
    from .runs import Run


def refuse_taken_ports(spec: Spec) -> None:
    """Binds the port of each task, and on the coordinator's host that of the coordinator."""
    taken = taken_ports(spec, ())
    if not taken:
        return
    own = [str(one["port"]) for one in taken if one["whose"] != _COORDINATOR]
    named = ["port %s" % ", ".join(own)] if own else []
    hint = "run the command again: it suggests ports that are free on all hosts"
    if len(own) < len(taken):
        named.insert(0, "the coordinator's port %d" % taken[0]["port"])
        hint = "set coordinator.port in the cluster file, or --set coordinator.port=PORT"
    lines = ["port %(port)d of %(whose)s is held by %(holder)s" % one for one in taken]
    raise Refused("port_taken", "%s is in use on this host" % " and ".join(named), "\n".join(lines), hint)


_COORDINATOR = "the coordinator"


def taken_ports(spec: Spec, given_up: Container[int]) -> List[TakenPort]:
    """The ports that the run will need and another process has, less those that are `given_up` before its start."""
    led = link_port(spec)
    wanted = [] if led is None else [(_COORDINATOR, led)]
    wanted += [(task["id"], task["port"]) for task in spec["tasks"] if task["port"] is not None]
    taken: List[TakenPort] = []
    until = time.monotonic() + ports.TRIED_S
    for whose, port in wanted:
        if len(taken) < MOST_TAKEN and port not in given_up and ports.is_taken_for_good(port, until):
            taken.append({"port": port, "whose": whose, "holder": ports.holder(port)})
    return taken


def choose_ports(talk: Conversation, request: PortsRequest) -> PortsResult:
    """Free ports, which the session holds until the run starts. Tasks of a live run of the cluster keep theirs."""
    current = runs.find(talk, request["cluster"], request["host"], None)
    kept: Dict[str, int] = {}
    led = None
    if current is not None and current.live():
        kept = {task["id"]: task["port"] for task in current.spec["tasks"] if task["port"] is not None}
        led = link_port(current.spec)
    reserved = {port for run in runs.every(talk) if not _is_over(run) for port in ports_of(run.spec)}
    chosen = {task: kept[task] if task in kept else _chosen(talk, reserved) for task in request["tasks"]}
    if request["coordinator"] and led is None:
        led = _chosen(talk, reserved)
    return {"tasks": chosen, "coordinator": led if request["coordinator"] else None}


def live_runs(talk: Conversation) -> Set[str]:
    """The ids of live runs of all clusters."""
    return {run.id for run in runs.every(talk) if not _is_over(run)}


def _is_over(run: Run) -> bool:
    try:
        return run.finished()
    except paths.Damaged:
        return False


def most_ports(spec: Spec) -> int:
    """The number of consecutive ports that suffices for any host of the run: for the coordinator and all jobs."""
    most: Dict[str, int] = {}
    count: Dict[Tuple[str, str], int] = {}
    for member in spec["roster"]:
        job = member["task"].partition(":")[0]
        place = (job, (member["address"] or member["host"]).rpartition(":")[0])
        count[place] = count.get(place, 0) + 1
        most[job] = max(most.get(job, 0), count[place])
    return 1 + sum(most.values())


def _chosen(talk: Conversation, reserved: Container[int]) -> int:
    found = ports.hold(reserved)
    if found is None:
        raise Refused("port_taken", "this host has no free port outside of the range for outgoing connections")
    port, held = found
    talk.held += held
    return port


def checkpoints(talk: Conversation, request: UpRequest) -> Tuple[Reports, List[Saved]]:
    """The checkpoints that the run would continue from; if there are none, those of earlier runs."""
    spec = request["spec"]
    code = environment.code_directory(talk.root, spec)
    new = directories.Run(spec, code, environment.Marks(code).expand)
    with talk.at("checkpoints"):
        found = reading.report(new.known) if new.leads else []
        if any(one["newest_complete"] for one in found):
            return found, []
        before = [run.places() for run in runs.every(talk, spec["cluster"])]
        marked = outputs.of_cluster(talk.root, spec["cluster"], spec["controller"], request["file"])
        own = {os.path.realpath(path) for path in environment.Marks(None).expand(request["outputs"])}
        # a hundred hosts need not read the directory that they share with the lead's
        return found, directories.saved(new, before, [path for path in marked if path not in own])


def make_directories(spec: Spec, marks: environment.Marks) -> None:
    """The user's own directories, with the user's own umask."""
    for directory in marks.expand(spec["dirs"]):
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise from_os_error(error, "make the directory %s" % directory) from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise Refused("permission_denied", "cannot write in the directory %s" % directory)


def look_for(directories: Iterable[str]) -> None:
    """Refuses a host on which one of the user's directories cannot be read."""
    for directory in directories:
        if not os.path.isdir(directory):
            hint = "put the data there, or set its directory on this host: hosts.NAME.dirs"
            raise Refused("not_a_directory", "there is no directory %s" % directory, "", hint)
        if not os.access(directory, os.R_OK | os.X_OK):
            raise Refused("permission_denied", "cannot read the directory %s" % directory)

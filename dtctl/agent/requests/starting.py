"""The start of a run on its host: its ports, and what it continues from."""

from __future__ import annotations

import os

from ..checkpoints import directories, reading
from ..host import outputs, paths, ports
from ..host.errors import Refused
from ..records.answers import MOST_TAKEN
from ..records.spec import coordinators_port, ports_of
from ..run import environment
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, List, Set, Tuple

    from ..protocol.conversation import Conversation
    from ..records.answers import PortsResult, TakenPort
    from ..records.checkpoints import Reports, Saved
    from ..records.requests import PortsRequest, UpRequest
    from ..records.spec import Spec
    from .runs import Run


def refuse_taken_ports(spec: Spec) -> None:
    """Binds the port of each task, and on the coordinator's host that of the coordinator."""
    wanted = [(task["id"], task["port"]) for task in spec["tasks"]]
    taken = [(task, port) for task, port in wanted if port is not None and ports.taken(port)]
    led = coordinators_port(spec)
    named = ["port %s" % ", ".join(str(port) for _, port in taken)] if taken else []
    lines = ["port %d of %s is held by %s" % (port, task, ports.holder(port)) for task, port in taken]
    hint = "type the same again: dtctl then names ports that are free on all hosts"
    if led is not None and ports.taken(led):
        named.insert(0, "the coordinator's port %d" % led)
        lines.insert(0, "port %d of the coordinator is held by %s" % (led, ports.holder(led)))
        hint = "set coordinator.port in the cluster file, or --set coordinator.port=PORT"
    if named:
        raise Refused("port_taken", "%s is in use on this host" % " and ".join(named), "\n".join(lines), hint)


def taken_ports(spec: Spec, given_up: Container[int]) -> List[TakenPort]:
    """The ports that the run will need and somebody else has, less those that are `given_up` before its start."""
    led = coordinators_port(spec)
    wanted = [] if led is None else [("the coordinator", led)]
    wanted += [(task["id"], task["port"]) for task in spec["tasks"] if task["port"] is not None]
    taken: List[TakenPort] = []
    for whose, port in wanted:
        if len(taken) < MOST_TAKEN and port not in given_up and ports.taken(port):
            taken.append({"port": port, "whose": whose, "holder": ports.holder(port)})
    return taken


def choose_ports(talk: Conversation, request: PortsRequest) -> PortsResult:
    """Free ports, which the session holds until the run starts. Tasks of a live run of the cluster keep theirs."""
    current = runs.find(talk, request["cluster"], request["host"], None)
    kept: Dict[str, int] = {}
    led = None
    if current is not None and current.live():
        kept = {task["id"]: task["port"] for task in current.spec["tasks"] if task["port"] is not None}
        led = coordinators_port(current.spec)
    reserved = {port for run in runs.every(talk) if not _is_over(run) for port in ports_of(run.spec)}
    chosen = {task: kept[task] if task in kept else _chosen(talk, reserved) for task in request["tasks"]}
    if request["coordinator"] and led is None:
        led = _chosen(talk, reserved)
    return {"tasks": chosen, "coordinator": led if request["coordinator"] else None}


def live_runs(talk: Conversation) -> Set[str]:
    """Of all clusters, by their ids."""
    return {run.id for run in runs.every(talk) if not _is_over(run)}


def _is_over(run: Run) -> bool:
    try:
        return run.finished()
    except paths.Damaged:
        return False


def most_ports(spec: Spec) -> int:
    """How many ports one after the other are enough for any host of the run: for the coordinator and all jobs."""
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
        raise Refused("port_taken", "no port is free on this host that is not for outgoing connections")
    port, held = found
    talk.held += held
    return port


def checkpoints(talk: Conversation, request: UpRequest) -> Tuple[Reports, List[Saved]]:
    """Those that the run would continue from, and where there are none what earlier runs have saved."""
    spec = request["spec"]
    code = None
    if spec["bundle"] is not None and spec["copied"]:
        code = paths.working_directory(talk.root, spec["cluster"])
    new = directories.Run(spec, code, environment.Marks(code).words)
    with talk.at("checkpoints"):
        found = reading.report(new.known) if new.leads else []
        if any(one["newest_complete"] for one in found):
            return found, []
        before = [
            directories.Run(run.spec, own, environment.Marks(own).words)
            for run in runs.every(talk, spec["cluster"])
            for own in [run.files.code_directory()]
        ]
        marked = outputs.of_cluster(talk.root, spec["cluster"], spec["controller"], request["file"])
        own = {os.path.realpath(path) for path in environment.Marks(None).words(request["outputs"])}
        # a hundred hosts need not read the directory that they share with the lead's
        return found, directories.saved(new, before, [path for path in marked if path not in own])

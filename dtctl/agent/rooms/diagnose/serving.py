"""metrics, diagnose and dump: how the training, the host and the tasks on it do."""

from __future__ import annotations

import math
import os
import shutil
import time

from ...host import paths, ports, processes
from ...host.secrets import Masks
from ...records.run_state import Entry, Start, State
from ...records.vitals import MOST_LOG, MOST_UNREACHED, DiagnoseResult, Diverged, TaskVitals, Unreached
from ...requests import runs
from ...rooms.metrics.reading import Reader
from ...run import environment
from ...vitals import machine_load
from ...vitals.machine_load import MachineLoad
from ...vitals.usage import Others, Usage
from ..metrics.serving import LOOK_LIMIT_S
from ..network import connecting
from .extensions import left_locks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Sequence, Set

    from ...conversation import Conversation
    from ...records.requests import Request
    from ...records.spec import Spec, TaskSpec
    from ..network.records import Peer


def diagnose(talk: Conversation, request: Request) -> DiagnoseResult:
    """The current health of this host and of its tasks."""
    run = runs.need(talk, request)
    run.keep_supervised()
    places = runs.output_directories(run)
    with talk.at("diagnose"):
        losses = diverged(places)
        masks = Masks(run.files.secrets().values())
        state = run.state()
        found = gather(run.files.directory, run.spec, state, masks, places, losses)
        for task, lock in left_locks(run.files, state["tasks"]).items():
            found["tasks"][task]["left_lock"] = masks.hide_text(lock)[:4096]
        return found


MOST_DIVERGED = 100


def diverged(places: List[str]) -> List[Diverged]:
    """Losses in the event files below these places whose newest value is NaN or infinite."""
    reader = Reader(places)
    reader.look_until_all_is_read(LOOK_LIMIT_S)
    found: List[Diverged] = [
        {"path": folder["dir"], "tag": series["tag"], "step": series["steps"][-1]}
        for folder in reader.series(lambda tag: "loss" in tag.lower(), 1)
        for series in folder["series"]
        if series["values"] and not math.isfinite(float(series["values"][-1]))
    ]
    return found[:MOST_DIVERGED]


REACH_S = 3.0
BETWEEN_S = 0.5
"""The least interval between two samples of load."""


def gather(
    run_dir: str, spec: Spec, state: State, masks: Masks, places: Sequence[str], diverged: List[Diverged]
) -> DiagnoseResult:
    """`places`: where the run writes."""
    usages = {task: Usage(entry["pid"]) for task, entry in state["tasks"].items() if entry["pid"] is not None}
    load, others, began = MachineLoad(), Others(time.monotonic()), time.monotonic()
    load.sample(time.time())
    for usage in usages.values():
        usage.sample(began)
    away = unreached(_peers(spec), REACH_S)
    time.sleep(max(0.0, began + BETWEEN_S - time.monotonic()))
    now = time.monotonic()
    for usage in usages.values():
        usage.sample(now)
    own = _own_pids(run_dir, state)
    tasks = {
        task["id"]: _task(run_dir, task, state["tasks"][task["id"]], usages.get(task["id"]), own, masks)
        for task in spec["tasks"]
    }
    machine = load.sample(time.time())
    machine["gpus"] = state["machine"]["gpus"] if state["machine"] is not None else None
    return {
        "run": spec["run"],
        "time": time.time(),
        "machine": machine,
        "disks": machine_load.disks_of([run_dir, *places])[0],
        "busy": others.busy(now, own),
        "unreached": away[:MOST_UNREACHED],
        "diverged": diverged,
        "tasks": tasks,
    }


def _peers(spec: Spec) -> List[Peer]:
    """The tasks on other hosts."""
    return [
        {"whose": member["task"], "host": member["host"], "address": member["address"], "live": True}
        for member in spec["roster"]
        if member["address"] is not None and member["host"] != spec["host"]
    ]


def _own_pids(run_dir: str, state: State) -> Set[int]:
    own = {os.getpid()}
    for task, entry in state["tasks"].items():
        if entry["pid"] is not None:
            attempt = paths.attempt_directory(run_dir, task, entry["attempt"])
            own.update(process.pid for process in processes.of_attempt(attempt))
    return own


def _task(
    run_dir: str, task: TaskSpec, entry: Entry, usage: Optional[Usage], own: Set[int], masks: Masks
) -> TaskVitals:
    directory = paths.attempt_directory(run_dir, task["id"], entry["attempt"])
    process = processes.Process.read(entry["pid"]) if entry["pid"] is not None else None
    python = _python(directory)
    owners = ports.listening(task["port"]) if task["port"] is not None else {}
    mine = any(ports.holds(str(pid), owners) for pid in own) if owners else False
    return {
        "cpu": usage.cpu if usage is not None else None,
        "memory_bytes": usage.memory_bytes if usage is not None else None,
        "frozen": process is not None and process.frozen,
        "port": task["port"],
        "listens": mine,
        "holder": ports.holder(task["port"])[:4096] if owners and not mine and task["port"] is not None else "",
        "python": python,
        "managed": machine_load.is_managed(python) if python else False,
        "packages": machine_load.package_versions(python, os.path.expanduser("~")) if python else {},
        "left_lock": "",
        "log": _end_of_log(directory, masks),
        "lost_log": _lost_log(run_dir, task["id"], entry, masks),
    }


def _python(directory: str) -> str:
    """The program of an attempt, by its whole path; empty where there was none yet."""
    try:
        start = paths.read_record(os.path.join(directory, "start.json"), Start)
    except (OSError, paths.Damaged):
        return ""
    words = start["argv"] if start is not None else []
    return (shutil.which(words[0], path=environment.base()["PATH"]) or words[0])[:4096] if words else ""


def _lost_log(run_dir: str, task: str, entry: Entry, masks: Masks) -> str:
    unasked = (past["attempt"] for past in reversed(entry["history"]) if not past["asked"])
    lost = entry["failed_attempt"] or next(unasked, None)
    if lost is None or lost == entry["attempt"]:
        return ""
    return _end_of_log(paths.attempt_directory(run_dir, task, lost), masks)


def _end_of_log(directory: str, masks: Masks) -> str:
    from ...logs.lines import end_of

    return end_of(os.path.join(directory, "log"), masks)[-MOST_LOG:]


def unreached(peers: List[Peer], limit_s: float) -> List[Unreached]:
    """`peers` are trainers: they are connected to, and sent nothing."""
    addresses = {peer["whose"]: peer["address"] for peer in peers}
    return [
        {
            "task": one["whose"],
            "address": addresses[one["whose"]],
            "problem": one["problem"],  # type: ignore[typeddict-item]
            "text": one["text"],
        }
        for one in connecting.reach(peers, "", limit_s)
        if one["problem"]
    ]

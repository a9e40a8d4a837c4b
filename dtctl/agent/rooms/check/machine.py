"""The host's resources, and how much of them is free."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ...host import limits, machine, paths
from ...records.kinds import made
from ...records.spec import gpus_of
from ...records.values import FINAL
from ...run import environment
from ...survival import revival, systemd
from ...vitals import machine_load
from ...vitals.gpus import Reader
from ...vitals.machine_load import MachineLoad
from .records import MOST_TAKEN, GpuTaken, MachineFacts, MachineQuestion, Rights, TaskMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Mapping, Optional

    from ...conversation import Conversation
    from ...records.run_state import State

_MOST_RUNS = 10
"""The most runs, the newest ones, in which the tasks' memory is looked up."""
_SELINUX = "/sys/fs/selinux/enforce"
_GPUS_S = 15.0
"""The time limit until a driver that was unloaded knows its GPUs."""


def machine_facts(talk: Conversation, question: MachineQuestion) -> MachineFacts:
    marks = environment.Marks(None)
    found, silent = machine_load.disks_of([talk.root, *marks.expand(question["places"])])
    load = MachineLoad().sample(time.time())
    load["gpus"] = Reader().wait(_GPUS_S) if question["gpus"] else None
    return {
        "machine": load,
        "disks": found,
        "silent": silent,
        "gpus_taken": list(_gpus_taken(talk.root))[:MOST_TAKEN],
        "rights": _rights() if question["rights"] else None,
        **_memory(talk.root, question["cluster"]),
    }


def _rights() -> Rights:
    """The limits are those of trainers, who inherit them from this login."""
    own = limits.soft_limits(os.getpid())
    return {
        "open_files": own.get(limits.OPEN_FILES),
        "processes": own.get(limits.PROCESSES),
        "cpu_s": own.get(limits.CPU_TIME),
        "file_bytes": own.get(limits.FILE_SIZE),
        "selinux": _selinux(),  # type: ignore[typeddict-item]
        "kills_at_logout": systemd.ends_logins(),
        "lingers": systemd.lingers(),
    }


def _selinux() -> str:
    enforces = machine.text(_SELINUX)
    return ("enforcing" if enforces.startswith("1") else "permissive") if enforces else ""


def _gpus_taken(root: str) -> Iterator[GpuTaken]:
    for files in revival.every(root):
        with suppress(OSError, paths.Damaged):  # is being removed, or damaged: `status` reports that
            if not files.is_of_this_machine() or revival.is_over(files):
                continue
            spec, entries = files.spec(), files.state()["tasks"]
            for task in spec["tasks"]:
                if entries[task["id"]]["state"] not in FINAL:
                    own: Mapping[str, str] = {"cluster": spec["cluster"], "run": spec["run"], "task": task["id"]}
                    yield from (made(GpuTaken, gpu=gpu, **own) for gpu in gpus_of(task))


def _memory(root: str, cluster: Optional[str]) -> TaskMemory:
    """The most memory of each task in its newest run that recorded it, and the memory in use by all tasks."""
    took: Dict[str, int] = {}
    taking = 0
    for state in _states(root, cluster) if cluster is not None else ():
        for task, entry in state["tasks"].items():
            taking += entry["memory_bytes"] or 0
            if entry["most_memory_bytes"]:
                took.setdefault(task, entry["most_memory_bytes"])
    return {"took": took, "taking_bytes": taking}


def _states(root: str, cluster: str) -> Iterator[State]:
    """The states of the cluster's runs on this host, the newest first: their names contain the time of the start."""
    named = [files for files in revival.every(root) if files.directory.split(os.sep)[-2].startswith(cluster + "-")]
    for files in sorted(named, key=lambda files: files.directory, reverse=True)[:_MOST_RUNS]:
        try:
            if files.spec()["cluster"] == cluster and files.is_of_this_machine():
                yield files.state()
        except (OSError, paths.Damaged):
            continue  # is being removed, or damaged: `status` reports that

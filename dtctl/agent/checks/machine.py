"""What the host has, and what of it is free."""

from __future__ import annotations

import os
import resource
import time

from ..host import machine, paths
from ..run import environment
from ..survival import revival, systemd
from ..vitals import machine_load, neighbours
from ..vitals.machine_load import MachineLoad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, Optional

    from ..conversation import Conversation
    from ..records.checks import MachineFacts, MachineQuestion, Rights, TaskMemory
    from ..records.run_state import State

_MOST_RUNS = 10
"""Of the newest, in which what tasks took is looked up."""
_SELINUX = "/sys/fs/selinux/enforce"
_DRIVERS = ("/dev/nvidiactl", "/dev/kfd")
"""What the drivers of NVIDIA and AMD make."""


def inspect(talk: Conversation, question: MachineQuestion) -> MachineFacts:
    marks = environment.Marks(None)
    path = environment.base()["PATH"]
    found, silent = machine_load.disks_of([talk.root, *marks.expand(question["places"])])
    gpus = neighbours.gpus(path) if question["gpus"] else []
    return {
        "machine": MachineLoad().sample(time.time()),
        "disks": found,
        "silent": silent,
        "drivers": question["gpus"] and any(map(os.path.exists, _DRIVERS)),
        "nvidia_smi": question["gpus"] and neighbours.nvidia_smi(path, "--list-gpus") is not None,
        "gpus": gpus,
        "gpu_users": neighbours.gpu_users(path) if gpus else [],
        "rights": _rights() if question["rights"] else None,
        **_memory(talk.root, question["cluster"]),
    }


def _rights() -> Rights:
    return {
        "open_files": _limit(resource.RLIMIT_NOFILE),
        "processes": _limit(resource.RLIMIT_NPROC),
        "selinux": _selinux(),  # type: ignore[typeddict-item]
        "kills_at_logout": systemd.ends_logins(),
        "lingers": systemd.lingers(),
    }


def _limit(what: int) -> Optional[int]:
    """What trainers get: they inherit it from this login."""
    soft = resource.getrlimit(what)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _selinux() -> str:
    enforces = machine.text(_SELINUX)
    return ("enforcing" if enforces.startswith("1") else "permissive") if enforces else ""


def _memory(root: str, cluster: Optional[str]) -> TaskMemory:
    """What each task took at most in its newest run that recorded it, and what all take now."""
    took: Dict[str, int] = {}
    taking = 0
    for state in _states(root, cluster) if cluster is not None else ():
        for task, entry in state["tasks"].items():
            taking += entry["memory_bytes"] or 0
            if entry["most_memory_bytes"]:
                took.setdefault(task, entry["most_memory_bytes"])
    return {"took": took, "taking_bytes": taking}


def _states(root: str, cluster: str) -> Iterator[State]:
    """Of the cluster's runs on this host, the newest first: their names hold the time of the start."""
    named = [files for files in revival.every(root) if files.directory.split(os.sep)[-2].startswith(cluster + "-")]
    for files in sorted(named, key=lambda files: files.directory, reverse=True)[:_MOST_RUNS]:
        try:
            if files.spec()["cluster"] == cluster and files.is_of_this_machine():
                yield files.state()
        except (OSError, paths.Damaged):
            continue  # is being removed, or damaged: `status` reports that

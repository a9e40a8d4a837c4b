"""Conversations with agents on the nodes of a job: a step of the job for each, and no SSH.

When the job has ended, the files of its runs are read on this machine, which shares them with the nodes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.agent.host.readonly import READ_ONLY
from dtctl.errors import TransportError
from dtctl.model import OtherTransport
from dtctl.rooms.slurm import queue
from dtctl.transport.local import Child, ChildStream, LocalTransport
from dtctl.transport.stream import converse

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Session, TransportOptions

HOLDER = Path(__file__).with_name("holder.py")
FRESH_S = 2.0
"""For how long an answer of Slurm's about jobs is used again."""
STEP_S = 30
"""How long `srun` waits for a node that is busy or has failed."""


def target(job: str, node: str) -> str:
    return f"{job}/{node}"


def job_and_node(host: Host) -> tuple[str, str]:
    assert isinstance(host.reach, OtherTransport)
    job, _, node = host.reach.target.partition("/")
    return job, node


def step_of(job: str, node: str) -> list[str]:
    """The command that runs a step beside all others of the job, on one of its nodes."""
    return [
        *("srun", f"--jobid={job}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap", "--quiet"),
        *("--kill-on-bad-exit=0", f"--immediate={STEP_S}", "--chdir=/"),
    ]


class Jobs:
    """What Slurm has said of the user's jobs, which many hosts of a run ask at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, queue.Job] = {}
        self._asked = float("-inf")

    def phase(self, job: str) -> str:
        """As Allocation.phase."""
        with self._lock:
            if time.monotonic() - self._asked > FRESH_S:
                self._known, self._asked = queue.own_jobs(), time.monotonic()
            found = self._known.get(job)
        return found.phase if found is not None else "ended"


class SlurmTransport:
    """Opens a step for each conversation."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._jobs = Jobs()

    @classmethod
    def of(cls, options: TransportOptions) -> SlurmTransport:
        return cls(options)

    def open(self, host: Host) -> Session:
        job, node = job_and_node(host)
        phase = "running" if os.environ.get("SLURM_JOB_ID") == job else self._jobs.phase(job)
        if phase == "pending":
            raise TransportError(
                f"{host.name} has no machine yet: job {job} waits in the queue",
                hint="dtctl status    shows why; dtctl stop    takes it out of the queue",
            )
        if phase == "ended":
            given_back = LocalTransport(
                self._options.local_root, waiting=self._options.waiting, environ={READ_ONLY: "1"}
            )
            return given_back.open(host)
        argv = [*step_of(job, node), sys.executable, "-IS", str(HOLDER), "enter"]
        try:
            child = Child(argv, queue.environment())
        except OSError as error:
            raise TransportError(
                f"cannot run srun to reach {host.name}: {error.strerror}", hint="run dtctl on a login node"
            ) from error
        return converse(host, ChildStream(child), self._options.waiting)

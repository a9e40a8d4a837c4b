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

from dtctl.agent.records.values import READ_ONLY
from dtctl.errors import DtctlError, TransportError
from dtctl.model import OtherTransport
from dtctl.rooms.slurm import queue
from dtctl.transport.local import Child, ChildStream, LocalTransport
from dtctl.transport.stream import converse

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Session, TransportOptions

HOLDER = Path(__file__).with_name("holder.py")
FRESH_S = 2.0
"""The time for which an answer of Slurm's about jobs is used again."""
END_S = 5.0
"""How long a job whose nodes take no session any more may take to end."""
LOOK_S = 0.3
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

    def phase(self, job: str, fresh_s: float = FRESH_S) -> str:
        """The phase of the job's allocation (operations/engines.py)."""
        with self._lock:
            if time.monotonic() - self._asked > fresh_s:
                self._known, self._asked = queue.own_jobs(), time.monotonic()
            found = self._known.get(job)
        return found.phase if found is not None else "ended"

    def ends(self, job: str) -> bool:
        """Whether the job ends within a moment."""
        deadline = time.monotonic() + END_S
        while self.phase(job, LOOK_S) == "running":
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return self.phase(job) == "ended"


class SlurmTransport:
    """Opens a step for each conversation."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._jobs = Jobs()

    def open(self, host: Host) -> Session:
        job, node = job_and_node(host)
        is_here = os.environ.get("SLURM_JOB_ID") == job
        phase = "running" if is_here else self._jobs.phase(job)
        if phase == "pending":
            raise TransportError(
                f"{host.name} has no machine yet: job {job} waits in the queue",
                hint="dtctl status    shows why; dtctl stop    takes it out of the queue",
            )
        if phase == "ended":
            return self._beside_files(host)
        session = converse(host, ChildStream(self._step(job, node, is_here=is_here)), self._options.waiting)
        try:
            session.greeted()
        except DtctlError as error:
            session.close()
            if not is_here and isinstance(error, TransportError) and self._jobs.ends(job):
                return self._beside_files(host)
            raise _unreached(job, node, error) from error
        except BaseException:
            session.close()
            raise
        return session

    def _step(self, job: str, node: str, *, is_here: bool) -> Child:
        words, environ = [sys.executable, "-IS", str(HOLDER), "enter"], queue.environment()
        if is_here and os.environ.get("SLURMD_NODENAME") == node:  # no new step begins in a job that is ending
            environ |= {"SLURM_JOB_ID": job, "SLURMD_NODENAME": node}
        else:
            words = [*step_of(job, node), *words]
        try:
            return Child(words, environ)
        except OSError as error:
            summary = f"cannot run {words[0]} to reach {node}: {error.strerror}"
            raise TransportError(summary, hint="run dtctl on a login node of the Slurm cluster") from error

    def _beside_files(self, host: Host) -> Session:
        """A session that reads the run's files on this machine, and starts nothing."""
        options, environ = self._options, {READ_ONLY: "1"}
        return LocalTransport(options.local_root, waiting=options.waiting, environ=environ).open(host)


def _unreached(job: str, node: str, error: DtctlError) -> DtctlError:
    if not isinstance(error, TransportError):
        return error
    return TransportError(
        f"{node} cannot be reached by a step of job {job}",
        detail="\n".join(filter(None, [error.summary, error.detail])),
        hint=f"scontrol show job {job}    shows the job, and scontrol show node {node} the node",
    )


def transport_of(options: TransportOptions) -> SlurmTransport:
    return SlurmTransport(options)

"""What is asked of Slurm, by its own programs, with output in formats that we choose."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError, TransportError

LIMIT_S = 60.0
"""How long a program of Slurm's may take: its own time-outs towards the controller are shorter."""

PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING")
"""Long names of states (squeue(1)). A job in any other one has ended; one that is COMPLETING takes no step any more."""

DAY_S = 86400
NO_LIMIT_S = 364 * DAY_S
"""Slurm counts a job without a limit down from a year."""

_FORMAT = "%i|%T|%r|%L|%N|%P|%Q"


@dataclass(frozen=True)
class Job:
    """A line of `squeue`."""

    id: str
    state: str
    reason: str
    left_s: float | None
    nodes: str
    """Their names, folded as n[1-3]."""
    partition: str
    priority: int

    @property
    def phase(self) -> str:
        if self.state in PENDING:
            return "pending"
        return "running" if self.state in RUNNING else "ended"


def environment() -> dict[str, str]:
    """The environment of this process without what Slurm has set for a step of a job: options of `srun` in disguise."""
    kept = ("SLURM_CONF", "SLURM_CONF_SERVER")
    foreign = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "PMI_", "PMIX_")
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(foreign)}


def ask(argv: Sequence[str], *, content: str = "", environ: Mapping[str, str] | None = None) -> str:
    """What the program prints. Raises PreflightError without Slurm here, TransportError if it fails."""
    known = {**(environment() if environ is None else environ), "LC_ALL": "C"}
    try:
        ended = subprocess.run(
            argv, input=content, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, env=known
        )
    except FileNotFoundError as error:
        raise PreflightError(
            f"this machine has no {argv[0]}, which is a program of Slurm's",
            hint="run dtctl on a login node of the Slurm cluster; --on ssh    uses the hosts of the file",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise TransportError(
            f"{argv[0]} has not answered within {LIMIT_S:g} s", hint="scontrol ping    asks it"
        ) from error
    if ended.returncode:
        raise TransportError(
            f"{argv[0]} has failed with exit code {ended.returncode}",
            detail=ended.stderr.strip(),
            hint="" if argv[0] == "sbatch" else "scontrol ping    shows whether Slurm answers",
        )
    return ended.stdout


def own_jobs() -> dict[str, Job]:
    """The user's jobs that Slurm still knows, by id. Ended ones are forgotten after MinJobAge (slurm.conf(5))."""
    lines = ask(["squeue", "--me", "--states=all", "--noheader", f"--format={_FORMAT}"]).splitlines()
    return {job.id: job for job in map(_read, lines) if job is not None}


def restarts(job: str) -> int:
    """How often the job was started again; 0 if Slurm has forgotten it."""
    found = re.search(r"(?:^|\s)Restarts=(\d+)(?:\s|$)", ask(["scontrol", "show", "job", "--oneliner", job]))
    return int(found[1]) if found else 0


def _read(line: str) -> Job | None:
    fields = line.strip().split("|")
    if len(fields) != _FORMAT.count("|") + 1 or not fields[0].isdecimal():
        return None  # an element of an array, and no job of ours
    number, state, reason, left, nodes, partition, priority = fields
    rank = int(priority) if priority.isdecimal() else 0
    return Job(number, state, reason, seconds_left(left), nodes, partition, rank)


def seconds_left(text: str) -> float | None:
    """[days-]hours:minutes:seconds as squeue(1) writes them, where larger units may be missing; None: no limit."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()):
        return None
    total = 0
    for part in parts:
        total = total * 60 + int(part)
    total += int(days or 0) * DAY_S
    return float(total) if total < NO_LIMIT_S else None


def position(job: Job) -> int | None:
    """The job's place among those that wait for its partition, as far as this user sees them; None if it is gone."""
    asked = ["squeue", "--states=PENDING", "--noheader", "--format=%i|%Q", f"--partition={job.partition}"]
    waiting = [line.strip().split("|") for line in ask(asked).splitlines()]
    ranks = [(-int(rank), _number(number), number) for number, rank in waiting if rank.isdecimal()]
    order = [number for _, _, number in sorted(ranks)]
    return order.index(job.id) + 1 if job.id in order else None


def _number(job: str) -> int:
    digits = job.partition("_")[0]
    return int(digits) if digits.isdecimal() else 0


def node_names(folded: str) -> tuple[str, ...]:
    """n[1-3] as n1, n2, n3."""
    return tuple(ask(["scontrol", "show", "hostnames", folded]).split()) if folded else ()


def node_addresses(folded: str) -> dict[str, str]:
    """Node -> the address by which Slurm reaches it."""
    lines = ask(["sinfo", "--Node", "--noheader", "--format=%N|%o", f"--nodes={folded}"]).splitlines()
    found = (line.strip().partition("|") for line in lines)
    return {name: address for name, _, address in found if name and address}

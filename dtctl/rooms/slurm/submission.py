"""A run that waits for its job: the file that the batch script reads, and what `sbatch` is told."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.bundle.keeping import remove
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.folder import make_private, read_regular, replace_file
from dtctl.paths import state_directory
from dtctl.rooms.slurm import queue
from dtctl.rooms.slurm.kept import Kept, keep
from dtctl.rooms.slurm.placement import machines, most_gpus, most_tasks

if TYPE_CHECKING:
    from dtctl.operations.engines import Lent

LIMIT_BYTES = 1 << 20
ENDS_S = 30.0
"""What the end of a run takes besides the grace periods of its tasks."""


@dataclass(frozen=True)
class Submission:
    """Everything that the batch script needs. It holds no secret: these come with the environment of `sbatch`.

    `kept`: what the job starts, and where its code is (kept.py).
    """

    run: str
    file: str
    overrides: tuple[str, ...]
    grace_s: float
    requeue: bool
    kept: Kept
    words: tuple[str, ...] = ()
    """The options of `up` that count when the job starts."""

    @classmethod
    def of(cls, cluster: Cluster, parts: Lent) -> Submission:
        """`cluster`: as the file has it."""
        return cls(
            run=parts.run,
            file=str(parts.file),
            overrides=tuple(one for one in cluster.overrides if not one.startswith("on=")),
            grace_s=cluster.grace_s,
            requeue=cluster.slurm.requeue,
            kept=Kept.of(parts),
            words=parts.words,
        )

    def to_json(self) -> str:
        return json.dumps({**vars(self), "kept": vars(self.kept)})

    @classmethod
    def load(cls, path: Path) -> Submission:
        try:
            data = json.loads(read_regular(path, LIMIT_BYTES))
            lists = {name: tuple(data.get(name, ())) for name in ("overrides", "words")}
            return cls(**{**data, **lists, "kept": Kept(**data["kept"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DtctlError(f"{path} is not a run that waits for its job", detail=str(error)) from error

    def step(self) -> int | None:
        """The step that the start before has reached."""
        try:
            return int(read_regular(_step_file(self.run), LIMIT_BYTES))
        except (OSError, ValueError):
            return None

    def keep_step(self, step: int) -> None:
        """Keeps the step of this start; if it cannot be written, the next start is not compared with this one."""
        with suppress(OSError):
            replace_file(_step_file(self.run), str(step).encode())


def _step_file(run: str) -> Path:
    return directory() / f"{run}.step"


def run_of(run: str, restarts: int) -> str:
    """The id of the run that a job starts after so many restarts; `run`: that of any of its runs."""
    first = _RESTARTED.sub("", run)
    return f"{first}-r{restarts}" if restarts else first


_RESTARTED = re.compile(r"(?<=-[0-9a-f]{4})-r[0-9]+\Z")


def directory() -> Path:
    return state_directory() / "slurm"


def file_of(run: str) -> Path:
    """What the batch script of any run of a job reads."""
    return directory() / f"{run_of(run, 0)}.json"


def code_of(run: str) -> Path:
    """The directory of what the job of a run starts (kept.py)."""
    return directory() / run_of(run, 0)


def forget(run: str) -> None:
    """Removes all that was kept for the job of a run."""
    remove(code_of(run))
    for own in (file_of(run), _step_file(run_of(run, 0)), log_of(run_of(run, 0))):
        with suppress(OSError):
            own.unlink(missing_ok=True)


def log_of(run: str) -> Path:
    return directory() / f"{run}.log"


def printed_by(run: str | None) -> str:
    """The file with what the controllers of a job have printed; empty if they have printed nothing there."""
    log = log_of(run_of(run, 0)) if run is not None else None
    with suppress(OSError):
        return str(log) if log is not None and log.stat().st_size else ""
    return ""


def submit(submission: Submission, cluster: Cluster, parts: Lent, environ: Mapping[str, str]) -> str:
    """The id of the job. Raises DtctlError where `sbatch` refuses it, and where the code cannot be kept."""
    path = file_of(submission.run)
    make_private(directory())
    try:
        keep(parts, code_of(submission.run))
        return _submit(submission, cluster, path, environ)
    except BaseException:
        forget(submission.run)
        raise


def _submit(submission: Submission, cluster: Cluster, path: Path, environ: Mapping[str, str]) -> str:
    replace_file(path, submission.to_json().encode())
    replace_file(log_of(submission.run), b"")  # Slurm appends to it, and would let others read a file of its own
    kept = {name: value for name, value in environ.items() if name in KEPT or not name.startswith(OF_ANOTHER_JOB)}
    printed = queue.ask(["sbatch", *options(submission.run, cluster)], content=script(path), environ=kept)
    return printed.strip().partition(";")[0]


OF_ANOTHER_JOB = ("SLURM_", "SLURMD_", "SRUN_", "PMI_", "PMIX_", "DTCTL_SLURM_", "DTCTL_KEY")
"""The job has none of these: they are of another job, or the key by which an agent ends what a command has left."""
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER")


def script(path: Path) -> str:
    """The batch script. All that differs between two runs is in the file at `path`."""
    words = " ".join(map(shlex.quote, [sys.executable, "-m", "dtctl.rooms.slurm.job", str(path)]))
    return f"#!/bin/sh\nexec {words}\n"


LATE_S = 60.0
"""Slurm looks at time limits every 30 s, and sends its warning early rather than late (sbatch(1), --signal)."""


def warned_s(grace_s: float) -> int:
    """How long before the time limit a run is stopped: servers end after the others."""
    return math.ceil(2 * grace_s + ENDS_S)


def limit_s(cluster: Cluster) -> float | None:
    return cluster.slurm.time_s or cluster.active_deadline_s


def least_limit_s(cluster: Cluster) -> float:
    """The shortest time limit with which a run is not stopped at once."""
    return warned_s(cluster.grace_s) + LATE_S


def options(run: str, cluster: Cluster) -> list[str]:
    """The options of `sbatch`. Of two of one kind it takes the last, so that those of the file come last."""
    slurm = cluster.slurm
    said = {
        "job-name": cluster.name,
        "nodes": str(len(machines(cluster))),
        "ntasks-per-node": "1",
        "cpus-per-task": str(slurm.cpus or most_tasks(cluster)),
        "partition": slurm.partition,
        "account": slurm.account,
        "time": _clock(limit) if (limit := limit_s(cluster)) else None,
        "gres": slurm.gres,
        "gpus-per-node": str(most_gpus(cluster)) if most_gpus(cluster) and not slurm.gres else None,
        "constraint": slurm.constraint,
        "signal": f"B:TERM@{min(warned_s(cluster.grace_s), 65535)}",
        "output": str(log_of(run)),
        "open-mode": "append",
        "chdir": str(directory()),
    }
    flags = ["--parsable", "--no-kill", "--requeue" if slurm.requeue else "--no-requeue"]
    return [*flags, *(f"--{name}={value}" for name, value in said.items() if value is not None), *slurm.words]


def _clock(seconds: float) -> str:
    """minutes:seconds, as sbatch(1) reads a time."""
    whole = math.ceil(seconds)
    return f"{whole // 60}:{whole % 60:02d}"

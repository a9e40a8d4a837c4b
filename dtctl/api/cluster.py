"""A cluster file that has been read and checked, and how its hosts are reached."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.config import check_cluster, find_cluster_file
from dtctl.errors import UsageError
from dtctl.operations.history import Memory
from dtctl.plan.roster import plan_roster
from dtctl.transport.connect import Transports

if TYPE_CHECKING:
    from dtctl.config.load import Checked

log = logging.getLogger("dtctl")
"""What the command line shows as warnings and notes."""


@dataclass(frozen=True)
class Cluster:
    """A checked cluster file, as it was when it was loaded."""

    name: str
    file: Path
    hosts: tuple[str, ...]
    """In the order of the file."""
    tasks: Mapping[str, str]
    """Task (JOB:INDEX, as worker:1) -> its host."""
    checked: Checked = field(repr=False, compare=False)
    overrides: tuple[str, ...] = field(default=(), repr=False)
    transport: Transports = field(default_factory=lambda: make_transport(), repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {len(self.tasks)} tasks on {len(set(self.tasks.values()))} hosts ({self.file})"


def load(file: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None) -> Cluster:
    """Reads and checks a cluster file; asks no host.

    `file` None: $DTCTL_CONFIG, or the nearest cluster.yaml from the working directory up to the root of its repository.
    `overrides`: values for keys of the file, as `--set` has them, such as {"trainer.args.learning_rate": 0.01}.

    Raises errors.ConfigError with every mistake and its place, errors.UsageError where there is no file.
    """
    found = find_cluster_file(Path(file) if file is not None else None, os.environ, Path.cwd())
    words = tuple(_override(path, value) for path, value in (overrides or {}).items())
    checked = check_cluster(found, overrides=words)
    cluster = checked.cluster
    return Cluster(
        name=cluster.name,
        file=cluster.file,
        hosts=tuple(cluster.hosts),
        tasks={str(task.id): task.host for task in plan_roster(cluster).tasks},
        checked=checked,
        overrides=words,
    )


def _override(path: str, value: Any) -> str:
    """JSON is YAML."""
    try:
        return f"{path}={json.dumps(value, ensure_ascii=False, allow_nan=False, default=os.fspath)}"
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the override of {path} is {value!r}, which no cluster file can hold",
            detail=str(error),
            hint="numbers, texts, booleans, None, lists and dicts are possible: float(x) converts one of NumPy's",
        ) from error


def make_transport() -> Transports:
    """Nobody is asked for a passphrase: keys that have one have to be in an SSH agent."""
    return Transports(waiting=_report_silence)


def memory() -> Memory:
    return Memory(log.warning)


def _report_silence(host: str, silent_s: float, limit_s: float) -> None:
    log.warning("waiting for %s: silent for %g s, given up after %g s", host, silent_s, limit_s)

"""A cluster: all of one cluster.yaml, expanded and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtctl.config.settings import JobKeys, Settings, TrainerKeys
from dtctl.model import CHOSEN_PORT, Dialect, Host, Reach, TaskId, lead_among


@dataclass(frozen=True)
class Launch:
    """What a trainer process is given; a job's own settings are already merged over the trainer's."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    """Words as they follow the command: {train_steps: 100} has become --train_steps=100."""
    dialect: Dialect = "tensorflow"
    """tensorflow: the flags and TF_CONFIG; flags or tf_config: one of them; then other frameworks' variables."""
    template: tuple[str, ...] = ()
    """Words with {fields}, for the dialect `template`."""
    platform: tuple[str, ...] = ()
    """Of PLATFORM_NAMES: those in small letters are handed over as flags, those in capitals as variables."""
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job(JobKeys):
    """A named group of tasks. `hosts[i]` and `ports[i]` are those of task i."""

    name: str
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    launch: Launch
    own_port: bool = False
    """The file says where its first task listens."""


@dataclass(frozen=True, kw_only=True)
class Trainer(TrainerKeys):
    """The training program and what its processes share."""

    code: Path
    """Absolute directory on the controller."""
    env_file: Path | None = None
    """File of NAME=VALUE lines that secrets are looked up in before the controller's environment."""


@dataclass(frozen=True, kw_only=True)
class Cluster(Settings):
    """Its settings, and what else the file says, worked out."""

    name: str
    file: Path
    hosts: Mapping[str, Host]
    """In the order of the file."""
    jobs: Mapping[str, Job]
    """In the order of the file, which is also the order of the trainers' flags."""
    trainer: Trainer
    dirs: Mapping[str, str] = field(default_factory=dict)
    """Some of DIRECTORY_NAMES; a relative path lies under ~/dtctl/NAME on its host."""
    checkpoint_dir: str | None = None
    """None: the output directory."""
    log_limit_bytes: int | None = 10**9
    """Of all logs of a task in a run; None: there is no limit."""
    coordinator_port: int = 2221
    own_coordinator_port: bool = False
    """The file says it."""
    spares: tuple[str, ...] = ()
    """Hosts without a task that may take the place of one that is lost."""
    file_sha256: str = ""
    """Of the file's bytes as they were read."""
    as_written: Mapping[str, Reach] = field(default_factory=dict)
    """Host -> how the file has it reached, where the command line overrides that."""

    @property
    def lead(self) -> TaskId:
        """The task whose end decides the run: chief:0, master:0, or else worker:0 (or task 0 of the first job)."""
        return lead_among(self.jobs)

    @property
    def hosts_choose_ports(self) -> bool:
        """Some ports are not known before the hosts have been asked."""
        ports = (port for job in self.jobs.values() for port in job.ports)
        return self.coordinator_port == CHOSEN_PORT or CHOSEN_PORT in ports

    def tasks(self) -> tuple[TaskId, ...]:
        """Every task, in the order of the jobs and their indexes."""
        return tuple(TaskId(job.name, index) for job in self.jobs.values() for index in range(len(job.hosts)))

    def host_of(self, task: TaskId) -> Host:
        return self.hosts[self.jobs[task.job].hosts[task.index]]

"""The sections of cluster.yaml as pydantic models: their keys, defaults and meaning.

One source for three uses: reading a file, the JSON Schema of editors, and docs/cluster-yaml.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from dtctl.config import values as v
from dtctl.config.sections.base import REQUIRED, Section
from dtctl.config.sections.hooks import HookEntry
from dtctl.config.sections.machines import DirsEntry, HostEntry, HostSsh, SshDefaults
from dtctl.config.sections.programs import JobEntry, LaunchKeys, TrainerEntry
from dtctl.config.sections.recovery import RecoveryEntry

__all__ = [
    "SECTIONS",
    "CheckpointEntry",
    "ClusterFile",
    "CoordinatorEntry",
    "DirsEntry",
    "HookEntry",
    "HostEntry",
    "HostSsh",
    "JobEntry",
    "LaunchKeys",
    "LogsEntry",
    "RecoveryEntry",
    "Section",
    "SshDefaults",
    "TrainerEntry",
    "sections_with",
]


class TfConfigEntry(Section):
    """What the variable `TF_CONFIG` holds besides cluster and task, for the dialects `tensorflow` and `tf_config`."""

    where: ClassVar[str] = "tf_config"

    environment: v.Text | None = Field(
        default=None, description="its `environment`, which older Estimators look at", examples=["cloud"]
    )
    rpc_layer: v.Text | None = Field(
        default=None, description="its `rpc_layer`; TensorFlow's own is `grpc`", examples=["grpc"]
    )
    evaluator_in_cluster: v.Flag = Field(
        default=False,
        description="the job `evaluator` stands in its `cluster` too; TensorFlow 2 wants it in `task` alone",
        examples=["true"],
    )
    sparse: v.Flag = Field(
        default=False,
        description="each worker's `cluster` holds the ps, the lead and the worker itself, not the other workers, "
        "so that it need not wait for them",
        examples=["true"],
    )


class CheckpointEntry(Section):
    """Where checkpoints are looked for."""

    where: ClassVar[str] = "checkpoint"

    dir: v.HostPath | None = Field(
        default=None, description="their directory on the hosts; by default `dirs.output`", examples=["/data/output"]
    )


class LogsEntry(Section):
    """The files that hold what trainers print."""

    where: ClassVar[str] = "logs"

    limit: v.SizeOrNone = Field(
        default=10**9,
        description="how much of its logs is kept of each task in a run; of more, the oldest lines are removed while "
        "the trainer goes on writing, but never the last megabyte of an attempt. File systems that cannot take the "
        "front off a file (NFS before 4.2) have no limit",
        examples=["200MB"],
    )


class CoordinatorEntry(Section):
    """The agent on the lead task's host, which decides for the whole run. The agents of the other hosts connect to it,
    by TLS with a key of the run's own."""

    where: ClassVar[str] = "coordinator"

    port: v.Port = Field(
        default=2221,
        description="where it listens on the lead task's host; the other hosts must be able to reach it. If it is left "
        "out, `ports` may say otherwise",
        examples=["3221"],
    )


class ClusterFile(Section):
    """One cluster: machines, jobs, and the program that trains."""

    where: ClassVar[str] = "the top level"

    name: v.Name = Field(
        default="",
        description="the cluster's name; hosts that serve several clusters tell them apart by it",
        examples=["digits"],
        json_schema_extra=REQUIRED,
    )
    ssh: SshDefaults = Field(default=SshDefaults(), description="how the hosts are reached")
    hosts: dict[v.HostNames, HostEntry] = Field(default={}, description="the machines", json_schema_extra=REQUIRED)
    jobs: dict[v.JobName, JobEntry] = Field(
        default={}, description="the groups of tasks, in the order of the trainers' flags", json_schema_extra=REQUIRED
    )
    ports: v.FirstPort | None = Field(
        default=None,
        description="where the ports begin that nothing else says: that of the coordinator and those of jobs without "
        "`port`, so that every task takes the first one that no other task of its machine has; `auto`: free ones that "
        "each host chooses before the start, outside of those that its system hands out to outgoing connections. If it "
        "is left out, the coordinator takes 2221, and tasks count from 2222",
        examples=["auto"],
    )
    trainer: TrainerEntry = Field(default=TrainerEntry(), description="the training program")
    dirs: DirsEntry = Field(default=DirsEntry(), description="directories on the hosts")
    tf_config: TfConfigEntry = Field(default=TfConfigEntry(), description="what `TF_CONFIG` holds")
    checkpoint: CheckpointEntry = Field(default=CheckpointEntry(), description="where checkpoints are looked for")
    strategy: v.Strategy = Field(
        default="auto",
        description="the way of training; it decides who needs whom at the start and what is restarted when a task is "
        "lost: [recovery.md](recovery.md). `auto`: `kvstore` with the dialect `mxnet`, "
        "`async-ps` where there is a `ps` job, else a collective (as `mirrored` and `ddp` are) where more than one "
        "task trains",
        examples=["ps-strategy"],
    )
    recovery: RecoveryEntry = Field(default=RecoveryEntry(), description="when a lost task is started again")
    success: v.SuccessRule = Field(
        default="auto",
        description="what ends the run well: the end of the `lead` task (`chief:0`, `master:0`, or else `worker:0`), "
        "or the end of `all-workers`; `auto`: the lead where there is a `ps` job, else all workers",
        examples=["lead"],
    )
    target_step: v.Count | None = Field(
        default=None,
        description="the step that a complete training reaches: if a success falls short of it, dtctl "
        "warns; if left out, the lead's argument `train_steps`, `max_steps` or `target_step`, where it has one",
        examples=["20000"],
    )
    fail_fast: v.Flag = Field(
        default=True,
        description="a task that is lost for good fails the run, and all others are stopped; `false` lets them "
        "continue",
        examples=["false"],
    )
    start_timeout: v.PositiveDuration = Field(
        default=600.0,
        description="how long a task that others need may take to listen or to report a step; then the run has failed",
        examples=["30m"],
    )
    active_deadline: v.DurationOrNone = Field(
        default=None, description="how long the run may take as a whole; then it has failed", examples=["12h"]
    )
    settle: v.DurationOrAuto = Field(
        default=None,
        description="how long the other tasks may take to finish by themselves after the success, before they are "
        "stopped; `auto`: 30s, and 150s for `sync-ps`, whose chief needs two minutes to close",
        examples=["2m"],
    )
    grace: v.Duration = Field(
        default=30.0,
        description="how long a task that is stopped may take to save its state before it is killed",
        examples=["2m"],
    )
    keep: v.Count = Field(
        default=10, description="how many runs that have ended are kept, with their logs", examples=["3"]
    )
    ttl: v.DurationOrNone = Field(
        default=None, description="how long a run that has ended is kept at most", examples=["7d"]
    )
    logs: LogsEntry = Field(default=LogsEntry(), description="the files that hold what trainers print")
    coordinator: CoordinatorEntry = Field(
        default=CoordinatorEntry(), description="the agent that decides for the whole run"
    )
    hooks: dict[v.HookName, HookEntry] = Field(default={}, description="who is told of the run, by names of your own")
    spares: v.HostList = Field(
        default=[],
        description="hosts that no job uses, for `dtctl replace` to put in the place of one that is lost",
        examples=['"gpu-[5-6]"'],
    )


SECTIONS: tuple[type[Section], ...] = (
    ClusterFile,
    SshDefaults,
    HostEntry,
    HostSsh,
    JobEntry,
    TrainerEntry,
    DirsEntry,
    TfConfigEntry,
    CheckpointEntry,
    RecoveryEntry,
    LogsEntry,
    CoordinatorEntry,
    HookEntry,
)


def sections_with(key: str) -> Iterator[str]:
    """The places where `key` may stand."""
    return (section.where for section in SECTIONS if key in section.model_fields)

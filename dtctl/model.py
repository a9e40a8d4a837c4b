"""The words of the domain as frozen values. They hold no policy and read no file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records import hooks as records
from dtctl.agent.records.words import FINAL
from dtctl.errors import UsageError


@dataclass(frozen=True)
class TransportKind:
    """A transport by the place of its code, which is imported when the first host needs it."""

    opener: str
    """MODULE:NAME of what makes a `Transport` from a `dtctl.transport.seam.TransportOptions`."""
    settings: tuple[str, ...] = ()
    """What a cluster file has to say of each host: `transport: {NAME: {SETTING: ...}}`."""


TRANSPORTS: dict[str, TransportKind] = {
    "ssh": TransportKind("dtctl.transport.ssh.transport:SshTransport.of"),
    "local": TransportKind("dtctl.transport.local:LocalTransport.of"),
}
"""By the names in a cluster file. The settings of `ssh` are a section of their own."""

OPENSSH = TransportKind("dtctl.transport.ssh.kept:OpensshTransport.of")
"""In place of the transport `ssh` where that section has `client: openssh`."""


HostKeys = Literal["strict", "accept-new"]
SshClient = Literal["fabric", "openssh"]


@dataclass(frozen=True)
class SshSettings:
    """None leaves the choice to ~/.ssh/config and then to the defaults of SSH."""

    transport: ClassVar[str] = "ssh"

    target: str
    """A name or address, or an alias of ~/.ssh/config."""
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump: str | None = None
    """[USER@]HOST[:PORT], as for ssh -J."""
    host_keys: HostKeys = "strict"
    known_hosts: str | None = None
    project: str | None = None
    """The directory of the cluster file: new keys are written to `known_hosts` only here and in ~/.ssh."""
    connect_timeout_s: float = 15.0
    client: SshClient = "fabric"
    keep_s: float = 600.0
    """How long `openssh` keeps a connection that is not used."""

    @property
    def machine(self) -> tuple[str, ...]:
        return self.transport, self.target, str(self.port or 22), self.jump or ""


@dataclass(frozen=True)
class Local:
    """This machine."""

    transport: ClassVar[str] = "local"

    @property
    def machine(self) -> tuple[str, ...]:
        return (self.transport,)


@dataclass(frozen=True)
class OtherTransport:
    """Any other transport of TRANSPORTS, with the settings that it asks for."""

    transport: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> tuple[str, ...]:
        return self.transport, *self.settings.values()


Reach = SshSettings | Local | OtherTransport
"""`machine` is the same for two hosts of an inventory that are one machine, as far as their settings show."""


CHOSEN_PORT = 0
"""In place of a port that its host is still to choose."""

LEAD_JOBS = ("chief", "master")
"""Jobs whose task 0 leads the run; without one of them `worker:0` leads."""

DeclaredStrategy = Literal["auto", "async-ps", "sync-ps", "in-graph", "ps-strategy", "mirrored", "ddp", "kvstore"]
"""What a cluster file says of the strategy; what it means is decided in `dtctl.strategies`."""

RecoveryMode = Literal["auto", "task", "gang", "never"]
RebootRule = Literal["auto", "never"]
DeclaredSuccess = Literal["auto", "lead", "all-workers"]

DIRECTORY_NAMES = ("data", "output", "work", "log")

PLATFORM_NAMES = (*(f"{name}_dir" for name in DIRECTORY_NAMES), "num_gpus", "num_gpu")
"""What a platform gives a trainer besides its place: as --data_dir, or in capitals as the variable DATA_DIR."""


@dataclass(frozen=True, order=True)
class TaskId:
    """One task of a cluster, written JOB:INDEX as in worker:1."""

    job: str
    index: int

    @classmethod
    def parse(cls, text: str) -> TaskId:
        job, _, index = text.partition(":")
        if not job or not (index.isascii() and index.isdecimal()):
            raise UsageError(f"{text!r} is not a task", hint="write JOB:INDEX, for example worker:1")
        return cls(job, int(index))

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"


class TaskState(str, Enum):
    """Where a task is in its life.

    pending -> starting -> running -> succeeded | failed | stopped
    running -> backoff -> starting: it failed, and its budget allows another attempt
    running -> stalled: alive, but without progress
    any -> lost: unknown; never guessed to be failed
    """

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STALLED = "stalled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def final(self) -> bool:
        """Nothing more happens to the task unless somebody asks."""
        return self.value in FINAL


@dataclass(frozen=True)
class Host:
    """A machine of the inventory. Its address is how other hosts reach it, not how SSH does."""

    name: str
    reach: Reach
    """How the controller reaches it."""
    address: str | None = None
    """None: the host name that SSH connects to."""
    gpus: int = 0
    python: str | None = None
    """Interpreter of the trainers on this host, in place of the trainer's own setting."""
    env: Mapping[str, str] = field(default_factory=dict)
    dirs: Mapping[str, str] = field(default_factory=dict)
    """In place of the cluster's."""

    @property
    def is_local(self) -> bool:
        """Its agents and trainers run on this machine."""
        return isinstance(self.reach, Local)


FIELD = re.compile(r"\{(\w+)(?:\s*\|\s*(\w+)\s*)?\}")
"""A field of a template, {task_index} or {ps_hosts|space}: its name, and what joins addresses in place of commas."""

SPACE = "space"

Dialect = Literal["tensorflow", "flags", "tf_config", "template", "pytorch", "jax", "mxnet", "cluster_spec", "none"]
"""How a trainer learns its place."""


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


@dataclass(frozen=True)
class Job:
    """A named group of tasks. `hosts[i]` and `ports[i]` are those of task i."""

    name: str
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    launch: Launch
    gpus_per_task: int | None = None
    """None: the GPUs of a host are shared evenly among its GPU tasks. ps and evaluator default to 0."""
    depends_on: tuple[str, ...] | None = None
    """Jobs that it waits for; None: as its strategy needs."""
    own_port: bool = False
    """The file says where its first task listens."""


@dataclass(frozen=True)
class Recovery:
    """When, how often and with whom a lost task is started again."""

    mode: RecoveryMode = "auto"
    """What the loss of a task restarts: what its strategy needs, it alone, everything, or nothing."""
    max_restarts: int = 10
    """Of one task."""
    max_run_restarts: int = 100
    """Of all tasks; a restart of the whole gang counts once."""
    backoff_min_s: float = 1.0
    backoff_max_s: float = 60.0
    reset_after_s: float = 600.0
    """An attempt that lived this long sets the back-off and the count of restarts back to nothing."""
    repeat: int = 3
    """Ends of the same cause in a row, without a new step, after which a task has failed; 0: never."""
    allow_scratch: bool = False
    """Start over when parameters are lost of which there is no complete checkpoint."""
    retry: tuple[int, ...] = (42, 137, 139, 143)
    """Exit codes that may be tried again whatever the log says."""
    permanent: tuple[int, ...] = (2,)
    """Exit codes that are never tried again."""
    stall_s: float | None = None
    """How long a task may show no progress; None: learnt from the run; 0: for ever."""
    first_step_s: float | None = None
    """None: learnt from earlier attempts; 0: off."""
    host_timeout_s: float | None = None
    """How long a host may be out of touch before its tasks are given up; None: for ever."""
    reboot: RebootRule = "auto"
    """Whether the agents restart by themselves after a restart of their host."""


@dataclass(frozen=True)
class Trainer:
    """The training program and what its processes share."""

    code: Path
    """Absolute directory on the controller."""
    python: str | None = None
    """Interpreter in place of a command's leading `python`; None: the host's python3."""
    venv: str | None = None
    setup: str | None = None
    """Shell text, run once per host, bundle and text, in the bundle's directory."""
    secrets: tuple[str, ...] = ()
    """Names of environment variables whose values never leave 0600 files and the trainers' environment."""
    env_file: Path | None = None
    """File of NAME=VALUE lines that secrets are looked up in before the controller's environment."""
    keep_proxy: bool = False


@dataclass(frozen=True)
class TfConfig:
    """What TF_CONFIG holds besides cluster and task."""

    environment: str | None = None
    rpc_layer: str | None = None
    evaluator_in_cluster: bool = False
    sparse: bool = False
    """Workers do not see each other."""


def lead_among(jobs: Iterable[str]) -> TaskId:
    """The task that leads a cluster with these jobs, of which there has to be one."""
    names = tuple(jobs)
    return TaskId(next(job for job in (*LEAD_JOBS, "worker", *names) if job in names), 0)


@dataclass(frozen=True)
class Cluster:
    """All of one cluster.yaml, expanded and checked."""

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
    tf_config: TfConfig = TfConfig()
    strategy: DeclaredStrategy = "auto"
    recovery: Recovery = Recovery()
    success: DeclaredSuccess = "auto"
    fail_fast: bool = True
    """A task that is lost for good ends the run, and does not leave the others running."""
    start_timeout_s: float = 600.0
    active_deadline_s: float | None = None
    """How long the run may take as a whole; None: as long as it needs."""
    settle_s: float | None = None
    """How long the others may take to end by themselves after the success; None: as the strategy needs."""
    grace_s: float = 30.0
    """Between SIGTERM and SIGKILL when a task is stopped."""
    ttl_s: float | None = None
    """How long a run that has ended is kept; None: until `keep` newer ones have ended."""
    keep: int = 10
    """How many runs that have ended are kept."""
    log_limit_bytes: int | None = 10**9
    """Of all logs of a task in a run; None: there is no limit."""
    target_step: int | None = None
    """The step that a complete training reaches; None: as the trainer's arguments say, if they do."""
    coordinator_port: int = 2221
    own_coordinator_port: bool = False
    """The file says it."""
    spares: tuple[str, ...] = ()
    """Hosts without a task that may take the place of one that is lost."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
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


EVENTS = records.EVENTS
"""What a hook may be called for."""

VALUE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""${NAME}: the value of a variable, which may be a secret."""

_MADE = re.compile(r"[A-Za-z0-9_-]{32}")
"""In an address: what looks made by a machine."""

_SECRET_HEADER = re.compile(r"(?i)^(?:authorization|cookie)$|token|key|secret")


@dataclass(frozen=True)
class Hook:
    """Either `post` or `run` says how it is called."""

    name: str
    on: tuple[str, ...]
    """Of EVENTS."""
    post: str | None = None
    """An address, with ${NAME} in it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The same of the values."""
    run: tuple[str, ...] = ()
    """The words of a command."""
    timeout_s: float = 10.0

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of those whose values it needs."""
        texts = [self.post or "", *self.headers.values()]
        return tuple(dict.fromkeys(name for text in texts for name in VALUE.findall(text)))

    def filled(self, values: Mapping[str, str]) -> records.Post:
        """As its coordinator gets it."""

        def fill(text: str) -> str:
            return VALUE.sub(lambda found: values[found.group(1)], text)

        return {
            "name": self.name,
            "on": list(self.on),  # type: ignore[arg-type]  # the file has been checked
            "url": fill(self.post or ""),
            "headers": {name: fill(value) for name, value in self.headers.items()},
            "timeout_s": self.timeout_s,
        }


def problem_of_url(url: str) -> str:
    """What was expected in place of an address, whose variables may have no values yet; empty where it will do."""
    known = VALUE.sub("x", url)
    return "" if VALUE.match(url) else records.problem_of_url(known)


def problem_of_post(post: records.Post) -> str:
    """The same of one with its values, in words that show none of them."""
    from dtctl.agent.records.kinds import Wrong, checked

    try:
        checked(records.Post, dict(post))
    except Wrong as wrong:
        return wrong.expected
    return ""


def tokens_in(post: str, headers: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Where a hook's texts look as if they held a secret."""
    if post and not VALUE.search(post) and (hide_text(post) != post or _MADE.search(post)):
        yield ("post",)
    for name, value in headers.items():
        if _SECRET_HEADER.search(name) and not VALUE.search(value):
            yield "headers", name

"""The words of the domain as frozen values. They hold no policy and read no file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import ClassVar, Literal, TypeVar

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records import hooks as records
from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.records.values import FINAL
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, both in the order of the pairs."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


TRANSPORTS = {
    "ssh": "dtctl.transport.ssh.transport:SshTransport.of",
    "local": "dtctl.transport.local:LocalTransport.of",
}
"""Transports by their names in a cluster file: MODULE:NAME of a function that makes a `Transport` from
`dtctl.transport.seam.TransportOptions`. It is imported when the first host needs it."""

OPENSSH = "dtctl.transport.ssh.kept:OpensshTransport.of"
"""The transport used for `ssh` if its section has `client: openssh`."""


On = Literal["ssh", "slurm"]
"""Where a run's tasks are: on the machines of the file, or on those that an engine of that name lends to the run."""

HostKeys = Literal["strict", "accept-new"]
SshClient = Literal["fabric", "openssh"]
SuccessRule = Literal["lead", "all-workers"]


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
    forward_agent: bool = False
    """Whether programs that dtctl runs there may use the keys of this machine's ssh-agent."""

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
    """Any other transport of TRANSPORTS; `target` is the host's name."""

    transport: str
    target: str

    @property
    def machine(self) -> tuple[str, ...]:
        return self.transport, self.target


Reach = SshSettings | Local | OtherTransport
"""`machine` is the same for two hosts of an inventory that are one machine, as far as their settings show."""


CHOSEN_PORT = 0
"""Stands for a port that its host has not chosen yet."""

LEAD_JOBS = ("chief", "master")
"""Jobs whose task 0 leads the run; without one of them `worker:0` leads."""

DeclaredStrategy = Literal["auto", "async-ps", "sync-ps", "in-graph", "ps-strategy", "mirrored", "ddp", "kvstore"]
"""The values of `strategy` in a cluster file; `dtctl.config.strategies` interprets them."""

EnvironmentKind = Literal["requirements", "uv", "conda", "modules", "container"]
ContainerEngine = Literal["podman", "docker", "apptainer"]
"""The program that runs containers."""

DataShard = Literal["none", "worker"]
DataRelay = Literal["auto", "never"]
RecoveryMode = Literal["auto", "task", "gang", "never"]
RebootRule = Literal["auto", "never"]
DeclaredSuccess = Literal["auto", "lead", "all-workers"]

DIRECTORY_NAMES = ("data", "output", "work", "log")

PLATFORM_NAMES = (*(f"{name}_dir" for name in DIRECTORY_NAMES), "num_gpus", "num_gpu")
"""The settings of a training platform other than the task's place: as --data_dir, or in capitals as the variable
DATA_DIR."""


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
    """The state of a task.

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
        """Nothing more happens to the task unless it is restarted by hand."""
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
    """Overrides the cluster's directories on this host."""
    gpu_numbers: str = ""
    """The driver's numbers of its GPUs, as 2,3; empty: they count from 0."""

    @property
    def is_local(self) -> bool:
        """Whether its agents and trainers run on this machine."""
        return isinstance(self.reach, Local)


FIELD = re.compile(r"\{(\w+)(?:\s*\|\s*(\w+)\s*)?\}")
"""A field of a template, {task_index} or {ps_hosts|space}: its name, and what joins addresses in place of commas."""

SPACE = "space"

Dialect = Literal["tensorflow", "flags", "tf_config", "template", "pytorch", "jax", "mxnet", "cluster_spec", "none"]
"""How a trainer learns its place."""


def lead_among(jobs: Iterable[str]) -> TaskId:
    """The task that leads a cluster with these jobs, of which there has to be one."""
    names = tuple(jobs)
    return TaskId(next(job for job in (*LEAD_JOBS, "worker", *names) if job in names), 0)


EVENTS = records.EVENTS
"""The events that hooks can receive."""

VALUE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""${NAME}: the value of a variable, which may be a secret."""

_MADE = re.compile(r"[A-Za-z0-9_-]{32}")
"""A part of an address that looks machine-generated, as a token does."""

_SECRET_HEADER = re.compile(r"(?i)^(?:authorization|cookie)$|token|key|secret")


def problem_of_url(url: str) -> str:
    """What a hook's address should be instead, if it is invalid; empty if it is valid.

    Its variables may have no values yet.
    """
    known = VALUE.sub("x", url)
    return "" if VALUE.match(url) else records.problem_of_url(known)


def problem_of_post(post: records.Post) -> str:
    """The same of one with its values, in words that show none of them."""

    try:
        checked(records.Post, dict(post))
    except InvalidValue as wrong:
        return wrong.expected
    return ""


def tokens_in(post: str, headers: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The fields of a hook that seem to contain a secret."""
    if post and not VALUE.search(post) and (hide_text(post) != post or _MADE.search(post)):
        yield ("post",)
    for name, value in headers.items():
        if _SECRET_HEADER.search(name) and not VALUE.search(value):
            yield "headers", name


@dataclass(frozen=True)
class Revision:
    """The version of the code of a run, as the machine that started it knew it."""

    commit: str = ""
    """The whole name of the commit; "" before the first one, and where it cannot be read."""
    branch: str = ""
    """"" for a detached HEAD."""
    remote: str = ""
    """The URL of the branch's remote, without credentials."""
    changed: int | None = None
    """The number of files that differ from the commit, of those that are sent; None: unknown."""
    untracked: int = 0
    """How many of them the commit does not have."""
    note: str = ""
    """Why some of that is unknown."""

    @property
    def shown(self) -> str:
        """The words for it, such as `3caef7cc20de (main), 2 files differ`."""
        words = self.commit[:12] or "no commit"
        words += f" ({self.branch})" if self.branch else ""
        if self.changed:
            words += f", {self.changed} {'files differ' if self.changed > 1 else 'file differs'}"
        elif self.changed is None and self.commit:
            words += ", differences unknown"
        return words

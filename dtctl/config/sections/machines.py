"""The sections that describe machines: `ssh`, `dirs` and `hosts`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dtctl.config import values as v
from dtctl.config.sections.base import Section
from dtctl.model import OtherTransport


class SshDefaults(Section):
    """How the hosts are reached; every key may be set again for a single host. `~/.ssh/config` is honoured for what is
    not set here."""

    where: ClassVar[str] = "ssh"

    user: v.User | None = Field(default=None, description="the user to log in as", examples=["train"])
    port: v.Port | None = Field(default=None, description="the port of the SSH server", examples=["2200"])
    identity_file: v.LocalPath | None = Field(
        default=None,
        description="the private key; relative to the directory of this file",
        examples=["~/.ssh/id_ed25519"],
    )
    jump: v.Target | None = Field(
        default=None,
        description="`[USER@]HOST[:PORT]` to go through, several with commas, as for `ssh -J`",
        examples=["gate.example.com"],
    )
    host_keys: v.HostKeys = Field(
        default="strict",
        description="what to do with an unknown host key: `strict` refuses it (`dtctl trust` pins it once "
        "you have seen it), `accept-new` pins it unseen; a key that has changed is always refused",
        examples=["accept-new"],
    )
    known_hosts: v.LocalPath | None = Field(
        default=None,
        description="the file of known host keys in place of `~/.ssh/known_hosts`; relative to the directory of this "
        "file; new keys are written only to a file of known host keys, in `~/.ssh` and called `known_hosts...`, or "
        "beside this file",
        examples=["known_hosts"],
    )
    connect_timeout: v.ConnectTimeout = Field(
        default=15.0, description="how long to wait for a connection", examples=["30s"]
    )


class HostSsh(SshDefaults):
    """How one host is reached, where it differs from `ssh`. A single value stands for `target`."""

    where: ClassVar[str] = "hosts.NAME.ssh"
    short: ClassVar[str | None] = "target"

    target: v.Target | None = Field(
        default=None,
        description="`[USER@]HOST[:PORT]`, or an alias of `~/.ssh/config`; the host's own name if left out",
        examples=['"10.0.0.2[1-4]"'],
    )


class DirsEntry(Section):
    """Directories on the hosts, no URLs. A relative path lies under `~/dtctl/NAME`. The field of a directory that is
    set (`{output_dir}`) may stand in `command`, `args`, `env` and `template`; `platform` hands them over as they are.
    All but `data` are made before the start. Data that is not below `~/dtctl/NAME` has to be there already: every host
    with a task that is no `ps` is looked at."""

    where: ClassVar[str] = "dirs"

    data: v.HostPath | None = Field(default=None, description="training data", examples=["/data/digits"])
    output: v.HostPath | None = Field(default=None, description="checkpoints and summaries", examples=["/data/output"])
    work: v.HostPath | None = Field(default=None, description="scratch space", examples=["/scratch"])
    log: v.HostPath | None = Field(
        default=None, description="logs that the trainers themselves write", examples=["logs"]
    )


class HostEntry(Section):
    """A machine, or several when its name holds a range: `gpu-[1-4]`, `n[01-12]`, `rack[1-2]-[1,3]`. A range in a text
    of `ssh` or in `address` must have as many values as the name has; a text without a range is shared by all. A single
    value in place of the mapping is the SSH target, and nothing at all means that the name is the target."""

    where: ClassVar[str] = "hosts.NAME"
    short: ClassVar[str | None] = "ssh"
    may_be_empty: ClassVar[bool] = True

    ssh: HostSsh = Field(default=HostSsh(), description="how the host is reached", examples=["10.0.0.10"])
    address: v.Address | None = Field(
        default=None,
        description="how the other hosts reach it, if not by the host name that SSH connects to",
        examples=['"192.168.7.2[1-4]"'],
    )
    gpus: v.Gpus = Field(default=0, description="how many GPUs its tasks share", examples=["2"])
    python: v.Text | None = Field(
        default=None,
        description="interpreter of its trainers in place of `trainer.python`",
        examples=["/opt/py311/bin/python"],
    )
    env: v.Env = Field(
        default={},
        description="variables of its trainers, over those of `trainer` and the job",
        examples=["{OMP_NUM_THREADS: 8}"],
    )
    dirs: DirsEntry = Field(
        default=DirsEntry(),
        description="directories here, in place of those of `dirs`",
        examples=["{data: /ssd/digits}"],
    )
    transport: v.Transport = Field(
        default=OtherTransport("ssh"), description="`local`: this machine, without SSH", examples=["local"]
    )

"""The other sections of cluster.yaml, and the whole file: what is worked out before it is a Cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from dtctl.config import values as v
from dtctl.config.cluster import DataKeys, Environment, Hook, JobKeys, Recovery, Settings, Slurm, TfConfig, TrainerKeys
from dtctl.config.section import Section, key
from dtctl.dataclass import dataclass
from dtctl.model import Dialect, HostKeys, SshClient, SshSettings


@dataclass(frozen=True, kw_only=True)
class SshDefaults(Section):
    """How the hosts are reached; every key may be set again for a single host. `~/.ssh/config` is honoured for what is
    not set here."""

    where: ClassVar[str] = "ssh"

    user: v.User | None = key(None, "train")
    """the user to log in as"""
    port: v.Port | None = key(None, "2200")
    """the port of the SSH server"""
    identity_file: v.LocalPath | None = key(None, "~/.ssh/id_ed25519")
    """the private key; relative to the directory of this file"""
    jump: v.Target | None = key(None, "gate.example.com")
    """`[USER@]HOST[:PORT]` to go through, several with commas, as for `ssh -J`"""
    host_keys: HostKeys = key(SshSettings.host_keys, "accept-new")
    """what to do with an unknown host key: `strict` refuses it (`dtctl trust` pins it once you have seen it),
    `accept-new` pins it unseen; a key that has changed is always refused"""
    known_hosts: v.LocalPath | None = key(None, "known_hosts")
    """the file of known host keys in place of `~/.ssh/known_hosts`; relative to the directory of this file; new keys
    are written only to a file of known host keys, in `~/.ssh` and called `known_hosts...`, or next to this file"""
    connect_timeout_s: v.ConnectTimeout = key(SshSettings.connect_timeout_s, "30s")
    """how long to wait for a connection"""
    client: SshClient = key(SshSettings.client, "openssh")
    """which program speaks SSH: `fabric`, within dtctl, or `openssh`, the `ssh` of this machine, with all keys and ways
    to log in that it knows, and connections that are kept"""
    keep_s: v.KeepTime = key(SshSettings.keep_s, "10m")
    """how long `openssh` keeps a connection that is not used"""
    forward_agent: bool = key(SshSettings.forward_agent, "true")
    """whether environments, `setup` and `dtctl exec` may log in elsewhere with the keys of your `ssh-agent`, as git
    does; the host's administrator can then use them, too, while dtctl is connected; trainers never get it"""


@dataclass(frozen=True, kw_only=True)
class HostSsh(SshDefaults):
    """How one host is reached, where it differs from `ssh`. A single value stands for `target`."""

    where: ClassVar[str] = "hosts.NAME.ssh"
    short: ClassVar[str | None] = "target"

    target: v.Target | None = key(None, '"10.0.0.2[1-4]"')
    """`[USER@]HOST[:PORT]`, or an alias of `~/.ssh/config`; the host's own name if left out"""


@dataclass(frozen=True, kw_only=True)
class DirsEntry(Section):
    """Directories on the hosts, or [storage URLs](storage-urls.md) such as `gs://bucket/run`, which trainers open
    themselves and dtctl never makes or removes. A relative path lies under `~/dtctl/NAME`. The field of a directory
    that is set (`{output_dir}`) may stand in `command`, `args`, `env` and `template`; `platform` hands them over as
    they are. All directories but `data` are made before the start. Data that is not below `~/dtctl/NAME` has to be
    there already, on every host with a task that is no `ps`; or dtctl brings it: `data.from`."""

    where: ClassVar[str] = "dirs"

    data: v.ReadPlace | None = key(None, "/data/digits")
    """training data"""
    output: v.WrittenPlace | None = key(None, "/data/output")
    """checkpoints and summaries"""
    work: v.WrittenPlace | None = key(None, "/scratch")
    """scratch space"""
    log: v.WrittenPlace | None = key(None, "logs")
    """logs that the trainers themselves write"""


@dataclass(frozen=True, kw_only=True)
class DataEntry(DataKeys):
    """Where the data in `dirs.data` comes from, if dtctl is to bring it to the hosts: `dtctl data push` does, and `up`
    checks that it is there ([data.md](data.md)). With `--local` the trainers read `from` itself."""

    where: ClassVar[str] = "data"
    from_: v.LocalPath | None = key(None, "~/datasets/digits")
    """a directory of this machine; relative to the directory of this file. If left out, the hosts have their data"""


@dataclass(frozen=True, kw_only=True)
class HostEntry(Section):
    """A machine, or several when its name holds a range: `gpu-[1-4]`, `n[01-12]`, `rack[1-2]-[1,3]`. A range in a text
    of `ssh` or in `address` must have as many values as the name has; a text without a range is shared by all. A single
    value in place of the mapping is the SSH target, and nothing at all means that the name is the target."""

    where: ClassVar[str] = "hosts.NAME"
    short: ClassVar[str | None] = "ssh"
    may_be_empty: ClassVar[bool] = True

    ssh: HostSsh = key(HostSsh(), "10.0.0.10")
    """how the host is reached"""
    address: v.Address | None = key(None, '"192.168.7.2[1-4]"')
    """how the other hosts reach it, if not by the host name that SSH connects to"""
    gpus: v.Gpus = key(0, "2")
    """how many GPUs its tasks share"""
    python: v.Text | None = key(None, "/opt/py311/bin/python")
    """interpreter of its trainers in place of `trainer.python`, or of `trainer.environment.python`"""
    env: v.Env = key({}, "{OMP_NUM_THREADS: 8}")
    """variables of its trainers, over those of `trainer` and the job"""
    dirs: DirsEntry = key(DirsEntry(), "{data: /ssd/digits}")
    """directories here, in place of those of `dirs`"""
    transport: v.Transport = key("ssh", "local")
    """`local`: this machine, without SSH"""


@dataclass(frozen=True, kw_only=True)
class LaunchKeys(Section):
    """The command, arguments and environment of a trainer process."""

    command: v.Arguments | None = key(None, "[python, train.py]")
    """the program and its first words; a leading `python` is the interpreter that `python` or `venv` names"""
    args: v.Args | None = key(None, "{batch_size: 128, augment: true}")
    """flags of the trainer: `{batch_size: 128}` is `--batch_size=128`, `true` gives the bare flag, `false` or nothing
    leaves it out, a list is joined with commas; or a plain list of words"""
    dialect: Dialect | None = key(None, "flags")
    """how the trainer learns its place: `flags` (`--ps_hosts --worker_hosts --job_name --task_index`), `tf_config` (the
    variable `TF_CONFIG`), `tensorflow` (both), `template`, the variables of another framework
    ([dialects.md](dialects.md)), or `none`; `tensorflow` if left out"""
    template: v.Template | None = key(None, '["--servers={ps_hosts}", "--index={task_index}"]')
    """words with {fields}, for a trainer with flags of its own; `{ps_hosts|space}` makes a word of each address;
    implies `dialect: template`"""
    platform: v.Platform | None = key(None, "[data_dir, num_gpu, OUTPUT_DIR]")
    """hands over the directories of `dirs` and the number of GPUs: `flags` as `--data_dir --output_dir --work_dir
    --log_dir --num_gpus`, those that are set; `env` as the variables `DATA_DIR` and so on; or a list of such names.
    `num_gpu` is another name for `num_gpus`; what `args` or `env` say themselves wins"""
    env: v.Env = key({}, "{TF_CPP_MIN_LOG_LEVEL: 1}")
    """variables; their values are passed on as written"""


@dataclass(frozen=True, kw_only=True)
class JobEntry(LaunchKeys, JobKeys):
    """A named group of tasks. Its name becomes part of the trainers' flags (`--ps_hosts`). `command`, `args`,
    `dialect`, `template`, `platform` and `env` stand over those of `trainer`: mappings are merged key by key, anything
    else is replaced."""

    where: ClassVar[str] = "jobs.NAME"

    hosts: v.HostList = key((), '"gpu-[1-4]"', required=True)
    """where its tasks run, in the order of their indexes; a host that is named twice runs two"""
    tasks_per_host: v.TasksPerHost = key(1, "2")
    """how many tasks run on each of them, with neighbouring indexes"""
    port: v.Port | None = key(None, "2222")
    """where its first task on a machine listens; its next task there takes the next port. If left out, each task takes
    the first port from `ports` on that no other task of the machine has"""


@dataclass(frozen=True, kw_only=True)
class TrainerEntry(LaunchKeys, TrainerKeys):
    """The training program, and what all its processes share."""

    where: ClassVar[str] = "trainer"

    code: v.LocalPath = key(".", "src")
    """the directory that is pushed to the hosts, less what `.dtctlignore` (or else `.gitignore`) names and [files that
    hold secrets](files.md#secrets-and-api-keys); relative to the directory of this file"""
    code_anywhere: bool = key(False, "true")
    """the earlier name of `send_anywhere`, for `code` alone"""
    env_file: v.LocalPath | None = key(None, ".env")
    """a file of NAME=VALUE lines with values of `secrets`; relative to the directory of this file"""


@dataclass(frozen=True, kw_only=True)
class CheckpointEntry(Section):
    """Where dtctl looks for checkpoints."""

    where: ClassVar[str] = "checkpoint"

    dir: v.WrittenPlace | None = key(None, "/data/output")
    """their directory on the hosts, or a storage URL; by default `dirs.output`"""


@dataclass(frozen=True, kw_only=True)
class LogsEntry(Section):
    """The files that hold what trainers print."""

    where: ClassVar[str] = "logs"

    limit: v.SizeOrNone = key(10**9, "200MB")
    """how much of its logs is kept of each task in a run; of more, the oldest lines are removed while the trainer goes
    on writing, but never the last megabyte of an attempt. File systems that cannot take the front off a file (NFS
    before 4.2) have no limit"""


@dataclass(frozen=True, kw_only=True)
class CoordinatorEntry(Section):
    """The agent on the lead task's host, which decides for the whole run. The agents of the other hosts connect to it,
    by TLS with a key of the run's own."""

    where: ClassVar[str] = "coordinator"

    port: v.Port = key(2221, "3221")
    """where it listens on the lead task's host; the other hosts must be able to reach it. If it is left out, `ports`
    may say otherwise"""


@dataclass(frozen=True, kw_only=True)
class ClusterFile(Settings):
    """One cluster: machines, jobs, and the program that trains."""

    where: ClassVar[str] = "the top level"

    name: v.Name = key("", "digits", required=True)
    """the cluster's name; hosts that serve several clusters distinguish them by it"""
    ssh: SshDefaults = key(SshDefaults())
    """how the hosts are reached"""
    hosts: Mapping[v.HostNames, HostEntry] = key({}, required=True)
    """the machines"""
    jobs: Mapping[v.JobName, JobEntry] = key({}, required=True)
    """the groups of tasks, in the order of the trainers' flags"""
    ports: v.FirstPort | None = key(None, "auto")
    """where the ports begin that nothing else says: that of the coordinator and those of jobs without `port`, so that
    every task takes the first one that no other task of its machine has; `auto`: free ones that each host chooses
    before the start, outside of those that its system hands out to outgoing connections. If it is left out, the
    coordinator takes 2221, and tasks count from 2222; where another run or program has one of these, the hosts choose
    as with `auto`"""
    trainer: TrainerEntry = key(TrainerEntry())
    """the training program"""
    dirs: DirsEntry = key(DirsEntry())
    """directories on the hosts"""
    data: DataEntry = key(DataEntry())
    """the data that is brought to the hosts"""
    send_anywhere: bool = key(False, "true")
    """what is sent (`trainer.code`, `trainer.env_file`, `data.from`) may be a home directory, lie above one or above
    the directory of this file, in a directory of keys, such as `~/.aws`, or in one of the system, such as `/etc`"""
    checkpoint: CheckpointEntry = key(CheckpointEntry())
    """where checkpoints are looked for"""
    logs: LogsEntry = key(LogsEntry())
    """the files that hold what trainers print"""
    coordinator: CoordinatorEntry = key(CoordinatorEntry())
    """the agent that decides for the whole run"""
    spares: v.HostList = key((), '"gpu-[5-6]"')
    """hosts that no job uses, made ready with the others: one of them takes the tasks of a host that is lost, after
    `recovery.replace` or by `dtctl replace`; they vote, too"""
    arbiters: v.HostList = key((), "gate")
    """hosts that no job uses, and that only vote when another coordinator is elected: [two hosts and an arbiter survive
    the loss of one](recovery.md#when-the-coordinators-host-is-down)"""


SECTIONS: tuple[type[Section], ...] = (
    ClusterFile,
    SshDefaults,
    HostEntry,
    HostSsh,
    JobEntry,
    TrainerEntry,
    Environment,
    DirsEntry,
    DataEntry,
    TfConfig,
    CheckpointEntry,
    Recovery,
    LogsEntry,
    CoordinatorEntry,
    Hook,
    Slurm,
)


def sections_with(key: str) -> Iterator[str]:
    """The places where `key` may stand."""
    return (section.where for section in SECTIONS if key in section.known_keys())

"""The sections of cluster.yaml as pydantic models: their keys, defaults and meaning.

One source for three uses: reading a file, the JSON Schema of editors, and docs/cluster-yaml.md, for which the text
beneath a key says what it means.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dtctl.config import values as v
from dtctl.config.document import Scalar
from dtctl.model import OtherTransport


def key(default: Any = None, example: str = "", *, required: bool = False) -> Any:
    """A key of a section. A required one has a default all the same: `dtctl.config.build` reports what is missing."""
    return Field(default=default, examples=[example] if example else None, json_schema_extra={"required": required})


class Section(BaseModel):
    """A mapping with known keys. A key without a value is taken as not written, so that an override can clear it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    where: ClassVar[str]
    """How messages and the reference call the place of the section."""
    short: ClassVar[str | None] = None
    """The key that a single value stands for, where one may be written in place of the mapping."""
    may_be_empty: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _as_mapping(cls, raw: Any) -> Any:
        if cls.short is not None and isinstance(raw, Scalar):
            return {cls.short: raw}
        if raw is None and cls.may_be_empty:
            return {}
        if isinstance(raw, dict):
            return {key: value for key, value in raw.items() if value is not None or key not in cls.model_fields}
        return raw

    @classmethod
    def is_required(cls, key: str) -> bool:
        return cls.model_fields[key].json_schema_extra == {"required": True}

    @classmethod
    def keys_in_order(cls) -> list[str]:
        """Its own keys, then those of the section that it extends."""
        inherited = [key for base in cls.__bases__ for key in getattr(base, "model_fields", ())]
        return [*(key for key in cls.model_fields if key not in inherited), *inherited]

    @classmethod
    @cache
    def meanings(cls) -> dict[str, str]:
        """What each of its keys means: the text beneath it."""
        found = {
            name: text for base in cls.__bases__ if issubclass(base, Section) for name, text in base.meanings().items()
        }
        for one, text in itertools.pairwise(_sources()[cls.__name__].body):
            if isinstance(one, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[ast.unparse(one.target)] = " ".join(ast.literal_eval(text.value).split())
        return found


@cache
def _sources() -> dict[str, ast.ClassDef]:
    """Read once: `inspect.getsource` of a class parses its whole file for each."""
    module = ast.parse(Path(__file__).read_text("utf-8"))
    return {one.name: one for one in module.body if isinstance(one, ast.ClassDef)}


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
    host_keys: v.HostKeys = key("strict", "accept-new")
    """what to do with an unknown host key: `strict` refuses it (`dtctl trust` pins it once you have seen it),
    `accept-new` pins it unseen; a key that has changed is always refused"""
    known_hosts: v.LocalPath | None = key(None, "known_hosts")
    """the file of known host keys in place of `~/.ssh/known_hosts`; relative to the directory of this file; new keys
    are written only to a file of known host keys, in `~/.ssh` and called `known_hosts...`, or beside this file"""
    connect_timeout: v.ConnectTimeout = key(15.0, "30s")
    """how long to wait for a connection"""
    client: v.SshClient = key("fabric", "openssh")
    """which program speaks SSH: `fabric`, within dtctl, or `openssh`, the `ssh` of this machine, with all keys and ways
    to log in that it knows, and connections that are kept"""
    keep: v.KeepTime = key(600.0, "10m")
    """how long `openssh` keeps a connection that is not used"""


class HostSsh(SshDefaults):
    """How one host is reached, where it differs from `ssh`. A single value stands for `target`."""

    where: ClassVar[str] = "hosts.NAME.ssh"
    short: ClassVar[str | None] = "target"

    target: v.Target | None = key(None, '"10.0.0.2[1-4]"')
    """`[USER@]HOST[:PORT]`, or an alias of `~/.ssh/config`; the host's own name if left out"""


class DirsEntry(Section):
    """Directories on the hosts, no URLs. A relative path lies under `~/dtctl/NAME`. The field of a directory that is
    set (`{output_dir}`) may stand in `command`, `args`, `env` and `template`; `platform` hands them over as they are.
    All but `data` are made before the start. Data that is not below `~/dtctl/NAME` has to be there already: every host
    with a task that is no `ps` is looked at."""

    where: ClassVar[str] = "dirs"

    data: v.HostPath | None = key(None, "/data/digits")
    """training data"""
    output: v.HostPath | None = key(None, "/data/output")
    """checkpoints and summaries"""
    work: v.HostPath | None = key(None, "/scratch")
    """scratch space"""
    log: v.HostPath | None = key(None, "logs")
    """logs that the trainers themselves write"""


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
    """interpreter of its trainers in place of `trainer.python`"""
    env: v.Env = key({}, "{OMP_NUM_THREADS: 8}")
    """variables of its trainers, over those of `trainer` and the job"""
    dirs: DirsEntry = key(DirsEntry(), "{data: /ssd/digits}")
    """directories here, in place of those of `dirs`"""
    transport: v.Transport = key(OtherTransport("ssh"), "local")
    """`local`: this machine, without SSH"""


class LaunchKeys(Section):
    """What a trainer process gets."""

    command: v.Words | None = key(None, "[python, train.py]")
    """the program and its first words; a leading `python` is the interpreter that `python` or `venv` names"""
    args: v.Args | None = key(None, "{batch_size: 128, augment: true}")
    """flags of the trainer: `{batch_size: 128}` is `--batch_size=128`, `true` gives the bare flag, `false` or nothing
    leaves it out, a list is joined with commas; or a plain list of words"""
    dialect: v.Dialect | None = key(None, "flags")
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


class JobEntry(LaunchKeys):
    """A named group of tasks. Its name becomes part of the trainers' flags (`--ps_hosts`). `command`, `args`,
    `dialect`, `template`, `platform` and `env` stand over those of `trainer`: mappings are merged key by key, anything
    else is replaced."""

    where: ClassVar[str] = "jobs.NAME"

    hosts: v.HostList = key([], '"gpu-[1-4]"', required=True)
    """where its tasks run, in the order of their indexes; a host that is named twice runs two"""
    tasks_per_host: v.TasksPerHost = key(1, "2")
    """how many tasks run on each of them, with neighbouring indexes"""
    port: v.Port | None = key(None, "2222")
    """where its first task on a machine listens; its next task there takes the next port. If left out, each task takes
    the first port from `ports` on that no other task of the machine has"""
    gpus_per_task: v.Gpus | None = key(None, "1")
    """GPUs that each task sees; if left out, none for `ps` and `evaluator`, and an even share of the host's for the
    others"""
    depends_on: v.JobList | None = key(None, "[ps]")
    """jobs that have to be ready before it starts, `[]` for none; if left out, it starts at once, and needs whom the
    way of training says: [recovery.md](recovery.md)"""


class TrainerEntry(LaunchKeys):
    """The training program, and what all its processes share."""

    where: ClassVar[str] = "trainer"

    code: v.LocalPath = key(".", "src")
    """the directory that is pushed to the hosts, less what `.dtctlignore` (or else `.gitignore`) names and [files that
    hold secrets](quickstart.md#what-travels); relative to the directory of this file"""
    code_anywhere: v.Flag = key(False, "true")
    """`code` may be a home directory, lie above one or above the directory of this file, or be one of keys, such as
    `~/.aws`"""
    python: v.Text | None = key(None, "/opt/venv/bin/python")
    """interpreter for a leading `python` in `command`; if neither it nor `venv` is set, `python3` on the hosts, and
    with `--local` that of the active virtual environment, or else the one that runs dtctl"""
    venv: v.HostPath | None = key(None, "~/venv")
    """a virtual environment on the hosts"""
    setup: v.Text | None = key(None, "pip install -r requirements.txt")
    """shell text that prepares a host; run in the code's directory, once for each content of the code"""
    secrets: list[v.EnvName] = key([], "[WANDB_API_KEY]")
    """names of variables whose values come from `env_file` or else from your own environment; never printed"""
    env_file: v.LocalPath | None = key(None, ".env")
    """a file of NAME=VALUE lines with values of `secrets`; relative to the directory of this file"""
    keep_proxy: v.Flag = key(False, "true")
    """keep `http_proxy` and its like in the trainers' environment; they are dropped by default, because they get in the
    way of the tasks' own traffic"""


class TfConfigEntry(Section):
    """What the variable `TF_CONFIG` holds besides cluster and task, for the dialects `tensorflow` and `tf_config`."""

    where: ClassVar[str] = "tf_config"

    environment: v.Text | None = key(None, "cloud")
    """its `environment`, which older Estimators look at"""
    rpc_layer: v.Text | None = key(None, "grpc")
    """its `rpc_layer`; TensorFlow's own is `grpc`"""
    evaluator_in_cluster: v.Flag = key(False, "true")
    """the job `evaluator` stands in its `cluster` too; TensorFlow 2 wants it in `task` alone"""
    sparse: v.Flag = key(False, "true")
    """each worker's `cluster` holds the ps, the lead and the worker itself, not the other workers, so that it need not
    wait for them"""


class CheckpointEntry(Section):
    """Where checkpoints are looked for."""

    where: ClassVar[str] = "checkpoint"

    dir: v.HostPath | None = key(None, "/data/output")
    """their directory on the hosts; by default `dirs.output`"""


class LogsEntry(Section):
    """The files that hold what trainers print."""

    where: ClassVar[str] = "logs"

    limit: v.SizeOrNone = key(10**9, "200MB")
    """how much of its logs is kept of each task in a run; of more, the oldest lines are removed while the trainer goes
    on writing, but never the last megabyte of an attempt. File systems that cannot take the front off a file (NFS
    before 4.2) have no limit"""


class CoordinatorEntry(Section):
    """The agent on the lead task's host, which decides for the whole run. The agents of the other hosts connect to it,
    by TLS with a key of the run's own."""

    where: ClassVar[str] = "coordinator"

    port: v.Port = key(2221, "3221")
    """where it listens on the lead task's host; the other hosts must be able to reach it. If it is left out, `ports`
    may say otherwise"""


class RecoveryEntry(Section):
    """When a lost task is started again, and what with it: [recovery.md](recovery.md)."""

    where: ClassVar[str] = "recovery"

    mode: v.RecoveryMode = key("auto", "gang")
    """what a lost task restarts: `auto`: what the way of training needs, `task`: it alone, `gang`: every task, `never`:
    nothing, the run has failed"""
    max_restarts: v.Count = key(10, "3")
    """restarts of one task before the run has failed"""
    max_run_restarts: v.Count = key(100, "20")
    """restarts of all tasks before the run has failed; one of the whole gang counts once"""
    backoff: v.Backoff = key((1.0, 60.0), "5s..2m")
    """the delay before a restart: none before the first, then it doubles from the shortest up to the longest"""
    reset_after: v.Duration = key(600.0, "30m")
    """an attempt that lives this long resets the delay and the count"""
    repeat: v.Count = key(3, "0")
    """how often in a row a task may end with the same error in its log, and no new step, before the run has failed:
    what only repeats itself is not worth `max_restarts`; `0`: as often as `max_restarts` allows"""
    allow_scratch: v.Flag = key(False, "true")
    """start over from nothing when a `ps` is lost and there is no complete checkpoint, or when the only one is damaged;
    `false`: the run has failed"""
    retry: list[v.ExitCode] = key([42, 137, 139, 143], "[42, 75]")
    """exit codes after which a task may be started again whatever its log says; the death by a signal counts as 128 and
    the signal's number"""
    permanent: list[v.ExitCode] = key([2], "[2, 64]")
    """exit codes after which it is not started again; codes in neither list are tried again, unless the program cannot
    be run or its log ends with an import error"""
    stall: v.StallLimit = key(None, "15m")
    """how long a task may show no progress (steps, output, checkpoints) before it is taken for hung and is killed;
    `auto` learns it from the run, `off` never does it"""
    first_step: v.StallLimit = key(None, "20m")
    """how long a task may be silent before its first step; `auto`: ten times what an earlier attempt or its peers took,
    at least 5 min or `stall`, and for ever while nobody has told steps; `off`: for ever"""
    host_timeout: v.DurationOrNever = key(None, "30m")
    """how long a host may be out of touch before its tasks are given up for good; it then stops them by itself, too"""
    reboot: v.RebootRule = key("auto", "never")
    """`auto`: the agents of a host that has been restarted come back by themselves where the host allows it (systemd
    user units or `@reboot` of cron); `never`: with the next command that asks for them"""


class HookEntry(Section):
    """Who is told of the run, by `post` or by `run`: [notifications.md](notifications.md). `${NAME}` in `post` and in
    the values of `headers` is the value of that variable, from `trainer.env_file` or else from your own environment; it
    is treated as a secret."""

    where: ClassVar[str] = "hooks.NAME"

    on: v.HookEvents = key(["succeeded", "failed"], "[failed, stalled]")
    """what it is told of: the run has `succeeded`, has `failed` or was `stopped`; a task `stalled`, was lost and is
    `restarting`, or has `recovered`"""
    post: v.Url | None = key(None, "${SLACK_URL}")
    """an address to which the coordinator posts JSON, whose `text` services such as Slack show; it needs no
    controller"""
    headers: dict[v.HeaderName, v.HeaderValue] = key({}, '{Authorization: "Bearer ${TOKEN}"}')
    """further headers of the post"""
    run: v.Words | None = key(None, "[./tell.sh]")
    """a command on the controller, while a command of dtctl follows the run there (`up -f`, `logs -f`, `wait`); it
    reads the same JSON from stdin, and finds it in variables such as `DTCTL_TEXT`"""
    timeout: v.HookTimeout = key(10.0, "5s")
    """how long a post or a command may take, at most 60s"""


class ClusterFile(Section):
    """One cluster: machines, jobs, and the program that trains."""

    where: ClassVar[str] = "the top level"

    name: v.Name = key("", "digits", required=True)
    """the cluster's name; hosts that serve several clusters tell them apart by it"""
    ssh: SshDefaults = key(SshDefaults())
    """how the hosts are reached"""
    hosts: dict[v.HostNames, HostEntry] = key({}, required=True)
    """the machines"""
    jobs: dict[v.JobName, JobEntry] = key({}, required=True)
    """the groups of tasks, in the order of the trainers' flags"""
    ports: v.FirstPort | None = key(None, "auto")
    """where the ports begin that nothing else says: that of the coordinator and those of jobs without `port`, so that
    every task takes the first one that no other task of its machine has; `auto`: free ones that each host chooses
    before the start, outside of those that its system hands out to outgoing connections. If it is left out, the
    coordinator takes 2221, and tasks count from 2222"""
    trainer: TrainerEntry = key(TrainerEntry())
    """the training program"""
    dirs: DirsEntry = key(DirsEntry())
    """directories on the hosts"""
    tf_config: TfConfigEntry = key(TfConfigEntry())
    """what `TF_CONFIG` holds"""
    checkpoint: CheckpointEntry = key(CheckpointEntry())
    """where checkpoints are looked for"""
    strategy: v.Strategy = key("auto", "ps-strategy")
    """the way of training; it decides who needs whom at the start and what is restarted when a task is lost:
    [recovery.md](recovery.md). `auto`: `kvstore` with the dialect `mxnet`, `async-ps` where there is a `ps` job, else a
    collective (as `mirrored` and `ddp` are) where more than one task trains"""
    recovery: RecoveryEntry = key(RecoveryEntry())
    """when a lost task is started again"""
    success: v.SuccessRule = key("auto", "lead")
    """what ends the run well: the end of the `lead` task (`chief:0`, `master:0`, or else `worker:0`), or the end of
    `all-workers`; `auto`: the lead where there is a `ps` job, else all workers"""
    target_step: v.Count | None = key(None, "20000")
    """the step that a complete training reaches: if a success falls short of it, dtctl warns; if left out, the lead's
    argument `train_steps`, `max_steps` or `target_step`, where it has one"""
    fail_fast: v.Flag = key(True, "false")
    """a task that is lost for good fails the run, and all others are stopped; `false` lets them continue"""
    start_timeout: v.PositiveDuration = key(600.0, "30m")
    """how long a task that others need may take to listen or to report a step; then the run has failed"""
    active_deadline: v.DurationOrNone = key(None, "12h")
    """how long the run may take as a whole; then it has failed"""
    settle: v.DurationOrAuto = key(None, "2m")
    """how long the other tasks may take to finish by themselves after the success, before they are stopped; `auto`:
    30s, and 150s for `sync-ps`, whose chief needs two minutes to close"""
    grace: v.Duration = key(30.0, "2m")
    """how long a task that is stopped may take to save its state before it is killed"""
    keep: v.Count = key(10, "3")
    """how many runs that have ended are kept, with their logs"""
    ttl: v.DurationOrNone = key(None, "7d")
    """how long a run that has ended is kept at most"""
    logs: LogsEntry = key(LogsEntry())
    """the files that hold what trainers print"""
    coordinator: CoordinatorEntry = key(CoordinatorEntry())
    """the agent that decides for the whole run"""
    hooks: dict[v.HookName, HookEntry] = key({})
    """who is told of the run, by names of your own"""
    spares: v.HostList = key([], '"gpu-[5-6]"')
    """hosts that no job uses, for `dtctl replace` to put in the place of one that is lost"""


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

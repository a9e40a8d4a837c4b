"""A cluster: all of one cluster.yaml, checked and expanded.

Keys whose values are used as the file has them are declared here, once: `ClusterFile` has them, and so has `Cluster`.
What the file says of hosts, jobs and paths is worked out first, and is in `dtctl.config.sections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from dtctl.agent.records import hooks as records
from dtctl.config import values as v
from dtctl.config.section import Section, key
from dtctl.dataclass import dataclass
from dtctl.model import (
    CHOSEN_PORT,
    VALUE,
    DataRelay,
    DataShard,
    DeclaredStrategy,
    DeclaredSuccess,
    Dialect,
    EnvironmentKind,
    Host,
    On,
    Reach,
    RebootRule,
    RecoveryMode,
    TaskId,
    lead_among,
)


@dataclass(frozen=True, kw_only=True)
class Recovery(Section):
    """When a lost task is started again, and what with it: [recovery.md](recovery.md)."""

    where: ClassVar[str] = "recovery"

    mode: RecoveryMode = key("auto", "gang")
    """what a lost task restarts: `auto`: what the strategy needs, `task`: it alone, `gang`: every task, `never`:
    nothing, the run has failed"""
    max_restarts: v.Count = key(10, "3")
    """restarts of one task before the run has failed"""
    max_run_restarts: v.Count = key(100, "20")
    """restarts of all tasks before the run has failed; one of the whole gang counts once"""
    backoff_s: v.Backoff = key((1.0, 60.0), "5s..2m")
    """the delay before a restart: none before the first, then it doubles from the shortest up to the longest"""
    reset_after_s: v.Duration = key(600.0, "30m")
    """an attempt that lives this long resets the delay and the count"""
    repeat: v.Count = key(3, "0")
    """how often in a row a task may end with the same error in its log, and no new step, before the run has failed;
    tasks that restart together count as one: what only repeats itself is not worth `max_restarts`; `0`: as often as
    `max_restarts` allows"""
    allow_scratch: bool = key(False, "true")
    """start over from nothing when a `ps` is lost and there is no complete checkpoint, or when the only one is damaged;
    `false`: the run has failed"""
    retry: v.ExitCodes = key((42, 137, 139, 143), "[42, 75]")
    """exit codes after which a task may be started again whatever its log says; the death by a signal counts as 128 and
    the signal's number"""
    permanent: v.ExitCodes = key((2,), "[2, 64]")
    """exit codes after which it is not started again; codes in neither list are tried again, unless the program cannot
    be run or its log ends with an import error"""
    stall_s: v.StallLimit = key(None, "15m")
    """how long a task may show no progress (steps, output, checkpoints) before it counts as hung and is killed;
    `auto` learns it from the run, `off` never does it"""
    first_step_s: v.StallLimit = key(None, "20m")
    """how long a task may be silent before its first step; `auto`: ten times what an earlier attempt or its peers took,
    at least 5 min or `stall`, and unlimited while no task reports steps; `off`: for ever"""
    host_timeout_s: v.DurationOrNever = key(None, "30m")
    """how long a host may be out of touch before its tasks are given up for good; it then stops them by itself, too"""
    min_workers: v.PositiveCount | None = key(None, "3", later=True)
    """continue with at least so many tasks that train (the lead is one of them) when a host was out of touch for
    `host_timeout`, and take it back when it has been in touch for a minute; collectives start again each time. If left
    out, the run has failed after `host_timeout`"""
    replace_s: v.ReplaceTime = key(None, "10m", later=True)
    """how long a host may be out of touch before one of `spares` takes its tasks; shortly before that it stops them by
    itself. `auto`: 5 min, or as long as `grace` needs; `never`: `dtctl replace` does it"""
    bad_host: v.Count = key(0, "3", later=True)
    """leave a host out when so many failures in a row were all on it, and none on another host: until `dtctl undrain`.
    Tasks that restart together then train without it if `min_workers` allows that; `0`: never"""
    reboot: RebootRule = key("auto", "never")
    """`auto`: the agents of a host that has been restarted come back by themselves where the host allows it (systemd
    user units or `@reboot` of cron); `never`: with the next command that asks for them"""

    @property
    def backoff_min_s(self) -> float:
        return self.backoff_s[0]

    @property
    def backoff_max_s(self) -> float:
        return self.backoff_s[1]


@dataclass(frozen=True, kw_only=True)
class TfConfig(Section):
    """What the variable `TF_CONFIG` holds besides cluster and task, for the dialects `tensorflow` and `tf_config`."""

    where: ClassVar[str] = "tf_config"

    environment: v.Text | None = key(None, "cloud")
    """its `environment`, which older Estimators look at"""
    rpc_layer: v.Text | None = key(None, "grpc")
    """its `rpc_layer`; TensorFlow's own is `grpc`"""
    evaluator_in_cluster: bool = key(False, "true")
    """the job `evaluator` stands in its `cluster` too; TensorFlow 2 wants it in `task` alone"""
    sparse: bool = key(False, "true")
    """each worker's `cluster` holds the ps, the lead and the worker itself, not the other workers, so that it need not
    wait for them"""


@dataclass(frozen=True, kw_only=True)
class Hook(Section):
    """Who is notified of the run, by `post` or by `run`: [notifications.md](notifications.md). `${NAME}` in `post`
    and in the values of `headers` is the value of that variable, from `trainer.env_file` or else from your own
    environment; it is treated as a secret."""

    where: ClassVar[str] = "hooks.NAME"

    name: str = ""
    """The name of the section."""
    on: v.HookEvents = key(("succeeded", "failed"), "[failed, stalled]")
    """its events: the run has `succeeded`, has `failed` or was `stopped`; a task `stalled`, was lost and is
    `restarting`, or has `recovered`; failures are those of one `bad_host`"""
    post: v.Url | None = key(None, "${SLACK_URL}")
    """an address to which the coordinator posts JSON, whose `text` services such as Slack show; it needs no
    controller"""
    headers: v.Headers = key({}, '{Authorization: "Bearer ${TOKEN}"}')
    """further headers of the post"""
    run: v.Arguments = key((), "[./notify.sh]")
    """a command on the controller, while a command of dtctl follows the run there (`up -f`, `logs -f`, `wait`); it
    reads the same JSON from stdin, and finds it in variables such as `DTCTL_TEXT`"""
    timeout_s: v.HookTimeout = key(10.0, "5s")
    """how long a post or a command may take, at most 60s"""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables whose values the hook needs."""
        texts = [self.post or "", *self.headers.values()]
        return tuple(dict.fromkeys(name for text in texts for name in VALUE.findall(text)))

    def filled(self, values: Mapping[str, str]) -> records.Post:
        """The hook as its coordinator gets it, with the values of the variables filled in."""

        def fill(text: str) -> str:
            return VALUE.sub(lambda found: values[found.group(1)], text)

        return {
            "name": self.name,
            "on": list(self.on),  # type: ignore[arg-type]  # the file has been checked
            "url": fill(self.post or ""),
            "headers": {name: fill(value) for name, value in self.headers.items()},
            "timeout_s": self.timeout_s,
        }


@dataclass(frozen=True, kw_only=True)
class Environment(Section):
    """The Python that trains, made on each host before the first start
    ([python-environments.md](python-environments.md)), of one of `requirements`, `uv`, `conda`, `modules` and
    `container`. Files are named within the code directory, and travel with it."""

    where: ClassVar[str] = "trainer.environment"

    requirements: v.CodePath | None = key(None, "requirements.txt")
    """a file for `pip install -r`, into a virtual environment; with hashes (pip, or uv's `pip compile`) they are
    checked"""
    uv: v.CodeProject | None = key(None, "true")
    """`true`, or the directory of the code with `pyproject.toml` and `uv.lock`: `uv sync --frozen`, by the uv of the
    hosts, without the project itself"""
    conda: v.CondaEnvironment | None = key(None, "environment.yml")
    """an environment file (`.yml`, `.yaml`), or the name of an environment that the hosts have; by their conda, mamba
    or micromamba"""
    modules: v.Modules = key((), "[python/3.11, cuda/12.2]")
    """what `module load` loads on the hosts; its `python3`, or `python`, trains"""
    container: v.ContainerImage | None = key(None, "docker.io/tensorflow/tensorflow:2.16.1")
    """the image in which trainers run, as the user of the host and with its network and GPUs: a name as `podman pull`
    takes it, or a file `.tar` or `.sif` of the code, or of the hosts (`/...`, `~/...`)"""
    engine: v.ContainerEngine | None = key(None, "podman")
    """what runs the container: `podman`, `docker` or `apptainer`; if left out, the first of them that works on the
    host"""
    options: v.Arguments = key((), "[--volume=/nfs:/nfs:ro]")
    """further words for `podman run`, `docker run` or `apptainer exec`"""
    files: v.CodePaths = key((), "[base.txt, constraints.txt]", later=True)
    """further files of the code from which it is created: those that a requirements file names with `-r`, `-c` or as
    `./NAME.whl`, or an environment file under `pip`. Nothing else of the code is there when it is created"""
    wheels: v.WheelsDirectory | None = key(None, "wheels")
    """a directory of this machine with wheels (`*.whl`), relative to the directory of this file. It is sent to the
    hosts, which install from it alone what `requirements` or `uv` name: `--no-index --find-links`"""
    python: v.Text | None = key(None, "python3.11")
    """the interpreter that makes a virtual environment, or the one to take from `modules` or the container;
    `hosts.NAME.python` names another for one host. If left out, `python3`, and with `uv` what uv chooses"""

    @property
    def kinds(self) -> Mapping[EnvironmentKind, str]:
        """The kinds that the file sets, each with its value; exactly one after the checks."""
        said: dict[EnvironmentKind, str] = {
            "requirements": self.requirements or "",
            "uv": self.uv or "",
            "conda": self.conda or "",
            "modules": " ".join(self.modules),
            "container": self.container or "",
        }
        return {kind: what for kind, what in said.items() if what}

    @property
    def kind(self) -> EnvironmentKind:
        return next(iter(self.kinds))

    @property
    def what(self) -> str:
        return self.kinds[self.kind]

    @property
    def file(self) -> str | None:
        """The file of the code that defines a conda environment or holds a container image; None for any other kind."""
        if self.conda is not None:
            return self.conda if self.conda.endswith((".yml", ".yaml")) else None
        is_file = self.container is not None and self.container.endswith((".tar", ".sif"))
        return self.container if is_file and not self.what.startswith(("/", "~")) else None

    @property
    def is_from_files(self) -> bool:
        """It is created from files of the code, and nothing else of the code is there then."""
        return self.kind in ("requirements", "uv") or (self.kind == "conda" and self.file is not None)

    @property
    def command(self) -> tuple[str, ...]:
        """The command that creates the environment, as a person would type it."""
        index = ("--no-index", "--find-links", self.wheels) if self.wheels else ()
        conda = ("conda", "env", "create", "--file") if self.file else ("conda", "activate")
        container = ("apptainer", "exec") if self.engine == "apptainer" else (self.engine or "podman", "run")
        words: Mapping[EnvironmentKind, tuple[str, ...]] = {
            "requirements": ("pip", "install", *index, "-r", self.what),
            "uv": ("uv", "sync", "--frozen", *index, *(() if self.what == "." else ("--project", self.what))),
            "conda": (*conda, self.what),
            "modules": ("module", "load", *self.modules),
            "container": (*container, *self.options, self.what),
        }
        return words[self.kind]


@dataclass(frozen=True, kw_only=True)
class TrainerKeys(Section):
    """What all trainer processes share."""

    python: v.Text | None = key(None, "/opt/venv/bin/python")
    """interpreter for a leading `python` in `command`; if neither it nor `venv` is set, `python3` on the hosts, and
    with `--local` that of the active virtual environment, or else the one that runs dtctl"""
    venv: v.HostPath | None = key(None, "~/venv")
    """a virtual environment on the hosts"""
    environment: Environment | None = key(None, "{requirements: requirements.txt}")
    """the Python that trains, made on each host; in place of `python` and `venv`"""
    setup: v.Text | None = key(None, "make -C ops")
    """shell text that prepares a host; run in the code's directory, once for each content of the code, after the
    environment is there and with its `python` first in `PATH`"""
    secrets: v.EnvNames = key((), "[WANDB_API_KEY]")
    """names of variables whose values come from `env_file` or else from your own environment; never printed"""
    global_batch: v.PositiveCount | None = key(None, "256", later=True)
    """how many examples all that train take in a step: `{batch_per_worker}` is each one's share, also when others take
    part than before"""
    keep_proxy: bool = key(False, "true")
    """keep `http_proxy` and its like in the trainers' environment; they are dropped by default, because they get in the
    way of the tasks' own traffic"""


@dataclass(frozen=True, kw_only=True)
class DataKeys(Section):
    """Which hosts get which part of the data."""

    shard: DataShard = key("none", "worker")
    """`none`: every host gets all files; `worker`: the files are dealt out to the tasks that train, as
    `Dataset.list_files(shuffle=False).shard(n, index)` would, and `{data_dir}` is a directory for each task below
    `dirs.data`"""
    relay: DataRelay = key("auto", "never")
    """`auto`: hosts that have files hand them to others where that spares the controller 128 MiB or more; `never`: the
    controller sends all"""
    jobs: v.JobList | None = key(None, "[worker, evaluator]")
    """jobs whose hosts get it; if left out, all but those that serve (`ps`, and `scheduler` and `server` of MXNet)"""


@dataclass(frozen=True, kw_only=True)
class JobKeys(Section):
    """Settings of a job's tasks."""

    gpus_per_task: v.Gpus | None = key(None, "1")
    """GPUs that each task sees; if left out, none for `ps` and `evaluator`, and an even share of the host's for the
    others"""
    replicas: v.TasksPerHost | None = key(None, "4")
    """how many of its tasks run: the first ones; all if left out. Of workers and evaluators the others keep their
    places, and `dtctl scale` lets more or fewer run; of ps tasks, and of what cannot train with fewer, the rest is no
    part of the run"""
    depends_on: v.JobList | None = key(None, "[ps]")
    """jobs that have to be ready before it starts, `[]` for none; if left out, it starts at once, and waits for what
    the strategy needs: [recovery.md](recovery.md)"""


@dataclass(frozen=True, kw_only=True)
class Slurm(Section):
    """The batch job of `on: slurm` ([outgrow.md](outgrow.md)). Each host with a task, and each of `spares`, is one of
    its nodes, in the order of `hosts`."""

    where: ClassVar[str] = "slurm"

    partition: v.Text | None = key(None, "gpu")
    """`--partition`"""
    account: v.Text | None = key(None, "team")
    """`--account`"""
    time_s: v.PositiveDuration | None = key(None, "12h")
    """`--time`; if left out, `active_deadline`, or else the limit of the partition"""
    gres: v.Text | None = key(None, "gpu:2")
    """`--gres` of each node; if left out, as many GPUs as the host with the most `gpus` has"""
    constraint: v.Text | None = key(None, "ib")
    """`--constraint`"""
    cpus: v.PositiveCount | None = key(None, "8")
    """CPUs of each node; if left out, one for each task of the host with the most tasks"""
    requeue: bool = key(False, "true")
    """the job waits in the queue again when its time is up, when it is preempted and when its first node fails, and
    continues from the newest checkpoint"""
    login: v.Text | None = key(None, "login")
    """one of `hosts`, without a task: the login node, on which commands that are typed on this machine are carried out,
    over SSH ([outgrow.md](outgrow.md#from-a-laptop)); if left out, dtctl is typed there itself"""
    dtctl: v.Text = key("dtctl", "~/venv/bin/dtctl")
    """how dtctl is started on `login`"""
    words: v.Options = key((), "[--mem=16G, --exclusive]")
    """further options for `sbatch`, each in one word; they stand over those above"""


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """Settings of the whole run."""

    on: On = key("ssh", "slurm", later=True)
    """where the tasks run: on `hosts`, over SSH, or in a batch job of Slurm; `dtctl up --on` overrides it"""
    slurm: Slurm = key(Slurm(), later=True)
    """the batch job"""
    tf_config: TfConfig = key(TfConfig())
    """what `TF_CONFIG` holds"""
    strategy: DeclaredStrategy = key("auto", "ps-strategy")
    """how the tasks train together; it decides which tasks wait for which at the start, and what a lost task restarts:
    [recovery.md](recovery.md). `auto`: `kvstore` with the dialect `mxnet`, `async-ps` where there is a `ps` job, else a
    collective (as `mirrored` and `ddp` are) where more than one task trains"""
    recovery: Recovery = key(Recovery())
    """when a lost task is started again"""
    success: DeclaredSuccess = key("auto", "lead")
    """what ends the run well: the end of the `lead` task (`chief:0`, `master:0`, or else `worker:0`), or the end of
    `all-workers`; `auto`: the lead where there is a `ps` job, else all workers"""
    target_step: v.Count | None = key(None, "20000")
    """the step that a complete training reaches: if a success falls short of it, by the
    newest checkpoint or else by the logs (of which a tenth may be missing), dtctl warns; if left out, that
    of a flag of the lead's command or arguments, such as `--max_steps`, `--num-train-steps`, `--train-iters`,
    `--total-timesteps` or `--trainer.max_steps`, where it has one"""
    fail_fast: bool = key(True, "false")
    """a task that is lost for good fails the run, and all others are stopped; `false` lets them continue"""
    start_timeout_s: v.PositiveDuration = key(600.0, "30m")
    """how long a task that others need may take to listen or to report a step; then the run has failed"""
    active_deadline_s: v.DurationOrNone = key(None, "12h")
    """how long the run may take as a whole; then it has failed"""
    settle_s: v.DurationOrAuto = key(None, "2m")
    """how long the other tasks may take to finish by themselves after the success, before they are stopped; `auto`:
    30s, and 150s for `sync-ps`, whose chief needs two minutes to close"""
    grace_s: v.Duration = key(30.0, "2m")
    """how long a task that is stopped may take to save its state before it is killed"""
    keep: v.Count = key(10, "3")
    """how many runs that have ended are kept, with their logs"""
    ttl_s: v.DurationOrNone = key(None, "7d")
    """how long a run that has ended is kept at most"""
    hooks: Mapping[v.HookName, Hook] = key({})
    """who is notified of the run, by names of your own"""


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
    """Variables of PLATFORM_NAMES: names in small letters are passed as flags, those in capitals as environment
    variables.
    """
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
    wheels: Path | None = None
    """Absolute directory on the controller, of `environment.wheels`."""


@dataclass(frozen=True, kw_only=True)
class Data(DataKeys):
    """The data that is brought to the hosts, if any."""

    source: Path | None = None
    """Absolute directory on the controller; None: the hosts have theirs."""


def outgoing(trainer: Trainer, data: Data) -> dict[str, Path]:
    """Every path of a cluster file whose content is sent."""
    said = {
        "trainer.code": trainer.code,
        "trainer.env_file": trainer.env_file,
        "trainer.environment.wheels": trainer.wheels,
        "data.from": data.source,
    }
    return {key: place for key, place in said.items() if place is not None}


@dataclass(frozen=True, kw_only=True)
class Cluster(Settings):
    """A cluster: its settings, and values computed from the rest of the file."""

    name: str
    file: Path
    hosts: Mapping[str, Host]
    """The hosts, in the order of the file."""
    jobs: Mapping[str, Job]
    """In the order of the file, which is also the order of the addresses in the trainers' flags."""
    trainer: Trainer
    dirs: Mapping[str, str] = field(default_factory=dict)
    """Some of DIRECTORY_NAMES; a relative path lies under ~/dtctl/NAME on its host."""
    data: Data = field(default_factory=Data)
    checkpoint_dir: str | None = None
    """None: the output directory."""
    log_limit_bytes: int | None = 10**9
    """The limit of all logs of a task in a run; None: there is no limit."""
    coordinator_port: int = 2221
    own_coordinator_port: bool = False
    """The file says it."""
    voter_ports: Mapping[str, int] = field(default_factory=dict)
    """Host -> where its agent listens as coordinator, as the hosts have chosen with `ports: auto`."""
    spares: tuple[str, ...] = ()
    """Hosts without a task that may take the place of one that is lost."""
    arbiters: tuple[str, ...] = field(default=(), metadata={"later": True})
    """Hosts without a task that only vote."""
    file_sha256: str = ""
    """The digest of the file's bytes as they were read."""
    as_written: Mapping[str, Reach] = field(default_factory=dict)
    """Host -> how the file has it reached, where the command line overrides that."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The keys as written, with the overrides of the command line: see settings_of."""
    overrides: tuple[str, ...] = field(default=(), repr=False)
    """What the command line sets: PATH=VALUE."""
    send_anywhere: bool = False
    """Places that are refused otherwise may be sent."""

    @property
    def overridden(self) -> tuple[str, ...]:
        """The keys of `settings` that the command line sets."""
        paths = {one.partition("=")[0].strip() for one in self.overrides}
        within = tuple(f"{path}{mark}" for path in paths for mark in ".[")
        return tuple(key for key in self.settings if key in paths or key.startswith(within))

    @property
    def outgoing(self) -> Mapping[str, Path]:
        """The resolved paths of what is sent from this machine, by the keys that name them: config/outgoing.py."""
        return outgoing(self.trainer, self.data)

    @property
    def lead(self) -> TaskId:
        """The task whose end decides the run: chief:0, master:0, or else worker:0 (or task 0 of the first job)."""
        return lead_among(self.jobs)

    @property
    def hosts_choose_ports(self) -> bool:
        """Some ports are not known before the hosts have been asked."""
        ports = (port for job in self.jobs.values() for port in job.ports)
        return self.coordinator_port == CHOSEN_PORT or CHOSEN_PORT in ports

    @property
    def standby(self) -> tuple[str, ...]:
        """Spares that are a part of each run and take tasks over by themselves."""
        return self.spares if self.recovery.replace_s is not None else ()

    def tasks(self) -> tuple[TaskId, ...]:
        """Every task, in the order of the jobs and their indexes."""
        return tuple(TaskId(job.name, index) for job in self.jobs.values() for index in range(len(job.hosts)))

    def host_of(self, task: TaskId) -> Host:
        return self.hosts[self.jobs[task.job].hosts[task.index]]

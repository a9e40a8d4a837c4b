"""spec.json: the part of a run that one host knows. It never changes."""

from .kinds import (
    AtMost,
    Default,
    Dict,
    InvalidValue,
    List,
    OneOf,
    Optional,
    Pattern,
    Record,
    Within,
    also,
    checked,
    formerly,
)
from .values import (
    MOST_TASKS,
    BundleId,
    By,
    Count,
    Epoch,
    ExitCode,
    Hex64,
    Line,
    Name,
    Path,
    Port,
    Role,
    Scope,
    Seconds,
    TaskName,
    Tasks,
    Variables,
    refuse_unfit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

VERSION = 5
OLDEST = 3
"""Runs of versions from this on are shown and stopped while their own agents live; no agent of this version starts."""

Paths = AtMost[List[Path], 100]
SuccessRule = OneOf["lead", "all-workers"]


class CoordinatorAddress(Record):
    """The run's coordinator: its host, and the address to which the agents of the other hosts connect."""

    host: Name
    address: Line
    port: Port


class Member(Record):
    """A task of the run, on any host."""

    task: TaskName
    host: Name
    address: Default[Optional[Line], None]
    role: Default[Role, "other"]
    scope: Default[Scope, "task"]
    """What its loss restarts: only itself, itself and then the lead, or every task."""
    vital: Default[bool, True]
    """Whether the run fails when it finally fails."""
    decides: Default[bool, False]
    """Whether the run's success depends on its success."""
    serves: Default[bool, False]
    """Whether other tasks need it until they end: after a success it is not waited for, and it is stopped last."""
    addressed: Default[bool, False]
    """Whether other tasks are started with its address: if it moves to another host, all of them restart."""
    listens: Default[bool, False]
    """Whether it is known to open a server of its framework on its port."""
    slot: Default[Optional[Name], None]
    """The host on which `up` has put it, if another one has taken over."""


class Stage(Record):
    """Tasks that need the tasks of the earlier stages with the indexes `after` to be ready."""

    name: Line
    tasks: Tasks
    after: AtMost[List[Count], 1000]
    held: Default[bool, True]
    """Whether they start when those are ready; false: at once, and wait by themselves."""


class TaskSpec(Record):
    """A task of this host. Marks in argv and env are replaced on the host (run/environment.py)."""

    id: TaskName
    argv: List[str]
    env: Variables
    secrets: List[Line]
    """Names of variables."""
    code: bool
    """Whether it works in the code directory, not in the home directory."""
    port: Default[Optional[Port], None]
    ready: Default[OneOf["listening", "started"], "started"]
    """When tasks that wait for it may start: its port listens, or it runs."""
    own: Default[bool, True]
    """Whether its agent restarts it without the coordinator."""
    keep_proxy: Default[bool, False]


class Setup(Record):
    """A shell text that is run once for each bundle, text and environment."""

    text: str
    env: Default[Variables, {}]


MAKER_SETTINGS = ("PIP_", "UV_", "CONDA_", "MAMBA_", "GIT_", "MODULEPATH")
"""Prefixes of variables that affect the creation of an environment; those of git, which pip and uv start for `git+`."""


Engine = OneOf["podman", "docker", "apptainer"]


class Container(Record):
    """The image of the trainers, as it is on the host, and the program that runs it (run/containers.py)."""

    program: Path
    engine: Engine
    image: Line
    """The image's id, or with apptainer its file."""
    pulled: Default[bool, False]
    """Whether it was pulled when the environment was created."""
    options: Default[AtMost[List[Line], 100], []]
    """Options that run the trainer in it as the user of the host."""


CodePath = Pattern[str, 8192, r"(?!/)(?!(?:[\s\S]*/)?\.\.(?:/|\Z))[\s\S]+", "a path within the code directory"]


class Environment(Record):
    """The environment whose Python trains, created before the setup, once for each content (run/environments.py)."""

    kind: OneOf["requirements", "uv", "conda", "modules", "container"]
    what: Line
    """The file or directory of the code, the name of a conda environment, the modules, or the image."""
    python: Default[Optional[Line], None]
    """The interpreter that creates it, or with modules and containers the one that trains; null: the default."""
    engine: Default[Optional[Engine], None]
    """The engine of a container; null: the first that the host has."""
    options: Default[AtMost[List[Line], 100], []]
    """Additional options of the user for the program that runs the container."""
    mounts: Default[Paths, []]
    """Directories of the host that are in the container, at the same paths, where they exist."""
    files: Default[AtMost[Dict[CodePath, Hex64], 100], {}]
    """Files of the code from which it is created, with their SHA-256."""
    env: Default[Variables, {}]
    """Variables with which it is created."""
    wheels: Default[Optional[BundleId], None]
    """The bundle of wheels from which alone it is installed; null: the installer downloads them."""
    directory: Default[Optional[Name], None]
    """The directory below `environments/`; the host writes it."""
    container: Default[Optional[Container], None]
    """The host writes it."""


class RecoverySpec(Record):
    """When, how often and together with which tasks a lost task is restarted."""

    max_restarts: Count
    backoff_min_s: Seconds
    backoff_max_s: Seconds
    reset_after_s: Seconds
    max_run_restarts: Default[Count, 100]
    repeat: Default[Count, 0]
    """After this many ends with the same cause, without a new step, a task has failed; 0: never."""
    allow_scratch: Default[bool, False]
    retry: Default[AtMost[List[ExitCode], 256], []]
    permanent: Default[AtMost[List[ExitCode], 256], []]
    stall_s: Default[Optional[Seconds], None]
    """null: estimated; 0: off."""
    first_step_s: Default[Optional[Seconds], None]
    """null: estimated from earlier attempts and from peers; 0: off."""
    host_timeout_s: Default[Optional[Seconds], None]
    """null: never."""
    reboot: Default[OneOf["auto", "never"], "auto"]
    replace_s: Default[Optional[Seconds], None]
    """A host that is unreachable for this long is replaced by a spare; null: never."""
    bad_host: Default[Count, 0]
    """A host is left out when so many failures in a row were on it; 0: never."""


MOST_SLOTS = 4096

Slot = Name
"""A host's place in the roster, named after the host: the tasks that `up` has put there."""


class Spare(Record):
    """A host that has no tasks until it takes those of another."""

    address: Line
    addresses: Default[AtMost[Dict[TaskName, Optional[Line]], MOST_TASKS], {}]
    """Task that it can take over -> its address on this host."""
    tasks: Default[AtMost[List[Member], MOST_TASKS], []]
    """Tasks that it adds to a run which it joins: `scale` lets them run."""


class Moved(Record):
    """The hosts that have replaced others, or joined. Also moved.json: as the agent there follows it."""

    number: Default[Count, 0]
    """Counts the changes: of two records the one with the higher number applies."""
    term: Default[Count, 0]
    """The term of the coordinator that decided the last change."""
    slots: Default[AtMost[Dict[Slot, Name], MOST_SLOTS], {}]
    """Slot -> the host that has its tasks. Every other host has its own."""
    joined: Default[AtMost[Dict[Name, Spare], MOST_SLOTS], {}]
    """Hosts that were new in the cluster file after the start, and are spares of the run since."""
    bad: Default[AtMost[List[Name], MOST_SLOTS], []]
    """Hosts that were replaced because tasks have failed on them, and take no task until a person undrains them."""
    replace_s: Default[Optional[Seconds], None]
    """The same as in the recovery, for a run that was started without spares."""


formerly(Moved, slots="seats")


class Revision(Record):
    """The version of the run's code, as the machine that started it knew it."""

    commit: Default[Line, ""]
    branch: Default[Line, ""]
    remote: Default[Line, ""]
    """The URL of the repository, without credentials."""
    changed: Default[Optional[Count], None]
    """The number of files that differ from the commit; null: unknown."""
    untracked: Default[Count, 0]
    """How many of them the commit does not have."""
    note: Default[Line, ""]
    """Why some of that is unknown."""


class Inventory(Record):
    """A host's report of a run to any controller: only names. A host never reports how a host is reached."""

    cluster: Name
    run: Name
    created: Epoch
    lead: TaskName
    success: Default[SuccessRule, "lead"]
    fail_fast: Default[bool, True]
    roster: AtMost[List[Member], MOST_TASKS]
    """Every task of the run."""
    replaced: Default[AtMost[Dict[Name, Name], 4096], {}]
    """Hosts of the cluster file, and the hosts that replaced them in this run."""
    absent: Default[AtMost[List[Name], 4096], []]
    """Hosts of the roster that the run was started without; they may join it later."""
    target_step: Default[Optional[Count], None]
    replicas: Default[AtMost[Dict[Name, Count], 4096], {}]
    """Job -> the number of its tasks that run at first, if not all."""
    settings: Default[AtMost[Dict[Line, Line], 4096], {}]
    """The cluster file's keys at the start, without those about how hosts are reached. Secrets are masked."""
    overridden: Default[AtMost[List[Line], 4096], []]
    """The keys of the settings whose values are those of `--set`."""
    revision: Default[Optional[Revision], None]
    """null: the code was in no repository."""
    strategy: Default[Optional[Line], None]
    elected: Default[Optional[Name], None]
    """The host that coordinates the run; null: the lead's, as at the beginning."""
    term: Default[Count, 0]
    """The term in which it was elected."""
    spares: Default[AtMost[Dict[Name, Spare], MOST_SLOTS], {}]
    arbiters: Default[AtMost[List[Name], MOST_SLOTS], []]
    """Hosts that only vote."""
    moved: Default[Moved, {}]
    """The moves that the roster already contains."""
    resizes: Default[bool, False]
    """Whether its tasks train together, with as many as take part when they start: argv and env have marks for that."""
    min_workers: Default[Optional[Count], None]
    """The least number of training tasks, including the lead, with which it continues while hosts are away; null: it
    waits."""
    hold_s: Default[Optional[Within[float, 0, 600]], None]
    """How long a host may be cut off from the coordinator before it holds its tasks still; null: they run on."""
    voting: Default[Count, 0]
    """How many hosts elect the coordinator; without most of them none is elected."""


FEWEST_VOTERS = 3
"""The least number of voters: one of two alone is no majority."""

MOST_VOTERS = 7


class Spec(Inventory):
    """spec.json: everything that an agent needs to know of its run. It never changes.

    `elected`, `term` and `coordinator`, and `moved`, `roster` and `tasks`, are those at the time when an agent or a
    session has read it (run/gang.py).
    """

    version: Within[int, OLDEST, VERSION]
    host: Name
    digest: Line
    """A digest that is the same for equal runs of `up`."""
    controller: By
    """The person who started it."""
    tasks: AtMost[List[TaskSpec], MOST_TASKS]
    """The tasks of this host."""
    slots: Default[AtMost[Dict[Slot, AtMost[List[TaskSpec], MOST_TASKS]], MOST_SLOTS], {}]
    """Slot of another host -> the tasks that this host would have there."""
    grace_s: Seconds
    recovery: RecoverySpec
    dirs: Default[Paths, []]
    """Made before the start."""
    brought_along: Default[Paths, []]
    """Paths that must exist after the setup: a host that lacks one is refused."""
    checkpoint_dirs: Default[Paths, []]
    keeps_checkpoints_by_url: Default[bool, False]
    """Whether checkpoints are in storage that every host can read by its URLs."""
    movable: Default[bool, False]
    """Whether argv and env have marks for all addresses, so that tasks can move to hosts that join later."""
    bundle: Default[Optional[BundleId], None]
    environment: Default[Optional[Environment], None]
    setup: Default[Optional[Setup], None]
    coordinator: CoordinatorAddress
    voters: Default[AtMost[List[CoordinatorAddress], MOST_VOTERS], []]
    """Hosts that elect another coordinator when this one fails; the first of them is the first coordinator."""
    stages: Default[AtMost[List[Stage], 1000], []]
    needs_checkpoint: Default[bool, False]
    """Whether parameters are on ps tasks: if one is lost without any complete checkpoint, they are lost."""
    settle_s: Default[Seconds, 0.0]
    active_deadline_s: Default[Optional[Seconds], None]
    ttl_s: Default[Optional[Seconds], None]
    keep: Default[Count, 10]
    log_limit_bytes: Default[Optional[Count], None]
    """The limit for all logs of a task together; null: there is no limit."""
    start_timeout_s: Default[Seconds, 600.0]


formerly(Spec, slots="seats")


@also(Spec)
def _can_be_given_to_programs(spec: Spec) -> None:
    for place, tasks in [(("tasks",), spec["tasks"]), *((("slots", slot), own) for slot, own in spec["slots"].items())]:
        for task in tasks:
            if not task["argv"]:
                raise InvalidValue.at((*place, task["id"], "argv"), "a command", task["argv"])
            refuse_unfit((*place, task["id"], "argv"), task["argv"])
            refuse_unfit((*place, task["id"], "env"), task["env"], task["env"].values())
    for name in ("dirs", "checkpoint_dirs", "brought_along"):
        refuse_unfit((name,), spec[name])
    environment = spec["environment"]
    if environment:
        refuse_unfit(("environment", "env"), environment["env"], environment["env"].values())
        refuse_unfit(("environment",), [environment["what"], environment["python"] or ""], environment["files"])
    if spec["setup"]:
        refuse_unfit(("setup", "env"), spec["setup"]["env"], spec["setup"]["env"].values())
        refuse_unfit(("setup", "text"), [spec["setup"]["text"]])


@also(Spec)
def _has_whole_slots(spec: Spec) -> None:
    """Requires that the tasks of each slot are the tasks of that host."""
    for slot, tasks in spec["slots"].items():
        there = [member["task"] for member in spec["roster"] if member["host"] == slot]
        if not there or sorted(task["id"] for task in tasks) != sorted(there):
            raise InvalidValue.at(("slots", slot), "the tasks of a host of the roster", [task["id"] for task in tasks])
    added = {member["task"] for spare in spec["moved"]["joined"].values() for member in spare["tasks"]}
    for host, spare in spec["spares"].items():
        odd = spare["addresses"].keys() - {member["task"] for member in spec["roster"]} - added
        if odd:
            raise InvalidValue.at(("spares", host, "addresses"), "tasks of the roster", min(odd))


@also(Spec)
def _is_of_one_piece(spec: Spec) -> None:
    """Requires that tasks, roster, stages and lead are about the same tasks."""
    own = [task["id"] for task in spec["tasks"]]
    if len(set(own)) < len(own):
        raise InvalidValue.at(("tasks",), "each task once", own)
    _check_roster(spec["roster"], spec["lead"])
    check_absent(spec, spec["absent"])
    hosts = {member["task"]: member["host"] for member in spec["roster"]}
    for task in own:
        if hosts.get(task) != spec["host"]:
            raise InvalidValue.at(("tasks", task), "a task of the roster on this host", hosts.get(task))
    for index, stage in enumerate(spec["stages"]):
        if not all(task in hosts for task in stage["tasks"]) or not all(before < index for before in stage["after"]):
            raise InvalidValue.at(
                ("stages", str(index)), "tasks of the roster, after stages that stand before it", stage["after"]
            )


@also(Inventory)
def _has_its_lead(inventory: Inventory) -> None:
    _check_roster(inventory["roster"], inventory["lead"])


def check_absent(spec: Spec, absent: "Iterable[str]") -> None:
    """Requires that only hosts of the run are absent, and not the coordinator's."""
    known = set(hosts_of(spec)) - {spec["coordinator"]["host"]}
    for host in absent:
        if host not in known:
            raise InvalidValue.at(("absent",), "hosts of the run, and not the coordinator's", host)


def hosts_of(inventory: Inventory) -> List[str]:
    """All hosts of the run: those of the roster as `up` has made it, spares and arbiters."""
    found = [member["host"] for member in inventory["roster"]]
    return [*dict.fromkeys([*found, *inventory["moved"]["slots"], *inventory["spares"], *inventory["arbiters"]])]


def added_by(moved: Moved) -> List[Member]:
    """The tasks that hosts have added which joined the run, in the order of their jobs and indexes."""
    found = [member for spare in moved["joined"].values() for member in spare["tasks"]]
    return sorted(found, key=lambda member: (job_of(member["task"]), int(member["task"].rpartition(":")[2])))


def _check_roster(roster: List[Member], lead: TaskName) -> None:
    names = [member["task"] for member in roster]
    if len(set(names)) < len(names):
        raise InvalidValue.at(("roster",), "each task once", names)
    if lead not in names:
        raise InvalidValue.at(("lead",), "a task of the roster", lead)


def coordinates(spec: Spec) -> bool:
    """Whether this host's agent coordinates the run: on the lead's host, or elected last."""
    return spec["coordinator"]["host"] == spec["host"]


def has_lead(spec: Spec) -> bool:
    """Whether the lead is on this host, and so the checkpoints that it writes there."""
    return any(task["id"] == spec["lead"] for task in spec["tasks"])


def voters_of(spec: Spec) -> List[CoordinatorAddress]:
    """The voters that take part in the run; none if they are too few for a majority without one of them."""
    present = [voter for voter in spec["voters"] if voter["host"] not in spec["absent"]]
    return present if len(present) >= FEWEST_VOTERS else []


def votes(spec: Spec) -> bool:
    """Whether this host is a voter."""
    return any(voter["host"] == spec["host"] for voter in voters_of(spec))


def is_alone(spec: Spec) -> bool:
    """Whether the run has no other host: then its coordinator needs neither port nor key."""
    return hosts_of(spec) == [spec["host"]]


def link_port(spec: Spec) -> Optional[int]:
    """The port on which this host's agent listens as coordinator or as voter; None if it does not."""
    if is_alone(spec):
        return None
    listeners = [*voters_of(spec), spec["coordinator"]]
    return next((one["port"] for one in listeners if one["host"] == spec["host"]), None)


DRIFT = 1.25
"""Clocks of two hosts may differ by a quarter, as in the elections."""

KILL_S = 5.0
"""The time after which a killed process has ended."""

ELECTION_S = 30.0
"""The time within which another coordinator is elected."""

HOLD_S = ELECTION_S
"""How long hosts that are cut off let their tasks run. No election may hold a healthy run still."""

LEASED_S = 10.0
"""The time for which a coordinator that most voters have left may still answer: its lease, by any clock."""


def shortest_replace_s(grace_s: float) -> float:
    """The shortest `replace_s`.

    A host that is cut off must end its tasks before others start them, but not whenever a coordinator is lost.
    """
    return (ELECTION_S + grace_s + KILL_S) * DRIFT


def given_up_s(spec: Spec) -> Optional[float]:
    """How long a host is missed before others get its tasks, or train together without them; None: forever."""
    recovery = spec["recovery"]
    leave_s = recovery["host_timeout_s"] if spec["resizes"] and spec["min_workers"] is not None else None
    return min((limit_s for limit_s in (recovery["replace_s"], leave_s) if limit_s is not None), default=None)


def fence_s(spec: Spec) -> Optional[float]:
    """How long a host may miss the coordinator before it stops its tasks, as others soon get them; None: forever."""
    limit_s = given_up_s(spec)
    return None if limit_s is None or not voters_of(spec) else max(0.0, limit_s / DRIFT - spec["grace_s"] - KILL_S)


def hold_s(spec: Spec) -> Optional[float]:
    """How long a host may miss the coordinator before it holds its tasks still, until it is answered; None: forever.

    Others may be started in their place then. Without a majority of voters nobody could know that they are not.
    """
    return spec["hold_s"] if voters_of(spec) else None


def held_within_s(hold_s: float) -> float:
    """How long after a coordinator last heard it a host may act, by the clock of any other host."""
    return hold_s * DRIFT + KILL_S


def kept_by_coordinator(spec: Spec) -> bool:
    """Whether the coordinator's host decides if this host's part of the start is kept. One that joins decides alone."""
    return not coordinates(spec) and spec["host"] not in (*spec["absent"], *spec["moved"]["joined"])


def ports_of(spec: Spec) -> List[int]:
    """All ports that are used on this host."""
    return [port for port in (link_port(spec), *(task["port"] for task in spec["tasks"])) if port is not None]


def gpus_of(task: TaskSpec) -> List[int]:
    """The GPUs that it may use, if it is given some."""
    indexes = task["env"].get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [int(index) for index in indexes if len(index) < 5 and index.isascii() and index.isdigit()]


def comes_back_alone(role: Role, scope: Scope) -> bool:
    """Whether a task's agent may restart it without the coordinator: it holds no state of others."""
    return scope == "task" and role not in ("lead", "ps")


def may_be_absent(role: Role, scope: Scope, strategy: Optional[str]) -> bool:
    """Whether a run can start, continue and succeed without the task: no task needs its state or waits for it.

    That is so of a worker that trains by itself with the ps tasks. An evaluator only reads checkpoints.
    """
    if role == "evaluator":
        return True
    return strategy == "async-ps" and role in ("worker", "other") and scope == "task"


def job_of(task: TaskName) -> str:
    return task.partition(":")[0]


def trainers_of(roster: "Iterable[Member]", lead: TaskName) -> List[TaskName]:
    """The tasks that train, by their ranks: the lead first, the others in the order of the roster."""
    others = [one["task"] for one in roster if one["role"] == "worker" or job_of(one["task"]) == job_of(lead)]
    return [lead, *(task for task in others if task != lead)]


def batch_share(batch: int, task: TaskName, ranks: List[TaskName]) -> int:
    """The batch size of a training task; the first ones have one more. Other tasks get the size of the last one."""
    rank = ranks.index(task) if task in ranks else len(ranks) - 1
    return (batch + len(ranks) - 1 - rank) // len(ranks)


def inventory_of(spec: Spec) -> Inventory:
    return checked(Inventory, {**spec, "hold_s": hold_s(spec), "voting": len(voters_of(spec))})

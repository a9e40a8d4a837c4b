"""Finds what is wrong with a run: known signatures, joined with facts about its tasks, hosts and network."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl import rooms
from dtctl.agent.records.reasons import Fact, sentence, why_of
from dtctl.agent.run.hangs import HANGS
from dtctl.agent.run.policy import fingerprint, why_ended
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import TaskId, TaskState, grouped
from dtctl.operations.snapshot import RunStatus, TaskStatus

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import Past
    from dtctl.agent.records.vitals import DiagnoseResult, Gpu, GpuUser, Machine, TaskVitals, Unreached
    from dtctl.bundle import LeftOut

PYTHON = "PYTHON"
"""The Python in commands if a task's Python is unknown; `dtctl plan` shows it."""

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*$")

ENDED = (TaskState.FAILED, TaskState.BACKOFF)
LIVING = (TaskState.PENDING, TaskState.STARTING, TaskState.RUNNING)

PROVEN_S = 60.0
"""A restarted task that has run for this long does not fail the same way again at once."""

_MORE_SAID_S = 15.0
"""A complaint in a log is over when the task has logged for this long after it."""


@dataclass(frozen=True)
class End:
    """How an attempt ended that was not asked to stop. `times`: how many in a row by this cause.

    `restarted`: when the task was started again, where it was; `over`: it has run since for longer than before.
    """

    code: int | None
    signal: int | None
    at: float | None
    cause: str
    log: str
    times: int = 1
    how: Sequence[Fact] = ()
    """The end as the agent reports it, if there is neither code nor signal."""
    restarted: float | None = None
    over: bool = False


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts about a run. `hosts`: what each host reported about itself; `status` asks none, and only knows what
    agents sample.

    `left_out`: why a path of the code directory here is not pushed; None for any other path.
    """

    status: RunStatus
    hosts: Mapping[str, DiagnoseResult] = field(default_factory=dict)
    left_out: Callable[[str], LeftOut | None] = lambda path: None

    @property
    def now(self) -> float:
        return self.status.time

    @property
    def tasks(self) -> tuple[TaskStatus, ...]:
        return tuple(self.status.tasks.values())

    def vitals(self, task: TaskStatus) -> TaskVitals | None:
        vitals = self.hosts.get(task.host)
        return vitals["tasks"].get(str(task.id)) if vitals is not None else None

    def machines(self) -> Mapping[str, Machine]:
        return {**self.status.machines, **{host: vitals["machine"] for host, vitals in self.hosts.items()}}

    def gpus(self, host: str) -> Sequence[Gpu]:
        """The host's GPUs, as its agent sampled them last."""
        machine = self.hosts[host]["machine"] if host in self.hosts else self.status.machines.get(host)
        return machine["gpus"]["each"] if machine is not None and machine["gpus"] is not None else ()

    def gpus_of(self, task: TaskStatus) -> list[Gpu]:
        """The GPUs that the task may use, and those that it uses."""
        return [
            gpu
            for gpu in self.gpus(task.host)
            if str(task.id) in gpu["given"] or any(self.is_of(one, task) for one in gpu["users"])
        ]

    def is_of(self, user: GpuUser, task: TaskStatus) -> bool:
        return (user["run"], user["task"]) == (self.status.record.run, str(task.id))

    def address(self, task: TaskId) -> str:
        return self.status.record.addresses.get(task, "")

    def python(self, task: TaskStatus) -> str:
        vitals = self.vitals(task)
        program = (vitals["python"] if vitals is not None else "") or task.entry["program"]
        return program if _PYTHON.search(program) else PYTHON

    def unreached(self, host: str, task: TaskId) -> Unreached | None:
        """The failed connection from a host to a task's address, if one was tried."""
        vitals = self.hosts.get(host)
        return next((one for one in vitals["unreached"] if one["task"] == str(task)), None) if vitals else None

    def age(self, then: float | None) -> float:
        """The seconds since then; 0 if the time is unknown."""
        return max(0.0, self.now - then) if then else 0.0

    def end_of(self, task: TaskStatus) -> End | None:
        """How the task has ended; for a restarted task, how its last attempt was lost."""
        vitals = self.vitals(task)
        lost_log = vitals["lost_log"] if vitals is not None else ""
        history, earlier = task.entry["history"], task.entry["failed_attempt"]
        past = next((one for one in history if one["attempt"] == earlier), history[-1]) if history else None
        if task.state in ENDED:
            has_hung = past["hung"] if earlier and past is not None else task.entry["hang"] is not None
            if has_hung or (past is not None and (past["asked"] or past["early"])):
                return None
            cause = past["cause"] if past is not None else ""
            log = (lost_log if earlier else vitals["log"] if vitals is not None else "") or task.exit["tail"]
            at = past["ended"] if past else task.entry["since"]
            return End(task.exit["code"], task.exit["signal"], at, cause, log, _in_a_row(task), task.why[:1])
        if task.state is TaskState.SUCCEEDED:
            return End(0, None, past["ended"] if past else task.entry["since"], "", task.exit["tail"])
        return self._last_loss(task, lost_log)

    def _last_loss(self, task: TaskStatus, log: str) -> End | None:
        losses = _losses(task)
        if not losses or not (task.state in LIVING or self._failed_of(task)):
            return None
        last = losses[-1]
        restarted = task.entry["since"] if task.state in LIVING else None
        return End(last["code"], last["signal"], last["ended"], last["cause"], log, _in_a_row(task), (),
                   restarted=restarted, over=self._is_over(task, losses))  # fmt: skip

    def _failed_of(self, task: TaskStatus) -> bool:
        """Whether this end made the run fail, though it may have been restarted."""
        return task.id == self.status.verdict.cause

    def _is_over(self, task: TaskStatus, losses: list[Past]) -> bool:
        """Whether a restarted task has got further than before, or has run for longer."""
        last, alike = losses[-1], losses[-_in_a_row(task) :]
        if self._failed_of(task):
            return False
        if not (last["cause"] or last["short_of_memory"] or len(alike) > 1):
            return True  # nothing suggests that it would end the same way again
        if task.entry["step"] is not None and task.entry["step"] > max(
            -1 if past["step"] is None else past["step"] for past in alike
        ):
            return True
        lived_s = max(past["ended"] - past["started"] for past in alike)
        return task.state is TaskState.RUNNING and self.age(task.entry["since"]) >= max(PROVEN_S, 2 * lived_s)

    def hangs(self, task: TaskStatus) -> list[tuple[float, str]]:
        """The times at which the task was restarted in this run because it hung, with the reason if it is known."""
        coordination = self.status.coordination
        incidents = coordination.view["incidents"] if coordination is not None else ()
        found = [
            (incident["noticed"], sentence(why_of(incident)))
            for incident in incidents
            if incident["task"] == str(task.id) and incident["loss"] in HANGS
        ]
        return found or [(past["ended"], sentence(why_ended(past))) for past in task.entry["history"] if past["hung"]]

    def complaint(self, task: TaskStatus) -> str:
        """The complaint in a running task's log since its last step, unless other lines followed."""
        said = task.entry["complaint"]
        if said is None or task.state is not TaskState.RUNNING:
            return ""
        return said["text"] if (task.entry["progress"] or 0.0) - said["last"] <= _MORE_SAID_S else ""

    def on(self, host: str) -> Iterator[TaskStatus]:
        return (task for task in self.tasks if task.host == host)


def _losses(task: TaskStatus) -> list[Past]:
    """Attempts of this run that ended by themselves with a failure."""
    ended = [past for past in task.entry["history"] if not (past["asked"] or past["early"] or past["hung"])]
    return [past for past in ended if past["code"] or past["signal"]]


def _in_a_row(task: TaskStatus) -> int:
    """The number of last ends with the same cause."""
    ends = _losses(task)[::-1]
    same = 0
    for past in ends:
        if (past["code"], past["signal"], fingerprint(past["cause"])) != (
            ends[0]["code"],
            ends[0]["signal"],
            fingerprint(ends[0]["cause"]),
        ):
            break
        same += 1
    return max(1, same)


Fields = Mapping[str, Any]
"""The values of placeholders in sentences and commands. The names say what they are: `_s` seconds, `_at` epoch seconds,
`_bytes`, `_share`; tuples are tasks or hosts."""

Join = Callable[[Facts, TaskStatus, Fields], Fields | None]
"""Adds facts to a task whose log matches the pattern; None: other facts show another cause."""

Find = Callable[[Facts], Iterable["Match"]]


class Level(IntEnum):
    """The effect on the run; the most important comes first."""

    ENDS = 1
    BLOCKS = 2
    SLOWS = 3
    NOTE = 4


class Cost(IntEnum):
    """The cost of a check for the hosts, which decides who runs it: a caller names the most expensive class that it
    wants.
    """

    START = 1
    """Almost nothing: every `up` checks it."""
    CHECK = 2
    """Another program, many files, connections, or something that a start finds out anyway: `check` checks it."""
    DEEP = 3
    """Seconds of load: `check --deep` checks it."""


@dataclass(frozen=True)
class Signature:
    """One row of a table, as signatures.ini describes it."""

    name: str
    level: Level
    seen: str
    beside: str
    means: str
    remedy: tuple[str, ...]
    pattern: str = ""
    join: Join = lambda facts, task, fields: {}
    find: Find = lambda facts: ()
    after_end: bool = False
    """The finding is also a problem of a run that has succeeded or was stopped."""
    family: str = ""
    """Only the first row of a family that fits a task or host is shown."""
    follows: str = ""
    """The kind of cause that it follows from: `ends`, or `anything`. It is only shown if no such thing is found."""
    title: str = ""
    """A few words that a user would search for, in the documentation."""
    cost: Cost = Cost.START
    """The cost of a check that finds it."""
    stops: str = ""
    """Why `up` starts nothing where this is found; empty: it starts."""


def table(file: Path, function: Callable[[str], Any] = str) -> Rows:
    """The rows of a file, in its order. `function`: the one that the words of a join or find name."""
    sections = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    sections.read_string(file.read_text("utf-8"))

    def row(name: str) -> Signature:
        texts = sections[name]
        return Signature(
            name,
            Level[texts.get("level", "ends").upper()],
            texts.get("seen", "").replace("\n", " ").strip(),
            texts.get("beside", "").replace("\n", " ").strip(),
            texts["means"].replace("\n", " ").strip(),
            tuple(texts["remedy"].strip().split("\n")),
            texts.get("pattern", "").replace("\n", ""),
            function(texts["join"]) if "join" in texts else Signature.join,
            function(texts["find"]) if "find" in texts else Signature.find,
            texts.getboolean("after_end", False),
            texts.get("family", name),
            texts.get("follows", ""),
            texts.get("title", ""),
            Cost[texts.get("cost", "start").upper()],
            texts.get("stops", ""),
        )

    return tuple(map(row, sections.sections()))


Rows = tuple[Signature, ...]

ENDED_SOMEHOW = "ended"
"""The signature of ends whose logs match no other signature."""


@dataclass(frozen=True)
class Span:
    """The smallest and the largest of numbers that were measured on several hosts."""

    least: float
    most: float


Version = tuple[str, tuple[str, ...]]
"""One of several versions, and the hosts that have it."""


def versions(pairs: Iterable[tuple[str, str]]) -> tuple[Version, ...]:
    """The versions, each with its hosts, from pairs of a version and a host."""
    return tuple((version, tuple(dict.fromkeys(hosts))) for version, hosts in sorted(grouped(pairs).items()))


def commonness(one: Version) -> tuple[int, list[int]]:
    """A sort key: versions on more hosts come last; of two that are equally common, the newer one does."""
    return len(one[1]), [int(part) for part in re.findall(r"\d+", one[0])]


@dataclass(frozen=True)
class Wait:
    """A live task that waits for another."""

    task: TaskId
    host: str
    for_s: float
    text: str
    """The line in its log about the wait."""


@dataclass(frozen=True)
class Match:
    """The tasks and hosts that a signature fits, and further facts about them."""

    tasks: tuple[TaskId, ...] = ()
    hosts: tuple[str, ...] = ()
    fields: Fields = field(default_factory=dict)
    end: End | None = None
    """How the tasks ended."""
    complaint: str = ""
    """The complaint of live tasks."""
    waiting: tuple[Wait, ...] = ()
    """The tasks that wait for them."""
    over: bool = False
    """The tasks were restarted, and have run for longer since than before."""

    @classmethod
    def of(cls, task: TaskStatus, **fields: Any) -> Match:
        return cls((task.id,), (task.host,), fields)


@dataclass(frozen=True)
class Finding:
    """A signature that fits, and where."""

    signature: Signature
    seen: Match
    first: bool = False
    """The run has failed because of it."""

    @property
    def is_known(self) -> bool:
        """Whether the finding says more than that a task ended."""
        return self.signature.name != ENDED_SOMEHOW

    @property
    def order(self) -> tuple[bool, int, bool]:
        """The sort key by importance; among equals, a finding that other tasks wait for comes first."""
        return not self.first, self.signature.level, not self.seen.waiting


def used_by(users: list[GpuUser]) -> str:
    """The first process, as in: python of ada (pid 7, 30.1 GB)."""
    return ", ".join(_user(one) for one in users[:3])


def _user(one: GpuUser) -> str:
    whose = f" of {one['user']}" if one["user"] else ""
    run = f"{one['task']} of run {one['run']}, " if one["run"] else ""
    used = f", {one['used_bytes'] / 1e9:.1f} GB" if one["used_bytes"] is not None else ""
    return f"{one['name'] or 'a process'}{whose} ({run}pid {one['pid']}{used})"


MOST_SEPARATE = 3
"""The most findings that differ only in measured numbers and are shown one by one."""


def combine_similar(every: Iterable[Finding]) -> list[Finding]:
    """The findings; more than a few that differ only in measured numbers are one, about the hosts of all of them."""
    same = grouped(((one.signature.name, _unmeasured(one)), one) for one in every)
    return [
        finding
        for similar in same.values()
        for finding in (similar if len(similar) <= MOST_SEPARATE else [_combined(similar)])
    ]


def _unmeasured(finding: Finding) -> str:
    return repr([(name, value) for name, value in sorted(finding.seen.fields.items()) if not _is_measured(name, value)])


def _is_measured(name: str, value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and name != "port"


def _combined(similar: list[Finding]) -> Finding:
    fields = dict(similar[0].seen.fields)
    for name in [name for name, value in fields.items() if _is_measured(name, value)]:
        values = [one.seen.fields[name] for one in similar]
        fields[name] = Span(min(values), max(values)) if min(values) != max(values) else values[0]
    hosts = dict.fromkeys(host for one in similar for host in one.seen.hosts)
    tasks = dict.fromkeys(task for one in similar for task in one.seen.tasks)
    return dataclasses.replace(
        similar[0], seen=dataclasses.replace(similar[0].seen, tasks=tuple(tasks), hosts=tuple(hosts), fields=fields)
    )


def fails(finding: Finding) -> bool:
    """Whether the run would not work; all other findings are warnings."""
    return finding.signature.level <= Level.BLOCKS


NOTICED_S = 0.5
"""A brief check that takes this long is reported even if nothing is wrong."""


@dataclass(frozen=True)
class Checked:
    """`found`: by topic, the most important first. `errors`: hosts that could not be asked, and why."""

    hosts: tuple[str, ...]
    found: tuple[Finding, ...]
    lines: Mapping[str, tuple[Any, ...]]
    """The facts to show, by topic."""
    seconds: float
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    """Signatures that the cluster file accepts."""

    @property
    def is_noticed(self) -> bool:
        """Whether a brief check is worth mentioning: it has a finding above a note, or it took long."""
        return any(one.signature.level < Level.NOTE for one in self.found) or self.seconds >= NOTICED_S

    @property
    def failed(self) -> bool:
        return any(fails(one) for one in self.found)

    @property
    def certain_failures(self) -> tuple[Finding, ...]:
        """What makes tasks fail for certain, lets two runs fight for a GPU, or loses what was trained."""
        return tuple(one for one in self.found if one.signature.stops and one.signature.name not in self.accepted)


def problems_of(status: RunStatus) -> tuple[Finding, ...]:
    """What is wrong now, by the status alone, the most important first; nothing where no room looks for problems."""
    find: Iterator[Callable[[RunStatus], tuple[Finding, ...]]] = rooms.each("problems")
    return tuple(found for one in find for found in one(status))

"""Checks, before a run starts, that the hosts have what it needs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, TypeVar

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.persistent import Greeted
from dtctl.operations.findings import Cost, Fields, Finding, Match, Signature, table
from dtctl.plan import RunPlan
from dtctl.plan.spec import NO_CONTENT, EnvironmentContent
from dtctl.rooms.check.programs import Needs

Q = TypeVar("Q")
F = TypeVar("F")


@dataclass(frozen=True)
class CheckContext:
    """What is to be checked, and how closely.

    `brief`: for `up`, when all that a start creates is there: only what costs the hosts next to nothing, and needs two
    rounds at most. `deep`: also what takes seconds, and loads the hosts.
    `token`: in the names of all that is written for a while.
    """

    plan: RunPlan
    needs: Mapping[str, Needs] = field(default_factory=dict)
    """Job -> what its program needs, as far as its text shows."""
    brief: bool = False
    deep: bool = False
    token: str = ""
    nonce: str = "0" * 32
    """A secret by which the hosts of this check recognise each other."""
    reached_at: Mapping[str, str] = field(default_factory=dict)
    """Host -> the name or address that SSH connects to, where SSH does."""
    allowed_here: bool = False
    """The user lets the cluster file start its programs on this machine (operations/consent.py)."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Topic -> what its `prepare` has found on this machine."""
    own_python: str = ""
    """The Python of this machine that is used if the file names none."""
    bundle: str | None = None
    """The bundle id of the code, if the hosts already have it: their Pythons then compile it."""
    content: EnvironmentContent = NO_CONTENT
    """The files from which the hosts create the trainers' environment."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The trainers' secrets that have values here."""

    excluded: frozenset[str] = frozenset()
    """Hosts of the run that are not asked."""

    @property
    def most(self) -> Cost:
        """The most expensive class of signatures to check. Nothing else is left out."""
        return Cost.START if self.brief else Cost.DEEP if self.deep else Cost.CHECK

    def asks_for(self, *names: str) -> bool:
        """Whether any of these signatures is to be checked."""
        return any(_rows()[name][1].cost <= self.most for name in names)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that are asked: those with tasks in the order of the file, then spares and arbiters."""
        return tuple(host for host in self.plan.members if host not in self.excluded)

    def host(self, name: str) -> Host:
        return self.plan.cluster.hosts[name]


@dataclass(frozen=True)
class Door:
    """A task's port that might be reachable by others. `live`: a trainer has it, which is asked nothing."""

    host: str
    whose: str
    name: str
    port: int
    live: bool = False


@dataclass(frozen=True)
class Dialled:
    """A door that is open to this machine."""

    door: Door
    address: str
    """The address that its name resolves to from here."""
    seen_from: str
    """The address of this machine that connected."""


@dataclass(frozen=True)
class Answers(Generic[F]):
    """The facts that a topic has received so far. `rounds`: the facts of each host that was asked, round by round."""

    rounds: Sequence[Mapping[str, F]] = ()
    clocks: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Seconds by which a host's clock is ahead of this machine's: at least and at most."""
    greeted: Mapping[str, Greeted] = field(default_factory=dict)
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts that could not be asked."""
    dialled: Sequence[Dialled] = ()
    """The doors of `tried_doors` that this machine could connect to."""
    tried_doors: int = 0

    def round(self, number: int) -> Mapping[str, F]:
        """The facts of this round by host; empty before it."""
        return self.rounds[number] if number < len(self.rounds) else {}

    @property
    def first(self) -> Mapping[str, F]:
        return self.round(0)


@dataclass(frozen=True)
class Line:
    """A fact to show: hosts with the same value are shown as one.

    `what` is a label (`tensorflow`), or a name whose end names the unit (`memory_bytes`, `connect_s`).
    """

    what: str
    values: Mapping[str, object]
    """The value of each host, a text or a number. Empty or None: it has none; hosts that did not report it are left
    out.
    """


@dataclass(frozen=True)
class Statement:
    """A fact about the whole cluster: a row of a table of `render`, and its fields."""

    kind: str
    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Topic(Generic[Q, F]):
    """`name` is also the name of its question in records.checks.Questions, of its facts in CheckFacts, and of the
    agent's module.

    `questions` are those of the next round, by host; none: it is done. `findings` are the problems, and `lines` the
    facts to show. Each receives all answers so far.
    """

    name: str
    questions: Callable[[CheckContext, Answers[F]], Mapping[str, Q]]
    findings: Callable[[CheckContext, Answers[F]], Iterable[Finding]]
    lines: Callable[[CheckContext, Answers[F]], Iterable[Line | Statement]]
    doors: Callable[[CheckContext, Answers[F]], Sequence[Door]] = lambda context, answers: ()
    """The doors that this machine tries to connect to during the next round."""
    prepare: Callable[[RunPlan], Any] = lambda plan: None
    """Finds out what the topic needs of this machine."""

    @property
    def rows(self) -> tuple[Signature, ...]:
        """Every signature that `findings` may have."""
        return tuple(row for topic, row in _rows().values() if topic == self.name)


@functools.cache
def _rows() -> dict[str, tuple[str, Signature]]:
    """All signatures by name, each with its topic."""
    parted = ((row.name.partition("."), row) for row in table(Path(__file__).with_name("signatures.ini")))
    return {name: (topic, dataclasses.replace(row, name=name)) for (topic, _, name), row in parted}


def once(answers: Answers[Any], questions: Mapping[str, Q]) -> Mapping[str, Q]:
    """The questions of a topic that has a single round."""
    return {} if answers.rounds else questions


def found(name: str, hosts: Iterable[str], tasks: Iterable[Any] = (), /, **fields: Any) -> Finding:
    """A finding of this signature about these hosts and tasks; `fields` as in diagnosis.Fields."""
    return Finding(_rows()[name][1], Match(tuple(tasks), tuple(hosts), fields))

"""Asks all hosts of a plan for the facts that it depends on: one connection and one process each, round by round."""

from __future__ import annotations

import dataclasses
import os
import secrets as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from dtctl.agent.records.answers import Facts
from dtctl.agent.records.checks import CheckFacts, CheckResult, Questions
from dtctl.agent.records.kinds import InvalidValue, made
from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import Host, SshSettings
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.checks import (
    Answers,
    CheckContext,
    Line,
    Statement,
    Topic,
    data,
    fails,
    machine,
    software,
    speed,
    ssh,
    storage,
    urls,
)
from dtctl.operations.checks.network import tasks
from dtctl.operations.checks.network.exposure import dial, is_exposed
from dtctl.operations.checks.programs import needs_of
from dtctl.operations.client import Conversations, Progress, Report, Request
from dtctl.operations.client.persistent import Greeted, RecordingTransport
from dtctl.operations.client.plausible import wrong
from dtctl.operations.data import data_set
from dtctl.operations.diagnosis import Finding, Level
from dtctl.operations.local import local_python
from dtctl.operations.run_record import RunRecord
from dtctl.plan import RunPlan
from dtctl.plan.spec import NO_CONTENT, EnvironmentContent
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import Session, Transport
from dtctl.transport.timeouts import PATIENCE_S

TOPICS: tuple[Topic[Any, Any], ...] = (
    tasks.TOPIC,
    storage.TOPIC,
    data.TOPIC,
    urls.TOPIC,
    software.TOPIC,
    machine.TOPIC,
    speed.TOPIC,
    ssh.TOPIC,
)

STOPPING = (
    *("python_missing", "modules_missing", "syntax_error"),
    *("gpus_missing", "gpus_unseen", "gpus_silent", "gpus_taken"),
    *data.MISSING,
    *("url_missing", "url_denied", "url_scheme_unknown", "url_unresolved"),
    *storage.FROM_NOTHING,
    *("keras_3_fit", "tensorflow_1_used"),
)
"""Signatures that make `up` refuse to start: tasks fail for certain, two runs compete for a GPU, or trained state is
lost.
"""


DEEP_S = 900.0
"""The time limit of one round of a deep check: imports and multiplications are slow."""

NOTICED_S = 0.5
"""A brief check that takes this long is reported even if nothing is wrong."""

Clocks = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Checked:
    """`found`: by topic, the most important first. `errors`: hosts that could not be asked, and why."""

    hosts: tuple[str, ...]
    found: tuple[Finding, ...]
    lines: Mapping[str, tuple[Line | Statement, ...]]
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
        stopping = [name for name in STOPPING if name not in self.accepted]
        return tuple(one for one in self.found if one.signature.name in stopping)


def check(
    context: CheckContext,
    record: RunRecord,
    transport: Transport,
    report: Report,
    topics: Iterable[Topic[Any, Any]] = TOPICS,
) -> Checked:
    """Asks for all topics at once, until none has a question left; hosts that cannot be asked are left out."""
    began = time.monotonic()
    noting = RecordingTransport(ImpatientTransport(transport, record), report)
    with Conversations(record, noting, context.hosts) as hosts:
        rounds = _Rounds(context, tuple(topics), noting.greeted, hosts.errors)
        while questions := rounds.next():
            with rounds.dialling():
                answers = hosts.ask_hosts(_request(context, questions, rounds.clocks, report), questions)
            rounds.add({host: answer["facts"] for host, answer in answers.items()})
        return rounds.judged(time.monotonic() - began)


class _Rounds:
    """The rounds of all topics. `greeted` and `errors` grow while hosts are asked."""

    def __init__(
        self,
        context: CheckContext,
        topics: tuple[Topic[Any, Any], ...],
        greeted: Mapping[str, Greeted] = {},
        errors: Mapping[str, DtctlError] = {},
    ) -> None:
        self.clocks: Clocks = {}
        self._context = context
        self._topics = topics
        self._rounds: dict[str, list[Mapping[str, Any]]] = {topic.name: [] for topic in topics}
        self._known = Answers[Any]((), self.clocks, greeted, errors)

    @contextmanager
    def dialling(self) -> Iterator[None]:
        """Connects to the doors of all topics while the hosts answer."""
        doors = [door for topic in self._topics for door in topic.doors(self._context, self._answers(topic))]
        with ThreadPoolExecutor(1) as beside:
            tried = beside.submit(dial, doors, self._context.nonce) if doors else None
            yield
            if tried is not None:
                count = len({(door.host, door.port) for door in doors})
                self._known = dataclasses.replace(self._known, dialled=tried.result(), tried_doors=count)

    def next(self) -> dict[str, Questions]:
        """The questions of the next round, by host."""
        asked: dict[str, dict[str, Any]] = {}
        for topic in self._topics:
            for host, question in topic.questions(self._context, self._answers(topic)).items():
                if host not in self._known.errors:
                    asked.setdefault(host, {})[topic.name] = question
        return {host: made(Questions, **questions) for host, questions in asked.items()}

    def add(self, facts: Mapping[str, CheckFacts]) -> None:
        """Stores the answers of a round. A topic that asked no host in this round is done."""
        for topic in self._topics:
            answer: Mapping[str, Mapping[str, Any]] = facts
            own = {host: each[topic.name] for host, each in answer.items() if each[topic.name] is not None}
            self._rounds[topic.name].append(own)

    def judged(self, seconds: float) -> Checked:
        found = [
            finding
            for topic in self._topics
            for finding in topic.findings(self._context, self._answers(topic))
            if finding.signature.cost <= self._context.most
        ]
        lines = {topic.name: tuple(topic.lines(self._context, self._answers(topic))) for topic in self._topics}
        return Checked(
            self._context.hosts,
            tuple(sorted(found, key=lambda one: one.order)),
            {name: own for name, own in lines.items() if own},
            seconds,
            dict(self._known.errors),
            storage.FROM_NOTHING if self._context.plan.cluster.recovery.allow_scratch else (),
        )

    def _answers(self, topic: Topic[Any, Any]) -> Answers[Any]:
        return dataclasses.replace(self._known, rounds=tuple(self._rounds[topic.name]))


def _request(
    context: CheckContext, questions: Mapping[str, Questions], clocks: Clocks, report: Report
) -> Request[CheckResult]:
    sent: dict[str, float] = {}

    def fields(host: Host) -> Mapping[str, Any]:
        report(Progress(host.name, "check"))
        sent[host.name] = time.time()
        return {"ask": questions[host.name]}

    def check(host: Host, answer: CheckResult) -> None:
        asked: Mapping[str, object] = questions[host.name]
        reported: Mapping[str, object] = answer["facts"]
        for topic, question in asked.items():
            if (question is None) != (reported[topic] is None):
                raise InvalidValue.at(("facts", topic), "null" if question is None else "an answer", reported[topic])
        _narrow(clocks, host.name, answer["time"] - time.time(), answer["time"] - sent[host.name])
        report(Progress(host.name, "prepared"))

    return Request("check", CheckResult, fields, check, within_s=DEEP_S if context.deep else PATIENCE_S)


def _narrow(clocks: Clocks, host: str, least: float, most: float) -> None:
    """Narrows the bounds of a host's clock: it read its clock between the question and the arrival of the answer."""
    before = clocks.get(host, (least, most))
    least, most = max(least, before[0]), min(most, before[1])
    clocks[host] = (least, max(least, most))


class InPassing:
    """The questions that one `up` asks in its own conversations; none without a context."""

    def __init__(self, context: CheckContext | None) -> None:
        self._rounds = _Rounds(context, TOPICS) if context is not None else None
        self._opened: dict[str, float] = {}
        self._answered: set[str] = set()
        self._seconds = 0.0
        self.questions: Mapping[str, Questions] = self._rounds.next() if self._rounds is not None else {}
        """The questions of the next round, by host."""

    def question(self, host: str) -> Questions | None:
        return self.questions.get(host)

    def opened(self, host: str, opening: Callable[[], Session]) -> Session:
        self._opened[host] = time.time()
        return opening()

    def met(self, session: Session) -> None:
        """Stores a host's greeting, which has its time since the conversation was opened."""
        answer, host = session.facts.get("time"), session.host.name
        if answer is not None and self._rounds is not None:
            self._rounds.clocks[host] = (answer - session.greeted(), answer - self._opened[host])

    def check(self, host: str, answer: Facts) -> None:
        """Raises InvalidValue for facts that the host was not asked for."""
        asked = {name for name, question in (self.questions.get(host) or {}).items() if question is not None}
        reported = {name for name, facts in (answer["facts"] or {}).items() if facts is not None}
        if asked != reported:
            raise wrong("facts", ", ".join(sorted(asked)) or "nothing", sorted(reported))

    def add(self, answers: Mapping[str, Facts]) -> None:
        """Stores the answers to `questions`, which may lead to new ones. A run that already exists gives no answers."""
        facts = {host: answer["facts"] for host, answer in answers.items() if answer["facts"] is not None}
        self._seconds += max((answer["facts_s"] for answer in answers.values()), default=0.0)
        self._answered |= facts.keys()
        self.questions = {}
        if self._rounds is not None:
            self._rounds.add(facts)
            self.questions = self._rounds.next() if facts else {}

    def judged(self) -> Checked | None:
        """The result of the check; None if no host was asked, or none answered."""
        if self._rounds is None or not self._answered:
            return None
        found = self._rounds.judged(self._seconds)
        return dataclasses.replace(found, hosts=tuple(host for host in found.hosts if host in self._answered))


def require_private(context: CheckContext, record: RunRecord, transport: Transport, report: Report) -> None:
    """Raises PreflightError where a task's port is open to this machine, or may be to the internet.

    What was not tried counts as open: a host that cannot be asked is an error, too.
    """
    checked = check(context, record, transport, report, (tasks.TOPIC,))
    if checked.errors:
        Outcomes({}, dict(checked.errors)).or_raise("look who reaches the ports")
    exposed = [one for one in checked.found if is_exposed(one)]
    if exposed:
        hosts = fold(dict.fromkeys(host for one in exposed for host in one.seen.hosts))
        raise PreflightError(
            f"strangers reach the ports of tasks on {hosts}, or may do so, and --require-private was given",
            detail="\n".join(_warning_text(one) for one in exposed),
            hint="dtctl check --print-firewall nftables    prints rules that close them (or iptables, ufw)",
        )


def _warning_text(finding: Finding) -> str:
    fields, hosts = finding.seen.fields, fold(finding.seen.hosts)
    ports = ", ".join(map(str, fields["ports"]))
    if finding.signature.name == "exposed":
        return f"port {ports} of {hosts} answered this machine ({fields['seen_from']}), which is none of the hosts"
    return f"{hosts} has {fields['address']}, a public address, and port {ports} was not tested there"


def context_of(
    plan: RunPlan,
    content: EnvironmentContent = NO_CONTENT,
    *,
    brief: bool = False,
    deep: bool = False,
    hostname: Callable[[SshSettings], str] | None = None,
    allowed_here: bool = False,
    bundle: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> CheckContext:
    """Reads the programs' text. `hostname`: the name that SSH would connect to, by its own configuration.

    `content`: of the trainers' environment. `allowed_here`: the user lets the file start its programs on this machine.
    `bundle`: the code that the hosts have been sent. `secrets`: those of the trainers.
    """
    reaches = {name: plan.cluster.hosts[name].reach for name in plan.members}
    return CheckContext(
        plan,
        needs_of(plan),
        brief,
        deep,
        token=randomness.token_hex(8),
        nonce=randomness.token_hex(16),
        reached_at={
            name: hostname(reach)
            for name, reach in reaches.items()
            if hostname is not None and isinstance(reach, SshSettings)
        },
        allowed_here=allowed_here,
        data=data_set(plan.cluster, read=False) if plan.cluster.data.source else None,
        own_python=local_python(os.environ),
        bundle=bundle,
        content=content,
        secrets=secrets or {},
    )

"""Asks all hosts of a plan for the facts that it depends on: one connection and one process each, round by round."""

from __future__ import annotations

import dataclasses
import os
import secrets as randomness
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from dtctl import rooms
from dtctl.agent import rooms as agent_rooms
from dtctl.agent.records.answers import Facts
from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.rooms.check.records import CheckResult
from dtctl.config.cluster import Cluster
from dtctl.config.ranges import fold
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import Host, SshSettings
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Conversations, Progress, Report, Request, about
from dtctl.operations.client.persistent import Greeted, RecordingTransport
from dtctl.operations.client.plausible import wrong
from dtctl.operations.environments import environment_content
from dtctl.operations.findings import Checked, Finding, combine_similar
from dtctl.operations.local import known_secrets, local_python
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.selection import select_hosts
from dtctl.operations.sending import VALUES, sendings
from dtctl.operations.up.inspecting import Prepare, RefuseExposed
from dtctl.operations.up.launch import Hostname, make_plan
from dtctl.plan import RunPlan
from dtctl.plan.spec import NO_CONTENT, EnvironmentContent
from dtctl.rooms.check import Answers, CheckContext, Topic, machine, software, speed, ssh, storage, urls
from dtctl.rooms.check.network import tasks
from dtctl.rooms.check.network.exposure import dial, is_exposed
from dtctl.rooms.check.programs import needs_of
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import NamingTransport, Session, Transport
from dtctl.transport.timeouts import PATIENCE_S

_TOPICS: tuple[Topic[Any, Any], ...] = (
    tasks.TOPIC,
    storage.TOPIC,
    urls.TOPIC,
    software.TOPIC,
    machine.TOPIC,
    speed.TOPIC,
    ssh.TOPIC,
)


def topics() -> tuple[Topic[Any, Any], ...]:
    """All topics, those of other rooms last."""
    return (*_TOPICS, *rooms.each("topic"))


DEEP_S = 900.0
"""The time limit of one round of a deep check: imports and multiplications are slow."""


Clocks = dict[str, tuple[float, float]]


def check(
    context: CheckContext,
    record: RunRecord,
    transport: Transport,
    report: Report,
    about: Iterable[Topic[Any, Any]] | None = None,
) -> Checked:
    """Asks for all topics at once, until none has a question left; hosts that cannot be asked are left out."""
    began = time.monotonic()
    noting = RecordingTransport(ImpatientTransport(transport, record), report)
    with Conversations(record, noting, context.hosts) as hosts:
        rounds = _Rounds(context, tuple(about) if about is not None else topics(), noting.greeted, hosts.errors)
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

    def next(self) -> dict[str, dict[str, Any]]:
        """The directories by host."""
        asked: dict[str, dict[str, Any]] = {}
        for topic in self._topics:
            for host, question in topic.questions(self._context, self._answers(topic)).items():
                if host in self._context.hosts and host not in self._known.errors:
                    asked.setdefault(host, {})[topic.name] = question
        return asked

    def add(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores the answers of a round. A topic that asked no host in this round is done."""
        for topic in self._topics:
            own = {host: each[topic.name] for host, each in facts.items() if topic.name in each}
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
            tuple(sorted(combine_similar(found), key=lambda one: one.order)),
            {name: own for name, own in lines.items() if own},
            seconds,
            dict(self._known.errors),
            storage.FROM_NOTHING if self._context.plan.cluster.recovery.allow_scratch else (),
        )

    def _answers(self, topic: Topic[Any, Any]) -> Answers[Any]:
        return dataclasses.replace(self._known, rounds=tuple(self._rounds[topic.name]))


def _request(
    context: CheckContext, questions: Mapping[str, Mapping[str, Any]], clocks: Clocks, report: Report
) -> Request[CheckResult]:
    sent: dict[str, float] = {}

    def fields(host: Host) -> Mapping[str, Any]:
        report(Progress(host.name, "check"))
        sent[host.name] = time.time()
        return {"ask": questions[host.name]}

    def check(host: Host, answer: CheckResult) -> None:
        answer["facts"] = valid(questions[host.name], answer["facts"])
        _narrow(clocks, host.name, answer["time"] - time.time(), answer["time"] - sent[host.name])
        report(Progress(host.name, "prepared"))

    return Request("check", CheckResult, fields, check, within_s=DEEP_S if context.deep else PATIENCE_S)


def valid(asked: Mapping[str, object], reported: Mapping[str, object], *, whole: bool = True) -> dict[str, Any]:
    """The facts by topic, as the record of each topic has them.

    Raises InvalidValue for facts that were not asked for, and with `whole` where some are missing.
    """
    facts = {topic: one for topic, one in reported.items() if one is not None}
    if facts.keys() - asked.keys() or (whole and asked.keys() - facts.keys()):
        raise wrong("facts", ", ".join(sorted(asked)) or "nothing", sorted(facts))
    return {topic: _checked(topic, one) for topic, one in facts.items()}


def _checked(topic: str, facts: object) -> Any:
    try:
        return checked(agent_rooms.load(agent_rooms.TOPICS[topic].result), facts)
    except InvalidValue as error:
        raise InvalidValue.at(("facts", topic, *error.path), error.expected, error.found) from None


def _narrow(clocks: Clocks, host: str, least: float, most: float) -> None:
    """Narrows the bounds of a host's clock: it read its clock between the question and the arrival of the answer."""
    before = clocks.get(host, (least, most))
    least, most = max(least, before[0]), min(most, before[1])
    clocks[host] = (least, max(least, most))


class InPassing:
    """The questions that one `up` asks in its own conversations; none without a context."""

    def __init__(self, context: CheckContext | None) -> None:
        self._rounds = _Rounds(context, topics()) if context is not None else None
        self.saw_checkpoint = False
        """Whether a host has seen a checkpoint at a storage URL that the run writes to."""
        self._opened: dict[str, float] = {}
        self._answered: set[str] = set()
        self._seconds = 0.0
        self.questions: Mapping[str, Mapping[str, Any]] = self._rounds.next() if self._rounds is not None else {}
        """The questions of the next round, by host."""

    def question(self, host: str) -> Mapping[str, Any] | None:
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
        valid(self.questions.get(host) or {}, answer["facts"] or {})

    def add(self, answers: Mapping[str, Facts]) -> None:
        """Stores the answers to `questions`, which may lead to new ones. A run that already exists gives no answers."""
        facts = {}
        for host, answer in answers.items():
            if answer["facts"] is not None:
                with about(host, "sent invalid facts"):
                    facts[host] = valid(self.questions.get(host) or {}, answer["facts"], whole=False)
        self._seconds += max((answer["facts_s"] for answer in answers.values()), default=0.0)
        self._answered |= facts.keys()
        tried = [one for each in facts.values() for one in each.get("urls", {}).get("tried", ())]
        self.saw_checkpoint = self.saw_checkpoint or any(one["saved"] for one in tried)
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


def refuse_exposed(
    plan: RunPlan, content: EnvironmentContent, record: RunRecord, transport: NamingTransport, report: Report
) -> None:
    require_private(context_of(plan, content, hostname=transport.hostname), record, transport, report)


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
        known={topic.name: topic.prepare(plan) for topic in topics()},
        own_python=local_python(os.environ),
        bundle=bundle,
        content=content,
        secrets=secrets or {},
    )


def prepare_check(
    cluster: Cluster,
    hostname: Hostname,
    overrides: Sequence[str] | None,
    *,
    local: bool = False,
    deep: bool = False,
    exclude: Sequence[str] = (),
) -> tuple[CheckContext, RunRecord]:
    """The context to check a cluster that is not started.

    `overrides`: of the file's keys. `local`: all hosts are this machine. `deep`: see CheckContext.
    `exclude`: words for hosts that are not asked. On local hosts a
    check starts only programs that the user has allowed, and it sends only values that he has allowed to be sent.
    """
    from dtctl.operations.consent import Consents, may_start

    allowed_here = may_start(cluster, overrides, local=local)
    plan = make_plan(cluster, hostname, local=local)
    record = record_of(plan)
    asked = select_hosts(record, [*record.hosts], exclude)
    known: Mapping[str, str] = {}
    if local or not Consents().missing(sendings(cluster, VALUES, os.environ)):
        with suppress(PreflightError):  # `up` reports an env file that cannot be used
            known = known_secrets(cluster, os.environ)
    content = environment_content(cluster)
    context = context_of(plan, content, deep=deep, hostname=hostname, allowed_here=allowed_here, secrets=known)
    return dataclasses.replace(context, excluded=frozenset(plan.members) - {*asked}), record


def inspection(plan: RunPlan, *, content: EnvironmentContent, bundle: str, secrets: Mapping[str, str]) -> InPassing:
    """The questions of one start, which its own conversations ask."""
    return InPassing(context_of(plan, content, brief=True, allowed_here=True, bundle=bundle, secrets=secrets))


if TYPE_CHECKING:
    _: Prepare = inspection
    __: RefuseExposed = refuse_exposed

"""Requests to agents: one conversation a host, all hosts side by side, every outcome kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dtctl.errors import AgentError, DtctlError
from dtctl.model import Host
from dtctl.operations.record import RunRecord
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Message, Session, Transport

Report = Callable[["Progress"], None]


@dataclass(frozen=True)
class Progress:
    """How far a host has come: phase is connect, send, receive, setup, verify, prepared, start, started."""

    host: str
    phase: str
    done: int = 0
    total: int = 0
    """done and total are bytes, or 0 where the phase cannot be measured."""
    text: str = ""


def silent(progress: Progress) -> None:
    """The report of a caller that shows no progress."""


def ask(
    record: RunRecord,
    transport: Transport,
    kind: str,
    fields: Mapping[str, Any] | Callable[[Host], Mapping[str, Any]] | None = None,
    *,
    hosts: Iterable[str] | None = None,
) -> Outcomes[Message]:
    """One request to each of the hosts (all of the record's when None); the answer is its `result` frame."""

    def work(host: Host) -> Message:
        session = transport.open(host)
        try:
            own = fields(host) if callable(fields) else fields or {}
            session.send({**request(record, host, kind), **own})
            return result(session)
        finally:
            session.close()

    names = record.hosts if hosts is None else hosts
    return fan_out([record.hosts[name] for name in names], work)


class Conversations:
    """Open conversations with the hosts of a run, for commands that ask more than once. A context manager.

    A host that has failed once is not asked again, unless it only knew no such run; why is in `errors`.
    """

    def __init__(self, record: RunRecord, transport: Transport, hosts: Iterable[str]) -> None:
        self._record = record
        self._transport = transport
        self._hosts = tuple(hosts)
        self._sessions: dict[str, Session] = {}
        self.errors: dict[str, DtctlError] = {}

    def __enter__(self) -> Conversations:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions.values():
            session.close()

    def ask(
        self, kind: str, fields: Callable[[Host], Mapping[str, Any]], hosts: Iterable[str] | None = None
    ) -> dict[str, Message]:
        """The `result` of each host that gives one."""

        def work(host: Host) -> Message:
            session = self._sessions.get(host.name) or self._transport.open(host)
            self._sessions[host.name] = session
            session.send({**request(self._record, host, kind), **fields(host)})
            return result(session)

        refused = {name for name, error in self.errors.items() if not knows_no_run(error)}
        wanted = set(self._hosts if hosts is None else hosts) - refused
        outcomes = fan_out([self._record.hosts[name] for name in self._hosts if name in wanted], work)
        for name, error in outcomes.errors.items():
            self.errors[name] = error
            if (session := self._sessions.pop(name, None)) is not None:
                session.close()  # an error ends a conversation
        return dict(outcomes.results)


def knows_no_run(error: DtctlError) -> bool:
    """The host answered that it has no such run, which for many commands is as good as done."""
    return isinstance(error, AgentError) and error.code == "no_run"


def request(record: RunRecord, host: Host, kind: str) -> dict[str, Any]:
    """The fields that every request has."""
    return {"type": kind, "cluster": record.cluster, "host": host.name, "run": record.run}


def result(session: Session) -> Message:
    """The next `result`; what an agent says before it is not for this caller."""
    while (message := session.receive()).type != "result":
        pass
    return message

"""Requests to agents: one conversation a host, all hosts side by side, every outcome kept."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.rooms import EXCHANGES
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.operations.client.plausible import check_run
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.timeouts import PATIENCE_S
from dtctl.transport.wire import untrue

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.operations.run_record import RunRecord
    from dtctl.transport.seam import Message, Session, Transport

R = TypeVar("R")

Report = Callable[["Progress"], None]
Fields = Mapping[str, Any]

ANSWER_BYTES = 64 << 20
"""The most bytes of an answer that are kept in memory."""

_OVERHEAD_BYTES = 64
"""The least number of bytes counted for each frame."""


@dataclass(frozen=True)
class Progress:
    """The progress of a host.

    phase is connect, send, receive, setup, verify, prepared, started, done, or failed.
    """

    host: str
    phase: str
    done: int = 0
    total: int = 0
    """done and total are bytes, or 0 if the phase cannot be measured."""
    text: str = ""

    def __str__(self) -> str:
        measured = f" {self.done} of {self.total} bytes" if self.total else ""
        return f"{self.host}: {self.phase}{measured} {self.text}".rstrip()


def silent(progress: Progress) -> None:
    """The report of a caller that shows no progress."""


def reporting_failure(work: Callable[[Host], R], report: Report) -> Callable[[Host], R]:
    """The same work, which also reports a host's failure, so that the progress display does not wait for that host."""

    def reporting(host: Host) -> R:
        try:
            return work(host)
        except DtctlError:
            report(Progress(host.name, "failed"))
            raise

    return reporting


@dataclass(frozen=True)
class Request(Generic[R]):
    """A request to each host, and the type of its answer.

    `check` raises InvalidValue for an answer that is not about what this host was asked, besides the run. `on_frame`:
    the frames that may come before the answer, and what is called with them, in the thread of their host. `quiet_s`:
    the longest time without such a frame; heartbeats do not count.
    """

    kind: str
    record: type[R]
    fields: Callable[[Host], Fields] = lambda host: {}
    check: Callable[[Host, R], None] = lambda host, answer: None
    within_s: float | None = PATIENCE_S
    on_frame: Mapping[str, Callable[[Host, Message], None]] = field(default_factory=dict)
    quiet_s: float | None = None

    def __post_init__(self) -> None:
        assert EXCHANGES[self.kind].result.endswith(f".{self.record.__name__}")

    def put(self, run: RunRecord, session: Session) -> R:
        """Asks one host. Raises as `frames_of` and `final`."""
        host = session.host
        session.send({**request(run, host, self.kind), **self.fields(host)})
        for message in frames_of(session, *self.on_frame, within_s=self.within_s, quiet_s=self.quiet_s):
            if message.type != "result":
                self.on_frame[message.type](host, message)
        return final(run, session, self.kind, message, self.record, lambda answer: self.check(host, answer))


def ask_hosts(
    record: RunRecord, transport: Transport, wanted: Request[R], hosts: Iterable[str] | None = None
) -> Outcomes[R]:
    """Sends one request to each of the hosts (None: those of the record that have a task)."""

    def work(host: Host) -> R:
        with closing(transport.open(host)) as session:
            return wanted.put(record, session)

    known, unknown = record.routes_to(record.task_hosts if hosts is None else hosts)
    outcomes = fan_out(known, work)
    return Outcomes(outcomes.results, {**outcomes.errors, **unknown})


class Conversations:
    """Open conversations with the hosts of a run, for commands that ask more than once. A context manager.

    A host that has failed is not asked again, unless it only had no such run; `errors` says why.
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

    def expect_away(self, hosts: Collection[str]) -> None:
        """Marks hosts that the coordinator reports as away: connecting to them gets a short timeout."""
        self._record = self._record.with_short_timeouts(hosts)

    def ask_hosts(self, wanted: Request[R], hosts: Iterable[str] | None = None) -> dict[str, R]:
        """The answer of each host that gives one."""

        def work(host: Host) -> R:
            session = self._sessions.get(host.name) or self._transport.open(host)
            self._sessions[host.name] = session
            return wanted.put(self._record, session)

        refused = {name for name, error in self.errors.items() if not knows_no_run(error)}
        named = set(self._hosts if hosts is None else hosts) - refused
        known, unknown = self._record.routes_to(name for name in self._hosts if name in named)
        outcomes = fan_out(known, work)
        for name, error in {**outcomes.errors, **unknown}.items():
            self.errors[name] = error
            if (session := self._sessions.pop(name, None)) is not None:
                session.close()  # an error ends a conversation
        return dict(outcomes.results)


def knows_no_run(error: DtctlError) -> bool:
    """Whether the host answered that it has no such run: many commands then have nothing left to do."""
    return isinstance(error, AgentError) and error.code == "no_run"


def is_damaged(error: DtctlError) -> bool:
    """Whether this dtctl cannot read the run's files on the host; it can only remove them."""
    return isinstance(error, AgentError) and error.code in ("damaged", "other_version")


def controller_name() -> str:
    """user@host of the person who runs the command."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def request(record: RunRecord, host: Host, kind: str) -> dict[str, Any]:
    """The fields that every request has."""
    return {"type": kind, "cluster": record.cluster, "host": host.name, "run": record.run, "pid": os.getpid()}


def frames_of(
    session: Session,
    *frames: str,
    most_bytes: int | None = ANSWER_BYTES,
    within_s: float | None = None,
    quiet_s: float | None = None,
) -> Iterator[Message]:
    """The frames that answer a request: any number of these types, and the `result` last.

    Raises TransportError for any other frame, for more than `most_bytes` in all, for an answer that takes longer than
    `within_s`, and for `quiet_s` without a frame, besides what `Session.receive` raises.
    """
    host = session.host.name
    deadline = None if within_s is None else time.monotonic() + within_s
    size = 0
    while True:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        limits = [limit for limit in (left_s, quiet_s) if limit is not None]
        try:
            message = session.receive(min(limits, default=None))
            if deadline is not None and message.type != "result" and time.monotonic() > deadline:
                raise TimeoutError  # frames arrive faster than they are read
        except TimeoutError:
            quiet = quiet_s is not None and (deadline is None or time.monotonic() < deadline)
            raise TransportError(
                f"{host} reported no progress for {quiet_s:g} s"
                if quiet
                else f"{host} did not finish its answer within {within_s:g} s",
                detail="the agent there is alive, but does not finish",
                hint=f"dtctl ssh {host}    shows what is wrong there",
            ) from None
        size += message.size + _OVERHEAD_BYTES
        if most_bytes is not None and size > most_bytes:
            raise untrue(host, f"answered with more than {most_bytes >> 20} MiB")
        if message.type != "result" and message.type not in frames:
            raise untrue(host, f"sent a `{message.type}` that was not requested")
        yield message
        if message.type == "result":
            return


def final(
    run: RunRecord,
    session: Session,
    kind: str,
    message: Message,
    record: type[R],
    check: Callable[[R], None] = lambda answer: None,
) -> R:
    """The `result` frame of a request as its record. Raises TransportError when it does not hold.

    An answer that names a run has to name the one that was asked about.
    """
    with about(session.host.name, f"answered `{kind}` with an invalid record"):
        answer = checked(record, message.fields)
        reported = cast("Mapping[str, Any]", answer).get("run")
        if reported is not None:
            check_run(run.cluster, run.run, reported)
        check(answer)
    return answer


class about:
    """Context manager: an InvalidValue within it is raised as a TransportError about this host."""

    def __init__(self, host: str, what: str) -> None:
        self._host = host
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidValue):
            raise untrue(self._host, f"{self._what}: {error}") from error.with_traceback(None)

"""A host's side of a start: it reports the files that it lacks, its progress, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dtctl.agent.records import answers
from dtctl.agent.records.values import BLOCK_BYTES
from dtctl.bundle.sender import Sender
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError
from dtctl.operations.client import Progress, Report, about, final, request
from dtctl.operations.client.plausible import check_directories, check_run, check_tasks, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Message, Session
from dtctl.transport.wire import untrue

MOST_NEEDS = 1000
SETUP_TEXT_BYTES = 4 << 20
"""The most bytes that are shown of the end of a setup's output."""

_REPORT_EVERY_S = 0.05


def converse(
    session: Session, sender: Sender | None, report: Report, *, until: str, relay: Relay | None = None
) -> Message:
    """Answers the agent's needs (`sender` None: no more of them), passes on its progress, and returns the `until`
    frame. With a `relay`, another host may have the files.

    Raises TransportError for any other frame, and for needs that no bundle has.
    """
    host = session.host.name
    progress_reporter = _ProgressReporter(host, report)
    needs = _Needs(host, sender, relay)
    while (message := session.receive()).type != until:
        if message.type == "progress":
            progress_reporter.progress(message.of(answers.PhaseProgress), message.payload)
        elif message.type == "need":
            needs.serve(session, message, report)
        elif message.type == "fed" and relay is not None and host in relay:
            stays = relay.stays(host, message.of(answers.Fed)["received_bytes"])
            session.send({"type": "feeder_review", "stays": stays})
        else:
            raise untrue(host, f"sent a `{message.type}` instead of a `{until}`")
    return message


def sent_bundle(record: RunRecord, session: Session, sender: Sender, report: Report) -> int:
    """Sends the bundle; returns the number of files that the host lacked."""
    session.send({**request(record, session.host, "push"), "bundle": sender.bundle.id})
    message = converse(session, sender, report, until="result")
    return final(record, session, "push", message, answers.PushResult)["sent_files"]


def prepared(
    session: Session, asked: Mapping[str, Any], sender: Sender, report: Report, record: RunRecord
) -> answers.Prepared:
    """Checks the answer of a host: a replaced or continuing run must be one of this cluster."""
    session.send(asked)
    answer = converse(session, sender, report, until="prepared").of(answers.Prepared)
    with about(session.host.name, "sent an invalid `prepared`"):
        check_run(record.cluster, None if answer["unchanged"] else record.run, answer["run"])
        for name in (answer["current"], answer["replaces"]):
            if name is not None:
                check_run(record.cluster, None, name, "replaces")
        if answer["left_open"] is not None:
            check_run(record.cluster, None, answer["left_open"]["run"], "left_open")
        check_directories("checkpoints", answer["checkpoints"])
    return answer


def started(session: Session, report: Report, record: RunRecord, run: str) -> answers.Started:
    """The answer to `start`. It must list each task of the host, and no other."""
    answer = converse(session, None, report, until="started").of(answers.Started)
    own = record.names_on(session.host.name)
    with about(session.host.name, "sent an invalid `started`"):
        check_run(record.cluster, run, answer["run"])
        check_tasks("tasks", answer["tasks"], own)
        for task in own:
            if task not in answer["tasks"]:
                raise wrong(f"tasks.{task}", "a task of this name", None)
    return answer


def kept(session: Session, report: Report, record: RunRecord, run: str) -> answers.UpResult:
    session.send({"type": "keep"})
    message = converse(session, None, report, until="result")
    return final(dataclasses.replace(record, run=run), session, "up", message, answers.UpResult)


class Relay(Protocol):
    """Hosts that hand the files of one bundle to each other (rooms/data/relay.py)."""

    most_failed: int
    """How many feeders a host tries."""

    def __contains__(self, host: str) -> bool: ...

    def feeder(self, host: str, port: int | None, needed_bytes: int) -> tuple[str, int] | None:
        """Who has the files that a host needs; None: the controller sends them."""

    def sending(self) -> AbstractContextManager[Callable[[int], None]]:
        """Counts what the controller sends: the function is called with the bytes that were sent."""

    def stays(self, host: str, received_bytes: int) -> bool:
        """Whether a host stays with its feeder, of which it has received so much."""


class _Needs:
    """A host may ask for each file of the bundle twice, because it may have lost one meanwhile."""

    def __init__(self, host: str, sender: Sender | None, relay: Relay | None) -> None:
        self._host = host
        self._sender = sender
        self._relay = relay
        self._needs = 0
        self._files = 0
        self._blocks = 0

    def serve(self, session: Session, message: Message, report: Report) -> None:
        if self._sender is None:
            raise untrue(self._host, "requests files again that it has received")
        need = message.of(answers.Need)
        files = self._sender.bundle.manifest.files
        indexes = [*need["files"], *need["digests"], *(block["index"] for block in need["blocks"])]
        self._needs += 1
        if self._needs > MOST_NEEDS:
            raise untrue(self._host, "requests the same files repeatedly")
        if any(index >= len(files) for index in indexes):
            raise untrue(self._host, f"needs a file {max(indexes)} of a bundle of {len(files)}")
        if any(block["number"] * BLOCK_BYTES >= files[block["index"]].size for block in need["blocks"]):
            raise untrue(self._host, "requests data beyond the end of a file")
        if self._relay is not None and self._host in self._relay and not need["manifest"] and not need["digests"]:
            size = sum(files[index].size for index in need["files"]) + BLOCK_BYTES * len(need["blocks"])
            address, port = self._relay.feeder(self._host, need["port"], size) or ("", None)
            session.send({"type": "feeder", "address": address, "port": port})
            if port is not None:
                return
        self._files += len(need["files"]) + len(need["digests"])
        self._blocks += len(need["blocks"])
        most_blocks = sum(-(-file.size // BLOCK_BYTES) for file in files)
        rounds = 2 + (
            self._relay.most_failed if self._relay is not None else 0
        )  # it may ask for digests before each feeder
        if self._files > rounds * len(files) or self._blocks > 2 * most_blocks:
            raise untrue(self._host, "requests the same files repeatedly")
        with contextlib.nullcontext(lambda size: None) if self._relay is None else self._relay.sending() as sent:

            def on_progress(name: str, done: int, total: int) -> None:
                sent(done)
                report(Progress(name, "send", done, total))

            self._sender.serve(session, message, on_progress)


class _ProgressReporter:
    """Passes progress on as often as a screen can show it."""

    def __init__(self, host: str, report: Report) -> None:
        self._host = host
        self._report = report
        self._next = 0.0
        self._phase = ""
        self._text_bytes = 0

    def progress(self, frame: answers.PhaseProgress, payload: bytes) -> None:
        text = frame["text"] or payload.decode("utf-8", "replace")
        update = Progress(self._host, frame["phase"], frame["done_bytes"], frame["total_bytes"], text)
        if update.phase == "setup" and text:
            self._setup(update)
        elif update.phase != self._phase or time.monotonic() >= self._next:
            self._report(update)
        else:
            return
        self._phase = update.phase
        self._next = time.monotonic() + _REPORT_EVERY_S

    def _setup(self, update: Progress) -> None:
        if self._text_bytes > SETUP_TEXT_BYTES:
            return
        self._text_bytes += len(update.text)
        if self._text_bytes > SETUP_TEXT_BYTES:
            update = Progress(self._host, update.phase, text="(further output of the setup is not shown)\n")
        self._report(update)


ROLLBACK_S = 60.0
"""The time limit of a rollback, which kills without a grace period."""
NOTHING_STARTED_S = 5.0
"""The time limit before anything is started: an agent that does not answer gives up when its connection ends."""
_NEWS_S = 1.0
_UNSURE = frozenset({"disk_full", "permission_denied", "not_a_directory", "internal", "damaged"})
"""Error codes after which parts of the start may remain on the host."""
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Rollback:
    """Cancels one start on all hosts. Any number of threads may begin it."""

    def __init__(self, sessions: Mapping[str, Session]) -> None:
        self._sessions = sessions
        self._news = threading.Condition()
        self.started = False
        """Hosts that have received the order to start."""
        self.done: set[str] = set()
        """Hosts that have confirmed that nothing of the start remains."""

    def begin(self) -> None:
        for session in list(self._sessions.values()):
            with contextlib.suppress(DtctlError):
                session.send({"type": "abort"})

    def finish(self) -> None:
        """Waits until each agent has confirmed its rollback or cannot do so any more."""
        fan_out(list(self._sessions.values()), self._drain, name=lambda session: session.host.name)

    def _drain(self, session: Session) -> None:
        deadline = time.monotonic() + (ROLLBACK_S if self.started else NOTHING_STARTED_S)
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                session.receive(remaining)
        except TimeoutError:
            return
        except DtctlError as error:
            self.fail(session.host.name, error)

    def fail(self, host: str, error: DtctlError) -> None:
        """An agent reports why it gives up after it has stopped what it had started."""
        with self._news:
            if isinstance(error, AgentError):
                self.done.update([host] if error.code not in _UNSURE else [])
                self._news.notify_all()
            elif self.started:  # a thread that was reading when the start was cancelled may have just received it
                self._news.wait_for(lambda: host in self.done, _NEWS_S)


def end(session: Session) -> None:
    """Cancels and waits for the agent's confirmation: before that no other start can begin there."""
    with contextlib.suppress(DtctlError, TimeoutError):
        session.send({"type": "abort"})
        while True:
            session.receive(ROLLBACK_S)
    session.close()


@dataclass(frozen=True)
class Left:
    """The state after an interrupted start."""

    run: str
    kept: bool
    """Whether every task has started and every host was ordered to keep the run, which therefore continues."""
    started: bool
    """Hosts that received the order to start."""
    unclear: tuple[str, ...] = ()
    """Hosts that were ordered to cancel the start, and have not confirmed it."""
    ended: tuple[str, ...] = ()
    """Runs that were stopped to make room for this one."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""


class Interrupted(KeyboardInterrupt):
    def __init__(self, left: Left) -> None:
        super().__init__()
        self.left = left


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait: once some hosts were ordered to keep a run, disconnecting no longer cancels it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda got, _: held.append(got)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for interrupt, action in before.items():
            signal.signal(interrupt, action)
        for number in held:
            signal.raise_signal(number)

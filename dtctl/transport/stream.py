"""Conversations over any stream of bytes to a process that runs the agent; SSH and local differ only in the stream."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

from dtctl.agent.records.answers import Greeting, Refused
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, ConnectionLost, TransportError
from dtctl.transport import payload as program
from dtctl.transport import wire
from dtctl.transport.fanout import ALONE_S, idle
from dtctl.transport.timeouts import (
    GREETING_TIMEOUT_S,
    SHELL_TIMEOUT_S,
    SILENCE_LIMIT_S,
    UNOBSERVED,
    SilenceTimer,
    Waiting,
)
from dtctl.transport.wire import checked_frame, untrue

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Message


log = logging.getLogger(__name__)
"""The log of `dtctl -v`: the kinds of frames, never their contents."""

FRAMES_PER_S = 1000
"""How many frames are read per second, of kinds without a limit of their own. The host keeps the rest."""

_PACED = ("beat", "progress", "need", "states")


class Stream(Protocol):
    """The standard input and output of a remote process. One reader and one writer at a time; `close` from anywhere."""

    def read(self, timeout_s: float | None) -> bytes:
        """Bytes that have arrived; b"" at the end. Raises TimeoutError."""
        ...

    def write(self, data: bytes, silence: SilenceTimer) -> None:
        """Writes all of `data`. Raises OSError if the reader is gone, and what `silence` raises if it does not read."""
        ...

    def close(self) -> None: ...

    def ending(self) -> RemoteExit:
        """How the process ended. To be called after the end of `read`."""
        ...


class StreamSession:
    """A `Session` (see seam.py) over a stream."""

    def __init__(
        self,
        host: Host,
        stream: Stream,
        waiting: Waiting = UNOBSERVED,
        fork_server: Callable[[str], object] = lambda _: None,
        begins: bytes = b"",
    ) -> None:
        """`begins`: what a login shell prints before it starts the agent; empty where there is none."""
        self._host = host
        self._begins = begins
        self._fork_server = fork_server
        """Called with the greeting's field for the fork server."""
        self._stream = stream
        self._waiting = waiting
        self._decoder = wire.Decoder()
        self._arrived: deque[Message] = deque()
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._pace = _Pace()
        self._closed = False
        self._facts: Greeting | None = None
        self._greeted = 0.0
        self._has_all = False
        self._early: list[bytes] | None = []
        """Frames sent before the greeting; None after it."""
        self._begun = self._moved = time.monotonic()
        """When something was last sent, or content was last received: since then the host works by itself."""
        self._patience = self._begun + GREETING_TIMEOUT_S
        self._asked: str | None = None
        """The kind of the last request, until something has come that answers it."""

    @property
    def host(self) -> Host:
        return self._host

    @property
    def facts(self) -> Mapping[str, Any]:
        with self._receiving:
            return dict(self._greeting(None))

    def greeted(self) -> float:
        with self._receiving:
            self._greeting(None)
        return self._greeted

    def begin(self, opening: bytes) -> None:
        """Sends the start of the agent without waiting: requests are sent along with it."""
        with suppress(OSError):  # the host's output, in place of reading, explains it better
            self._stream.write(opening, self._silence(GREETING_TIMEOUT_S))

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        frame = wire.encode(fields, payload)
        if not payload:
            log.debug("%s: asked for %s", self._host.name, fields["type"])
            self._asked = str(fields["type"])
        with self._sending:
            if self._early is not None:
                self._early.append(frame)
            try:
                self._stream.write(frame, self._silence(SILENCE_LIMIT_S))
            except OSError as error:
                if self._early is None or self._closed:
                    raise self._lost(str(error)) from error
            self._moved = time.monotonic()

    def receive(self, timeout_s: float | None = None) -> Message:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # After Ctrl-C in `up` the thread that prepared a host may still receive when the last frames are awaited.
        if not self._receiving.acquire(timeout=-1 if timeout_s is None else timeout_s):
            raise TimeoutError
        try:
            self._greeting(deadline)
            with self._awaiting_answer(timeout_s):
                message = self._receive(deadline, self._silence(SILENCE_LIMIT_S))
            self._asked = None
        finally:
            self._receiving.release()
        if message.type in ("prepared", "started", "result", "error"):
            log.debug("%s: %s after %.2f s", self._host.name, message.type, time.monotonic() - self._begun)
        if message.type == "error":
            raise self._refusal(message.of(Refused))
        return message

    def _awaiting_answer(self, timeout_s: float | None) -> AbstractContextManager[None]:
        """Counts the wait for an answer. A request without a limit is not counted: a log or a run is followed for
        hours.
        """
        if self._asked is None or timeout_s is None:
            return nullcontext()
        return self._waiting.on(self._host.name, f"no answer to `{self._asked}`")

    def _greeting(self, deadline: float | None) -> Greeting:
        """The greeting, after waiting for it once; sends the agent to a host that lacks it. Raises as `receive`."""
        if self._facts is not None:
            return self._facts
        first = self._first(deadline)
        if first.type == "lacking" and not self._has_all:
            self._send_whole()
            first = self._first(deadline)
        if first.type == "error":
            raise self._refusal(first.of(Refused))
        if first.type != "greeting":
            raise untrue(self._host.name, f"begins with a `{first.type}`")
        with self._sending:
            self._early = None
        self._facts, self._greeted = first.of(Greeting), time.time()
        self._fork_server(self._facts["fork_server"])
        log.debug(
            "%s: the agent answers after %.2f s, Python %s",
            *(self._host.name, time.monotonic() - self._begun, self._facts["python"]),
        )
        return self._facts

    def _send_whole(self) -> None:
        """Sends the agent, and the early frames once more: it ignores those that came before."""
        log.debug("%s: lacks the agent", self._host.name)
        self._has_all = True
        with self._sending, suppress(OSError):
            self._stream.write(program.whole() + b"".join(self._early or ()), self._silence(GREETING_TIMEOUT_S))
        self._patience = time.monotonic() + GREETING_TIMEOUT_S

    def _first(self, deadline: float | None) -> Message:
        """The first frame, or the next after `lacking`."""
        try:
            limit = self._patience if deadline is None else min(deadline, self._patience)
            self._await_shell(limit)
            with self._waiting.on(self._host.name, "no greeting of its agent"):
                return self._receive(limit, self._silence(GREETING_TIMEOUT_S))
        except TimeoutError:
            if time.monotonic() < self._patience:
                raise
            raise TransportError(
                f"the agent on {self._host.name} did not answer within {GREETING_TIMEOUT_S:g} s",
                detail=text_of(self._decoder.noise),
                hint="the host is very busy, or its login shell waits for something",
            ) from None
        except ConnectionLost:
            if self._decoder.started or self._closed:
                raise
            raise not_started(self._host.name, self._stream.ending(), self._decoder.noise) from None

    def _await_shell(self, limit: float) -> None:
        """Returns when the login shell runs the command; not if a start-up file waits, or starts another program."""
        until = self._begun + SHELL_TIMEOUT_S
        silence = self._silence(SHELL_TIMEOUT_S)
        with self._waiting.on(self._host.name, "start of the agent by its login shell"):
            while self._begins and not self._decoder.started:
                if self._begins in self._decoder.noise:
                    break
                try:
                    self._read(min(limit, until), silence)
                except TimeoutError:
                    if time.monotonic() < until:
                        raise
                    raise self._shell_waits() from None
        self._begins = b""

    def _shell_waits(self) -> TransportError:
        return TransportError(
            f"the login shell on {self._host.name} has not run a command within {SHELL_TIMEOUT_S:g} s",
            detail=text_of(self._decoder.noise),
            hint=f"a start-up file (.bashrc, .profile) waits for something, or starts another program (exec fish): "
            f"dtctl ssh {self._host.name}    shows it\n"
            "at the top of it: case $- in *i*) ;; *) return ;; esac    skips the rest in non-interactive shells",
        )

    def _silence(self, limit_s: float) -> SilenceTimer:
        return SilenceTimer(self._host.name, limit_s, self._waiting.on_silence)

    def _receive(self, deadline: float | None, silence: SilenceTimer) -> Message:
        """The next frame that is no beat, checked."""
        with idle(self._moved + ALONE_S):
            message = self._next(deadline, silence)
        if message.payload:
            self._moved = time.monotonic()
        return message

    def _next(self, deadline: float | None, silence: SilenceTimer) -> Message:
        while True:
            if self._arrived:
                message = self._arrived.popleft()
                if message.type in _PACED:
                    self._pace.step()
                message = checked_frame(self._host.name, message)
                if message.type != "beat":
                    return message
            else:
                self._read(deadline, silence)
            if deadline is not None and not self._arrived and time.monotonic() > deadline:
                raise TimeoutError  # only beats, noise or an unfinished frame have come

    def _read(self, deadline: float | None, silence: SilenceTimer) -> None:
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            data = self._stream.read(silence.wait_s if remaining is None else min(remaining, silence.wait_s))
        except TimeoutError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            silence.check()
            return
        if not data:
            raise self._lost(str(self._stream.ending()))
        try:
            frames = self._decoder.feed(data)
        except wire.WireError as error:
            raise TransportError(f"{self._host.name} sent an invalid message", detail=str(error)) from error
        silence.received(len(data), whole_frames=bool(frames))
        self._arrived.extend(frames)

    def close(self) -> None:
        self._closed = True
        self._stream.close()

    def _lost(self, why: str) -> ConnectionLost:
        if self._closed:
            return ConnectionLost(f"the conversation with {self._host.name} is closed")
        stderr = text_of(self._stream.ending().stderr)
        return ConnectionLost(f"lost the agent on {self._host.name}", detail="\n".join(filter(None, [why, stderr])))

    def _refusal(self, refused: Refused) -> AgentError:
        name = self._host.name
        summary = f"{name}: {refused['summary']}"
        return AgentError(
            refused["code"] or "internal", summary, detail=refused["detail"], hint=refused["hint"], host=name
        )


def converse(
    host: Host,
    stream: Stream,
    waiting: Waiting,
    opening: bytes | None = None,
    fork_server: Callable[[str], object] = lambda _: None,
    *,
    begins: bytes = b"",
) -> StreamSession:
    """A conversation with the agent, which is sent over the stream. `begins`: as in StreamSession."""
    session = StreamSession(host, stream, waiting, fork_server, begins)
    try:
        session.begin(opening or program.opening())
    except BaseException:
        session.close()
        raise
    return session


class _Pace:
    """Makes the reader sleep if frames come too fast: unread ones wait on the other side."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    def step(self) -> None:
        now = time.monotonic()
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > FRAMES_PER_S:
            time.sleep(max(0.0, self._since + 1.0 - now))


@dataclass(frozen=True)
class RemoteExit:
    """How a remote process ended, as far as it is known."""

    exit_code: int | None = None
    signal: str = ""
    stderr: bytes = b""
    """The end of its output."""
    reason: str = ""
    """Why the connection ended, if the process did not."""

    def __str__(self) -> str:
        if self.signal:
            return f"it was ended by {self.signal}"
        if self.exit_code is not None:
            return f"it ended with exit code {self.exit_code}"
        return self.reason or "the connection was closed by the other side"


def not_started(name: str, ending: RemoteExit, noise: bytes) -> TransportError:
    """The reason why the remote command ended before the agent's first message; the exit codes are those of POSIX."""
    output = "\n".join(filter(None, [text_of(noise), text_of(ending.stderr)]))
    if ending.exit_code == 127:
        return TransportError(
            f"{name} has no python3",
            detail=output,
            hint="install Python 3.8 or later there, on the PATH that commands over SSH get\n"
            f"dtctl ssh {name} 'echo $PATH'    shows that PATH; ~/.bashrc may add the directory of a Python to it",
        )
    if ending.exit_code == 126:
        return TransportError(f"python3 on {name} cannot be run", detail=output)
    return TransportError(
        f"the agent does not start on {name}",
        detail="\n".join(filter(None, [f"the login shell was to run python3: {ending}", output])),
        hint=f"dtctl ssh {name}    shows what a login prints",
    )


def text_of(raw: bytes) -> str:
    """The text without the line by which a login shell shows that it runs a command."""
    return raw.replace(program.BEGINS + b"\n", b"").decode("utf-8", "replace").strip()

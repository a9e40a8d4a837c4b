"""A run's directory as supervisors and keepers write it, and requests for its logs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from dtctl.agent.conversation import Wire
from dtctl.agent.records.kinds import made
from dtctl.agent.records.requests import START, LogsRequest
from dtctl.agent.records.run_state import State
from dtctl.agent.requests import logs
from dtctl.transport import wire as frames
from dtctl.transport.seam import Message
from tests.waiting import PATIENCE_S

LINES = b"".join(b"line %d\n" % number for number in range(100_000))


class Run:
    """A run's directory, written as supervisors and keepers do."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states = {"worker:0": "running"}
        self.serial = 1
        self.gone = False

    def attempt(self, number: int, task: str = "worker:0") -> Path:
        directory = self.directory / "tasks" / task.replace(":", "-") / f"attempt-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def log(self, data: bytes, number: int = 1, task: str = "worker:0") -> Path:
        log = self.attempt(number, task) / "log"
        with log.open("ab") as file:
            file.write(data)
        return log

    def exit(self, number: int = 1, task: str = "worker:0") -> None:
        (self.attempt(number, task) / "exit.json").write_text("{}")

    def end(self, task: str = "worker:0") -> None:
        self.states[task] = "succeeded"
        self.serial += 1

    def state(self) -> State:
        tasks = {task: {"state": state} for task, state in self.states.items()}
        return made(State, serial=self.serial, run="r", host="h", tasks=tasks)

    def serve(self, **request: Any) -> list[Message]:
        """The frames of a request that does not follow."""
        writer = BytesIO()
        wanted = asked(**request)
        logs.serve(str(self.directory), self.named(wanted), wanted, Wire(BytesIO(), writer), self.state)
        return decoded(writer.getvalue())

    def named(self, request: LogsRequest) -> list[str]:
        return list(self.states) if request["tasks"] is None else request["tasks"]

    @contextmanager
    def follow(self, **request: Any) -> Iterator[Following]:
        following = Following(self, asked(follow=True, **request))
        following.thread.start()
        try:
            yield following
        finally:
            self.gone = True
            following.thread.join(PATIENCE_S)
            assert not following.thread.is_alive()


def asked(**fields: Any) -> LogsRequest:
    return made(LogsRequest, **{"type": "logs", "cluster": "c", "host": "h", "tasks": ["worker:0"], **fields})


class Leaving(Wire):
    """Of a reader that is gone when the run says so."""

    def __init__(self, run: Run, written: BytesIO) -> None:
        super().__init__(BytesIO(), written)
        self._run = run

    def is_gone(self) -> bool:
        return self._run.gone


class Following:
    """A request that follows, in a thread; what has been sent can be looked at while it does."""

    def __init__(self, run: Run, request: LogsRequest) -> None:
        self._written = BytesIO()
        arguments = (str(run.directory), run.named(request), request, Leaving(run, self._written), run.state)
        self.thread = threading.Thread(target=logs.serve, args=arguments)

    def frames(self) -> list[Message]:
        return decoded(self._written.getvalue())

    def text(self) -> bytes:
        return text(self.frames())

    def ended(self) -> bool:
        return not self.thread.is_alive()


def decoded(data: bytes) -> list[Message]:
    return frames.Decoder().feed(START + data)


def text(messages: list[Message]) -> bytes:
    return b"".join(message.payload for message in messages if message.type == "log")

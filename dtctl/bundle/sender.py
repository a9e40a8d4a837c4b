"""The controller's half of the transfer: answers what agents say they need."""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable, Sequence
from types import TracebackType

from dtctl.bundle.chunks import Chunks
from dtctl.bundle.manifest import Bundle
from dtctl.errors import ConnectionLost
from dtctl.transport.seam import Message, Session

SendReport = Callable[[str, int, int], None]
"""Called with the host's name, the bytes given to its connection and all that it needs, at most 20 times a second."""

_REPORT_EVERY_S = 0.05
_SWITCH_S = 0.05
"""While files are sent: threads that hand the interpreter over less often cost a fifth less CPU."""
_LISTEN_EVERY_S = 1.0


class Sender:
    """Sends one bundle to any number of hosts, from as many threads; a file is read and compressed once."""

    def __init__(self, bundle: Bundle, in_memory_bytes: int | None = None) -> None:
        self.bundle = bundle
        self._chunks = Chunks(bundle) if in_memory_bytes is None else Chunks(bundle, in_memory_bytes)
        self._usual_switch_s = sys.getswitchinterval()

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Call it when no thread is sending any more."""
        self._chunks.close()
        sys.setswitchinterval(self._usual_switch_s)

    def serve(self, session: Session, need: Message, report: SendReport | None = None) -> int:
        """Answers one `need` frame; the number of files that it asked for.

        Raises PreflightError when a file is not what was scanned, AgentError when the agent says that it cannot go on,
        ConnectionLost.
        """
        try:
            if need.fields.get("manifest"):
                session.send({"type": "manifest"}, zlib.compress(self.bundle.manifest.canonical, 1))
            indexes: Sequence[int] = need.fields.get("files", ())
            self._send_files(session, indexes, report)
        except ConnectionLost:
            raise_agents_reason(session)
            raise
        return len(indexes)

    def _send_files(self, session: Session, indexes: Sequence[int], report: SendReport | None) -> None:
        if indexes:
            sys.setswitchinterval(_SWITCH_S)
        files = self.bundle.manifest.files
        total = sum(files[index].size for index in indexes)
        done = 0
        next_report = next_listen = time.monotonic()
        for index in indexes:
            chunks = self._chunks.of(index)
            for number, chunk in enumerate(chunks, 1):
                fields = {
                    "type": "file",
                    "index": index,
                    "encoding": "zlib" if chunk.compressed else "raw",
                    "last": number == len(chunks),
                }
                session.send(fields, self._chunks.data(chunk))
                done += chunk.plain_size
                now = time.monotonic()
                if report is not None and now >= next_report:
                    next_report = now + _REPORT_EVERY_S
                    report(session.host.name, done, total)
                if done < total and now >= next_listen:
                    next_listen = now + _LISTEN_EVERY_S
                    _hear(session)
        if report is not None and indexes:
            report(session.host.name, total, total)


def _hear(session: Session) -> None:
    """Takes what the agent has said of its progress, so that it never waits for us. Raises AgentError."""
    try:
        while session.receive(timeout_s=0).type == "progress":
            pass
    except TimeoutError:
        pass


def raise_agents_reason(session: Session) -> None:
    """The agent may have said why it went before the connection broke. Raises its AgentError, if there is one."""
    try:
        while True:
            session.receive(timeout_s=1)
    except (ConnectionLost, TimeoutError):
        pass

"""Sends a checkpoint of this machine to one host."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dtctl.agent.rooms.checkpoints.records import Landing, StoreResult
from dtctl.bundle.sender import raise_agents_reason
from dtctl.dataclass import dataclass
from dtctl.errors import ConnectionLost, DtctlError, PreflightError
from dtctl.folder import open_regular
from dtctl.model import Host
from dtctl.operations.client import Progress, Report, about, final, frames_of, request
from dtctl.operations.client.plausible import wrong
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.checkpoints.local import OwnCheckpoint
from dtctl.transport.seam import Message, Session, Transport
from dtctl.transport.timeouts import PATIENCE_S
from dtctl.transport.wire import untrue

PART_BYTES = 1 << 20
_REPORT_EVERY_S = 0.05
_GIVEN_UP_S = 5.0
_SLOWEST_BYTES_S = 10 << 20
"""A host's disk may be this slow before the push gives up."""


@dataclass(frozen=True)
class Target:
    """A directory on a host, with marks, and one in it."""

    host: str
    directory: str
    below: str | None


@dataclass(frozen=True)
class StoredCheckpoint:
    """Where the checkpoint is now. Hosts that share the directory are in `others`."""

    host: str
    directory: str
    prefix: str
    sent_bytes: int
    """Less than `size_bytes` if the push resumed an earlier one; 0 if the checkpoint was already there."""
    others: tuple[str, ...] = ()


class Delivery:
    """The conversation: open, then send or give_up, then keep."""

    def __init__(
        self, record: RunRecord, own: OwnCheckpoint, target: Target, who: tuple[str, str], report: Report
    ) -> None:
        self.host = target.host
        self._record = record
        self._own = own
        self._target = target
        self._push, self._by = who
        self._report = report
        self._session: Session | None = None
        self._result: StoreResult | None = None
        self._sent_bytes = 0
        self.landing: Landing | None = None

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def landed(self) -> Landing:
        assert self.landing is not None
        return self.landing

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def give_up(self) -> None:
        """Ends the conversation before any byte is sent, so that nothing is left on the host."""
        if self.landing is None:
            return
        with suppress(DtctlError, TimeoutError):
            self.session.send({"type": "abort"})
            self.session.receive(_GIVEN_UP_S)  # the refusal

    def open(self, transport: Transport) -> None:
        self._report(Progress(self.host, "connect"))
        host: Host = self._record.route_to(self.host)
        self._session = transport.open(host)
        self.session.send({**request(self._record, host, "store"), **self._wanted()})
        message = self._receive("landing")
        with about(self.host, "sent an invalid `landing`"):
            self.landing = self._checked(message.of(Landing))

    def _wanted(self) -> dict[str, Any]:
        files = [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in self._own.files]
        target = self._target
        return {
            "dir": target.directory,
            "below": target.below,
            "name": self._own.name,
            "kind": self._own.kind,
            "files": files,
            "push": self._push,
            "by": self._by,
        }

    def _checked(self, landing: Landing) -> Landing:
        sizes = {one.name: one.size for one in self._own.files}
        for one in landing["have"]:
            if one["size"] > sizes.get(one["name"], -1):
                raise wrong("have", "no more than what is sent", one)
        return landing

    def send(self) -> None:
        """Sends what the host lacks; returns when the host has read all of it again and verified it."""
        self.session.send({"type": "start"})
        had = {one["name"]: one["size"] for one in self.landed["have"]}
        if not self.landed["there"]:
            try:
                self._send_files(had)
            except ConnectionLost:
                raise_agents_reason(self.session)
                raise
        self._report(Progress(self.host, "verify"))
        self._receive("stored")

    def _receive(self, kind: str) -> Message:
        """The next frame, which must be of this kind; the host may have to read the whole checkpoint first."""
        within_s = round(PATIENCE_S + self._own.size_bytes / _SLOWEST_BYTES_S)
        message = next(frames_of(self.session, kind, within_s=within_s))
        if message.type != kind:
            raise untrue(self.host, f"sent a `{message.type}` instead of a `{kind}`")
        return message

    def _send_files(self, had: Mapping[str, int]) -> None:
        total = self._own.size_bytes
        done, next_report = sum(had.values()), 0.0
        for one in self._own.files:
            offset = had.get(one.name, 0)
            with os.fdopen(open_regular(one.path, follow=False), "rb") as file:
                file.seek(offset)
                while offset < one.size:
                    data = file.read(min(PART_BYTES, one.size - offset))
                    if not data:
                        raise PreflightError(f"{one.path} became shorter while it was sent", hint="type the same again")
                    self.session.send({"type": "part", "name": one.name, "offset": offset}, data)
                    offset += len(data)
                    done += len(data)
                    self._sent_bytes += len(data)
                    if time.monotonic() >= next_report:
                        next_report = time.monotonic() + _REPORT_EVERY_S
                        self._report(Progress(self.host, "send", done, total))

    def keep(self) -> None:
        self.session.send({"type": "keep"})
        message = self._receive("result")
        self._result = final(self._record, self.session, "store", message, StoreResult, self._check)
        self._report(Progress(self.host, "prepared"))

    def _check(self, answer: StoreResult) -> None:
        below = self._target.below
        prefix = f"{below}/{self._own.name}" if below else self._own.name
        if answer["prefix"] != prefix:
            raise wrong("prefix", prefix, answer["prefix"])

    def placed(self, others: Sequence[str]) -> StoredCheckpoint:
        assert self._result is not None
        return StoredCheckpoint(self.host, self._result["dir"], self._result["prefix"], self._sent_bytes, tuple(others))

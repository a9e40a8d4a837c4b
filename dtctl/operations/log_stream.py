"""Logs as they are written, from one host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dtctl.model import Host, TaskState
from dtctl.operations.conversation import request
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.record import RunRecord
from dtctl.operations.streams import Streams
from dtctl.transport.seam import Message, Session


@dataclass(frozen=True)
class Reading:
    """The logs of a host are being read."""

    host: str


@dataclass(frozen=True)
class Through:
    """All that the tasks of a host have printed has been sent, and they have ended, until more comes."""

    host: str


class LogStream:
    """Tells Reading, LogLines and Through. Begun again after a break, it loses and doubles no line."""

    def __init__(self, record: RunRecord, host: Host, wanted: LogRequest, streams: Streams) -> None:
        self._record = record
        self._host = host
        self._fields = wanted.fields(record, host)
        self._streams = streams
        self._resume: dict[str, list[int]] = {}

    def converse(self, session: Session) -> bool:
        """Logs until the wanted tasks have ended, then states until one of them runs again."""
        self._streams.tell(Reading(self._host.name))
        session.send({**request(self._record, self._host, "logs"), **self._fields, **self._onwards()})
        while (message := session.receive()).type != "result":
            if message.type == "log":
                self._pass_on(message)
        self._streams.tell(Through(self._host.name))
        session.send({**request(self._record, self._host, "watch"), "since_serial": 0, "until_final": False})
        while True:
            message = session.receive()
            if message.type == "states" and not self._all_final(message):
                return True

    def _onwards(self) -> dict[str, Any]:
        return {"follow": True, "resume": self._resume}

    def _pass_on(self, message: Message) -> None:
        self._resume[message["task"]] = [message["attempt"], message["end"]]
        if message.payload:
            self._streams.tell(LogLines.of(message))

    def _all_final(self, message: Message) -> bool:
        tasks = message["state"]["tasks"]
        return all(TaskState(tasks[task]["state"]).final for task in self._fields["tasks"])

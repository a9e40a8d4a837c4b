"""event_files: the event files of this host, for a TensorBoard elsewhere."""

from __future__ import annotations

import time

from ...metrics.event_files import Copying
from .. import runs
from ..metrics import directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...protocol.conversation import Conversation
    from ...records.answers import RunResult
    from ...records.requests import EventFilesRequest
    from ...records.tensorboard import CaughtUp, EventFile

LOOK_EVERY_S = 2.0


def event_files(talk: Conversation, request: EventFilesRequest) -> RunResult:
    """Goes on until the controller gives it up."""
    run = runs.need(talk, request)
    copying = Copying(directories(run), request["without"], request["have"])

    def send(told: EventFile, data: bytes) -> None:
        talk.wire.send(dict(told, type="event_file"), data)
        talk.pause(0)

    talk.wire.start_listening()
    with talk.at("event files"):
        caught_up: CaughtUp = {"files": copying.look(send)}
        talk.send("caught_up", caught_up)
        while True:
            until = time.monotonic() + LOOK_EVERY_S
            while time.monotonic() < until:
                talk.pause(max(0.0, until - time.monotonic()))
            copying.look(send)

"""gpus: the GPUs of this host, and who uses them. It needs no run."""

from __future__ import annotations

from ...vitals.gpus import Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ...conversation import Conversation
    from ...records.requests import Request
    from .records import GpusResult

WAIT_S = 15.0
"""The time limit until a driver that was unloaded knows its GPUs."""


def gpus(talk: Conversation, request: Request) -> GpusResult:
    """The GPUs of the host as its driver knows them now, and the processes that hold memory of them, by user and
    program; those of this user's runs also by run and task. It needs no run.
    """
    return {"gpus": Reader().wait(WAIT_S)}

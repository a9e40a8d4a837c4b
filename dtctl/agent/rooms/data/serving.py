"""data: copies a data set into a directory, shows and hashes its files, and removes them."""

from __future__ import annotations

from ...host.errors import from_os_error
from ...requests import runs
from ...run import environment
from .dataset import DataSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Tuple

    from ...conversation import Conversation
    from .records import DataDropResult, DataFacts, DataPushRequest, DataPushResult, DataRequest

_REPORTED_BYTES = 16 << 20


def push(talk: Conversation, request: DataPushRequest) -> DataPushResult:
    [directory] = environment.Marks(None).expand([request["dir"]])
    try:
        with talk.at("data"):
            own = DataSet(talk.root, directory)
            return own.push(request, talk.wire, lambda: runs.refuse_live(talk, request["cluster"]))
    except OSError as error:
        raise from_os_error(error, "store the data") from error


def status(talk: Conversation, request: DataRequest) -> DataFacts:
    with talk.at("data"):
        return {"at": [own.held(asked) for asked, own in _each(talk, request)]}


def verify(talk: Conversation, request: DataRequest) -> DataFacts:
    """Reads every byte. Raises as Conversation.pause."""
    done = 0
    reported = 0

    def alive(size: int) -> None:
        nonlocal done, reported
        done += size
        if done >= reported + _REPORTED_BYTES:
            reported = done
            talk.pause(0)
            talk.send("progress", {"phase": "verify", "done_bytes": done, "total_bytes": total})

    with talk.at("data"):
        every = list(_each(talk, request))
        total = sum(own.held(asked)["size_bytes"] for asked, own in every)
        return {"at": [own.held(asked, alive) for asked, own in every]}


def drop(talk: Conversation, request: DataRequest) -> DataDropResult:
    runs.refuse_live(talk, request["cluster"])
    try:
        with talk.at("data"):
            return {"at": [own.drop(asked) for asked, own in _each(talk, request)]}
    except OSError as error:
        raise from_os_error(error, "remove the data") from error


def _each(talk: Conversation, request: DataRequest) -> Iterator[Tuple[str, DataSet]]:
    for asked, directory in zip(request["dirs"], environment.Marks(None).expand(request["dirs"])):
        yield asked, DataSet(talk.root, directory)

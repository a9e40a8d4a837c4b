"""verify, fetch, prune and store: single checkpoints of a run."""

from __future__ import annotations

import os
import time

from ...checkpoints import directories
from ...conversation import Aborted, Conversation, expect_control
from ...host import outputs
from ...host.errors import Refused, from_os_error
from ...records.values import is_storage_url
from ...requests import cluster_lock, runs, starting
from ...run import environment
from . import storing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple, Union

    from ...records.checkpoints import OutputMark
    from .records import (
        CheckpointRequest,
        FetchRequest,
        FetchResult,
        FilePart,
        Landing,
        PruneRequest,
        PruneResult,
        Stored,
        StoreRequest,
        StoreResult,
        VerifyRequest,
        VerifyResult,
    )
    from .single import Owner

    Arrival = Union[storing.Arrival, storing.Elsewhere]


def verify(talk: Conversation, request: VerifyRequest) -> VerifyResult:
    from . import single

    run, owner = _owner(talk, request)
    with talk.at("verify"):
        return {"run": run, "verified": single.verify(owner, request, lambda: talk.pause(0))}


def fetch(talk: Conversation, request: FetchRequest) -> FetchResult:
    from . import single

    run, owner = _owner(talk, request)

    def put(part: FilePart, data: bytes) -> None:
        talk.wire.send(dict(part, type="part"), data)

    return {"run": run, "files": single.fetch(owner, request, put)}


def prune(talk: Conversation, request: PruneRequest) -> PruneResult:
    from . import single

    run, owner = _owner(talk, request)
    live = any(one.live() for one in runs.every(talk, request["cluster"]))
    with talk.at("prune"):
        found = single.prune(owner, request, live, lambda: talk.pause(0))
    return {"run": run, "directories": found}


def _owner(talk: Conversation, request: CheckpointRequest) -> Tuple[Optional[str], Owner]:
    """The run whose checkpoints are meant; before the first run, what the request says of the cluster file."""
    cluster, host, before = request["cluster"], request["host"], request["before"]
    if before and request["run"] is None and runs.find(talk, cluster, host, None) is None:
        return None, directories.BeforeFirstRun(environment.Marks(None).expand(before))
    run = runs.need(talk, request)
    return run.id, run.places()


def store(talk: Conversation, request: StoreRequest) -> StoreResult:
    """Sends landing, then receives missing parts on `start`, sends stored, and moves them into place on `keep`."""
    lock = cluster_lock.hold(talk, request, request["by"])
    try:
        runs.refuse_live(talk, request["cluster"])
        return _store(talk, request)
    except OSError as error:
        raise from_os_error(error, "store the checkpoint") from error
    except Aborted:
        raise Refused("rolled_back", "cancelled; the received files are kept for the next push") from None
    finally:
        lock.release()


def _store(talk: Conversation, request: StoreRequest) -> StoreResult:
    [directory] = environment.Marks(None).expand([request["dir"]])
    with talk.at("checkpoint"):
        owners = outputs.found(talk.root, [directory], lambda: starting.live_runs(talk))
        arrival: Arrival = (storing.Elsewhere if is_storage_url(directory) else storing.Arrival)(directory, request)
    try:
        _take(talk, arrival, owners)
    except (Refused, Aborted):
        arrival.leave()
        raise
    arrival.finish(time.time())
    below = request["below"]
    return {"dir": directory, "prefix": os.path.join(below, arrival.name) if below else arrival.name}


def _take(talk: Conversation, arrival: Arrival, owners: List[OutputMark]) -> None:
    """Receives the files; returns when the controller reports that all hosts have them."""
    arrival.refuse_without_room()
    landing: Landing = {
        "dir": arrival.directory,
        "token": arrival.token,
        "there": arrival.there,
        "have": arrival.have(),
        "owners": owners,
    }
    talk.send("landing", landing)
    talk.expect("start")
    if isinstance(arrival, storing.Arrival):
        with talk.at(None):
            _receive(talk, arrival)
    with talk.at("verify"):
        arrival.verify(lambda: talk.pause(0))
    stored: Stored = {}
    talk.send("stored", stored)
    talk.expect("keep")


def _receive(talk: Conversation, arrival: storing.Arrival) -> None:
    while not arrival.complete:
        fields, data = talk.wire.receive()
        part = expect_control(fields, "part")
        arrival.put(part["name"], part["offset"], data)

"""verify, fetch and prune: single checkpoints of a run.

`status` asks for their places here: what reads their files is imported by those who need it.
"""

from __future__ import annotations

from ..checkpoints import directories
from ..run import environment
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.checkpoints import FetchResult, FilePart, PruneResult, VerifyResult
    from ..records.requests import FetchRequest, PruneRequest, VerifyRequest


def places_of(run: runs.Run) -> directories.Run:
    code = run.files.code_directory()
    return directories.Run(run.spec, code, environment.Marks(code).words)


def verify(talk: Conversation, request: VerifyRequest) -> VerifyResult:
    from ..checkpoints import serving

    run = runs.need(talk, request)
    with talk.at("verify"):
        return {"run": run.id, "verified": serving.verify(places_of(run), request, lambda: talk.pause(0))}


def fetch(talk: Conversation, request: FetchRequest) -> FetchResult:
    from ..checkpoints import serving

    run = runs.need(talk, request)

    def put(part: FilePart, data: bytes) -> None:
        talk.wire.send(dict(part, type="part"), data)

    return {"run": run.id, "files": serving.fetch(places_of(run), request, put)}


def prune(talk: Conversation, request: PruneRequest) -> PruneResult:
    from ..checkpoints import serving

    run = runs.need(talk, request)
    live = any(one.live() for one in runs.every(talk, request["cluster"]))
    with talk.at("prune"):
        found = serving.prune(places_of(run), request, live, lambda: talk.pause(0))
    return {"run": run.id, "directories": found}

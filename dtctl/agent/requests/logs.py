"""logs: what the trainers have written, and will write."""

from __future__ import annotations

from ..logs import serving
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.answers import RunResult
    from ..records.requests import LogsRequest
    from ..records.run_state import State


def logs(talk: Conversation, request: LogsRequest) -> RunResult:
    run = runs.need(talk, request)
    run.tasks(request["tasks"])

    def state() -> State:
        run.keep_supervised()
        return run.state()

    talk.wire.start_listening()
    serving.serve(run.files.directory, request, talk.wire, state, talk.wire.is_gone)
    return {"run": run.id}

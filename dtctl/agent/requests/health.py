"""diagnose and dump: how a host and the tasks on it do at this moment."""

from __future__ import annotations

from ..dump import serving as stacks
from ..host.secrets import Masks
from ..vitals import gathering
from . import metrics, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.answers import RunResult
    from ..records.requests import DumpRequest, Request
    from ..records.vitals import DiagnoseResult


def diagnose(talk: Conversation, request: Request) -> DiagnoseResult:
    """How this host, and its tasks of the run, do at this moment."""
    run = runs.need(talk, request)
    run.keep_supervised()
    places = metrics.directories(run)
    with talk.at("diagnose"):
        diverged = metrics.diverged(places, run.files.directory)
        masks = Masks(run.files.secrets().values())
        return gathering.gather(run.files.directory, run.spec, run.state(), masks, places, diverged)


def dump(talk: Conversation, request: DumpRequest) -> RunResult:
    run = runs.need(talk, request)
    state = run.state()["tasks"]
    stacks.serve(
        run.files, {task: state[task] for task in run.tasks(request["tasks"])}, lambda told: talk.send("dump", told)
    )
    return {"run": run.id}

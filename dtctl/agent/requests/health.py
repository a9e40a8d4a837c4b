"""metrics, diagnose and dump: how the training, the host and the tasks on it do."""

from __future__ import annotations

import math
import time
from fnmatch import fnmatchcase

from ..dump import serving as stacks
from ..host.secrets import Masks
from ..metrics.reading import Reader
from ..run import environment
from ..vitals import gathering
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

    from ..conversation import Conversation
    from ..records.answers import RunResult
    from ..records.requests import DumpRequest, MetricsRequest, Request
    from ..records.tensorboard import FolderPoints, MetricsResult, Points
    from ..records.vitals import DiagnoseResult, Diverged


def diagnose(talk: Conversation, request: Request) -> DiagnoseResult:
    """How this host, and its tasks of the run, do now."""
    run = runs.need(talk, request)
    run.keep_supervised()
    places = directories(run)
    with talk.at("diagnose"):
        losses = diverged(places)
        masks = Masks(run.files.secrets().values())
        return gathering.gather(run.files.directory, run.spec, run.state(), masks, places, losses)


def dump(talk: Conversation, request: DumpRequest) -> RunResult:
    run = runs.need(talk, request)
    state = run.state()["tasks"]
    stacks.serve(
        run.files, {task: state[task] for task in run.tasks(request["tasks"])}, lambda record: talk.send("dump", record)
    )
    return {"run": run.id}


LOOK_EVERY_S = 1.0
MOST_DIVERGED = 100
LOOK_LIMIT_S = 40.0
"""How long the first reading of new files may take."""


def directories(run: runs.Run) -> List[str]:
    """Where trainers of the run write: its directories but `data`, and the one that they work in."""
    code = run.files.code_directory()
    places = environment.Marks(code).expand([*run.spec["checkpoint_dirs"], *run.spec["dirs"]])
    works_in_code = code is not None and any(task["code"] for task in run.spec["tasks"])
    return [*places, code] if code is not None and works_in_code else places


def metrics(talk: Conversation, request: MetricsRequest) -> MetricsResult:
    """The points that are there; with `follow` a frame with them, others as they are added, and an end with the run."""
    run = runs.need(talk, request)
    patterns = request["tags"]

    def wanted(tag: str) -> bool:
        return patterns is None or any(tag == pattern or fnmatchcase(tag, pattern) for pattern in patterns)

    reader = Reader(directories(run))
    with talk.at("metrics"):
        reader.look_until_all_is_read(LOOK_LIMIT_S)
        if request["follow"]:
            _send(talk, run, reader.series(wanted, request["points"]))
            _follow(talk, run, reader, wanted)
    return {
        "run": run.id,
        "time": time.time(),
        "dirs": reader.roots,
        "folders": [] if request["follow"] else reader.series(wanted, request["points"]),
        "problems": reader.problems(),
        "unread_bytes": reader.unread_bytes,
        "omitted": reader.omitted,
    }


def diverged(places: List[str]) -> List[Diverged]:
    """Losses in the event files below these places whose newest value is no number any more."""
    reader = Reader(places)
    reader.look_until_all_is_read(LOOK_LIMIT_S)
    found: List[Diverged] = [
        {"path": folder["dir"], "tag": series["tag"], "step": series["steps"][-1]}
        for folder in reader.series(lambda tag: "loss" in tag.lower(), 1)
        for series in folder["series"]
        if series["values"] and not math.isfinite(float(series["values"][-1]))
    ]
    return found[:MOST_DIVERGED]


def _follow(talk: Conversation, run: runs.Run, reader: Reader, wanted: Callable[[str], bool]) -> None:
    reader.forget_new()
    next_look = time.monotonic() + LOOK_EVERY_S

    def refresh() -> bool:
        nonlocal next_look
        if time.monotonic() < next_look:
            return False
        ended = run.has_ended()  # before the files are read: what has ended by then has written all that it will
        reader.refresh()
        _send(talk, run, reader.new_points(wanted))
        next_look = time.monotonic() + LOOK_EVERY_S
        return ended

    talk.wait(refresh, float("inf"))


def _send(talk: Conversation, run: runs.Run, folders: List[FolderPoints]) -> None:
    if folders:
        points: Points = {"run": run.id, "folders": folders}
        talk.send("points", points)

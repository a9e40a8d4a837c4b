"""speed: what this host has measured of its tasks, to a controller."""

from __future__ import annotations

import time

from ...checkpoints import directories
from ...requests import runs
from .parameters import parameters_in, saves_in
from .ring import Ring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ...conversation import Conversation
    from .records import Sample, SpeedRequest, SpeedResult


def speed(talk: Conversation, request: SpeedRequest) -> SpeedResult:
    run = runs.need(talk, request)
    run.keep_supervised()
    minutes: List[Sample] = []
    whole: Optional[Sample] = None
    since: Optional[float] = None
    ring = Ring(run.files.directory, len(run.spec["tasks"]))
    with talk.at("speed"):
        try:
            minutes = ring.minutes(request["minutes"])
            whole, since = ring.whole()
        except OSError:
            pass  # nothing was measured yet: the run has just begun, or an earlier dtctl started it
        reports = directories.report(run.places()) if request["parameters"] else []
        found = parameters_in(reports) if reports else None
    return {
        "run": run.id,
        "time": time.time(),
        "minutes": minutes,
        "whole": whole,
        "since": since,
        "parameters": found,
        "saves": saves_in(reports),
        "strategy": run.spec["strategy"],
    }

"""Goodput as text: the share of time in kept steps, the losses, and settings that would reduce them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import sentence
from dtctl.agent.run.goodput import PARTS as ORDER
from dtctl.agent.run.goodput import summary
from dtctl.durations import duration_text
from dtctl.render.format import duration

if TYPE_CHECKING:
    from dtctl.operations.goodput import Gain, Goodput

PARTS = {
    "kept": "steps that were kept",
    "start": "startup",
    "wait": "waiting",
    "again": "repeated steps",
    "stall": "stalled",
    "away": "hosts unreachable",
    "pause": "pauses",
    "end": "after the last step",
    "unsaved": "unsaved steps",
}
MEANINGS = {
    "kept": "between two steps, the later of which is new",
    "start": "tasks run, and none has reported a step yet",
    "wait": "no task that trains may run: for hosts and servers, or after a loss",
    "again": "steps that had been made before, after a rollback",
    "stall": "no step, though every task ran",
    "away": "no step, and a host was unreachable",
    "pause": "a host was drained; not counted",
    "end": "the last save and evaluation",
    "unsaved": "made after the last checkpoint of a run that did not end well",
}


def goodput_line(goodput: Goodput) -> str:
    """The summary: goodput 93 %: startup 4 %, repeated steps 2 %; a checkpoint every 30s in place of 10m: 2 % more"""
    text = sentence(summary(goodput.seconds))  # type: ignore[arg-type]
    return "; ".join([text, *map(gain_text, goodput.gains[:1])])


def rows(goodput: Goodput) -> dict[str, list[str]]:
    """The parts that took any time, in order: name, share, time, and meaning."""
    shares = {what: percent(goodput.share_of(what)) for what in ORDER} | {"pause": ""}
    return {
        what: [PARTS[what], shares[what], duration(goodput.seconds[what]), MEANINGS[what]]
        for what in ORDER
        if goodput.seconds.get(what)
    }


def gain_text(gain: Gain) -> str:
    more = f"{_fine_percent(gain.share)} more"
    if gain.kind == "save":
        return f"a checkpoint every {exact(gain.to_s)} in place of {exact(gain.from_s)}: {more}"
    if gain.kind == "checkpoints":
        return f"checkpoints to go back to (none was found): up to {more}"
    if gain.kind == "stall":
        return f"recovery.stall: {exact(gain.to_s)} (a hang was noticed after {exact(gain.from_s)}): {more}"
    restarts = "the restart" if gain.count == 1 else f"the {gain.count} restarts"
    return f"{restarts} of {gain.task} cost {_fine_percent(gain.share)}"


def percent(share: float) -> str:
    """A whole percentage, as `summary` of agent/run/goodput.py rounds it."""
    return f"{round(100 * share)} %" if share >= 0.005 or not share else "under 1 %"


def _fine_percent(share: float) -> str:
    """A percentage, with tenths if it is small."""
    return f"{100 * share:.1f} %" if 0 < share < 0.095 else f"{100 * share:.0f} %"


def exact(seconds: float) -> str:
    """A duration as cluster.yaml takes it: 30s, 10m, 1h; from ten minutes on in whole minutes."""
    return duration_text(float(round(seconds) if seconds < 600 else 60 * round(seconds / 60)))

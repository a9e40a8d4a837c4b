"""The machine form of the results of `checkpoints`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtctl.operations.checkpoints import Checkpoints, epoch_of, every, missing_elsewhere
from dtctl.render.machine import document
from dtctl.render.machine.document import CHECKPOINT, picked
from dtctl.rooms.checkpoints.pull import Pulled
from dtctl.rooms.checkpoints.push import Pushed
from dtctl.rooms.checkpoints.upkeep import Pruning, Verification


def directories(places: Sequence[Checkpoints]) -> list[dict[str, Any]]:
    """Each directory once; `elsewhere` of a checkpoint lists the shards that its host lacks and others hold."""
    scattered = {(one.directory, one.checkpoint["prefix"]) for one in every(places) if one.scattered}
    documents = []
    for place in places:
        body = document.checkpoints(place)
        for entry, one in zip(body["all"], place.report["all"], strict=True):
            elsewhere = missing_elsewhere(places, place, one)
            entry["epoch"] = epoch_of(one)
            entry["elsewhere"] = [{"shard": shard, "host": host} for shard, host in sorted(elsewhere.items())]
            entry["scattered"] = (place.report["dir"], one["prefix"]) in scattered
        documents.append({**body, "guessed": place.report["guessed"], "others": list(place.others)})
    return documents


def verified(outcome: Verification) -> list[dict[str, Any]]:
    found = "found.host found.directory found.checkpoint.prefix found.checkpoint.step"
    report = "report.problems report.unread? report.tensors report.read_bytes report.seconds"
    return [picked(one, f"{found} sound {report}") for one in outcome.checked]


def pulled(outcome: Pulled) -> dict[str, Any]:
    return picked(outcome, "found.hosts found.path found.checkpoint.step files size_bytes sent_bytes")


def pushed(outcome: Pushed) -> dict[str, Any]:
    own = "own.name own.step own.size_bytes own.unread?"
    return picked(outcome, f"{own} placed[host others directory prefix sent_bytes]")


def pruned(outcome: Pruning) -> list[dict[str, Any]]:
    names = f"dir=directory removed[{CHECKPOINT}] kept[{CHECKPOINT}] freed_bytes problem?"
    return [{"host": host, **picked(one, names)} for host, one in outcome.directories]

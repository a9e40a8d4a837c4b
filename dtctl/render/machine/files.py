"""Checkpoints and data sets as JSON: where they lie, what was read of them, what was sent, fetched and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtctl.operations.checkpoints import Checkpoints, every, missing_elsewhere
from dtctl.operations.checks import shown
from dtctl.render.machine import document
from dtctl.render.machine.document import CHECKPOINT, picked

if TYPE_CHECKING:
    from dtctl.agent.records.answers import DataDropped
    from dtctl.operations.checkpoints.pull import Pulled
    from dtctl.operations.checkpoints.push import Pushed
    from dtctl.operations.checkpoints.upkeep import Pruning, Verification
    from dtctl.operations.data import DataSet, PlaceState
    from dtctl.operations.push import PushedData
    from dtctl.plan.hosts import DataPlace


def directories(found: Sequence[Checkpoints]) -> list[dict[str, Any]]:
    """Each once; `elsewhere` of a checkpoint has the shards that its host lacks and others hold."""
    scattered = {(one.directory, one.checkpoint["prefix"]) for one in every(found) if one.scattered}
    documents = []
    for place in found:
        body = document.checkpoints(place)
        for entry, one in zip(body["all"], place.report["all"], strict=True):
            elsewhere = missing_elsewhere(found, place, one)
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


def data_source(data: DataSet) -> dict[str, Any]:
    bundle = data.bundle
    return {
        "bundle": bundle.id if bundle else None,
        "files": len(bundle.manifest.files) if bundle else None,
        "sizeBytes": bundle.total_bytes if bundle else None,
    }


def data_states(found: Mapping[str, Sequence[PlaceState]]) -> list[dict[str, Any]]:
    held = "held.bundle held.files held.size_bytes held.missing held.missing_bytes held.changed held.examples"
    return [{**_place(one.place), **picked(one, f"state {held}")} for each in found.values() for one in each]


def data_pushed(found: Mapping[str, Sequence[PushedData]]) -> list[dict[str, Any]]:
    names = "files answer.bundle answer.sent_files answer.found_files answer.removed_files"
    return [{**_place(one.place), **picked(one, names)} for each in found.values() for one in each]


def data_dropped(found: Mapping[str, Sequence[DataDropped]]) -> list[dict[str, Any]]:
    return [
        {"host": host, "directory": shown(one["dir"]), **picked(one, "removed_files freed_bytes kept_files")}
        for host, each in found.items()
        for one in each
    ]


def _place(place: DataPlace) -> dict[str, Any]:
    share = None if place.share is None else {"index": place.share[0], "of": place.share[1]}
    return {"host": place.host, "directory": shown(place.directory), "share": share}

"""The machine form of data sets on hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtctl.agent.rooms.data.records import DataDropped
from dtctl.plan import shown_path
from dtctl.plan.hosts import DataPlace
from dtctl.render.machine.document import picked
from dtctl.rooms.data.operation import DataSet, PlaceState
from dtctl.rooms.data.pushing import PushedData


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
        {"host": host, "directory": shown_path(one["dir"]), **picked(one, "removed_files freed_bytes kept_files")}
        for host, each in found.items()
        for one in each
    ]


def _place(place: DataPlace) -> dict[str, Any]:
    share = None if place.share is None else {"index": place.share[0], "of": place.share[1]}
    return {"host": place.host, "directory": shown_path(place.directory), "share": share}

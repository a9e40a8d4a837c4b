"""Data sets as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtctl.operations.checks.topic import shown
from dtctl.render.machine import document

if TYPE_CHECKING:
    from dtctl.agent.records.answers import DataDropped
    from dtctl.operations.data import DataSet, PlaceState
    from dtctl.operations.push import PushedData
    from dtctl.plan.data import DataPlace


def source(data: DataSet) -> dict[str, Any]:
    bundle = data.bundle
    return {
        "bundle": bundle.id if bundle else None,
        "files": len(bundle.manifest.files) if bundle else None,
        "sizeBytes": bundle.total_bytes if bundle else None,
    }


def states(found: Mapping[str, Sequence[PlaceState]]) -> list[dict[str, Any]]:
    return [
        {
            **_place(one.place),
            "state": one.state,
            **document.picked(one.held, "bundle files size_bytes missing missing_bytes changed examples"),
        }
        for each in found.values()
        for one in each
    ]


def pushed(found: Mapping[str, Sequence[PushedData]]) -> list[dict[str, Any]]:
    return [
        {**_place(one.place), **document.picked(one, "files"), **_counts(one)}
        for each in found.values()
        for one in each
    ]


def _counts(one: PushedData) -> dict[str, Any]:
    return document.picked(one.answer, "bundle sent_files found_files removed_files")


def dropped(found: Mapping[str, Sequence[DataDropped]]) -> list[dict[str, Any]]:
    return [
        {
            "host": host,
            "directory": shown(one["dir"]),
            **document.picked(one, "removed_files freed_bytes kept_files"),
        }
        for host, each in found.items()
        for one in each
    ]


def _place(place: DataPlace) -> dict[str, Any]:
    share = None if place.share is None else {"index": place.share[0], "of": place.share[1]}
    return {"host": place.host, "directory": shown(place.directory), "share": share}

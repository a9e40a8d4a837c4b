"""Whether the hosts have the data: what stops a start, and what is only said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.data.records import DataFacts
from dtctl.bundle import Bundle, FileEntry, Manifest
from dtctl.plan.hosts import DataPlace
from dtctl.rooms.check import Answers, CheckContext
from dtctl.rooms.data.check import TOPIC
from dtctl.rooms.data.operation import DataSet
from tests.unit.checks.contexts import context, hosts_by_signature, judged, sentence
from tests.unit.clusters import cluster

BUNDLE = Bundle(Path("/here"), Manifest((FileEntry("x", 0o644, 1, "0" * 64),), (), ()), ())
PLACES = (DataPlace("c", "/data"), DataPlace("d", "/data"))
WHOLE = {"bundle": BUNDLE.id, "files": 4, "size_bytes": 4}


def scene(bundle: Bundle | None = BUNDLE, **fields: Any) -> CheckContext:
    return context(known={"data": DataSet(cluster(), PLACES, bundle)}, **fields)


def facts(**odd: Any) -> dict[str, DataFacts]:
    """c has all of it, and d what is said."""
    return {
        host: checked(DataFacts, {"at": [{"dir": "/data", "there": True, **(odd if host == "d" else WHOLE)}]})
        for host in "cd"
    }


@pytest.mark.parametrize(
    ("held", "signature"),
    [
        ({}, "data_not_pushed"),
        ({**WHOLE, "missing": 1}, "data_incomplete"),
        ({**WHOLE, "changed": 4}, "data_incomplete"),
        ({**WHOLE, "bundle": "f" * 64}, "data_outdated"),
    ],
)
def test_a_host_without_the_data_stops_a_start(held: dict[str, Any], signature: str) -> None:
    [one] = judged(TOPIC, scene(), facts(**held))
    assert (one.signature.name, one.seen.hosts) == (signature, ("d",))
    assert one.signature.stops
    assert "/data" in sentence(one)
    assert any("dtctl data push" in line for line in one.signature.remedy)


def test_unread_data_source_is_a_note_only() -> None:
    found = judged(TOPIC, scene(None), facts(**{**WHOLE, "bundle": "f" * 64}))
    assert hosts_by_signature(found) == {"data_source_unread": ("c", "d")}
    assert not any(one.signature.stops for one in found)
    without = hosts_by_signature(judged(TOPIC, scene(None), facts()))
    assert without == {"data_not_pushed": ("d",), "data_source_unread": ("c",)}


def test_no_host_is_asked_without_data_from() -> None:
    assert TOPIC.questions(context(), Answers()) == {}
    assert TOPIC.questions(scene(brief=True), Answers()) == {host: {"dirs": ["/data"]} for host in "cd"}
    assert TOPIC.questions(scene(), Answers([facts(**WHOLE)])) == {}


def test_the_state_of_each_host_is_a_line_of_check() -> None:
    [line] = TOPIC.lines(scene(), Answers([facts()]))
    assert line.values == {"c": "complete", "d": "missing"}  # type: ignore[union-attr]

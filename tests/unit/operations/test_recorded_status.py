"""`status -o json` has the same facts whatever the records of the agents look like (recorded.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.whole_run import RunView
from tests.unit.agent.coordinate.simulated import simulate
from tests.unit.operations.recorded import RECORDED, SCENES, status_of

KNOWN: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))


def facts_of(document: Any) -> Any:
    """The document without the sentences that are made of the facts beside them, which may be worded better."""
    if isinstance(document, list):
        return [facts_of(one) for one in document]
    if not isinstance(document, dict):
        return document
    sentences = ("reason", "message") if "why" in document else ()
    return {name: facts_of(one) for name, one in document.items() if name not in sentences or document["why"] == []}


def test_every_scene_is_recorded() -> None:
    assert list(KNOWN) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_the_same_run_has_the_same_status_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its problems too, where they are known: tests/unit/operations/test_recorded_problems.py."""
    simulate(monkeypatch)
    world = SCENES[name]()
    shown = status_of(world.data, world.wall)
    assert facts_of({**shown, "problems": None}) == facts_of({**KNOWN[name]["status"], "problems": None})


@pytest.mark.parametrize("name", SCENES)
def test_a_live_run_of_the_version_before_is_shown_with_its_facts(name: str) -> None:
    """Its records lack fields from which other problems than its condition follow."""
    shown = status_of(checked(RunView, KNOWN[name]["view"]), KNOWN[name]["time"])
    assert facts_of({**shown, "problems": None}) == facts_of({**KNOWN[name]["status"], "problems": None})

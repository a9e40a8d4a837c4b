"""What a coordinator knows at one moment, said by a test: a View without a coordinator around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.agent.coordinate.view import View, first_view
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, State
from tests.unit.agent.coordinate.world import spec_of

PLACES = {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "d"}
"""The coordinator is on c, where the lead is."""


def unheard(strategy: str = "async-ps", places: Mapping[str, str] = PLACES, **fields: Any) -> View:
    """Of a run whose hosts have said nothing yet."""
    spec = spec_of(strategy, places, **fields)
    return View(spec, first_view(spec, 1000.0))


def running(strategy: str = "async-ps", **fields: Any) -> View:
    """Every task runs and is ready, and every host is in touch."""
    view = unheard(strategy, **fields)
    for host, known in view.hosts.items():
        entries = {task: made(Entry, state="running", attempt=1, ready=True) for task in view.tasks_on(host)}
        state = made(State, run=view.spec["run"], host=host, tasks=entries)
        known.update({"connected": True, "heard": 1000.0, "state": state})
    view.wanted(view.tasks, want="run")
    return view


def reported(view: View, *tasks: str, **entry: Any) -> None:
    """What the agents of these tasks say of them from now on."""
    for task in tasks:
        view.entry(task).update(entry)  # type: ignore[typeddict-item]

"""What hosts tell while they end tasks reaches whoever watches, each of its own tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations.stop import StopOrder, Stopping, listener, stop
from dtctl.transport.seam import Message
from tests.unit.coordinated import inventory, record, told
from tests.unit.fakes import FakeSession, FakeTransport


def frame(**tasks: tuple[str, float | None, int | None]) -> dict[str, Any]:
    """`worker_0=(way, for_s, signal)`."""
    named = {name.replace("_", ":"): values for name, values in tasks.items()}
    told = {name: {"way": way, "for_s": for_s, "signal": number} for name, (way, for_s, number) in named.items()}
    return {"type": "stopping", "grace_s": 30.0, "tasks": told}


def heard(host: str, said: Mapping[str, Any]) -> list[Stopping]:
    found: list[Stopping] = []
    listener(record(), found.append)["stopping"](record().hosts[host], Message(said))
    return found


def test_the_coordinator_speaks_of_all_tasks() -> None:
    [told_of] = heard("c", frame(ps_0=("waits", None, None), worker_1=("ended", 3.0, 9)))
    assert told_of == Stopping(
        30.0,
        {
            TaskId("ps", 0): {"way": "waits", "for_s": None, "signal": None},
            TaskId("worker", 1): {"way": "ended", "for_s": 3.0, "signal": 9},
        },
    )


def test_another_host_speaks_of_its_own_alone() -> None:
    [told_of] = heard("d", frame(worker_0=("ended", 1.0, None), worker_1=("saving", 1.0, None)))
    assert set(told_of.tasks) == {TaskId("worker", 1)}
    assert heard("d", frame(worker_0=("ended", 1.0, None))) == []
    assert heard("c", frame(chief_7=("saving", 1.0, None))) == []


STOPPED = {
    "type": "result",
    "run": "digits-1",
    "stopped": ["worker:0"],
    "already": [],
    "survivors": [],
    "coordination": told("Stopped", "stopped"),
    "inventory": inventory(record()),
}


def answering(*frames: Mapping[str, Any]) -> FakeTransport:
    def answer(session: FakeSession, said: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        return [dict(one) for one in frames]

    return FakeTransport(answer)


def test_what_comes_before_the_answer_is_passed_on_in_its_order() -> None:
    found: list[Stopping] = []
    transport = answering(frame(worker_0=("saving", 1.0, None)), frame(worker_0=("ended", 4.0, None)), STOPPED)
    result = stop(record(), transport, tuple(record().roster), StopOrder("me@here"), found.append)
    assert [one.tasks[TaskId("worker", 0)]["way"] for one in found] == ["saving", "ended"]
    assert result.stopped == (TaskId("worker", 0),)


@pytest.mark.parametrize(
    "lie",
    [
        frame(worker_0=("dancing", 1.0, None)),
        frame(worker_0=("saving", -1.0, None)),
        frame(worker_0=("ended", 1.0, 99)),
        {**frame(), "grace_s": "long"},
        {"type": "states", "run": "digits-1"},
    ],
    ids=["way", "seconds", "signal", "grace", "another frame"],
)
def test_what_no_agent_says_is_refused_at_the_seam(lie: Mapping[str, Any]) -> None:
    transport = answering(lie, STOPPED)
    found: list[Stopping] = []
    order = StopOrder("me@here")
    result = stop(record(), transport, tuple(record().roster), order, found.append)
    assert not found
    assert result.away is not None, "the coordinator is not believed, and every host is asked"
    assert all(isinstance(error, TransportError) for error in result.errors.values())

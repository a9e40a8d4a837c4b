"""Whether the machine of a host that is away answers."""

from __future__ import annotations

import socket

import pytest

from dtctl.agent.coordinate import contacts
from dtctl.agent.coordinate.contacts import ASK_AGAIN_S, Answering, answers
from tests.hosts.ports import free_port
from tests.unit.agent.coordinate.world import async_ps
from tests.waiting import eventually


def test_a_machine_that_accepts_or_refuses_a_connection_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert answers("127.0.0.1", server.getsockname()[1])
    assert answers("127.0.0.1", free_port())


@pytest.mark.parametrize("error", [TimeoutError(), OSError(113, "No route to host"), UnicodeError("label too long")])
def test_one_that_is_not_reached_does_not(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fails)
    assert not answers("gpu-b", 2221)


def test_it_is_asked_again_after_a_while_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def answers_now(address: str, port: int) -> bool:
        asked.append((address, port))
        return True

    monkeypatch.setattr(contacts, "answers", answers_now)
    machines = Answering()
    machines.of("b", "gpu-b", 2221, 100.0)
    eventually(lambda: machines.of("b", "gpu-b", 2221, 100.0) is True, what="the answer")
    machines.of("b", "gpu-b", 2221, 100.0 + ASK_AGAIN_S - 1)
    assert asked == [("gpu-b", 2221)]
    machines.of("b", "gpu-b", 2221, 100.0 + ASK_AGAIN_S)
    eventually(lambda: len(asked) == 2, what="another question")


@pytest.mark.usefixtures("processes_in_memory")
def test_the_run_warns_of_an_agent_that_is_gone_until_it_calls_or_the_machine_is_silent() -> None:
    world = async_ps()
    world.cut.add("d")
    world.run_for(60)
    for answered in (True, True, False, True):
        world.coordinator.machine_answers("d", answered, world.wall)
        assert any(text.startswith("d answers, but its agent") for text in world.data["warnings"]) is answered
    assert len(world.data["warnings"]) == 1
    assert set(world.coordinator.away) == {"d"}
    world.cut.clear()
    world.run_for(2)
    assert world.data["warnings"] == []
    assert [line["reason"][:9] for line in world.story if line["kind"] == "contact"].count("d answers") == 2

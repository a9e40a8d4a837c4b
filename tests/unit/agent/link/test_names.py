"""The look-up of the coordinator's address, with a system that takes its time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.link.dialer import Names
from tests.waiting import eventually

real = socket.getaddrinfo


class SlowSystem:
    """A getaddrinfo that knows nothing but numbers until `answer` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[], list[Any]] | None = None
        self._let_go = threading.Event()

    def getaddrinfo(self, host: str, port: int, family: int, kind: int, protocol: int, flags: int) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, family, kind, protocol, flags)
        self.asked += 1
        assert self._let_go.wait(60)
        assert self.answer
        return self.answer()

    def say(self, *addresses: str) -> None:
        self.answer = lambda: [(socket.AF_INET, 1, 6, "", (address, 2221)) for address in addresses]
        self._let_go.set()

    def fail(self) -> None:
        def answer() -> list[Any]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        self.answer = answer
        self._let_go.set()


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SlowSystem:
    slow = SlowSystem()
    monkeypatch.setattr(socket, "getaddrinfo", slow.getaddrinfo)
    return slow


@pytest.mark.parametrize(
    ("address", "family", "place"),
    [
        ("10.0.0.1:2221", socket.AF_INET, ("10.0.0.1", 2221)),
        ("[::1]:2221", socket.AF_INET6, ("::1", 2221, 0, 0)),
        ("::1:2221", socket.AF_INET6, ("::1", 2221, 0, 0)),
    ],
)
def test_numbers_are_not_looked_up(system: SlowSystem, address: str, family: int, place: Any) -> None:
    names = Names(address)
    names.ask()
    assert names.next() == (family, place)
    assert system.asked == 0


def test_nobody_waits_for_an_answer_and_it_is_asked_for_once(system: SlowSystem) -> None:
    names = Names("gpu-a:2221")
    for _ in range(3):
        names.ask()
        assert names.next() is None
    system.say("10.0.0.1", "10.0.0.2")
    assert eventually(names.next) == (socket.AF_INET, ("10.0.0.1", 2221))
    assert names.next() == (socket.AF_INET, ("10.0.0.2", 2221))
    assert names.next() == (socket.AF_INET, ("10.0.0.1", 2221))
    assert system.asked == 1


def test_a_name_that_is_not_known_is_an_error_in_words(system: SlowSystem) -> None:
    system.fail()
    names = Names("gpu-a:2221")
    names.ask()
    with pytest.raises(OSError, match=r"^gpu-a: Name or service not known$"):
        eventually(names.next)


def test_the_last_answer_counts_when_there_is_none_later(system: SlowSystem) -> None:
    system.say("10.0.0.1")
    names = Names("gpu-a:2221")
    names.ask()
    place = eventually(names.next)
    system.fail()
    eventually(lambda: asked_again(names, system))
    assert names.next() == place


def asked_again(names: Names, system: SlowSystem) -> bool:
    names.ask()
    return system.asked > 1

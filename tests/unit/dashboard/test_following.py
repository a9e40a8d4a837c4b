"""A report that is made again and again over one connection a host, and readers slower than it changes."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.operations import dashboard as server
from dtctl.operations.dashboard import Board, looks, messages
from dtctl.operations.report import gathering as module
from dtctl.operations.report.gathering import Following, Report
from tests.unit.coordinated import entry, record, told
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.report.reports import account
from tests.unit.report.test_gathering import Told


class Growing(Told):
    """Their story has one more line each time."""

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if fields["type"] == "events" and fields["whole"] and self.view is not None:
            self.asked.append((session.host.name, "events", fields))
            number = len(self.asked_of("events")) - 1
            line = {"type": "event", "n": number, "time": 1000.0 + number, "kind": "request", "why": []}
            return [line, {"type": "result", "run": "digits-1", "next": number + 1}]
        if fields["type"] == "events" and fields["whole"]:
            return [AgentError("not_coordinator", "this host does not coordinate the run")]
        return super().__call__(session, fields)


def test_each_host_has_one_connection_for_all_looks() -> None:
    agents = Growing(told(account=account()))
    transport = FakeTransport(agents)
    with Following(record(), transport, {}) as following:
        reports = [following.look() for _ in range(3)]
        assert Counter(transport.opened) == dict.fromkeys("abcd", 1)
    assert all(session.closed for session in transport.sessions.values())
    assert [one.greeting["hostname"] for one in reports[-1].hosts] == [one.name for one in reports[-1].hosts]
    assert reports[-1].goodput is not None
    assert reports[-1].errors == {}


def test_of_the_story_only_what_is_new_is_asked_for() -> None:
    agents = Growing(told())
    with Following(record(), FakeTransport(agents), {}) as following:
        lengths = [len(following.look().story) for _ in range(3)]
    assert lengths == [1, 2, 3]
    assert [fields["from"] for _, kind, fields in agents.asked if kind == "events"] == [-20_000, 1, 2]


def test_scalars_are_read_now_and_then_and_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    agents = Told(told())
    with Following(record(), FakeTransport(agents), {}) as following:
        for at, times in ((100.0, 1), (102.0, 1), (109.0, 1), (110.0, 2), (112.0, 2)):
            now[0] = at
            assert following.look().scalars.series
            assert agents.asked_of("metrics").count("c") == times
        agents.view = told("Succeeded", "all is done", tasks={task: entry("succeeded", code=0) for task in TASKS})
        following.look()
        following.look()
        assert agents.asked_of("metrics").count("c") == 3


TASKS = ("ps:0", "ps:1", "worker:0", "worker:1")


def test_scalars_of_a_host_that_has_gone_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCALARS_EVERY_S", 0.0)
    monkeypatch.setattr(module, "SCALARS_SHARE", 1e9)
    transport = FakeTransport(Told(told()))
    with Following(record(), transport, {}) as following:
        before = {one.host for one in following.look().scalars.series}
        transport._unreachable = {"b": TransportError("cannot reach b")}
        transport.sessions["b"]._ended = True
        found = following.look()
        assert {one.host for one in found.scalars.series} == before == set("abcd")
        assert "b" in found.errors


def test_without_its_coordinator_the_others_tell_what_they_know_and_the_story_is_read_anew_after() -> None:
    agents = Growing(told())
    transport = FakeTransport(agents)
    with Following(record(), transport, {}) as following:
        following.look()
        view, agents.view = agents.view, None
        alone = following.look()
        assert alone.status.coordination is None
        agents.view = view
        assert following.look().status.coordination is not None
    assert [fields["from"] for _, kind, fields in agents.asked if kind == "events" and fields["whole"]][-1] == -20_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY_S", 0.0)
    monkeypatch.setattr(server, "_TICK_S", 0.0)


@pytest.mark.usefixtures("quick")
def test_nobody_is_asked_while_nobody_reads() -> None:
    agents = Told(told())
    board = Board()
    with Following(record(), FakeTransport(agents), {}) as following:
        first = following.look()
        turns = iter([True] * 5 + [False])
        assert list(looks(following, first, board, lambda: next(turns))) == []
        assert agents.asked_of("status") == ["c"]
        turns = iter([True] * 3 + [False])
        with board.reading():
            assert len(list(looks(following, first, board, lambda: next(turns)))) == 3


@pytest.mark.usefixtures("quick")
def test_that_nobody_answers_is_told_and_it_goes_on() -> None:
    agents = Told(told())
    transport = FakeTransport(agents)
    board = Board()
    with Following(record(), transport, {}) as following, board.reading():
        seen = looks(following, following.look(), board, lambda: True)
        transport._unreachable = {host: TransportError(f"cannot reach {host}") for host in "abcd"}
        for session in transport.sessions.values():
            session._ended = True
        told_now = next(seen)
        assert isinstance(told_now, TransportError)
        assert "cannot reach" in told_now.summary
        transport._unreachable = {}
        following._kept._refusals.clear()
        assert isinstance(next(seen), Report)


def test_a_reader_gets_what_is_newer_than_what_it_has_seen() -> None:
    board = Board()
    board.put({"a": "1", "b": "1"})
    number, parts = board.since(0)
    assert parts == {"a": "1", "b": "1"}
    board.put({"a": "1", "b": "2"})
    again, parts = board.since(number)
    assert (again, parts) == (number + 1, {"b": "2"})
    assert board.since(again) == (again, {})
    board.put({"a": "1", "b": "2"})
    assert board.since(again) == (again, {}), "nothing has changed"


def test_a_number_that_never_was_gets_everything() -> None:
    board = Board()
    board.put({"a": "1"})
    assert board.since(99)[1] == board.since(-1)[1] == {"a": "1"}


def test_a_slow_reader_goes_without_what_was_between() -> None:
    board = Board()
    for number in range(1000):
        board.put({"a": str(number), "b": "same"})
    assert board.since(1)[1] == {"a": "999"}


def test_the_words_are_those_of_server_sent_events() -> None:
    board = Board()
    board.put({"a": "line\nline", "title": "x"})
    frames = messages(board, 0)
    assert next(frames) == "retry: 2000\n\n"
    first = next(frames)
    assert first.startswith("id: 1\nevent: parts\ndata: ")
    assert first.count("\n") == 4, "a line break of the text is none of the frame"
    assert json.loads(first.split("data: ")[1]) == {"a": "line\nline", "title": "x"}
    assert board.readers == 1
    threading.Timer(0.05, board.put, [{"a": "more"}]).start()
    assert json.loads(next(frames).split("data: ")[1]) == {"a": "more"}
    threading.Timer(0.05, board.close).start()
    assert list(frames) == ["event: over\ndata: \n\n"]
    assert board.readers == 0


def test_a_silence_is_broken_so_that_a_lost_connection_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ALIVE_S", 0.01)
    board = Board()
    board.put({"a": "1"})
    frames = messages(board, 1)
    assert [next(frames), next(frames)][1] == ": alive\n\n"


def test_while_nobody_reads_there_is_nobody_to_look_for() -> None:
    board = Board()
    assert not board.wait_for_readers(0)
    with board.reading(), board.reading():
        assert board.wait_for_readers(0)
    assert not board.wait_for_readers(0)

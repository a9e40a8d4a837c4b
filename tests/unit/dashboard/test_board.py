"""The parts of a page, and readers that are faster and slower than they change."""

from __future__ import annotations

import json
import threading

import pytest

from dtctl.operations.dashboard import server
from dtctl.operations.dashboard.server import Board, messages


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

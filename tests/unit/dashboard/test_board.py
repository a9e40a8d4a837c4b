"""The parts of a page, and readers that are faster and slower than they change."""

from __future__ import annotations

import asyncio
import json
import threading

from dtctl.operations.dashboard.board import Board
from dtctl.operations.dashboard.server import told


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
    async def read() -> list[str]:
        board = Board()
        board.put({"a": "line\nline", "title": "x"})
        frames = []
        async for frame in told(board, 0):
            frames.append(frame)
            if len(frames) == 2:
                assert board.readers == 1
                threading.Timer(0.05, board.put, [{"a": "more"}]).start()
            if len(frames) == 3:
                board.close()
        assert board.readers == 0
        return frames

    retry, first, second, over = asyncio.run(read())
    assert retry == "retry: 2000\n\n"
    assert first.startswith("id: 1\nevent: parts\ndata: ")
    assert first.count("\n") == 4, "a line break of the text is none of the frame"
    assert json.loads(first.split("data: ")[1]) == {"a": "line\nline", "title": "x"}
    assert json.loads(second.split("data: ")[1]) == {"a": "more"}
    assert over == "event: over\ndata: \n\n"


def test_a_silence_is_broken_so_that_a_lost_connection_is_noticed(monkeypatch: object) -> None:
    from dtctl.operations.dashboard import server

    async def read() -> str:
        board = Board()
        board.put({"a": "1"})
        stream = told(board, 1)
        await anext(stream)
        frame = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert board.readers == 0
        return frame

    before = server.ALIVE_S
    server.ALIVE_S = 0.01
    try:
        assert asyncio.run(read()) == ": alive\n\n"
    finally:
        server.ALIVE_S = before


def test_while_nobody_reads_there_is_nobody_to_look_for() -> None:
    board = Board()
    assert not board.wait_for_readers(0)
    with board.reading(), board.reading():
        assert board.wait_for_readers(0)
    assert not board.wait_for_readers(0)

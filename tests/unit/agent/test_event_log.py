"""The lines of events.jsonl keep their numbers, whatever happens to the disk or to the agent."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dtctl.agent.run.runfiles import EventLog


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """Files can grow to `size` bytes and no further, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def numbers(log: EventLog) -> list[object]:
    return [event.get("event") for event in log.since(0)]


def test_events_are_read_by_their_index(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path / "events.jsonl"))
    for number in range(5):
        log.add({"event": number})
    assert log.count == 5
    assert [event["event"] for event in log.since(3)] == [3, 4]
    assert [event["event"] for event in log.since(1, 2)] == [1, 2]
    assert log.since(5) == log.since(9) == []


def test_a_new_supervisor_goes_on_counting(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    EventLog(path).add({"event": 0, "text": "x" * 200_000})
    log = EventLog(path)
    log.add({"event": 1})
    assert log.count == 2
    assert numbers(log) == numbers(EventLog(path)) == [0, 1]


def test_what_a_full_disk_did_not_take_is_written_later_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(str(path))
    log.add({"event": 0})
    with full_after(path.stat().st_size + 5):
        log.add({"event": 1})
        log.add({"event": 2})
        assert log.count == 1
        assert numbers(log) == [0]
    log.write_waiting()
    assert log.count == 3
    assert numbers(log) == numbers(EventLog(str(path))) == [0, 1, 2]
    assert path.read_bytes().count(b"\n") == 3


def test_the_half_line_of_a_supervisor_that_was_killed_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    EventLog(str(path)).add({"event": 0})
    with path.open("ab") as file:
        file.write(b'{"event": 1, "te')
    log = EventLog(str(path))
    assert log.count == 1
    log.add({"event": 1})
    assert numbers(log) == [0, 1]


def test_a_damaged_line_keeps_its_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": 0}\n\0\0\0\n[]\n{"event": 3}\n')
    assert EventLog(str(path)).since(0) == [{"event": 0}, {}, {}, {"event": 3}]

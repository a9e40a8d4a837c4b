"""Whatever stands in the place of one of our files: nobody waits for it, reads it without end, or writes through it."""

from __future__ import annotations

import os
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles.tree import Manifest
from dtctl.agent.host import files, locks, paths, wake
from dtctl.agent.host.secrets import Masks
from dtctl.agent.logs.lines import Times, end_of, size_when
from dtctl.agent.records.values import Variables
from dtctl.agent.run.runfiles import EventLog
from dtctl.agent.supervise.attempt import Samples
from dtctl.agent.supervise.observation import LogProgress
from tests import impostors

pytestmark = pytest.mark.timeout(120)

OWN = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a link that is another user's")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "attempt-1").mkdir()
    return tmp_path / "attempt-1"


def write(path: str) -> None:
    with open(path, "w", opener=files.private) as file:
        file.write("x")


RAISING: list[Callable[[str], Any]] = [
    files.stat_regular,
    files.descriptor,
    lambda path: files.read(path, 100),
    lambda path: files.descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    paths.read_text,
    lambda path: paths.append_line(path, "a line"),
    lambda path: locks.hold(path, exclusive=True),
    write,
]


@pytest.mark.parametrize("what", impostors.NO_FILES)
@pytest.mark.parametrize("use", range(len(RAISING)))
def test_non_regular_file_is_reported_and_left_alone(place: Path, what: str, use: int) -> None:
    path = place / "file"
    impostors.NO_FILES[what](path)
    with pytest.raises(files.Unfit) as unfit:
        RAISING[use](str(path))
    assert unfit.value.strerror == impostors.said(what)
    assert unfit.value.filename == str(path)
    assert impostors.unharmed(path)


LENIENT: list[tuple[str, Callable[[str], Any], Any]] = [
    ("log", paths.tail, ""),
    ("log", lambda path: end_of(path, Masks([])), ""),
    ("log", lambda path: LogProgress(path, adopted=True).step, None),
    ("times", lambda path: list(Times(path, 0).pieces(0, b"x\n", 7.0)), [(0, b"x\n", 7.0)]),
    ("times", lambda path: size_when(path, lambda when: when < 1e9), 0),
    ("times", lambda path: Samples(str(Path(path).parent)).take(1.0), None),
    ("log", lambda path: Samples(str(Path(path).parent)).take(1.0), None),
    ("manifest.json", lambda path: Manifest.load(path, "0" * 64), None),
    ("events.jsonl", lambda path: EventLog(path).count, 0),
]


@pytest.mark.parametrize("what", [*impostors.NO_FILES, "sparse"])
@pytest.mark.parametrize("use", range(len(LENIENT)))
def test_optional_files_that_are_invalid_count_as_absent(place: Path, what: str, use: int) -> None:
    name, read, expected = LENIENT[use]
    (place / "log").write_text("step 1\n")
    path = place / name
    path.unlink(missing_ok=True)
    ({**impostors.NO_FILES, "sparse": impostors.sparse}[what])(path)
    found = read(str(path))
    assert found == expected or set(found) == {"\0"}, "a sparse file has zeros at its end"
    assert len(found or "") < 100_000
    assert impostors.unharmed(path)


def test_a_file_of_a_terabyte_is_refused_before_it_is_read(place: Path) -> None:
    impostors.sparse(place / "file")
    with pytest.raises(paths.Damaged, match="is too large: it has 1099511627776 bytes, and 67108864 are the most"):
        paths.read_record(str(place / "file"), Variables)


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_non_regular_file_is_a_damaged_record(place: Path, what: str) -> None:
    impostors.NO_FILES[what](place / "file")
    with pytest.raises(paths.Damaged, match=impostors.said(what)):
        paths.read_record(str(place / "file"), Variables)


def test_temporary_file_names_are_unpredictable(place: Path) -> None:
    impostors.link_to_a_file(place / f"state.json.{os.getpid()}.new")
    paths.write_json(str(place / "state.json"), {"a": "1"})
    assert impostors.unharmed(place / "any")
    assert paths.read_record(str(place / "state.json"), Variables) == {"a": "1"}


def test_what_programs_inherit_as_their_output_is_an_ordinary_descriptor(place: Path) -> None:
    descriptor = files.descriptor(str(place / "log"), os.O_WRONLY | os.O_CREAT)
    assert os.get_blocking(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("text", ["1.0 ²\n", "1.0 " + "9" * 5000 + "\n", "nan 5\n", "1.0 -5\n", "1e300 5\n"])
def test_numbers_that_are_none_are_no_samples(place: Path, text: str) -> None:
    (place / "log").write_text("x\n" * 10)
    (place / "times").write_text(text)
    assert list(Times(str(place / "times"), 0).pieces(0, b"x\n", 7.0)) == [(0, b"x\n", 7.0)]
    Samples(str(place)).take(1.0)


class TestWake:
    """The FIFO of a supervisor, and what a trainer may put into its place."""

    @pytest.mark.parametrize("what", ["is a link", "is a link without end", "is a directory", "is a socket"])
    def test_nobody_listens_at_what_is_no_fifo(self, place: Path, what: str) -> None:
        impostors.NO_FILES[what](place / "wake")
        assert not wake.is_read(str(place / "wake"))
        wake.ring(str(place / "wake"))
        assert impostors.unharmed(place / "wake")

    def test_a_supervisor_replaces_a_file_that_would_wake_it_for_ever(self, place: Path) -> None:
        (place / "wake").write_text("x")
        descriptor = wake.listen(str(place / "wake"))
        assert stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        assert wake.is_read(str(place / "wake"))
        os.close(descriptor)


@pytest.mark.parametrize("content", [b"\n" * 1_100_000, None])
def test_an_event_log_that_was_blown_up_is_moved_away(place: Path, content: bytes | None) -> None:
    path = place / "events.jsonl"
    if content is None:
        impostors.sparse(path)
    else:
        path.write_bytes(content)
    log = EventLog(str(path))
    log.add({"event": 1})
    assert log.since(0) == [{"event": 1}]
    assert [each.name[:21] for each in place.iterdir() if each != path] == ["events.jsonl.damaged-"]


def test_events_that_were_taken_away_keep_their_numbers(place: Path) -> None:
    log = EventLog(str(place / "events.jsonl"))
    for number in range(3):
        log.add({"event": number})
    (place / "events.jsonl").unlink()
    impostors.fifo(place / "events.jsonl")
    assert log.since(1) == [{}, {}]


@OWN
def test_a_directory_is_reached_by_links_of_its_user_and_not_by_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "here").touch()
    base = os.open(tmp_path, os.O_RDONLY)
    for name, owner in (("own", 0), ("others", 65534)):
        (tmp_path / name).symlink_to("real")
        os.lchown(tmp_path / name, owner, owner)
    found = files.directory("own", base)
    assert os.stat("here", dir_fd=found).st_size == 0
    os.close(found)
    with pytest.raises(files.Unfit, match="is a link that another user has made"):
        files.directory("others", base)
    os.close(base)
    with os.scandir(tmp_path) as listed:
        assert sorted(entry.name for entry in listed if files.leads_on(entry)) == ["own", "real"]


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


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def log_of(events: Path, *numbers: int) -> EventLog:
    """To which these have been added."""
    log = EventLog(str(events))
    for number in numbers:
        log.add({"event": number})
    return log


def numbers(log: EventLog) -> list[object]:
    return [event.get("event") for event in log.since(0)]


def test_events_are_read_by_their_index(events: Path) -> None:
    log = log_of(events, *range(5))
    assert log.count == 5
    assert [event["event"] for event in log.since(3)] == [3, 4]
    assert [event["event"] for event in log.since(1, 2)] == [1, 2]
    assert log.since(5) == log.since(9) == []


def test_a_new_supervisor_continues_counting(events: Path) -> None:
    log_of(events).add({"event": 0, "text": "x" * 200_000})
    log = log_of(events, 1)
    assert log.count == 2
    assert numbers(log) == numbers(log_of(events)) == [0, 1]


def test_events_are_written_later_in_order_after_a_full_disk(events: Path) -> None:
    log = log_of(events, 0)
    with full_after(events.stat().st_size + 5):
        log.add({"event": 1})
        log.add({"event": 2})
        assert log.count == 1
        assert numbers(log) == [0]
    log.write_waiting()
    assert log.count == 3
    assert numbers(log) == numbers(log_of(events)) == [0, 1, 2]
    assert events.read_bytes().count(b"\n") == 3


def test_the_half_line_of_a_supervisor_that_was_killed_is_no_event(events: Path) -> None:
    log_of(events, 0)
    with events.open("ab") as file:
        file.write(b'{"event": 1, "te')
    assert log_of(events).count == 1
    assert numbers(log_of(events, 1)) == [0, 1]


def test_a_damaged_line_keeps_its_number(events: Path) -> None:
    events.write_text('{"event": 0}\n\0\0\0\n[]\n{"event": 3}\n')
    assert log_of(events).since(0) == [{"event": 0}, {}, {}, {"event": 3}]

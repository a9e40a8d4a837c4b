"""Event files, byte by byte and in directories: they grow, end in the middle, are damaged, are no files, and are
too many.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.host import encodings
from dtctl.agent.host.budget import Spent
from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.metrics import events, reading
from dtctl.agent.rooms.metrics.events import Damaged, decode
from dtctl.agent.rooms.metrics.folder import Folder, Room
from dtctl.agent.rooms.metrics.reading import Reader
from dtctl.agent.rooms.metrics.records import FolderPoints, Problem
from tests.event_files import event, masked, number, piece, real, record, scalar, simple, start, summary, tensor, varint
from tests.fuzz import cases
from tests.impostors import NO_FILES, sparse, unharmed
from tests.unit.agent.metrics.looking import noted_reads, points, values

NAME = "events.out.tfevents.1.host"
LATER = "events.out.tfevents.2.host"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def refresh(out: Path) -> Reader:
    reader = Reader([str(out)])
    reader.refresh()
    return reader


def test_scalars_are_reported_by_directory_and_tag(out: Path) -> None:
    for name in ("train", "validation"):
        (out / name).mkdir()
        (out / name / NAME).write_bytes(scalar(1, "loss", 0.5) + scalar(2, "loss", 0.25) + scalar(2, "lr", 1.0))
    scalars = refresh(out).series(lambda tag: tag == "loss", 100)
    assert [(folder["dir"], folder["name"]) for folder in scalars] == [(str(out), "train"), (str(out), "validation")]
    assert [series["tag"] for folder in scalars for series in folder["series"]] == ["loss", "loss"]
    series = scalars[0]["series"][0]
    assert (series["steps"], series["values"]) == ([1, 2], ["0.5", "0.25"])
    assert (series["count"], series["least"], series["most"]) == (2, "0.25", "0.5")
    checked(FolderPoints, scalars[0])


def test_a_partial_record_is_read_once_complete(out: Path) -> None:
    whole = b"".join(scalar(step, "loss", float(step)) for step in range(20))
    reader = Reader([str(out)])
    for end in range(0, len(whole) + 1, 7):
        (out / NAME).write_bytes(whole[:end])
        reader.refresh()
        assert reader.problems() == []
    (out / NAME).write_bytes(whole)
    reader.refresh()
    assert values(reader) == [float(step) for step in range(20)]


def test_each_read_continues_where_the_last_ended(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / NAME).write_bytes(b"".join(scalar(step, "loss", 1.0) for step in range(5000)))
    reader = refresh(out)
    read = noted_reads(monkeypatch)
    added = scalar(5000, "loss", 2.0)
    with (out / NAME).open("ab") as file:
        file.write(added)
    reader.refresh()
    assert read == [len(added)]
    assert points(reader)[-1] == (5000, 2.0)


def test_new_points_are_reported_once(out: Path) -> None:
    (out / NAME).write_bytes(scalar(1, "loss", 1.0))
    reader = refresh(out)
    assert [series["steps"] for folder in reader.new_points(lambda _: True) for series in folder["series"]] == [[1]]
    with (out / NAME).open("ab") as file:
        file.write(scalar(2, "loss", 1.0))
    reader.refresh()
    assert [series["steps"] for folder in reader.new_points(lambda _: True) for series in folder["series"]] == [[2]]
    reader.refresh()
    assert reader.new_points(lambda _: True) == []


def test_a_restart_hides_the_steps_that_are_done_again(out: Path) -> None:
    (out / NAME).write_bytes(b"".join(scalar(step, "loss", 1.0, wall=step) for step in range(10)))
    (out / LATER).write_bytes(b"".join(scalar(step, "loss", 2.0, wall=50 + step) for step in range(6, 9)))
    assert values(refresh(out)) == [1.0] * 6 + [2.0] * 3


def test_a_session_that_starts_hides_all_tags_from_its_step_on(out: Path) -> None:
    earlier = b"".join(scalar(step, tag, 1.0, wall=step) for step in range(10) for tag in ("loss", "lr"))
    (out / NAME).write_bytes(earlier)
    (out / LATER).write_bytes(record(start(4, wall=50)) + scalar(8, "loss", 2.0, wall=51))
    reader = refresh(out)
    assert points(reader, "loss") == [*((step, 1.0) for step in range(4)), (8, 2.0)]
    assert points(reader, "lr") == [(step, 1.0) for step in range(4)]


@pytest.mark.parametrize("at", [0, 8, 12, 20, -1])
def test_reading_stops_at_the_damage_and_says_where(out: Path, at: int) -> None:
    good, bad, after = (scalar(step, "loss", float(step)) for step in (1, 2, 3))
    damaged = bytearray(bad)
    damaged[at] ^= 0x10
    (out / NAME).write_bytes(good + bytes(damaged) + after)
    reader = refresh(out)
    assert values(reader) == [1.0]
    (problem,) = reader.problems()
    assert problem["path"] == str(out / NAME)
    assert f"at byte {len(good)}" in problem["problem"]
    checked(Problem, problem)
    (out / NAME).write_bytes(good + bad + after)  # the file system has shown what was not there yet
    reader.refresh()
    assert (values(reader), reader.problems()) == ([1.0, 2.0, 3.0], [])


def test_of_a_large_record_only_scalars_are_checked(out: Path) -> None:
    image = event(1, summary(b"\x22" + b"\x88\x27" + bytes(5000)))
    sealed = record(image)
    (out / NAME).write_bytes(sealed[:-1] + b"\0" + scalar(2, "loss", 1.0))
    assert values(refresh(out)) == [1.0]
    both = record(event(1, summary(simple("loss", 3.0), b"\x22" + b"\x88\x27" + bytes(5000))))
    (out / NAME).write_bytes(both[:-1] + bytes([both[-1] ^ 1]) + scalar(2, "loss", 1.0))
    reader = refresh(out)
    assert values(reader) == []
    assert "does not match its checksum" in reader.problems()[0]["problem"]


def many_fields() -> bytes:
    return piece(1, number(3, 0) * 800) * 100


def many_values() -> bytes:
    return piece(1, b"") * (events.MOST_VALUES + 1) + piece(1, simple("late", 1.0))


def many_sizes() -> bytes:
    shape = piece(2, piece(2, number(1, 1)) * 800)
    return piece(1, piece(1, b"loss") + piece(8, number(1, 1) + shape) + piece(9, piece(1, piece(1, b"scalars")))) * 100


@pytest.mark.parametrize(("made", "problem"), [(many_fields, True), (many_values, False), (many_sizes, True)])
def test_a_record_of_more_than_tensorflow_writes_costs_little(
    made: Callable[[], bytes], problem: bool, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 31 MB took eight seconds, during which nothing else was read."""
    read: list[int] = []
    taken = encodings.varint

    def noted(data: bytes, position: int, end: int) -> tuple[int, int]:
        read.append(position)
        return taken(data, position, end)

    monkeypatch.setattr(encodings, "varint", noted)
    (out / NAME).write_bytes(record(event(1, piece(5, made()))) + scalar(2, "loss", 1.0))
    reader = refresh(out)
    assert len(read) < 5 * events.MOST_VALUES
    assert bool(reader.problems()) == problem
    if not problem:
        assert values(reader) == [1.0]


def test_the_values_of_one_event_are_read_until_the_time_is_over(out: Path) -> None:
    (out / NAME).write_bytes(record(event(1, summary(*[simple("loss", 1.0)] * 50))))
    left = 20

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Spent("it took too long")

    folder = Folder(str(out), str(out), Room(10))
    with pytest.raises(Spent):
        folder.refresh([NAME], check)
    assert not folder.series


def test_a_record_that_is_too_large_is_passed_over(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_RECORD_BYTES", 1 << 20)
    (out / NAME).write_bytes(_hollow(2 << 20) + scalar(2, "loss", 1.0))
    assert values(refresh(out)) == [1.0]


def test_a_record_larger_than_a_chunk_is_read(out: Path) -> None:
    padding = b"\x22" + b"\x80\x80\x80\x01" + bytes(2 << 20)  # an image of 2 MiB
    with_image = event(1, summary(padding)) + event(1, summary(simple("loss", 3.0)))
    size = struct.pack("<Q", len(with_image))
    from dtctl.agent.host.encodings import masked_crc32c

    data = size + struct.pack("<I", masked(size)) + with_image + struct.pack("<I", masked_crc32c(with_image))
    (out / NAME).write_bytes(data + scalar(2, "loss", 1.0))
    assert values(refresh(out)) == [3.0, 1.0]


def test_a_length_of_terabytes_is_waited_for_and_costs_nothing(out: Path) -> None:
    size = struct.pack("<Q", 1 << 60)
    (out / NAME).write_bytes(scalar(1, "loss", 1.0) + size + struct.pack("<I", masked(size)) + bytes(100))
    begin = time.process_time()
    assert values(refresh(out)) == [1.0]
    assert time.process_time() - begin < 2


def test_a_terabyte_of_holes_is_damage(out: Path) -> None:
    sparse(out / NAME)
    reader = refresh(out)
    assert "at byte 0 there is no record" in reader.problems()[0]["problem"]


@pytest.mark.parametrize("what", NO_FILES)
def test_only_regular_event_files_are_opened(out: Path, what: str) -> None:
    (out / LATER).write_bytes(scalar(1, "loss", 1.0))
    NO_FILES[what](out / NAME)
    reader = refresh(out)
    assert values(reader) == [1.0]
    assert unharmed(out / NAME)
    if what != "is a directory":
        assert [problem["path"] for problem in reader.problems()] == [str(out / NAME)]


def test_series_are_limited(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_SERIES", 10)
    (out / NAME).write_bytes(b"".join(scalar(1, f"tag{number}", 1.0) for number in range(25)))
    reader = refresh(out)
    assert len(reader.series(lambda _: True, 10)[0]["series"]) == 10
    assert reader.omitted == 15


def test_all_points_together_are_limited(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_POINTS_SENT", 20)
    (out / NAME).write_bytes(b"".join(scalar(step, f"tag{tag}", 1.0) for tag in range(10) for step in range(50)))
    assert [len(series["steps"]) for series in refresh(out).series(lambda _: True, 100)[0]["series"]] == [2] * 10


def test_a_read_ends_at_its_deadline_and_the_next_continues(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (out / NAME).write_bytes(b"".join(scalar(step, "loss", 1.0) for step in range(1500)))
    monkeypatch.setattr(reading, "LOOK_S", -1.0)
    reader = refresh(out)
    assert values(reader) == []
    monkeypatch.setattr(reading, "LOOK_S", 8.0)
    reader.refresh()
    assert len(values(reader)) == 1500
    assert reader.unread_bytes == 0


def test_replaced_file_is_read_from_its_beginning(out: Path) -> None:
    (out / NAME).write_bytes(b"".join(scalar(step, "loss", 1.0) for step in range(10)))
    reader = refresh(out)
    (out / "new").write_bytes(scalar(0, "loss", 2.0))
    (out / "new").replace(out / NAME)
    reader.refresh()
    assert points(reader) == [(0, 2.0)]


def test_a_directory_that_was_emptied_is_forgotten(out: Path) -> None:
    (out / NAME).write_bytes(scalar(1, "loss", 1.0))
    reader = refresh(out)
    (out / NAME).unlink()
    reader.refresh()
    assert reader.series(lambda _: True, 10) == []
    (out / LATER).write_bytes(scalar(5, "loss", 2.0))
    reader.refresh()
    assert points(reader) == [(5, 2.0)]


def test_a_directory_in_another_is_looked_at_once(out: Path) -> None:
    (out / "train").mkdir()
    (out / "train" / NAME).write_bytes(scalar(1, "loss", 1.0))
    reader = Reader([str(out / "train"), str(out), f"{out}/"])
    reader.refresh()
    assert reader.roots == [str(out)]
    assert values(reader) == [1.0]


def test_a_link_in_a_circle_ends(out: Path) -> None:
    (out / NAME).write_bytes(scalar(1, "loss", 1.0))
    (out / "round").symlink_to(out)
    assert values(refresh(out)) == [1.0]


def test_directories_that_are_not_there_yet_are_no_problem(tmp_path: Path) -> None:
    reader = Reader([str(tmp_path / "later")])
    reader.refresh()
    assert (reader.series(lambda _: True, 1), reader.problems()) == ([], [])


@cases
@given(st.lists(st.binary(max_size=60), max_size=6), st.data())
def test_any_file_is_read_or_said_to_be_damaged(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], data: st.DataObject
) -> None:
    out = tmp_path_factory.mktemp("fuzz")
    whole = bytearray(b"".join(record(part) for part in parts) + scalar(1, "loss", 1.0))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (out / NAME).write_bytes(bytes(whole))
    reader = refresh(out)
    for folder in reader.series(lambda _: True, 10):
        checked(FolderPoints, folder)
    for problem in reader.problems():
        checked(Problem, problem)


def _hollow(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked(length)) + bytes(size) + bytes(4)


FLOAT_VAL = number(1, 1) + real(5, 2.5)
TENSORS = {
    "float in tensor_content": (number(1, 1) + piece(4, struct.pack("<f", 2.5)), 2.5),
    "double in tensor_content": (number(1, 2) + piece(4, struct.pack("<d", 2.5)), 2.5),
    "half in tensor_content": (number(1, 19) + piece(4, struct.pack("<e", 2.5)), 2.5),
    "bfloat16 in tensor_content": (number(1, 14) + piece(4, b"\x20\x40"), 2.5),
    "float_val": (FLOAT_VAL, 2.5),
    "packed float_val": (number(1, 1) + piece(5, struct.pack("<f", 2.5)), 2.5),
    "packed double_val": (number(1, 2) + piece(6, struct.pack("<d", 2.5)), 2.5),
    "half_val": (number(1, 19) + number(13, 0x4100), 2.5),
    "bfloat16 in half_val": (number(1, 14) + piece(13, varint(0x4020)), 2.5),
    "one element": (number(1, 1) + piece(2, piece(2, number(1, 1))) + real(5, 2.5), 2.5),
    "negative int32": (number(1, 3) + number(7, -7), -7.0),
    "negative int64": (number(1, 9) + piece(10, varint(-7)), -7.0),
    "negative int64 in tensor_content": (number(1, 9) + piece(4, struct.pack("<q", -7)), -7.0),
    "no value is zero": (number(1, 1), 0.0),
}
SEVERAL = number(1, 1) + piece(2, piece(2, number(1, 2))) + piece(5, struct.pack("<ff", 1, 2))
SUMMARIES: dict[str, tuple[bytes, list[tuple[str, float]]]] = {
    **{name: (summary(tensor("loss", data)), [("loss", value)]) for name, (data, value) in TENSORS.items()},
    "simple values": (summary(simple("loss", 0.5), simple("lr", 0.0)), [("loss", 0.5), ("lr", 0.0)]),
    "a tensor of another plugin": (summary(tensor("a", FLOAT_VAL, "histograms")), []),
    "a tensor of several numbers": (summary(tensor("b", SEVERAL)), []),
    "a tensor of text": (summary(tensor("c", number(1, 7) + piece(8, b"hello"))), []),
    "a tensor without metadata": (summary(tensor("loss", FLOAT_VAL, None)), []),
    "a tensor known by its tag": (summary(tensor("known", FLOAT_VAL, None)), [("known", 2.5)]),
    "the data class alone": (
        summary(piece(1, b"loss") + piece(9, number(4, 1)) + piece(8, FLOAT_VAL)),
        [("loss", 2.5)],
    ),
    "a tag that is too long": (summary(simple("x" * 1001, 1.0), simple("loss", 1.0)), [("loss", 1.0)]),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_single_numbers_of_the_scalars_plugin_are_scalars(name: str) -> None:
    data, expected = SUMMARIES[name]
    assert decode(event(7, data), ("known",)).scalars == expected


def test_an_event_has_a_step_and_a_time() -> None:
    found = decode(event(7, wall=12.5), ())
    assert (found.step, found.wall, found.starts, found.scalars) == (7, 12.5, False, [])


def test_nan_and_infinity_are_kept() -> None:
    (_, value), (_, other) = decode(event(7, summary(simple("loss", math.nan), simple("loss", math.inf))), ()).scalars
    assert (math.isnan(value), other) == (True, math.inf)


def test_only_a_session_that_starts_is_a_start() -> None:
    assert decode(start(40), ()).starts
    assert not decode(event(40, piece(7, number(1, 2))), ()).starts


@pytest.mark.parametrize(
    "data",
    [b"\x0b", b"\x12\xff", varint(5 << 3 | 2) + varint(100) + b"x", b"\x80" * 20, number(5, 3) + b"\x09\x01"],
    ids=["a group", "no length", "beyond the end", "a long number", "half a double"],
)
def test_invalid_events_are_damage(data: bytes) -> None:
    with pytest.raises(Damaged):
        decode(data, ())


@cases
@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_damaged(data: bytes) -> None:
    for given_bytes in (data, event(1, summary(data)), event(1, summary(tensor("t", data))), event(1, piece(5, data))):
        try:
            found = decode(given_bytes, ("t",))
        except Damaged:
            continue
        assert all(isinstance(tag, str) and isinstance(value, float) for tag, value in found.scalars)

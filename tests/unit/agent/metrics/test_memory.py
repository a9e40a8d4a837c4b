"""What is kept from one reader to the next: it reads on where the other has ended, and anew where that cannot be."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.metrics import folder, reading
from dtctl.agent.metrics.reading import Reader
from dtctl.agent.metrics.series import MOST_POINTS, Series, spread
from tests.event_files import scalar
from tests.fuzz import cases
from tests.unit.agent.metrics.looking import noted_reads, points

NAME = "events.out.tfevents.1.host"


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(reading, "WORTH_BYTES", 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "run").mkdir()
    return tmp_path / "out"


def refresh(out: Path) -> Reader:
    reader = Reader([str(out)], str(out.parent / "run"))
    reader.refresh()
    reader.keep()
    return reader


def write(out: Path, first: int, last: int) -> int:
    data = b"".join(scalar(step, "loss", float(step), wall=step) for step in range(first, last))
    with (out / NAME).open("ab") as file:
        file.write(data)
    return len(data)


def test_a_cached_reader_reads_new_records_only(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(out, 0, 2501)  # of which every second is kept, and the last
    before = refresh(out)
    read = noted_reads(monkeypatch)
    kept = (out.parent / "run" / folder.NAME).stat().st_size
    assert points(refresh(out)) == points(before)
    assert read == [kept]
    added = write(out, 2501, 2600)
    found = refresh(out)
    assert read == [kept, kept, added]
    monkeypatch.undo()
    whole = Reader([str(out)])
    whole.refresh()
    assert found.series(lambda _: True, 2000) == whole.series(lambda _: True, 2000)


def test_small_files_are_not_cached(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WORTH_BYTES", 1 << 20)
    write(out, 0, 10)
    refresh(out)
    assert not (out.parent / "run" / folder.NAME).exists()


def test_a_file_that_was_replaced_since_is_read_anew(out: Path) -> None:
    write(out, 0, 10)
    refresh(out)
    (out / "new").write_bytes(scalar(3, "loss", 7.0))
    (out / "new").replace(out / NAME)
    assert points(refresh(out)) == [(3, 7.0)]


def test_files_of_which_none_is_left_are_forgotten(out: Path) -> None:
    write(out, 0, 10)
    refresh(out)
    (out / NAME).unlink()
    (out / "events.out.tfevents.2.host").write_bytes(scalar(9, "loss", 7.0))
    assert points(refresh(out)) == [(9, 7.0)]


def test_an_unwritable_cache_is_ignored(out: Path) -> None:
    write(out, 0, 10)
    (out.parent / "run" / folder.NAME).mkdir()
    assert len(points(refresh(out))) == 10
    assert len(points(refresh(out))) == 10


@cases
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(32, 126)), min_size=1, max_size=4))
def test_a_damaged_cache_is_ignored(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]) -> None:
    base = tmp_path_factory.mktemp("memory")
    (base / "out").mkdir()
    (base / "run").mkdir()
    write(base / "out", 0, 5)
    reader = Reader([str(base / "out")], str(base / "run"))
    reader.refresh()
    folder.remember(str(base / "run"), list(reader._folders.values()))
    path = base / "run" / folder.NAME
    kept = bytearray(path.read_bytes())
    for place, byte in changes:
        kept[place % len(kept)] = byte
    path.write_bytes(bytes(kept))
    again = Reader([str(base / "out")], str(base / "run"))
    again.refresh()
    again.series(lambda _: True, 100)


def steps(series: Series) -> list[int]:
    return [step for step, _, _ in series.points()]


def test_of_a_long_series_points_are_kept_evenly_and_the_last_always() -> None:
    series = Series()
    for step in range(100_001):
        series.add("a", (step, float(step), 0.0))
    found = steps(series)
    assert MOST_POINTS <= len(found) <= 2 * MOST_POINTS + 1
    assert (found[0], found[-1], series.count) == (0, 100_000, 100_001)
    between = {later - earlier for earlier, later in itertools.pairwise(found[:-1])}
    assert between == {64}


def test_a_later_file_hides_what_is_not_before_its_first_step() -> None:
    series = Series()
    for step in range(10):
        series.add("a", (step, float(step), 1.0))
    for step in range(6, 12):
        series.add("b", (step, 100.0 + step, 2.0))
    assert [(step, value) for step, _, value in series.points()] == [
        *((step, 1.0) for step in range(6)),
        *((step, 2.0) for step in range(6, 12)),
    ]
    assert series.count == 12


def test_writers_side_by_side_hide_nothing_of_each_other_that_came_later() -> None:
    series = Series()
    for step in range(10):
        series.add("a", (step, float(step), 1.0))
    series.add("b", (0, 4.5, 2.0))
    assert steps(series) == [0, *range(5, 10)]


def test_a_start_hides_points_and_the_last_one_among_them() -> None:
    series = Series()
    for step in range(5000):
        series.add("a", (step, float(step), 1.0))
    series.hide(3000, 1e9)
    assert max(steps(series)) < 3000
    assert abs(series.count - 3000) < 10
    series.add("a", (3000, 2e9, 2.0))
    assert steps(series)[-1] == 3000


@cases
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 30))
def test_a_spread_keeps_order_and_the_last(numbers: list[int], most: int) -> None:
    points = [(number, 0.0, 0.0) for number in numbers]
    found = spread(points, most)
    assert len(found) == min(most, len(points))
    assert found[-1:] == points[-1:]


@cases
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.floats(0, 10)), max_size=100))
def test_a_series_has_no_more_points_than_were_written(added: list[tuple[str, int, float]]) -> None:
    series = Series()
    for file, step, wall in added:
        series.add(file, (step, wall, 0.0))
    assert len(steps(series)) <= series.count + 1
    assert steps(series) == sorted(steps(series))

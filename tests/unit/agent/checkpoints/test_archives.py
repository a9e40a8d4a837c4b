"""Archives of Keras that were damaged, or made to cost whoever reads them: bounded memory, a verdict, no traceback."""

from __future__ import annotations

import resource
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.checkpoints import formats, verifying
from dtctl.agent.host.budget import Budget, Spent
from tests.fuzz import cases

PARTS = {"metadata.json": b'{"keras_version": "3.3.3"}', "config.json": b'{"a": [1, 2]}' * 4, "w.weights.h5": bytes(99)}
MEMORY_BYTES = 48 << 20


def archive(path: Path, compression: int, parts: dict[str, bytes] = PARTS) -> bytes:
    """As Keras writes it (stored), or as another program packs it again."""
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return path.read_bytes()


def loaded(path: Path) -> dict[str, bytes]:
    """What Keras reads of it, by the same library."""
    with zipfile.ZipFile(path) as opened:
        return {one.filename: opened.read(one) for one in opened.infolist()}


def damage(path: Path) -> list[str]:
    row = formats.of(str(path))
    return formats.damage(str(path), row, Budget(time.monotonic() + 60.0, 0))[0]


@pytest.fixture(scope="module", params=[zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return archive(tmp_path_factory.mktemp("whole") / "model.keras", request.param)


def test_each_changed_byte_is_damage_or_changes_nothing_that_keras_loads(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    for at in range(len(whole)):
        for value in {0, 12, 255, whole[at] ^ 1, whole[at] ^ 64} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            if not damage(path):
                assert loaded(path) == PARTS, (at, value)


@cases
@given(st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=12), st.integers(0, 40)), min_size=1, max_size=4))
def test_any_bytes_put_in_taken_out_or_exchanged_get_a_verdict(
    whole: bytes, tmp_path: Path, changes: list[tuple[float, bytes, int]]
) -> None:
    path, data = tmp_path / "model.keras", whole
    for place, new, removed in changes:
        at = int(place * len(data))
        data = data[:at] + new + data[at + removed :]
    path.write_bytes(data)
    if not damage(path):
        assert loaded(path) == PARTS


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_an_archive_that_would_expand_in_memory_at_once_is_not_expanded(compression: int, tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", compression) as made, made.open("config.json", "w") as part:
        for _ in range(80):
            part.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problems = damage(path)
    assert problems == ["config.json in it is compressed in a way that no checkpoint uses"]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY_BYTES


def test_a_table_of_contents_of_a_million_parts_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    row = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 15)
    path.write_bytes(row * 1_000_000 + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 1_000_000 * len(row), 0, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert damage(path) == ["it is damaged: its table of contents is too large"]
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY_BYTES


def lists_one_part_often(path: Path) -> None:
    """A hundred entries that stand for the same megabytes, as "A better zip bomb" has them."""
    data = archive(path, zipfile.ZIP_DEFLATED, {"config.json": bytes(8 << 20)})
    at = data.rindex(b"PK\1\2")
    end = data.rindex(b"PK\5\6")
    rows = data[at:end] * 100
    path.write_bytes(data[:at] + rows + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 100, 100, len(rows), at, 0))


def holds_no_part(path: Path) -> None:
    path.write_bytes(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0))


def names_a_path_elsewhere(path: Path) -> None:
    archive(path, zipfile.ZIP_STORED, {**PARTS, "../../evil": b"x", "/etc/evil": b"x"})


def is_encrypted(path: Path) -> None:
    data = bytearray(archive(path, zipfile.ZIP_STORED))
    for sign, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(sign) + at] |= 1
    path.write_bytes(data)


CRAFTED: dict[str, tuple[Callable[[Path], None], bool]] = {
    "no part": (holds_no_part, True),
    "paths elsewhere": (names_a_path_elsewhere, False),
    "encrypted": (is_encrypted, True),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_archive_is_judged_and_nothing_is_unpacked(name: str, tmp_path: Path) -> None:
    make, is_damaged = CRAFTED[name]
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/model.keras"
    make(path)
    assert bool(damage(path)) == is_damaged
    assert [one.name for one in tmp_path.rglob("*") if one.is_file()] == ["model.keras"]


def test_an_archive_that_stands_for_more_than_there_is_time_for_is_not_called_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    lists_one_part_often(path)
    left = 20

    def check() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Spent("it took too long")

    budget = Budget(time.monotonic() + 60.0, 0)
    budget.check = check  # type: ignore[method-assign]
    assert not verifying.verify_format(str(path), formats.of(str(path)), budget).sound

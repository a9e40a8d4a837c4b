"""Files of Keras: whole, cut short, and something else."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import formats, reading
from dtctl.agent.host.budget import Spent

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def hdf5(version: int, size: int) -> bytes:
    """The superblock of a file of so many bytes, as HDF5 writes it, and zeros."""
    if version == 0:
        head = SIGNATURE + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
        head += struct.pack("<QQQQ", 0, 2**64 - 1, size, 2**64 - 1)
    else:
        head = SIGNATURE + bytes([version, 8, 8, 0]) + struct.pack("<QQQQ", 0, 2**64 - 1, size, 48)
    return head + bytes(size - len(head))


@pytest.mark.parametrize("version", [0, 2, 3])
def test_weights_that_are_cut_short_are_found(tmp_path: Path, version: int) -> None:
    path = tmp_path / "latest.weights.h5"
    path.write_bytes(hdf5(version, 200))
    assert formats.keras_problem(str(path)) is None
    path.write_bytes(hdf5(version, 200)[:150])
    assert formats.keras_problem(str(path)) == "it is cut short: it has 150 of 200 bytes"
    path.write_bytes(b"\x89HDF")
    assert formats.keras_problem(str(path)) == "it is cut short, or is no HDF5 file"


def test_a_model_that_is_cut_short_or_damaged_is_found(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}" * 50)
        archive.writestr("model.weights.h5", bytes(1000))
    assert formats.keras_damage(str(path)) == []
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[60] ^= 1
    path.write_bytes(changed)
    assert formats.keras_problem(str(path)) is None
    assert formats.keras_damage(str(path)) == ["config.json in it does not match its checksum"]
    path.write_bytes(whole[:-30])
    assert formats.keras_damage(str(path)) == ["it is cut short, or is no archive"]
    path.unlink()
    assert formats.keras_damage(str(path)) == ["it is missing"]


def test_an_archive_that_holds_more_than_its_time_allows_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("config.json", "w") as part:
        for _ in range(64):
            part.write(bytes(1 << 20))
    pieces = []

    def check() -> None:
        pieces.append(1)
        if len(pieces) == 3:
            raise Spent("it took too long")

    with pytest.raises(Spent):
        formats.keras_damage(str(path), check)
    assert formats.keras_damage(str(path)) == []


def test_an_archive_whose_table_of_contents_claims_any_size_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    claimed = 1 << 31
    with path.open("wb") as file:
        file.truncate(claimed)
        file.seek(claimed)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, claimed, 0, 0))
    assert formats.keras_damage(str(path)) == ["it is damaged: its table of contents is too large"]


def test_keras_files_stand_among_the_checkpoints_and_recovery_passes_them_over(tmp_path: Path) -> None:
    (tmp_path / "latest.weights.h5").write_bytes(hdf5(0, 200))
    [told] = reading.report([str(tmp_path)])
    newest = told["newest_complete"]
    assert newest is not None
    assert (newest["prefix"], newest["kind"], newest["size_bytes"]) == ("latest.weights.h5", "keras", 200)
    assert reading.newest([str(tmp_path)]) is None

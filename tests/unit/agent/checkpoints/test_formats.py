"""Files of Keras, directories of Orbax, and the file `checkpoint` of TensorFlow."""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import formats, keras, orbax, reading
from dtctl.agent.checkpoints.state_file import restored_name, with_newest
from dtctl.agent.checkpoints.trees import Tree
from dtctl.agent.host.budget import Budget, Spent
from tests.checkpoint_files import orbaxes

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def hdf5(version: int, size: int) -> bytes:
    """The superblock of a file of so many bytes, as HDF5 writes it, and zeros."""
    if version == 0:
        head = SIGNATURE + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
        head += struct.pack("<QQQQ", 0, 2**64 - 1, size, 2**64 - 1)
    else:
        head = SIGNATURE + bytes([version, 8, 8, 0]) + struct.pack("<QQQQ", 0, 2**64 - 1, size, 48)
    return head + bytes(size - len(head))


def damage(path: Path) -> list[str]:
    return formats.damage(str(path), formats.of(str(path)), Budget(time.monotonic() + 60.0, 0))[0]


@pytest.mark.parametrize("version", [0, 2, 3])
def test_weights_that_are_cut_short_are_found(tmp_path: Path, version: int) -> None:
    path = tmp_path / "latest.weights.h5"
    path.write_bytes(hdf5(version, 200))
    assert keras.problem(str(path)) is None
    path.write_bytes(hdf5(version, 200)[:150])
    assert keras.problem(str(path)) == "it is cut short: it has 150 of 200 bytes"
    path.write_bytes(b"\x89HDF")
    assert keras.problem(str(path)) == "it is cut short, or is no HDF5 file"


def test_a_model_that_is_cut_short_or_damaged_is_found(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}" * 50)
        archive.writestr("model.weights.h5", bytes(1000))
    assert damage(path) == []
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[60] ^= 1
    path.write_bytes(changed)
    assert keras.problem(str(path)) is None
    assert damage(path) == ["config.json in it does not match its checksum"]
    path.write_bytes(whole[:-30])
    assert damage(path) == ["it is cut short, or is no archive"]
    path.unlink()
    assert damage(path) == ["it is missing"]


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
        keras.damage(str(path), check)
    assert damage(path) == []


def test_an_archive_whose_table_of_contents_claims_any_size_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    claimed = 1 << 31
    with path.open("wb") as file:
        file.truncate(claimed)
        file.seek(claimed)
        file.write(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, claimed, 0, 0))
    assert damage(path) == ["it is cut short, or is no archive"]


def test_formats_stand_among_the_checkpoints_and_recovery_passes_them_over(tmp_path: Path) -> None:
    (tmp_path / "latest.weights.h5").write_bytes(hdf5(0, 200))
    [report] = reading.report([str(tmp_path)])
    newest = report["newest_complete"]
    assert newest is not None
    assert (newest["prefix"], newest["kind"], newest["size_bytes"]) == ("latest.weights.h5", "keras", 200)
    assert reading.newest([str(tmp_path)]) is None


TF1 = """\
model_checkpoint_path: "/out/model.ckpt-9"
all_model_checkpoint_paths: "/out/model.ckpt-8"
all_model_checkpoint_paths: "/out/model.ckpt-9"
"""
TF2 = """\
model_checkpoint_path: "ckpt-2"
all_model_checkpoint_paths: "ckpt-1"
all_model_checkpoint_paths: "ckpt-2"
all_model_checkpoint_timestamps: 10.5
all_model_checkpoint_timestamps: 11.5
last_preserved_timestamp: 9.5
"""


def lines(text: str) -> list[str]:
    assert text.endswith("\n")
    return text.splitlines()


def test_the_first_one_is_named_and_has_no_time_after_which_it_would_be_removed() -> None:
    assert lines(with_newest("", "m-5", 20.0)) == ['model_checkpoint_path: "m-5"', 'all_model_checkpoint_paths: "m-5"']


def test_earlier_checkpoints_stay_listed_with_their_paths_as_written() -> None:
    assert lines(with_newest(TF1, "m-5", 20.0)) == [
        'model_checkpoint_path: "m-5"',
        'all_model_checkpoint_paths: "/out/model.ckpt-8"',
        'all_model_checkpoint_paths: "/out/model.ckpt-9"',
        'all_model_checkpoint_paths: "m-5"',
    ]


def test_each_path_keeps_its_time() -> None:
    assert lines(with_newest(TF2, "m-5", 20.0))[-4:] == [
        "all_model_checkpoint_timestamps: 10.5",
        "all_model_checkpoint_timestamps: 11.5",
        "all_model_checkpoint_timestamps: 20.0",
        "last_preserved_timestamp: 9.5",
    ]


def test_checkpoint_listed_before_is_listed_once_as_the_newest() -> None:
    shown = lines(with_newest(TF2, "ckpt-1", 20.0))
    assert shown[:3] == [
        'model_checkpoint_path: "ckpt-1"',
        'all_model_checkpoint_paths: "ckpt-2"',
        'all_model_checkpoint_paths: "ckpt-1"',
    ]
    assert shown[3:5] == ["all_model_checkpoint_timestamps: 11.5", "all_model_checkpoint_timestamps: 20.0"]


@pytest.mark.parametrize("text", ["\0\1", "model_checkpoint_path: x\n}{\n", 'something_else: "y"\n'])
def test_entries_that_tensorflow_ignores_are_skipped(text: str) -> None:
    assert with_newest(text, "m-5", 20.0) == with_newest("", "m-5", 20.0)


@pytest.mark.parametrize(("text", "name"), [(TF1, "model.ckpt-9"), (TF2, "ckpt-2"), ("", None), ("x", None)])
def test_the_one_that_is_to_be_restored(text: str, name: str | None) -> None:
    assert restored_name(text) == name


ENDED = {"item_handlers": {"default": "StandardCheckpointHandler"}, "commit_timestamp_nsecs": 1795471791397796842}
BEGUN = {**ENDED, "commit_timestamp_nsecs": None}


ARRAYS = {path.removeprefix("500/"): content for path, content in orbaxes().items() if path.startswith("500/default/")}


def saved(place: Path, metadata: object = ENDED, *, committed: bool = True) -> Path:
    """As orbax-checkpoint 0.12 lays it out."""
    (place / "default" / "d").mkdir(parents=True)
    for path, content in ARRAYS.items():
        (place / path).write_bytes(content)
    if metadata is not None:
        (place / "_CHECKPOINT_METADATA").write_text(metadata if isinstance(metadata, str) else json.dumps(metadata))
    if committed:
        (place / "commit_success.txt").touch()
    return place


def saves(directory: Path) -> list[tuple[str, Any, bool, str]]:
    (report,) = reading.report([str(directory)])
    assert report["problem"] is None
    return [(one["prefix"], one["step"], one["complete"], one["kind"]) for one in report["all"]]


def test_saves_of_a_manager_are_found_newest_first(tmp_path: Path) -> None:
    for step in (100, 200):
        saved(tmp_path / str(step))
        os.utime(tmp_path / str(step) / "_CHECKPOINT_METADATA", (step, step))
    assert saves(tmp_path) == [("200", 200, True, "orbax"), ("100", 100, True, "orbax")]
    (report,) = reading.report([str(tmp_path)])
    assert report["newest_complete"] is not None
    assert report["newest_complete"]["size_bytes"] == sum(map(len, ARRAYS.values())) + len(json.dumps(ENDED))
    newest = reading.newest([str(tmp_path)])
    assert newest is not None
    assert newest["step"] == 200


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("100", 100),
        ("checkpoint_100", 100),
        ("run-7", 7),
        ("best", None),
        ("v2", None),
        ("100.orbax-checkpoint-tmp", 100),
    ],
)
def test_the_step_is_in_the_name(tmp_path: Path, name: str, step: int | None) -> None:
    (tmp_path / "empty").mkdir()
    tree = Tree(str(tmp_path / "empty"), Budget(time.monotonic() + 60.0, 9))
    assert orbax.step(name, tree) == orbax.step(f"checkpoints/{name}", tree) == step


@pytest.mark.parametrize("name", ["300.orbax-checkpoint-tmp", "300.orbax-checkpoint-tmp-1795471791"])
def test_a_save_in_progress_is_incomplete(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "200")
    os.utime(tmp_path / "200" / "_CHECKPOINT_METADATA", (200, 200))
    saved(tmp_path / name, committed=False)
    (report,) = reading.report([str(tmp_path)])
    assert [(one["step"], one["complete"]) for one in report["all"]] == [(300, False), (200, True)]
    assert report["incomplete"][0]["problem"] == "the save has not ended, or was interrupted"
    assert report["newest_complete"] is not None
    assert report["newest_complete"]["step"] == 200


@pytest.mark.parametrize(
    ("metadata", "committed", "complete"),
    [
        (ENDED, True, True),
        (ENDED, False, True),
        (BEGUN, True, True),
        (BEGUN, False, False),
        ("{", False, False),
        ("[" * 100_000, False, False),
        ("[]", False, False),
        (None, True, True),
    ],
)
def test_orbax_checkpoint_is_complete_when_its_save_has_ended(
    tmp_path: Path, metadata: object, committed: bool, complete: bool
) -> None:
    saved(tmp_path / "5", metadata, committed=committed)
    assert saves(tmp_path) == [("5", 5, complete, "orbax")]


def test_directories_of_older_versions_are_known(tmp_path: Path) -> None:
    for place in ("1", "2/default"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "_METADATA").write_text("{}")
    assert sorted(saves(tmp_path)) == [("1", 1, True, "orbax"), ("2", 2, True, "orbax")]


def test_orbax_checkpoints_are_found_one_directory_down(tmp_path: Path) -> None:
    saved(tmp_path / "checkpoints" / "100")
    (tmp_path / "checkpoints" / "latest.weights.h5").write_bytes(hdf5(2, 200))
    (tmp_path / "logs" / "100").mkdir(parents=True)
    assert sorted(saves(tmp_path)) == [
        ("checkpoints/100", 100, True, "orbax"),
        ("checkpoints/latest.weights.h5", None, True, "keras"),
    ]


def test_metadata_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path / "1", None, committed=False)
    os.mkfifo(tmp_path / "1" / "_CHECKPOINT_METADATA")
    saved(tmp_path / "2", None, committed=False)
    (tmp_path / "2" / "_CHECKPOINT_METADATA").symlink_to("/dev/zero")
    assert [complete for _, _, complete, _ in saves(tmp_path)] == [False, False]


def test_a_directory_of_too_many_files_costs_no_more_than_the_budget(tmp_path: Path) -> None:
    saved(tmp_path / "1")
    with pytest.raises(Spent):
        Tree(str(tmp_path / "1"), Budget(time.monotonic() + 60.0, 2))

"""A checkpoint that a controller sends: whole under its name, or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading, repair, verifying
from dtctl.agent.host.errors import Refused
from dtctl.agent.host.files import Unfit
from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.rooms.checkpoints import storing
from dtctl.agent.rooms.checkpoints.records import StoreRequest
from tests.agent.checkpoints.test_checkpoints import DATA

NAME = "model.ckpt-300"
FILES = {path.name: path.read_bytes() for path in sorted((DATA / "tf1_sharded").iterdir())}
"""The index last."""
SHARD = f"{NAME}.data-00000-of-00003"


def file_entry(name: str, data: bytes) -> dict[str, object]:
    return {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def wanted(content: dict[str, bytes] = FILES, **fields: Any) -> Any:
    of = {"name": NAME, "files": [file_entry(name, data) for name, data in content.items()], **fields}
    return checked(StoreRequest, {"type": "store", "cluster": "c", "host": "a", "dir": "/x", "push": "0" * 32, **of})


Begin = Callable[..., storing.Arrival]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def begin(place: Path) -> Begin:
    return lambda files=FILES, **fields: storing.Arrival(str(place), wanted(files, **fields))


def send(arrival: storing.Arrival, files: dict[str, bytes] = FILES) -> None:
    had = {one["name"]: one["size"] for one in arrival.have()}
    for name, data in files.items():
        offset = had.get(name, 0)
        for start in range(offset, len(data), 100):
            arrival.put(name, start, data[start : start + 100])


def stored(arrival: storing.Arrival, files: dict[str, bytes] = FILES) -> None:
    send(arrival, files)
    assert arrival.complete
    arrival.verify(lambda: None)
    arrival.finish(2e9)


def seen(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_nothing_has_its_name_before_all_is_there_and_then_it_is_the_newest(begin: Begin, place: Path) -> None:
    (place).mkdir()
    (place / "checkpoint").write_text('model_checkpoint_path: "old-9"\nall_model_checkpoint_paths: "old-9"\n')
    arrival = begin()
    send(arrival)
    arrival.verify(lambda: None)
    assert seen(place) == {"checkpoint", f".{NAME}.part"}
    assert reading.read_checkpoints(str(place), float("inf"))["all"] == [], "what arrives is no checkpoint yet"
    arrival.finish(2e9)
    assert seen(place) == {*FILES, "checkpoint"}
    assert {name: (place / name).read_bytes() for name in FILES} == FILES
    assert verifying.verify(str(place / NAME)).sound
    assert (place / "checkpoint").read_text().splitlines() == [
        f'model_checkpoint_path: "{NAME}"',
        'all_model_checkpoint_paths: "old-9"',
        f'all_model_checkpoint_paths: "{NAME}"',
    ]
    assert {(place / name).stat().st_mtime for name in FILES} == {2e9}, "however long it was on its way"
    assert {stat.S_IMODE((place / name).stat().st_mode) for name in FILES} == {0o600}


def test_interrupted_checkpoint_transfer_resumes(begin: Begin, place: Path) -> None:
    first = begin()
    first.put(SHARD, 0, FILES[SHARD][:10])
    again = begin()
    assert (again.have(), again.token) == ([{"name": SHARD, "size": 10}], first.token)
    stored(again)
    assert (place / SHARD).read_bytes() == FILES[SHARD]


def test_what_belongs_to_another_version_of_the_file_is_not_kept(begin: Begin, place: Path) -> None:
    begin().put(SHARD, 0, FILES[SHARD][:10])
    other = {**FILES, SHARD: b"another"}
    assert begin(other).have() == []
    stored(begin(other), other)
    assert (place / SHARD).read_bytes() == b"another"


def test_a_file_that_is_not_what_was_sent_is_let_go_and_the_rest_stays(begin: Begin, place: Path) -> None:
    arrival = begin()
    send(arrival, {**FILES, SHARD: b"x" * len(FILES[SHARD])})
    with pytest.raises(Refused, match=f"{SHARD} was damaged on its way") as refused:
        arrival.verify(lambda: None)
    assert refused.value.code == "checkpoint_damaged"
    assert seen(place) == {f".{NAME}.part"}
    again = begin()
    assert {one["name"] for one in again.have()} == {*FILES} - {SHARD}
    stored(again)


@pytest.mark.parametrize("cut_after", range(len(FILES) + 1))
def test_where_its_last_steps_were_cut_short_the_next_one_ends_them(
    cut_after: int, begin: Begin, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrival = begin()
    send(arrival)
    arrival.verify(lambda: None)
    renames, rename = iter(range(100)), os.rename

    def cut(*args: Any, **named: Any) -> None:
        if next(renames) == cut_after:
            raise KeyboardInterrupt
        rename(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", cut)
        patched.setattr(repair.OpenDirectory, "name_newest", cut)
        with pytest.raises(KeyboardInterrupt):
            arrival.finish(2e9)
    assert ((place / f"{NAME}.index").exists()) is (cut_after == len(FILES)), "no half of one has an index"
    again = begin()
    assert again.complete
    stored(again)
    assert seen(place) == {*FILES, "checkpoint"}


def test_push_cancelled_before_the_first_byte_leaves_nothing(begin: Begin, place: Path) -> None:
    begin().leave()
    assert seen(place) == set()
    arrival = begin()
    arrival.put(SHARD, 0, b"x")
    arrival.leave()
    assert seen(place) == {f".{NAME}.part"}


def test_hosts_that_share_the_directory_are_known_by_a_name_of_each_push(begin: Begin, place: Path) -> None:
    first, second = begin(), begin()
    assert first.token == second.token
    assert begin(push="1" * 32).token != first.token
    [name] = [path.name for path in (place / f".{NAME}.part").glob("id-*")]
    assert name == f"id-{'1' * 32}", "that of an earlier push may have been copied with the directory"


def test_who_has_not_written_the_name_yet_is_waited_for(
    begin: Begin, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / f".{NAME}.part").mkdir(parents=True, mode=0o700)
    name = place / f".{NAME}.part" / f"id-{'0' * 32}"
    name.write_text("")
    monkeypatch.setattr("time.sleep", lambda _: name.write_text("a" * 32))
    assert begin().token == "a" * 32


def test_the_very_same_is_there_already(begin: Begin, place: Path) -> None:
    stored(begin())
    (place / "checkpoint").unlink()
    again = begin()
    assert (again.there, again.complete) == (True, True)
    again.verify(lambda: None)
    again.finish(2e9)
    assert seen(place) == {*FILES, "checkpoint"}


@pytest.mark.parametrize("name", FILES)
def test_another_one_of_its_name_is_never_touched(name: str, begin: Begin, place: Path) -> None:
    stored(begin())
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    with pytest.raises(Refused, match=f"another checkpoint is called {NAME} in {place}") as refused:
        begin({**FILES, name: b"another"})
    assert refused.value.code == "name_taken"
    assert name in refused.value.detail
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_foreign_files_without_an_index_are_not_touched(begin: Begin, place: Path) -> None:
    place.mkdir()
    (place / SHARD).write_bytes(b"of a save that was cut off")
    with pytest.raises(Refused, match="another checkpoint is called"):
        begin()
    assert (place / SHARD).read_bytes() == b"of a save that was cut off"


def test_checkpoint_saved_during_a_transfer_is_not_overwritten(begin: Begin, place: Path) -> None:
    arrival = begin()
    send(arrival)
    arrival.verify(lambda: None)
    (place / f"{NAME}.index").write_bytes(b"of a trainer")
    with pytest.raises(Refused, match="another checkpoint is called"):
        arrival.finish(2e9)
    assert seen(place) == {f"{NAME}.index", f".{NAME}.part"}


def test_room_is_looked_for_first(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    arrival = begin()
    arrival.put(SHARD, 0, FILES[SHARD][:10])
    lacking = sum(map(len, FILES.values())) - 10
    disk = os.fstatvfs(0)

    def free(size: int) -> Any:
        return lambda _: type("Disk", (), {"f_bavail": size, "f_frsize": 1})

    assert disk is not None
    monkeypatch.setattr(os, "fstatvfs", free(lacking))
    arrival.refuse_without_room()
    monkeypatch.setattr(os, "fstatvfs", free(lacking - 1))
    with pytest.raises(Refused, match="there is no room") as refused:
        arrival.refuse_without_room()
    assert (refused.value.code, f"{lacking} bytes are still to come" in refused.value.detail) == ("disk_full", True)


def test_a_directory_in_that_of_the_checkpoints_is_made(begin: Begin, place: Path) -> None:
    arrival = begin(below="chief")
    assert arrival.directory == str(place / "chief")
    stored(arrival)
    assert seen(place / "chief") == {*FILES, "checkpoint"}
    [result] = reading.read_checkpoints(str(place), float("inf"))["all"]
    assert (result["prefix"], result["complete"]) == (f"chief/{NAME}", True)


def test_a_link_in_the_place_of_what_arrives_leads_nowhere(begin: Begin, place: Path, tmp_path: Path) -> None:
    place.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (place / f".{NAME}.part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"."):
        begin()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_the_place_of_a_part_leads_nowhere(begin: Begin, place: Path, tmp_path: Path) -> None:
    arrival = begin()
    (tmp_path / "own").write_text("own")
    (place / f".{NAME}.part" / SHARD).symlink_to(tmp_path / "own")
    with pytest.raises(Unfit):
        arrival.put(SHARD, 0, FILES[SHARD][:10])
    assert (tmp_path / "own").read_text() == "own"


@pytest.mark.parametrize(("name", "offset"), [(SHARD, 1), ("other.index", 0), ("../own", 0), (SHARD, 10**6)])
def test_bytes_that_do_not_follow_are_refused(name: str, offset: int, begin: Begin) -> None:
    with pytest.raises(Refused, match="do not follow"):
        begin().put(name, offset, b"x")
    with pytest.raises(Refused, match="do not follow"):
        begin().put(SHARD, 0, b"x" * 10_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../m"},
        {"name": "."},
        {"name": 'm"'},
        {"below": ".."},
        {"below": "a/b"},
        {"files": []},
        {"files": [file_entry(f"{NAME}.index", b""), file_entry(SHARD, b"")]},
        {"files": [file_entry(SHARD, b""), file_entry(SHARD, b""), file_entry(f"{NAME}.index", b"")]},
        {"files": [file_entry("checkpoint", b""), file_entry(f"{NAME}.index", b"")]},
    ],
)
def test_a_request_names_the_files_of_one_checkpoint_and_nothing_else(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        wanted(**fields)

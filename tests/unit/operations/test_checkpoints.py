"""Which checkpoints a run has on all its hosts, and how one of them lands on this machine."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dtctl.agent.records.checkpoints import Checkpoint
from dtctl.agent.records.kinds import InvalidValue, made
from dtctl.errors import DtctlError
from dtctl.operations.checkpoints import Checkpoints, Found, chosen, each_once, every, missing_elsewhere, named
from dtctl.rooms.checkpoints.pull import Landing, pull
from dtctl.rooms.checkpoints.upkeep import prune
from tests.checkpoint_files import torch_file
from tests.unit.conftest import Typed
from tests.unit.coordinated import Agents, record
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession, FakeTransport
from tests.unit.tasks import checkpoint, checkpoint_directory
from tests.unit.test_commands import hosts_are_unreachable_in_json

WHOLE = checkpoint("model-7", 7, time=100.0, held=[0], identity="5-1")


def place(host: str, *found: Checkpoint, directory: str = "/out", identity: str = "9") -> Checkpoints:
    return checkpoint_directory(host, directory, *found, identity=identity)


def shard(number: int, **fields: Any) -> Checkpoint:
    """What a host has that holds one of two shards, and the index."""
    lacking = f"model-7.data-0000{1 - number}-of-00002 is missing"
    part = {"complete": False, "problem": lacking, "shards": 2, "held": [number], "identity": f"{number}-1"}
    return changed_checkpoint(**{**part, **fields})


def changed_checkpoint(**fields: Any) -> Checkpoint:
    return made(Checkpoint, **{**WHOLE, **fields})


def test_a_directory_that_hosts_share_is_reported_once() -> None:
    [one] = each_once([place("a", WHOLE), place("b", WHOLE)])
    assert (one.host, one.others) == ("a", ("b",))


def test_directories_of_the_same_path_are_two_where_their_files_differ() -> None:
    other = changed_checkpoint(identity="6-2")
    assert len(each_once([place("a", WHOLE), place("b", other)])) == 2
    assert len(each_once([place("a", WHOLE), place("b", WHOLE, identity="10")])) == 2
    assert len(each_once([place("a", WHOLE), place("b", WHOLE, directory="/elsewhere")])) == 2


def test_a_save_between_two_looks_makes_no_other_directory_of_it() -> None:
    newer = changed_checkpoint(prefix="model-8", identity="5-2")
    assert len(each_once([place("a", WHOLE), place("b", newer, WHOLE)])) == 1


def test_shards_that_others_hold_are_named_with_their_hosts() -> None:
    found = [place("a", shard(0)), place("b", shard(1))]
    assert missing_elsewhere(found, found[0], found[0].report["all"][0]) == {1: "b"}
    [one] = every(found)
    assert (one.hosts, dict(one.shards), one.whole, one.scattered) == (("a", "b"), {0: "a", 1: "b"}, True, True)


def test_shards_of_which_one_is_nowhere_make_no_checkpoint() -> None:
    found = [place("a", shard(0, shards=3)), place("b", shard(1, shards=3))]
    assert not any(one.whole for one in every(found))
    with pytest.raises(DtctlError, match="not complete"):
        chosen(found, None)


def test_the_newest_whole_one_is_chosen_or_that_of_a_step_or_name() -> None:
    older = changed_checkpoint(prefix="chief/model-5", step=5, time=50.0, identity="4-4")
    broken = changed_checkpoint(prefix="model-9", step=9, time=200.0, complete=False, problem="cut short")
    found = [place("a", broken, WHOLE, older)]
    assert chosen(found, None).checkpoint == WHOLE
    assert {chosen(found, wanted).name for wanted in ("5", "chief/model-5", "model-5", "/out/chief/model-5")} == {
        "model-5"
    }
    with pytest.raises(DtctlError, match="a:/out/model-9 is not complete: cut short"):
        chosen(found, "9")
    with pytest.raises(DtctlError, match="no checkpoint is of step or name 6") as error:
        chosen(found, "6")
    assert "model-7 (step 7), chief/model-5 (step 5)" in error.value.hint
    assert [one.name for one in named(found, None, all_of_them=False)] == ["model-9", "model-7"]
    assert len(named(found, None, all_of_them=True)) == 3


FILES = {"m-7.data-00000-of-00001": b"12345678", "m-7.index": b"index"}
ASKED = ["m-7.data-00000-of-00001", "m-7.index", "m-7.meta"]


def begun(directory: Path, name: str = "m-7", files: Sequence[str] = ASKED) -> Landing:
    return Landing(directory, name, files)


def put(landing: Landing, name: str, data: bytes, identity: str = "1-8-3", *, offset: int = 0, total: int = 8) -> None:
    landing.put({"name": name, "offset": offset, "total": total, "identity": identity}, data)


def landed(landing: Landing, name: str, data: bytes, identity: str = "1-8-3") -> None:
    put(landing, name, data, identity)
    landing.check(name, len(data), sha256(data).hexdigest())


def all_landed(landing: Landing) -> None:
    for name, data in FILES.items():
        landed(landing, name, data)


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    with closing(begun(tmp_path / "here")) as made:
        yield made


@pytest.fixture
def directory(landing: Landing) -> Path:
    return landing.path.parent


def test_files_have_their_names_when_all_have_arrived(landing: Landing, directory: Path) -> None:
    for name, data in FILES.items():
        landed(landing, name, data)
        assert [path.name for path in directory.iterdir()] == [".m-7.part"], "no half of one is seen"
    files = landing.finish(list(FILES))
    assert [path.name for path in files] == list(FILES), "the index last"
    assert {path.name: path.read_bytes() for path in files} == FILES
    assert {path.name for path in directory.iterdir()} == {*FILES, "checkpoint"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert (directory / "checkpoint").read_text().startswith('model_checkpoint_path: "m-7"\n')


def test_another_checkpoint_stays_named(landing: Landing, directory: Path) -> None:
    (directory / "checkpoint").write_text("of mine")
    all_landed(landing)
    landing.finish(list(FILES))
    assert (directory / "checkpoint").read_text() == "of mine"


def test_a_pull_continues_where_the_last_one_ended(landing: Landing, directory: Path) -> None:
    data = "m-7.data-00000-of-00001"
    put(landing, data, b"1234")
    again = begun(directory)
    assert again.have(ASKED) == [{"name": data, "size": 4, "identity": "1-8-3"}]
    assert again.have(["m-7.index"]) == []
    put(again, data, b"5678", offset=4)
    again.check(data, 8, sha256(b"12345678").hexdigest())


def test_changed_file_is_downloaded_from_its_beginning(landing: Landing) -> None:
    put(landing, "m-7.index", b"old")
    landed(landing, "m-7.index", b"index", "1-8-4")


@pytest.mark.parametrize("placed", [["m-7.data-00000-of-00001"], list(FILES)])
def test_names_that_were_given_before_a_crash_are_taken_back(
    landing: Landing, directory: Path, monkeypatch: pytest.MonkeyPatch, placed: list[str]
) -> None:
    all_landed(landing)

    def crashes(name: str, new: str, **directories: int) -> None:
        if name not in placed:
            raise OSError(5, "Input/output error")
        rename(name, new, **directories)

    rename = os.rename
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crashes)
        patch.setattr(landing._parts, "clear", lambda: None)
        with suppress(OSError):
            landing.finish(list(FILES))
    assert {path.name for path in directory.iterdir()} - {"checkpoint"} == {".m-7.part", *placed}
    again = begun(directory)
    assert {path.name for path in directory.iterdir()} - {"checkpoint"} == {".m-7.part"}
    again.finish(list(FILES))
    assert {name: (directory / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize("planted", [{}, {"m-7.meta": "1-1"}, {"m-7.meta": "mine", "other": "mine"}])
@pytest.mark.parametrize("name", ["m-7.meta", "m-7.index", "m-7.data-00000-of-00001"])
def test_a_file_of_the_users_own_is_neither_moved_nor_replaced(
    tmp_path: Path, name: str, planted: dict[str, str]
) -> None:
    (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "other").write_bytes(b"mine")
    (tmp_path / ".m-7.part").mkdir(mode=0o700)
    found = (tmp_path / "other").stat()
    note = {one: str(found.st_ino) if inode == "mine" else inode for one, inode in planted.items()}
    (tmp_path / ".m-7.part" / "placing").write_text(json.dumps(note))
    with pytest.raises(DtctlError, match="already exists"):
        begun(tmp_path)
    assert (tmp_path / name).read_bytes() == (tmp_path / "other").read_bytes() == b"mine"


def test_a_file_that_came_meanwhile_is_not_replaced(landing: Landing, directory: Path) -> None:
    all_landed(landing)
    (directory / "m-7.index").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        landing.finish(list(FILES))
    assert (directory / "m-7.index").read_bytes() == b"mine"


def test_a_refused_pull_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "m-7.index").write_bytes(b"mine")
    with pytest.raises(DtctlError, match="already exists"):
        begun(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["m-7.index"]


@pytest.mark.parametrize(
    "name", ["../m-7.index", "/nowhere/passwd", "m-7.index/x", "m-70.index", "checkpoint", "arrived", "placing", ""]
)
def test_only_files_of_the_checkpoint_are_taken(landing: Landing, directory: Path, name: str) -> None:
    with pytest.raises(InvalidValue):
        put(landing, name, b"x")
    with pytest.raises(InvalidValue):
        landing.check(name, 1, sha256(b"x").hexdigest())
    assert [path.name for path in directory.iterdir()] == [".m-7.part"]
    assert list(landing.path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".bashrc", "a/b", "a\0b", "a\nb", "x" * 201, 'a"b', "a\\b", "a\u202eb"]
)
def test_a_name_that_would_lead_elsewhere_or_cannot_be_pushed_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DtctlError, match="not a name that dtctl gives"):
        begun(tmp_path, name)


def test_bytes_that_do_not_follow_are_refused(landing: Landing) -> None:
    put(landing, "m-7.index", b"in")
    with pytest.raises(InvalidValue):
        put(landing, "m-7.index", b"ex", offset=3)


def test_more_than_was_announced_is_refused(landing: Landing) -> None:
    put(landing, "m-7.index", b"1234")
    for total in (8, 9):
        with pytest.raises(InvalidValue):
            put(landing, "m-7.index", b"56789", offset=4, total=total)


def test_more_than_the_disk_holds_is_refused_before_it_is_full(landing: Landing) -> None:
    disk = os.statvfs(landing.path)
    put(landing, "m-7.index", b"1234")
    with pytest.raises(OSError, match="No space left"):
        put(landing, "m-7.data-00000-of-00001", b"x", total=disk.f_bavail * disk.f_frsize - 1)  # a reserve is left
    assert not (landing.path / "m-7.data-00000-of-00001").exists()


def test_a_received_file_with_another_digest_is_discarded(landing: Landing) -> None:
    put(landing, "m-7.index", b"indes")
    with pytest.raises(InvalidValue):
        landing.check("m-7.index", 5, sha256(b"index").hexdigest())
    assert landing.have(ASKED) == []


def test_a_link_in_the_place_of_a_file_is_not_followed(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    put(landing, "m-7.index", b"in")
    (landing.path / "m-7.index").unlink()
    (landing.path / "m-7.index").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="is a link"):
        put(landing, "m-7.index", b"x", offset=4)
    assert (tmp_path / "victim").read_text() == "mine"


TWO_SHARDS = {0: "a", 1: "b"}


def scattered(shards: Mapping[int, str]) -> Found:
    """By what the hosts a and b say of themselves."""
    return Found("/out", changed_checkpoint(prefix="m-7", shards=2), ("a", "b"), shards)


def whole(prefix: str = "m-7", kind: str = "tensorflow", shards: int = 2) -> Found:
    return Found("/out", changed_checkpoint(prefix=prefix, kind=kind, shards=shards), ("a",))


class Sending(Agents):
    """Each host sends what it is asked for, and more."""

    def __init__(self, more: Mapping[str, str]) -> None:
        super().__init__()
        self.more = more

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        names = [*fields["files"], *([self.more[session.host.name]] if session.host.name in self.more else [])]
        content = {name: f"{name} of {session.host.name}".encode() for name in names if not name.endswith(".meta")}
        parts = [
            {"type": "part", "name": name, "offset": 0, "total": len(data), "identity": "1", "payload": data}
            for name, data in content.items()
        ]
        sent = [{"name": name, "size": len(data), "sha256": sha256(data).hexdigest()} for name, data in content.items()]
        return [*parts, {"type": "result", "run": "digits-1", "files": sent}]


def pulled(tmp_path: Path, one: Found, more: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    pull(record(), FakeTransport(Sending(more)), one, tmp_path / "here", lambda progress: None)
    return sorted(path.name for path in (tmp_path / "here").iterdir())


@pytest.mark.parametrize(
    "more",
    [
        {"b": "m-7.data-00000-of-00002"},
        {"a": "m-7.data-00001-of-00002"},
        {"b": "m-7.index"},
        {"b": "m-7.meta2"},
        {"a": "m-7.data-00002-of-00003"},
    ],
)
def test_a_host_delivers_only_what_it_was_asked_for(tmp_path: Path, more: Mapping[str, str]) -> None:
    with pytest.raises(DtctlError, match="sent an invalid `part`"):
        pulled(tmp_path, scattered(TWO_SHARDS), more)
    assert [path.name for path in (tmp_path / "here").iterdir()] == [".m-7.part"]


@pytest.mark.parametrize("shards", [TWO_SHARDS, {0: "a", 7: "b"}, {5: "a", 7: "b"}])
def test_shards_of_several_hosts_that_make_no_sound_checkpoint_get_no_name(
    tmp_path: Path, shards: dict[int, str]
) -> None:
    with pytest.raises(DtctlError, match="/out/m-7 is damaged as a, b hold it"):
        pulled(tmp_path, scattered(shards))
    assert [path.name for path in (tmp_path / "here").iterdir()] == [".m-7.part"]


def test_shards_beyond_number_are_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DtctlError, match="at most 1000 are fetched"):
        pulled(tmp_path, whole(shards=10**9))


@pytest.mark.parametrize("name", ["sitecustomize.py", "evil.pth", "model.keras.py", "latest.h5.pth", ".keras"])
def test_a_file_of_keras_is_called_as_keras_calls_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(DtctlError, match="is not a name that"):
        pulled(tmp_path, whole(name, "keras", 1))
    assert not (tmp_path / "here").exists()


def test_files_of_keras_and_whole_checkpoints_arrive(tmp_path: Path) -> None:
    assert pulled(tmp_path, whole("chief/best.keras", "keras", 1)) == ["best.keras"]
    assert pulled(tmp_path, whole()) == [
        "best.keras",
        "checkpoint",
        *(f"m-7.data-0000{shard}-of-00002" for shard in (0, 1)),
        "m-7.index",
    ]


def test_nothing_is_pruned_without_a_confirmed_list() -> None:
    """c only beats."""
    asked: list[tuple[str, bool]] = []

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        asked.append((session.host.name, fields["dry_run"]))
        pruned = {"dir": "/out", "removed": [], "kept": [], "freed_bytes": 0, "problem": None, "listed": True}
        result = {"type": "result", "run": "digits-1", "directories": [pruned]}
        return [dict(BEATS_FOR_EVER) if session.host.name == "c" else result]

    found = [place("c", WHOLE), place("a", WHOLE, directory="/out")]
    looked = prune(record(), FakeTransport(answer), found, keep=1, dry_run=True, live=True)
    assert list(looked.errors) == ["c"]
    done = prune(record(), FakeTransport(answer), looked.as_reported(found), keep=1, dry_run=False, live=True)
    assert not done.errors
    assert [host for host, dry_run in asked if not dry_run] == ["a"]


def test_hosts_that_cannot_be_reached_are_shown_in_json(typed: Typed) -> None:
    hosts_are_unreachable_in_json(typed("checkpoints -o json"))


class SendingFiles(Agents):
    """A host sends these files, whatever it is asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self.files = files

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        parts = [
            {"type": "part", "name": name, "offset": 0, "total": len(data), "identity": "1", "payload": data}
            for name, data in self.files.items()
        ]
        sent = [
            {"name": name, "size": len(data), "sha256": sha256(data).hexdigest()} for name, data in self.files.items()
        ]
        return [*parts, {"type": "result", "run": "digits-1", "files": sent}]


def arrived(tmp_path: Path, one: Found, files: Mapping[str, bytes]) -> dict[str, bytes]:
    here = tmp_path / "here"
    pull(record(), FakeTransport(SendingFiles(files)), one, here, lambda progress: None)
    return {str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()}


OUTSIDE = [
    "../evil",
    "/etc/evil",
    "a/../../evil",
    "a//b",
    ".",
    "..",
    "a/",
    "",
    "a\\b",
    "a\nb",
    "/".join("abcdefgh"),
    "x" * 201,
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_directory_holds_only_what_is_in_it(tmp_path: Path, path: str) -> None:
    with pytest.raises(DtctlError, match="sent an invalid `part`"):
        arrived(tmp_path, whole("checkpoint-5", "huggingface", 1), {path: b"evil"})
    assert [one.name for one in (tmp_path / "here").iterdir()] == [".checkpoint-5.part"]
    assert [one.name for one in tmp_path.iterdir()] == ["here"]


def test_a_directory_arrives_as_a_whole_with_the_file_that_names_it(tmp_path: Path) -> None:
    files = {"mp_rank_00_model_states.pt": b"1", "a/b%2Fc/arrived": b"2", "placing": b"3"}
    one = whole("run/global_step5", "deepspeed", 1)
    in_place = {f"global_step5/{name}": content for name, content in files.items()}
    assert arrived(tmp_path, one, files) == {**in_place, "latest": b"global_step5"}


def test_a_directory_of_any_number_of_files_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(DtctlError, match="sent an invalid `part`"):
        arrived(tmp_path, whole("checkpoint-5", "huggingface", 1), {str(number): b"" for number in range(1005)})


@pytest.mark.parametrize("name", ["x.py", ".x.pt", "checkpoint-5"])
def test_a_file_is_called_as_its_format_calls_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(DtctlError, match="is not a name that"):
        arrived(tmp_path, whole(f"run/{name}", "torch", 1), {name: b"x"})


def test_a_file_that_only_has_the_name_of_a_checkpoint_does_not_arrive(tmp_path: Path) -> None:
    with pytest.raises(DtctlError, match="it is no checkpoint of PyTorch"):
        arrived(tmp_path, whole("evil.pth", "torch", 1), {"evil.pth": b"import os"})
    assert [one.name for one in (tmp_path / "here").iterdir()] == [".evil.pth.part"]
    content = torch_file()
    assert arrived(tmp_path, whole("good.pth", "torch", 1), {"good.pth": content})["good.pth"] == content

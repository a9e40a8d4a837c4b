"""Which checkpoints a run has on all its hosts, and how one of them lands on this machine."""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import Wrong
from dtctl.errors import DtctlError
from dtctl.operations.checkpointing.finding import chosen, each_once, every, missing_elsewhere, named
from dtctl.operations.checkpointing.landing import Landing
from dtctl.operations.checkpointing.pruning import prune
from dtctl.operations.checkpointing.pulling import pull
from dtctl.operations.checkpoints import Checkpoint, Checkpoints
from tests.unit.coordinated import Agents, record
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession, FakeTransport

WHOLE = Checkpoint("model-7", 7, 100.0, 10, 1, complete=True, problem="", held=(0,), identity="5-1")


def place(host: str, *found: Checkpoint, directory: str = "/out", identity: str = "9") -> Checkpoints:
    newest = next((one for one in found if one.complete), None)
    return Checkpoints(host, directory, newest, (), tuple(found), identity=identity)


def shard(number: int, **fields: object) -> Checkpoint:
    """What a host has that holds one of two shards, and the index."""
    lacking = f"model-7.data-0000{1 - number}-of-00002 is missing"
    part = dataclasses.replace(WHOLE, complete=False, problem=lacking, shards=2, held=(number,), identity=f"{number}-1")
    return dataclasses.replace(part, **fields)  # type: ignore[arg-type]


def test_a_directory_that_hosts_share_is_told_once() -> None:
    [one] = each_once([place("a", WHOLE), place("b", WHOLE)])
    assert (one.host, one.others) == ("a", ("b",))


def test_directories_of_the_same_path_are_two_where_their_files_differ() -> None:
    other = dataclasses.replace(WHOLE, identity="6-2")
    assert len(each_once([place("a", WHOLE), place("b", other)])) == 2
    assert len(each_once([place("a", WHOLE), place("b", WHOLE, identity="10")])) == 2
    assert len(each_once([place("a", WHOLE), place("b", WHOLE, directory="/elsewhere")])) == 2


def test_a_save_between_two_looks_makes_no_other_directory_of_it() -> None:
    newer = dataclasses.replace(WHOLE, prefix="model-8", identity="5-2")
    assert len(each_once([place("a", WHOLE), place("b", newer, WHOLE)])) == 1


def test_shards_that_others_hold_are_named_with_their_hosts() -> None:
    found = [place("a", shard(0)), place("b", shard(1))]
    assert missing_elsewhere(found, found[0], found[0].all[0]) == {1: "b"}
    [one] = every(found)
    assert (one.hosts, dict(one.shards), one.whole, one.scattered) == (("a", "b"), {0: "a", 1: "b"}, True, True)


def test_shards_of_which_one_is_nowhere_make_no_checkpoint() -> None:
    found = [place("a", shard(0, shards=3)), place("b", shard(1, shards=3))]
    assert not any(one.whole for one in every(found))
    with pytest.raises(DtctlError, match="not complete"):
        chosen(found, None)


def test_the_newest_whole_one_is_chosen_or_that_of_a_step_or_name() -> None:
    older = dataclasses.replace(WHOLE, prefix="chief/model-5", step=5, time=50.0, identity="4-4")
    broken = dataclasses.replace(WHOLE, prefix="model-9", step=9, time=200.0, complete=False, problem="cut short")
    found = [place("a", broken, WHOLE, older)]
    assert chosen(found, None).checkpoint == WHOLE
    assert {chosen(found, wanted).name for wanted in ("5", "chief/model-5", "model-5", "/out/chief/model-5")} == {
        "model-5"
    }
    with pytest.raises(DtctlError, match="/out/model-9 on a is not complete: cut short"):
        chosen(found, "9")
    with pytest.raises(DtctlError, match="no checkpoint is of step or name 6") as error:
        chosen(found, "6")
    assert "model-7 (step 7), chief/model-5 (step 5)" in error.value.hint
    assert [one.name for one in named(found, None, all_of_them=False)] == ["model-9", "model-7"]
    assert len(named(found, None, all_of_them=True)) == 3


FILES = {"m-7.data-00000-of-00001": b"12345678", "m-7.index": b"index"}


def landed(landing: Landing, name: str, data: bytes, identity: str = "1-8-3") -> None:
    landing.put(name, 0, identity, data)
    landing.check(name, len(data), sha256(data).hexdigest())


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    made = Landing(tmp_path / "here", "m-7")
    made.begin()
    return made


def test_files_have_their_names_when_all_have_arrived(landing: Landing) -> None:
    for name, data in FILES.items():
        landed(landing, name, data)
        assert [path.name for path in landing.directory.iterdir()] == [".m-7.part"], "no half of one is seen"
    files = landing.finish(list(FILES))
    assert [path.name for path in files] == list(FILES), "the index last"
    assert {path.name: path.read_bytes() for path in files} == FILES
    assert {path.name for path in landing.directory.iterdir()} == {*FILES, "checkpoint"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in landing.directory.iterdir()} == {0o600}
    assert (landing.directory / "checkpoint").read_text().startswith('model_checkpoint_path: "m-7"\n')


def test_another_checkpoint_stays_named(landing: Landing) -> None:
    (landing.directory / "checkpoint").write_text("of mine")
    for name, data in FILES.items():
        landed(landing, name, data)
    landing.finish(list(FILES))
    assert (landing.directory / "checkpoint").read_text() == "of mine"


def test_a_pull_goes_on_where_the_last_one_ended(landing: Landing) -> None:
    data = "m-7.data-00000-of-00001"
    landing.put(data, 0, "1-8-3", b"1234")
    again = Landing(landing.directory, "m-7")
    again.begin()
    assert again.have() == [{"name": data, "size": 4, "identity": "1-8-3"}]
    again.put(data, 4, "1-8-3", b"5678")
    again.check(data, 8, sha256(b"12345678").hexdigest())


def test_a_file_that_has_changed_meanwhile_begins_anew(landing: Landing) -> None:
    landing.put("m-7.index", 0, "1-8-3", b"old")
    landed(landing, "m-7.index", b"index", "1-8-4")


def test_names_that_were_given_before_a_crash_are_taken_back(landing: Landing) -> None:
    landed(landing, "m-7.data-00000-of-00001", b"12345678")
    landing.finish(["m-7.data-00000-of-00001"])
    again = Landing(landing.directory, "m-7")
    again.begin()
    assert [path.name for path in landing.directory.iterdir()] == [".m-7.part"]
    landed(again, "m-7.index", b"index")


@pytest.mark.parametrize(
    "name", ["../m-7.index", "/etc/passwd", "m-7.index/x", "m-70.index", "checkpoint", "arrived", ""]
)
def test_only_files_of_the_checkpoint_are_taken(landing: Landing, name: str) -> None:
    with pytest.raises(Wrong):
        landing.put(name, 0, "1-8-3", b"x")
    with pytest.raises(Wrong):
        landing.check(name, 1, sha256(b"x").hexdigest())
    assert [path.name for path in landing.directory.iterdir()] == [".m-7.part"]
    assert list(landing.parts.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", ".bashrc", "a/b", "a\0b", "a\nb", "x" * 201])
def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DtctlError, match="no name that dtctl gives"):
        Landing(tmp_path, name)


def test_bytes_that_do_not_follow_are_refused(landing: Landing) -> None:
    landing.put("m-7.index", 0, "1-8-3", b"in")
    with pytest.raises(Wrong):
        landing.put("m-7.index", 3, "1-8-3", b"ex")


def test_a_file_that_arrived_as_another_is_let_go_of(landing: Landing) -> None:
    landing.put("m-7.index", 0, "1-8-3", b"indes")
    with pytest.raises(Wrong):
        landing.check("m-7.index", 5, sha256(b"index").hexdigest())
    assert landing.have() == []


def test_a_link_in_the_place_of_a_file_is_not_followed(landing: Landing, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    landing.put("m-7.index", 0, "1-8-3", b"in")
    (landing.parts / "m-7.index").unlink()
    (landing.parts / "m-7.index").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match=r"symbolic|Too many"):
        landing.put("m-7.index", 4, "1-8-3", b"x")
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_checkpoint_that_is_there_already_is_left_alone(landing: Landing) -> None:
    (landing.directory / "m-7.index").write_bytes(b"mine")
    with pytest.raises(DtctlError, match="is there already"):
        Landing(landing.directory, "m-7").begin()


def test_a_directory_of_orbax_is_not_pulled_and_the_error_says_how_to_copy_it(tmp_path: Path) -> None:
    one = dataclasses.replace(WHOLE, prefix="7", kind="orbax")
    transport = FakeTransport(Agents())
    with pytest.raises(DtctlError, match="/out/7 is a checkpoint of Orbax, a directory") as raised:
        pull(record(), transport, chosen([place("a", one)], "7"), tmp_path / "here", lambda progress: None)
    assert "rsync -a a:/out/7 ." in raised.value.hint
    assert not (tmp_path / "here").exists()
    assert list(transport.opened) == []


def test_where_nobody_was_shown_what_would_go_nothing_goes() -> None:
    class Silent(Agents):
        """c only beats."""

        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            self.asked.append((session.host.name, "prune", fields))
            if session.host.name == "c":
                return [dict(BEATS_FOR_EVER)]
            told = {"dir": "/out", "removed": [], "kept": [], "freed_bytes": 0, "problem": None, "listed": True}
            return [{"type": "result", "run": "digits-1", "directories": [told]}]

    agents, found = Silent(), [place("c", WHOLE), place("a", WHOLE, directory="/out")]
    looked = prune(record(), FakeTransport(agents), found, keep=1, dry_run=True)
    assert list(looked.errors) == ["c"]
    done = prune(record(), FakeTransport(agents), looked.told(found), keep=1, dry_run=False)
    assert not done.errors
    assert [(host, fields["dry_run"]) for host, _, fields in agents.asked if not fields["dry_run"]] == [("a", False)]

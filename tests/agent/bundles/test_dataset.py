"""A data set in a directory of the user's: whose files it touches, and what it sends again."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles import tree
from dtctl.agent.host import locks
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.values import LARGE_BYTES
from dtctl.agent.rooms.data import dataset
from dtctl.agent.rooms.data.dataset import DataSet
from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.errors import ConnectionLost
from dtctl.transport.seam import Message
from tests.agent.bundles.pushing import content, serve
from tests.agent.link.ends import PipeSession, conversation
from tests.waiting import PATIENCE_S


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "cat").mkdir(parents=True)
    (source / "dog").mkdir()
    (source / "empty").mkdir()
    for name in ("cat/1", "cat/2", "dog/1"):
        (source / name).write_text(f"a picture: {name}\n")
    (source / "labels").symlink_to("cat/1")
    return source


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ssd" / "digits"


def live() -> None:
    raise Refused("run_live", "run digits-1 of digits is live")


def push(
    source: Path, root: Path, place: Path, *, overwrite: bool = False, refuse: Callable[[], None] = lambda: None
) -> tuple[Any, list[str]]:
    """The answer, and which files were sent. Raises what the agent does."""
    bundle = scan(source, data=True)
    request: Any = {"dir": str(place), "bundle": bundle.id, "overwrite": overwrite, "credentials": None}
    with conversation(lambda wire: DataSet(str(root), str(place)).push(request, wire, refuse)) as (session, outcome):
        sent = serve(bundle, session)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0], sent


def held(root: Path, place: Path) -> tuple[int, int, int]:
    """How many files, and how many of them are missing and changed."""
    found = DataSet(str(root), str(place)).held(str(place))
    return found["files"], found["missing"], found["changed"]


def dropped(root: Path, place: Path) -> tuple[int, int]:
    answer = DataSet(str(root), str(place)).drop(str(place))
    return answer["removed_files"], answer["kept_files"]


def test_the_directory_holds_the_source_and_nothing_else(source: Path, root: Path, place: Path) -> None:
    answer, sent = push(source, root, place)
    assert (answer["sent_files"], sent) == (3, ["cat/1", "cat/2", "dog/1"])
    assert content(place) == content(source)
    assert held(root, place) == (3, 0, 0)
    assert push(source, root, place)[1] == []


def test_a_link_to_the_directory_is_followed_and_stays(source: Path, root: Path, place: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    place.parent.mkdir()
    place.symlink_to(tmp_path / "disk")
    push(source, root, place)
    assert place.is_symlink()
    assert content(tmp_path / "disk") == content(source)


def test_files_received_before_a_lost_connection_are_not_sent_again(source: Path, root: Path, place: Path) -> None:
    (source / "zebra").write_bytes(random.Random(1).randbytes(LARGE_BYTES + 1))
    bundle = scan(source, data=True)
    request: Any = {"dir": str(place), "bundle": bundle.id, "overwrite": False, "credentials": None}
    with (
        conversation(lambda wire: DataSet(str(root), str(place)).push(request, wire, lambda: None)) as (session, _),
        Sender(bundle) as sender,
        suppress(ConnectionLost),
    ):
        sender.serve(session, session.receive())
        need = session.receive()
        sender.serve(CutSession(session, frames=20), need)  # in the midst of the large file
    assert not (place / "zebra").exists(), "a file has its name when it is whole"
    assert held(root, place) == (4, 1, 0)
    blocks: list[int] = []
    with conversation(lambda wire: DataSet(str(root), str(place)).push(request, wire, lambda: None)) as (session, end):
        blocks = needed_blocks(bundle, session)
    assert end[0]["sent_files"] == 1
    assert 0 < len(blocks) < LARGE_BYTES >> 20
    assert content(place) == content(source)


def test_what_a_session_has_received_whose_cut_it_has_not_noticed_is_taken_over(
    source: Path, root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "GIVEN_UP_S", 0.0)
    monkeypatch.setattr(locks, "PATIENCE_S", 0.2)
    (source / "zebra").write_bytes(random.Random(1).randbytes(LARGE_BYTES + 1))
    bundle = scan(source, data=True)
    request: Any = {"dir": str(place), "bundle": bundle.id, "overwrite": False, "credentials": None}

    def pushing() -> Any:
        return conversation(lambda wire: DataSet(str(root), str(place)).push(request, wire, lambda: None))

    with pushing() as (silent, _), Sender(bundle) as sender:
        sender.serve(silent, silent.receive())
        need = silent.receive()
        with suppress(ConnectionLost):
            sender.serve(CutSession(silent, frames=20), need)
        with pushing() as (session, end):
            wanted = needed_blocks(bundle, session)
    assert end[0]["sent_files"] == 1
    assert 0 < len(wanted) < LARGE_BYTES >> 20
    assert content(place) == content(source)


class CutSession:
    """Loses its connection after so many frames."""

    def __init__(self, session: PipeSession, frames: int) -> None:
        self.host, self.facts, self.greeted, self.close = session.host, session.facts, session.greeted, session.close
        self._session, self._left = session, frames

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self._left -= 1
        if not self._left:
            raise ConnectionLost("cut")
        self._session.send(fields, payload)

    def receive(self, timeout_s: float | None = None) -> Message:
        raise TimeoutError


def needed_blocks(bundle: Bundle, session: Any) -> list[int]:
    blocks: list[int] = []
    with Sender(bundle) as sender, suppress(ConnectionLost):
        while (message := session.receive()).type != "result":
            if message.type == "need":
                blocks += [one["number"] for one in message["blocks"]]
                sender.serve(session, message)
    return blocks


def test_files_missing_in_the_source_are_removed_and_files_of_others_stay(
    source: Path, root: Path, place: Path
) -> None:
    push(source, root, place)
    (place / "dog" / "cache").write_text("of a trainer")
    (source / "cat" / "2").unlink()
    (source / "dog" / "1").unlink()
    (source / "dog").rmdir()
    answer, sent = push(source, root, place)
    assert (answer["removed_files"], sent) == (2, [])
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == [
        *("cat", "cat/1", "dog", "dog/cache", "empty", "labels")
    ]


WAYS: dict[str, Callable[[Path], object]] = {
    "another file": lambda place: (place / "cat" / "1").write_text("of others"),
    "a file for a directory": lambda place: (place / "empty").write_text("of others"),
    "a link for a directory": lambda place: (place / "empty").symlink_to("/tmp"),
    "a file for a link": lambda place: (place / "labels").write_text("of others"),
}


@pytest.mark.parametrize("way", WAYS)
def test_files_of_others_are_replaced_only_with_overwrite(source: Path, root: Path, place: Path, way: str) -> None:
    (place / "cat").mkdir(parents=True)
    WAYS[way](place)
    before = content(place)
    with pytest.raises(Refused) as refused:
        push(source, root, place)
    assert refused.value.code == "data_in_the_way"
    assert "--overwrite" in refused.value.hint
    assert content(place) == before
    push(source, root, place, overwrite=True)
    assert content(place) == content(source)


def test_existing_right_files_are_neither_sent_nor_removed(source: Path, root: Path, place: Path) -> None:
    (place / "cat").mkdir(parents=True)
    (place / "cat" / "1").write_bytes((source / "cat" / "1").read_bytes())
    answer, sent = push(source, root, place)
    assert (answer["found_files"], sent) == (1, ["cat/2", "dog/1"])
    assert dropped(root, place) == (2, 1)
    assert sorted(path.name for path in place.rglob("*")) == ["1", "cat"]


@pytest.mark.parametrize("known", ["now", "by an earlier build"])
def test_a_file_that_has_changed_and_kept_its_size_is_sent(source: Path, root: Path, place: Path, known: str) -> None:
    push(source, root, place)
    if known != "now":
        [stats] = (root / "data").glob("*/stats.json")
        stats.write_text(json.dumps({path: entry[:4] for path, entry in json.loads(stats.read_text()).items()}))
    (source / "cat" / "1").write_text("a picture: cat/7\n")
    assert push(source, root, place)[1] == ["cat/1"]
    assert content(place) == content(source)


def test_existing_files_are_hashed_once(source: Path, root: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "cat").mkdir(parents=True)
    (place / "cat" / "1").write_bytes((source / "cat" / "1").read_bytes())
    monkeypatch.setattr(tree, "_SETTLED_NS", -(10**12))
    hashed: list[str] = []
    really = tree.file_sha256

    def hashing(path: str, *rest: Any) -> str:
        hashed.append(path)
        return really(path, *rest)

    monkeypatch.setattr(tree, "file_sha256", hashing)
    push(source, root, place)
    assert hashed == [str(place / "cat" / "1")]


def test_a_drop_removes_what_was_pushed_and_keeps_what_has_changed(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    (place / "cat" / "1").write_text("changed")
    (place / "mine").write_text("mine")
    assert dropped(root, place) == (2, 1)
    assert sorted(str(path.relative_to(place)) for path in place.rglob("*")) == ["cat", "cat/1", "mine"]
    assert held(root, place) == (0, 0, 0)
    assert dropped(root, place) == (0, 0), "nothing is known of it any more"


def test_a_drop_of_all_leaves_no_directory_that_was_made_for_it(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    assert dropped(root, place) == (3, 0)
    assert not place.exists()
    assert list((root / "data").iterdir()) == []


def test_a_drop_does_not_go_through_a_link_in_the_place_of_a_directory(
    source: Path, root: Path, place: Path, tmp_path: Path
) -> None:
    push(source, root, place)
    (place / "cat").rename(tmp_path / "moved")
    (place / "cat").symlink_to(tmp_path / "moved")
    assert dropped(root, place) == (1, 0)
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["1", "2"]


def test_changes_are_seen_by_time_and_confirmed_by_reading(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    os.utime(place / "cat" / "1", (1, 1))
    (place / "cat" / "2").unlink()
    (place / "dog" / "1").write_text("a picture: dog/2\n")
    assert held(root, place) == (3, 1, 2)
    read: list[int] = []
    found = DataSet(str(root), str(place)).held(str(place), read.append)
    assert (found["missing"], found["changed"], found["examples"]) == (1, 1, ["cat/2", "dog/1"])
    assert sum(read) == 2 * len("a picture: cat/1\n")
    assert push(source, root, place)[1] == ["cat/2", "dog/1"]
    assert content(place) == content(source)


def test_change_that_only_the_hash_shows_is_found_by_verify(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    file = place / "dog" / "1"
    stats = root / "data"
    file.write_text("a picture: dog/2\n")
    for one in stats.glob("*/stats.json"):
        one.unlink()  # as if nothing of its times were known
    assert held(root, place) == (3, 0, 0)
    assert DataSet(str(root), str(place)).held(str(place), lambda size: None)["changed"] == 1


def test_data_that_a_live_run_reads_is_not_changed(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    assert push(source, root, place, refuse=live)[1] == [], "nothing changes"
    (source / "cat" / "3").write_text("new")
    with pytest.raises(Refused, match="is live"):
        push(source, root, place, refuse=live)
    assert content(place).keys() == content(source).keys() - {"cat/3"}


def test_hosts_that_share_a_directory_send_it_once(source: Path, tmp_path: Path, place: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b")]
    for one in roots:
        one.mkdir(mode=0o700)
    assert push(source, roots[0], place)[1] != []
    assert push(source, roots[1], place)[1] == []
    assert dropped(roots[1], place) == (0, 3), "it was the other's"
    assert dropped(roots[0], place) == (3, 0)


def test_of_hosts_that_share_a_directory_one_receives_and_the_others_wait(
    source: Path, tmp_path: Path, place: Path
) -> None:
    bundle = scan(source, data=True)
    request: Any = {"dir": str(place), "bundle": bundle.id, "overwrite": False, "credentials": None}

    def pushing(name: str) -> Any:
        return conversation(lambda wire: DataSet(str(tmp_path / name), str(place)).push(request, wire, lambda: None))

    with pushing("a") as (first, one), pushing("b") as (second, other), Sender(bundle) as sender:
        sender.serve(first, first.receive())
        need = first.receive()
        sender.serve(second, second.receive())
        with pytest.raises(TimeoutError):
            second.receive(0.3)
        sender.serve(first, need)
        with pytest.raises(ConnectionLost):  # without another need
            second.receive(PATIENCE_S)
    assert [end[0]["sent_files"] for end in (one, other)] == [3, 0]
    assert content(place) == content(source)


@pytest.mark.parametrize("way", ["a link", "another user's"])
def test_nothing_arrives_where_others_have_put_something_in_the_way(
    source: Path, root: Path, place: Path, tmp_path: Path, way: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.mkdir(parents=True)
    incoming = place / ".dtctl-incoming"
    if way == "a link":
        incoming.symlink_to(tmp_path / "elsewhere")
    elif os.geteuid():
        pytest.skip("needs root")
    else:
        incoming.mkdir()
        os.chown(incoming, 12345, 12345)
    with pytest.raises(OSError, match="is a link, or belongs to another user"):
        push(source, root, place)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_damaged_record_makes_nothing_ours(source: Path, root: Path, place: Path) -> None:
    push(source, root, place)
    for one in (root / "data").glob("*/place.json"):
        one.write_text("{")
    assert held(root, place) == (0, 0, 0)
    assert dropped(root, place) == (0, 0)
    assert content(place) == content(source)

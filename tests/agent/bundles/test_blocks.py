"""Large files of a bundle: only blocks that the host lacks travel, and a transfer that was cut off resumes."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles import store
from dtctl.agent.bundles.blocks import Partial
from dtctl.agent.conversation import Gone
from dtctl.agent.host.errors import Refused
from dtctl.agent.records.values import BLOCK_BYTES, LARGE_BYTES
from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.errors import AgentError, ConnectionLost
from dtctl.transport.seam import Message
from tests.agent.bundles.pushing import content, left_in, push, serve
from tests.agent.link.ends import conversation

SIZE = LARGE_BYTES + BLOCK_BYTES // 2
BLOCKS = SIZE // BLOCK_BYTES + 1


@pytest.fixture
def large(tmp_path: Path) -> Path:
    code = tmp_path / "large"
    code.mkdir()
    (code / "train.py").write_text("print()")
    (code / "data").write_bytes(random.Random(0).randbytes(SIZE))
    return code


def change(path: Path, *blocks: int) -> None:
    with path.open("r+b") as file:
        for number in blocks:
            file.seek(number * BLOCK_BYTES + 17)
            file.write(b"changed")


def needs(bundle: Bundle, root: Path, *, cut_after: int = 10**9) -> tuple[list[dict[str, Any]], object]:
    """What the agent asks for, and its outcome; the controller goes after so many frames of files."""
    asked: list[dict[str, Any]] = []
    with (
        conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, outcome),
        Sender(bundle) as sender,
    ):
        real, left = session.send, iter(range(cut_after))

        def send(fields: Mapping[str, Any], payload: bytes = b"") -> None:
            if fields["type"] == "file" and next(left, None) is None:
                raise ConnectionLost("gone")
            real(fields, payload)

        session.send = send  # type: ignore[method-assign]
        try:
            while True:
                message = session.receive()
                if message.type == "need":
                    asked.append(dict(message.fields))
                    sender.serve(session, message)
        except (ConnectionLost, AgentError):
            pass
    return asked, outcome[0]


def blocks(asked: list[dict[str, Any]]) -> list[int]:
    return [one["number"] for need in asked for one in need.get("blocks", ())]


def tree_of(root: Path, bundle: Bundle) -> Path:
    return root / "bundles" / bundle.id / "tree"


@pytest.mark.parametrize("changed", [(0,), (3, 9), (BLOCKS - 1,)])
def test_only_changed_blocks_of_a_large_file_travel(large: Path, root: Path, changed: tuple[int, ...]) -> None:
    push(scan(large), root)
    change(large / "data", *changed)
    bundle = scan(large)
    asked, _ = needs(bundle, root)
    assert blocks(asked) == list(changed)
    assert [need["files"] for need in asked if not need["manifest"]] == [[], []]
    assert content(tree_of(root, bundle)) == content(large)


@pytest.mark.parametrize(
    ("case", "again"),
    [
        ("its digests are known", []),
        ("they are not", [9]),
        ("it was written to", [5, 9]),
        ("it is written to just now", [*range(BLOCKS - 1), 5, 5, 9, 9]),
    ],
)
def test_each_block_of_an_older_file_is_read_once_unless_it_was_written_to(
    large: Path, root: Path, monkeypatch: pytest.MonkeyPatch, case: str, again: list[int]
) -> None:
    push(scan(large), root)
    change(large / "data", 3)
    push(scan(large), root)
    older = tree_of(root, scan(large)) / "data"
    change(large / "data", 9)
    bundle = scan(large)
    if case == "they are not":
        (older.parents[1] / "stats.json").unlink()
    if case == "it was written to":
        change(older, 5)
    read: list[int] = []

    def read_at(file: int, offset: int, size: int) -> bytes:
        if size == BLOCK_BYTES:
            if case == "it is written to just now" and not read:
                change(older, 5)
            read.append(offset // BLOCK_BYTES)
        return os.pread(file, size, offset)

    monkeypatch.setattr("dtctl.agent.host.files.read_at", read_at)
    asked, _ = needs(bundle, root)
    assert blocks(asked) == [9]
    assert content(tree_of(root, bundle)) == content(large)
    assert sorted(read) == sorted([*range(BLOCKS - 1), *again]), "what is not as it was, in the first version, too"


@pytest.mark.parametrize(
    ("chunks", "right"),
    [([b"12345"], True), ([b"123", b"45"], True), ([b"1234"], False), ([b"12346"], False), ([b"12345", b"6"], False)],
)
def test_a_block_is_right_if_all_that_arrives_is_what_its_digest_says(
    tmp_path: Path, chunks: list[bytes], right: bool
) -> None:
    part = tmp_path / "part"
    arriving = Partial(str(part), 5)
    assert arriving.missing(hashlib.sha256(b"12345").digest(), {}) == [0]
    assert arriving.put(0, chunks) is right
    assert part.stat().st_size == 5


@pytest.mark.parametrize("size", [SIZE + 3 * BLOCK_BYTES + 5, LARGE_BYTES])
def test_a_large_file_that_has_grown_or_shrunk_sends_its_end_alone(large: Path, root: Path, size: int) -> None:
    push(scan(large), root)
    with (large / "data").open("r+b") as file:
        file.truncate(size)
        file.seek(SIZE)
        file.write(b"x" * (size - SIZE))
    bundle = scan(large)
    asked, _ = needs(bundle, root)
    assert blocks(asked) == list(range(BLOCKS - 1, -(-size // BLOCK_BYTES)))
    assert content(tree_of(root, bundle)) == content(large)


def test_blocks_that_a_trainer_has_overwritten_are_restored(large: Path, root: Path) -> None:
    bundle = scan(large)
    push(bundle, root)
    change(tree_of(root, bundle) / "data", 5)
    asked, _ = needs(bundle, root)
    assert blocks(asked) == [5]
    assert content(tree_of(root, bundle)) == content(large)


def test_a_transfer_that_was_cut_off_resumes(large: Path, root: Path) -> None:
    bundle = scan(large)
    _, outcome = needs(bundle, root, cut_after=30)
    assert isinstance(outcome, Gone)
    [partial] = left_in(root)
    assert partial.startswith(".partial-")
    asked, _ = needs(bundle, root)
    assert 1 <= len(blocks(asked)) <= BLOCKS - 7, "30 frames are 7 blocks, of which train.py had one frame"
    assert content(tree_of(root, bundle)) == content(large)
    assert left_in(root) == {bundle.id}


def test_data_of_a_killed_session_is_reused(large: Path, root: Path) -> None:
    bundle = scan(large)
    dead = root / "bundles" / ".incoming-dead"
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    [sha256] = [file.sha256 for file in bundle.manifest.files if file.path == "data"]
    (dead / f"partial-{sha256}").write_bytes((large / "data").read_bytes()[: 4 * BLOCK_BYTES])
    asked, _ = needs(bundle, root)
    assert blocks(asked) == list(range(4, BLOCKS))
    assert left_in(root) == {bundle.id}


def test_partial_transfer_is_removed_after_a_day(large: Path, root: Path) -> None:
    (root / "bundles").mkdir(parents=True)
    old, new = root / "bundles" / f".partial-{'0' * 64}", root / "bundles" / f".partial-{'1' * 64}"
    for path, age_s in ((old, 90_000), (new, 60)):
        path.write_bytes(b"")
        os.utime(path, (time.time() - age_s,) * 2)
    store.remove_abandoned(str(root / "bundles"))
    assert left_in(root) == {new.name}


def test_a_link_in_the_place_of_an_old_version_is_not_read(large: Path, root: Path, tmp_path: Path) -> None:
    first = scan(large)
    push(first, root)
    old = tree_of(root, first) / "data"
    old.rename(tmp_path / "elsewhere")
    old.symlink_to(tmp_path / "elsewhere")
    change(large / "data", 0)
    bundle = scan(large)
    asked, _ = needs(bundle, root)
    assert blocks(asked) == list(range(BLOCKS))
    assert content(tree_of(root, bundle)) == content(large)


@pytest.mark.parametrize(
    ("index", "size", "code"),
    [(0, 1, "bad_request"), (1, 32 * BLOCKS, "bad_request"), (0, 32 * BLOCKS, "bundle_damaged")],
)
def test_digests_that_cannot_be_are_refused_and_the_file_is_not_trusted(
    large: Path, root: Path, index: int, size: int, code: str
) -> None:
    """Where they are of the right number every block is wanted, and what comes is not what they say."""
    first = scan(large)
    push(first, root)
    change(large / "data", 0)
    bundle = scan(large)
    with (
        conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, outcome),
        Sender(bundle) as sender,
    ):
        sender.serve(session, session.receive())
        [wanted] = session.receive()["digests"]
        session.send({"type": "digests", "index": wanted + index}, bytes(size))
        try:
            need: Message = session.receive()
            for one in need["blocks"]:
                session.send({"type": "file", "index": one["index"], "last": True}, b"lies")
            while True:
                session.receive()
        except (ConnectionLost, AgentError):
            pass
    assert isinstance(outcome[0], Refused)
    assert outcome[0].code == code
    assert {name for name in left_in(root) if not name.startswith(".partial-")} == {first.id}


def test_a_host_gets_the_code_as_it_is(code: Path, root: Path) -> None:
    bundle = scan(code)
    tree, asked = push(bundle, root)
    assert tree == str(root / "bundles" / bundle.id / "tree")
    assert content(Path(tree)) == content(code)
    assert len(asked) == len(bundle.manifest.files) - 1, "one of the two empty files is made from the other"
    assert left_in(root) == {bundle.id}
    assert stat.S_IMODE((root / "bundles").stat().st_mode) == 0o700


def test_unchanged_code_costs_no_transfer(code: Path, root: Path) -> None:
    push(scan(code), root)
    with conversation(lambda wire: store.obtain(str(root), scan(code).id, wire)) as (session, outcome):
        assert serve(scan(code), session) == []
    assert outcome[0][1] == 0
    assert session.received == []


def test_only_changed_files_travel_and_deleted_ones_are_gone(code: Path, root: Path) -> None:
    push(scan(code), root)
    (code / "train.py").write_text("print('better')\n")
    (code / "zeros.bin").unlink()
    (code / "weights.bin").rename(code / "moved.bin")
    tree, asked = push(scan(code), root)
    assert asked == ["train.py"]
    assert content(Path(tree)) == content(code)


@pytest.mark.parametrize(("size", "is_sent"), [(1000, True), (2_000_000, False)])
def test_older_bundles_than_the_newest_are_searched_for_much_alone(
    code: Path, root: Path, size: int, is_sent: bool
) -> None:
    file = code / "data.bin"
    file.write_bytes(random.Random(3).randbytes(size))
    push(scan(code), root)
    file.unlink()
    push(scan(code), root)
    file.write_bytes(random.Random(3).randbytes(size))
    (code / "train.py").write_text("print('another bundle')\n")
    assert push(scan(code), root)[1] == ["data.bin", "train.py"][0 if is_sent else 1 :]


def test_progress_is_reported_on_both_sides(code: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "big.bin").write_bytes(random.Random(2).randbytes(8_000_000))
    bundle = scan(code)
    reported: list[tuple[str, int, int]] = []
    with conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, outcome):
        with Sender(bundle) as sender:
            sender.serve(session, session.receive(), lambda *values: reported.append(values))
            need = session.receive()
            assert sender.serve(session, need, lambda *values: reported.append(values)) == len(need["files"])
        serve(bundle, session)
    assert isinstance(outcome[0], str)
    total = sum(bundle.manifest.files[index].size for index in need["files"])
    assert reported[-1] == ("here", total, total)
    assert all(done <= total for _, done, _ in reported)
    for message in session.received[2:]:
        assert message.type == "progress"
        assert message["phase"] == "receive"
        assert message["total_bytes"] == total

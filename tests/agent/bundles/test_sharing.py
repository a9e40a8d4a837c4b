"""Several agents and several bundles below one root: a home that hosts share, or hosts that are one machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from dtctl.agent.bundles import store
from dtctl.agent.host import locks, paths
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from tests.agent.bundles.pushing import ENSURE, content, left_in, placed, push, serve
from tests.agent.link.ends import agent_process, conversation
from tests.waiting import PATIENCE_S


def test_many_hosts_with_one_home_get_one_transfer(code: Path, root: Path) -> None:
    bundle = scan(code)
    asked: list[list[str]] = []
    together = threading.Barrier(5)

    def one() -> None:
        with agent_process(sys.executable, ENSURE, str(root), bundle.id) as (session, _):
            together.wait(PATIENCE_S)
            asked.append(serve(bundle, session))

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(asked) == 5
    assert sum(1 for sent in asked if sent) == 1
    assert content(root / "bundles" / bundle.id / "tree") == content(code)
    assert left_in(root) == {bundle.id}


def test_a_stalled_transfer_does_not_block_another(code: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.3)
    bundle = scan(code)
    with conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (suspended, outcome):
        need_of_the_suspended = suspended.receive()
        tree, asked = push(bundle, root)
        assert asked
        assert content(Path(tree)) == content(code)
        with Sender(bundle) as sender:  # it wakes up and goes on
            sender.serve(suspended, need_of_the_suspended)
        serve(bundle, suspended)
    assert outcome == [tree]
    assert left_in(root) == {bundle.id}


def test_partial_data_of_a_killed_agent_is_removed_by_the_next(code: Path, root: Path) -> None:
    bundle = scan(code)
    with agent_process(sys.executable, ENSURE, str(root), bundle.id) as (session, process):
        with Sender(bundle) as sender:
            sender.serve(session, session.receive())
        session.receive()
        process.kill()
    [name] = left_in(root)
    assert name.startswith(".incoming-")
    push(bundle, root)
    assert left_in(root) == {bundle.id}


def test_an_unchanged_file_of_another_bundle_is_neither_sent_nor_copied_nor_read(
    code: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = placed(code, root)[1]
    read: list[str] = []
    monkeypatch.setattr("dtctl.agent.bundles.tree.file_sha256", read.append)
    for number in (2, 3):
        (code / "train.py").write_text(f"push {number}\n")
        tree, asked = push(scan(code), root)
        assert asked == ["train.py"]
        assert (first / "weights.bin").samefile(Path(tree) / "weights.bin")
        assert content(Path(tree)) == content(code)
        assert push(scan(code), root)[1] == []
    assert read == []


def test_a_change_of_a_shared_file_is_repaired_in_every_bundle(code: Path, root: Path) -> None:
    old, first = placed(code, root)
    (code / "empty" / "more.py").write_text("second\n")
    new, second = placed(code, root)
    with (first / "weights.bin").open("r+b") as file:
        file.write(b"written in place")
    assert push(new, root)[1] == ["weights.bin"]
    assert content(second) == content(code)
    (code / "empty" / "more.py").unlink()
    assert push(old, root)[1] == [], "the other one has it again"
    assert content(first) == content(code)


def test_a_bundle_stays_whole_when_the_one_that_it_shares_files_with_goes(code: Path, root: Path) -> None:
    push(scan(code), root)
    (code / "train.py").write_text("second\n")
    bundle, tree = placed(code, root)
    store.prune(str(root), {bundle.id})
    assert push(bundle, root)[1] == []
    assert content(tree) == content(code)


def test_a_file_whose_mode_has_changed_is_a_file_of_its_own(code: Path, root: Path) -> None:
    first = placed(code, root)[1]
    (code / "weights.bin").chmod(0o600)
    tree, asked = push(scan(code), root)
    assert asked == []
    assert not (first / "weights.bin").samefile(Path(tree) / "weights.bin")
    assert content(Path(tree)) == content(code)


def test_where_a_file_cannot_have_two_names_it_is_copied(
    code: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = placed(code, root)[1]
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    (code / "train.py").write_text("second\n")
    tree, asked = push(scan(code), root)
    assert asked == ["train.py"]
    assert not (first / "weights.bin").samefile(Path(tree) / "weights.bin")
    assert content(Path(tree)) == content(code)


def test_a_damaged_file_of_another_bundle_is_not_copied(code: Path, root: Path) -> None:
    first = placed(code, root)[1]
    (first / "weights.bin").write_bytes(bytes(700_000))
    (code / "train.py").write_text("second\n")
    tree, asked = push(scan(code), root)
    assert sorted(asked) == ["train.py", "weights.bin"]
    assert content(Path(tree)) == content(code)


def test_locks_of_removed_files_are_not_trusted(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    path = str(lock)
    first = locks.hold(path, exclusive=True)
    assert first is not None
    assert locks.hold(path, exclusive=False) is None
    lock.unlink()
    second = locks.hold(path, exclusive=True)
    assert second is not None
    assert locks.hold(path, exclusive=True) is None
    for descriptor in (first, second):
        os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        locks.hold(str(tmp_path / "none"), exclusive=True, create=False)


def test_a_bundle_that_vanishes_between_two_pushes_is_sent_again(code: Path, root: Path) -> None:
    bundle, tree = placed(code, root)
    subprocess.run(["rm", "-rf", str(tree.parent)], check=True)
    assert push(bundle, root)[1]
    assert content(tree) == content(code)


def test_a_shared_file_counts_as_freed_by_the_last_of_its_bundles_alone(code: Path, root: Path) -> None:
    first = placed(code, root)[1]
    alone = paths.own_bytes(str(first / "weights.bin"))
    (code / "train.py").write_text("second\n")
    bundle, second = placed(code, root)
    assert alone > 0
    assert [paths.own_bytes(str(tree / "weights.bin")) for tree in (first, second)] == [0, 0]
    store.prune(str(root), {bundle.id})
    assert paths.own_bytes(str(second / "weights.bin")) == alone


def test_prune_removes_what_no_run_uses(code: Path, root: Path) -> None:
    first = scan(code)
    push(first, root)
    (code / "train.py").write_text("second\n")
    second = scan(code)
    push(second, root)
    store.prune(str(root), {second.id})
    assert left_in(root) == {second.id}
    store.prune(str(root / "nothing" / "here"), set())

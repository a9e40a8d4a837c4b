"""Bundles from the code directory to the host, over a real connection."""

from __future__ import annotations

import random
import stat
from pathlib import Path

import pytest

from dtctl.agent.bundles import store
from dtctl.bundle import Sender, scan
from tests.agent.bundles.pushing import ENSURE, content, left_in, push, serve
from tests.agent.link.ends import agent_process, conversation


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


def test_a_separate_agent_process_receives_repairs_and_prunes(code: Path, root: Path, agent_python: str) -> None:
    bundle = scan(code)
    with agent_process(agent_python, ENSURE, str(root), bundle.id) as (session, _):
        asked = serve(bundle, session)
        tree, sent_files = session.received[-1]["value"]
        assert sent_files == len(asked) == len(bundle.manifest.files) - 1
        assert content(Path(tree)) == content(code)
        (Path(tree) / "train.py").write_text("changed")
        with agent_process(agent_python, ENSURE, str(root), bundle.id) as (second, _):
            assert serve(bundle, second) == ["train.py"]
        assert store.prune(str(root), set()) == [], "an agent that lives has prepared it"
        assert left_in(root) == {bundle.id}
    prune = "from dtctl.agent.bundles import store\nreturn store.prune(args[0], set())"
    with agent_process(agent_python, prune, str(root)) as (session, _):
        assert session.receive()["value"] == []
    assert list((root / "bundles").iterdir()) == []

"""A host that is made ready asks for what the bundle has, and tells what a screen can show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.bundle import Sender, scan
from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, Local
from dtctl.operations.client.conversation import Progress
from dtctl.operations.push import push
from dtctl.operations.up import readying
from dtctl.operations.up.readying import converse
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

PUSHED = {"type": "result", "bundle": "b", "sent_files": 1}
Frames = list[dict[str, Any] | DtctlError]


@pytest.fixture
def sender(tmp_path: Path) -> Sender:
    (tmp_path / "train.py").write_text("print()")
    return Sender(scan(tmp_path))


def conversation(frames: Frames, sender: Sender | None, until: str = "result") -> list[Progress]:
    """What is told of it."""
    session = FakeSession(Host("gpu-3", Local()), lambda _, fields: frames if fields["type"] == "go" else [])
    session.send({"type": "go"})
    told: list[Progress] = []
    converse(session, sender, told.append, until=until)
    return told


def need(*indexes: int) -> dict[str, Any]:
    return {"type": "need", "files": list(indexes)}


def need_block(index: int, number: int) -> dict[str, Any]:
    return {"type": "need", "blocks": [{"index": index, "number": number}]}


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([need(7)], "gpu-3 needs a file 7 of a bundle of 1"),
        ([need(2**53)], "gpu-3 needs a file"),
        ([need(0) for _ in range(10)], "gpu-3 keeps asking for the same files"),
        ([need() for _ in range(2000)], "gpu-3 keeps asking for the same files"),
        ([{"type": "need", "digests": [7]}], "gpu-3 needs a file 7 of a bundle of 1"),
        ([{"type": "need", "digests": [0]} for _ in range(10)], "gpu-3 keeps asking for the same files"),
        ([need_block(7, 0)], "gpu-3 needs a file 7 of a bundle of 1"),
        ([need_block(0, 1)], "gpu-3 needs what lies beyond the end of a file"),
        ([need_block(0, 0) for _ in range(10)], "gpu-3 keeps asking for the same files"),
        ([{"type": "started", "run": "r", "tasks": {}}], "gpu-3 sent a `started` instead of a `result`"),
        ([{"type": "log", "task": "a:0", "attempt": 1, "offset": 0, "end": 0, "time": 0}], "gpu-3 sent a `log`"),
    ],
)
def test_what_no_bundle_has_is_not_sent(frames: Frames, why: str, sender: Sender) -> None:
    with sender, pytest.raises(TransportError, match=why):
        conversation(frames, sender)


def test_a_host_that_is_to_start_has_all_it_needs() -> None:
    with pytest.raises(TransportError, match="gpu-3 asks again for files that it was given"):
        conversation([need(0)], None, until="started")


def test_a_flood_of_progress_does_not_flood_the_screen(sender: Sender) -> None:
    frames: Frames = [{"type": "progress", "phase": "receive", "done_bytes": n} for n in range(10_000)]
    with sender:
        told = conversation([*frames, dict(PUSHED)], sender)
    assert 1 <= len(told) < 500


def test_what_a_setup_prints_is_shown_up_to_a_limit(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readying, "SETUP_TEXT_BYTES", 1000)
    frames: Frames = [{"type": "progress", "phase": "setup", "payload": b"x" * 99 + b"\n"} for _ in range(100)]
    with sender:
        told = conversation([*frames, dict(PUSHED)], sender)
    assert [one.text for one in told[:10]] == ["x" * 99 + "\n"] * 10
    assert "not shown" in told[10].text
    assert len(told) == 11


def test_a_push_to_one_liar_is_a_push_to_all_others(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> Frames:
        if fields["type"] != "push":
            return []
        return [need(99)] if session.host.name == "d" else [need(0), dict(PUSHED)]

    done = push(record(), scan(tmp_path), FakeTransport(answer), lambda progress: None)
    assert (sorted(done.results), list(done.errors)) == (["a", "b", "c"], ["d"])

"""Whether a host sees what the lead's host writes: by a file of the lead's agent, and without waiting for a server."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.coordinate.checkpoint_services import checkpoint_services
from dtctl.agent.supervise.context import LOOK_S, OLD_S, SharedStorage
from tests.unit.agent.coordinate.slots import on, with_spares
from tests.waiting import eventually

SPEC = with_spares("async-ps", {"chief:0": "a", "worker:0": "b"}, "s")


def looked(host: str, now: float, *directories: Path) -> tuple[SharedStorage, list[str] | None]:
    storage = SharedStorage(on(SPEC, host), [str(one) for one in directories])
    assert storage.unseen(now) is None
    eventually(lambda: storage.unseen(now) is not None, what="a look")
    return storage, storage.unseen(now)


def test_a_directory_is_seen_where_the_file_of_the_leads_host_is(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    assert looked("s", 100.0, shared, own)[1] == [str(shared), str(own)]
    lead = looked("a", 100.0, shared)[0]
    assert [path.name for path in shared.iterdir()] == [".dtctl-demo-1"]
    storage, unseen = looked("s", 100.0, shared, own)
    assert unseen == [str(own)]
    storage.close()
    assert list(shared.iterdir())
    lead.close()
    assert list(shared.iterdir()) == []


def test_a_directory_that_the_trainer_makes_later_is_seen_then(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    lead, unseen = looked("a", 100.0, shared)
    assert unseen == [str(shared)]
    shared.mkdir()
    eventually(lambda: lead.unseen(101.0 + LOOK_S) == [], what="it to be seen")


def test_old_observation_is_unknown_while_the_file_server_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, unseen = looked("s", 100.0, tmp_path)
    assert unseen == [str(tmp_path)]
    silent = threading.Event()
    monkeypatch.setattr(os.path, "exists", lambda _: silent.wait(20.0))
    assert storage.unseen(101.0 + LOOK_S) == [str(tmp_path)]
    assert storage.unseen(100.0 + OLD_S) is None
    silent.set()


def test_without_spares_nothing_is_written(tmp_path: Path) -> None:
    spec = on(SPEC, "a")
    spec["spares"] = {}
    assert SharedStorage(spec, [str(tmp_path)]).unseen(100.0) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "marks", "spares", "sees_all"),
    [
        ("a", False, ["s"], True),
        ("s", False, ["s"], False),
        ("s", True, ["s"], True),
        ("b", True, ["s"], True),
        ("b", True, [], False),
    ],
)
def test_a_coordinator_knows_that_there_is_no_checkpoint_where_it_sees_the_leads(
    host: str, marks: bool, spares: list[str], sees_all: bool, tmp_path: Path
) -> None:
    if marks:
        (tmp_path / ".dtctl-demo-1").touch()
    spec = with_spares("async-ps", {"chief:0": "a", "worker:0": "b"}, *spares, checkpoint_dirs=[str(tmp_path)])
    files: Any = SimpleNamespace(root=str(tmp_path))
    newest = checkpoint_services(files, on(spec, host)).newest_checkpoint()
    assert newest == (None if sees_all else reading.NOT_KNOWN)

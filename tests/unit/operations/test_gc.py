"""What dead runs have left, from all hosts of the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import DtctlError, TransportError
from dtctl.operations.gc import collect
from dtctl.render.gc import show_remains
from dtctl.render.machine import document
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

NOTHING: dict[str, Any] = {
    "type": "result", "dry_run": True, "survivors": [],
    "processes": [], "runs": [], "bundles": [], "files": [], "freed_bytes": 0,
}  # fmt: skip
SOME = {
    **NOTHING,
    "processes": [{"pid": 4711, "command": "python train.py", "run": "digits-0"}],
    "runs": [{"run": "digits-0", "cluster": "digits", "host": "b", "reason": "ended 9 days ago"}],
    "freed_bytes": 1536,
}


def test_a_process_that_outlives_sigkill_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    left = {**NOTHING, "survivors": [{"pid": 4711, "command": "python train.py", "run": "digits-0"}]}
    found = collect(record(), FakeTransport(lambda *_: [left]), dry_run=True, every_cluster=False)
    show_remains(found, dry_run=False)
    assert "a: process 4711 of digits-0 outlived SIGKILL: python train.py" in capsys.readouterr().out
    assert document.gc(found, dry_run=False)["hosts"][0]["survivors"] == left["survivors"]


def test_every_host_is_asked_and_told_whether_it_is_serious(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        asked.append((fields["type"], fields["dry_run"], fields["all"]))
        return [SOME if session.host.name == "b" else NOTHING]

    found = collect(record(), FakeTransport(answer, {"d": TransportError("off")}), dry_run=True, every_cluster=False)
    assert asked == [("gc", True, False)] * 3
    assert found.processes == 1
    assert list(found.errors) == ["d"]
    show_remains(found, dry_run=True)
    said = capsys.readouterr()
    assert "1 process, 1 run" in said.out
    assert "1.5 kB" in said.out
    assert "b: process 4711 of digits-0: python train.py" in said.out
    assert "a,c: nothing to remove" in said.out
    assert "nothing has been removed" in said.err

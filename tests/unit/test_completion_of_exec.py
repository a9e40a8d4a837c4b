"""Words that a shell completes for `dtctl exec` (dtctl/rooms/execute)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.test_completion import completed, project

__all__ = ["project"]


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("exec @ b", "@b"),
        ("exec chief:0 wor", "worker:0 worker:1 worker"),
        ("exec @ a -- wor", ""),
        ("exec -x wor", "worker:0 worker:1 worker"),
    ],
)
def test_exec_completes_tasks_and_hosts_before_its_command(
    command: str, offered: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(monkeypatch, *shlex.split(command)) == offered.split()

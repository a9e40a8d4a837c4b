"""`dtctl gc` removes nothing on a terminal before somebody agrees; elsewhere only files that nobody misses."""

from __future__ import annotations

import pytest

from dtctl.cli.commands import stop as module
from dtctl.errors import UsageError
from dtctl.operations.gc import GcResult, Orphan, Remains
from dtctl.render.terminal import console

NOTHING = Remains((), (), (), (), 0)
BUNDLE = Remains((), (), ("b1",), (), 7)
PROCESS = Remains((Orphan(1, "python", "demo-1"),), (), (), (), 0)


def asked(found: Remains, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> list[str]:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(console, "confirm", questions.append)
    module._ask(GcResult({"a": found}, {}))
    return questions


def test_a_person_is_asked_before_anything_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=True) == ["Remove these files?"]
    assert asked(PROCESS, monkeypatch, terminal=True) == ["End these processes and remove the files?"]
    assert asked(NOTHING, monkeypatch, terminal=True) == []


def test_where_nobody_can_answer_processes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=False) == []
    with pytest.raises(UsageError):
        asked(PROCESS, monkeypatch, terminal=False)

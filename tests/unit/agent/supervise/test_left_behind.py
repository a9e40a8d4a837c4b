"""What a trainer leaves behind when it ends by itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import processes
from dtctl.agent.records.reasons import fact, sentence
from dtctl.agent.run import policy
from dtctl.agent.supervise.attempt import LEAVE_S, Attempt
from dtctl.agent.supervise.autopsy import left_behind
from tests.unit.agent.supervise import supervised


class Table:
    """A process table in which nothing is ever signalled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: list[Any] = []
        self.signals: list[int] = []
        monkeypatch.setattr(processes, "tree", lambda trainer, keys: list(self.there))
        monkeypatch.setattr(processes, "command", lambda pid: f"python {pid}.py")
        monkeypatch.setattr(processes, "send_signal", self._signal)

    def has(self, *pids: int) -> None:
        stat = b" ".join([b"S", b"1", *[b"0"] * 17, b"77"])
        self.there = [processes.Process(pid, b"1 (x) " + stat) for pid in pids]

    def _signal(self, found: Iterable[Any], number: int) -> None:
        self.signals += [number for _ in found]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_what_ends_by_itself_soon_is_no_news(table: Table, tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), 0.0)
    table.has(5)
    assert not attempt.cleared(False, 30.0, 100.0)
    assert attempt.ending
    table.has()
    assert attempt.cleared(False, 30.0, 100.0 + LEAVE_S / 2)
    assert (attempt.left_behind, table.signals) == ([], [])


def test_what_is_still_there_is_named_and_ended(table: Table, tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), 0.0)
    table.has(5, 6)
    assert not attempt.cleared(False, 30.0, 100.0)
    assert table.signals == []
    table.has(6)
    assert not attempt.cleared(False, 30.0, 100.0 + LEAVE_S)
    assert attempt.left_behind == [{"pid": 6, "command": "python 6.py"}]
    assert table.signals
    table.has()
    assert attempt.cleared(False, 30.0, 101.0)


def test_a_reason_names_three_and_counts_the_others() -> None:
    assert left_behind([]) == []
    told = sentence([fact("exited", code=0), *left_behind([{"pid": n, "command": "sh"} for n in (1, 2, 3, 4, 5)])])
    assert told == (
        "exit code 0; left 5 processes behind (pid 1, sh; pid 2, sh; pid 3, sh; and 2 more), which were ended"
    )


@pytest.mark.parametrize(("want", "state"), [("stop", "stopped"), ("run", "starting")])
def test_who_was_asked_and_had_to_be_killed_says_so_first(want: Any, state: str) -> None:
    verdict = policy.Verdict(retry=True)
    verdict.killed_after_s = 30.0
    entry: Any = {"state": "running", "asked": True, "restarts": 0, "generation": 1, "history": []}
    by: Any = {"why": [fact("stopped_by", by="ada")], "reason": "stopped by ada"}
    intent = supervised.intent(want, generation=2, **by)
    decision = policy.after_exit(
        supervised.killed(9), verdict, entry, intent, 1.0, supervised.recovery(), own=True, jitter=0.0
    )
    assert (decision.state, sentence(decision.why)) == (state, "killed after 30 s: stopped by ada")

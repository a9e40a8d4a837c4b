"""The process table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from dtctl.agent.host import processes

STAT = b"1 (x) " + b" ".join([b"S", b"1", *[b"0"] * 17, b"77", b"0", b"0"])


class Proc:
    """/proc of a machine on which `listings` are what one sees after the other, the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alive: Iterable[int], *listings: Iterable[int]) -> None:
        self.alive = set(alive)
        self.read: list[int] = []
        self._listings = itertools.chain(listings, itertools.repeat(listings[-1]))
        monkeypatch.setattr(
            "dtctl.agent.host.processes.os.listdir", lambda path: ["meminfo", *map(str, next(self._listings))]
        )
        monkeypatch.setattr(processes, "_read_proc", self._stat)

    def _stat(self, pid: int, name: str) -> bytes:
        self.read.append(pid)
        return STAT if pid in self.alive else b""


def test_a_child_that_is_forked_while_the_table_is_read_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Proc(monkeypatch, {1, 31}, [1, 30], [1, 31])
    assert set(processes.every()) == {1, 31}
    assert proc.read == [1, 30, 31]


def test_a_machine_on_which_there_is_always_somebody_new_is_not_listed_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proc = Proc(monkeypatch, {1}, *([1, pid] for pid in range(100, 200)))
    assert set(processes.every()) == {1}
    assert len(proc.read) < 10

"""Checkpoints that were not all looked at are not shown as if there were none."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.answers import CheckpointReport
from dtctl.agent.records.kinds import made
from dtctl.operations.checkpoints import newest_of_run, read_checkpoints
from dtctl.render.checkpoints import checkpoint_lines, show_checkpoints
from dtctl.render.machine.document import checkpoints
from tests.unit.render.test_safe_output import FOUND, run_status

PROBLEM = "/dir: only part of it was searched: there are more than 100000 names"
UNKNOWN = dataclasses.replace(FOUND, newest_complete=None, incomplete=(), all=(), problem=PROBLEM)


def test_what_a_host_could_not_look_at_is_taken_from_its_answer() -> None:
    nothing: Any = {"newest_complete": None, "incomplete": [], "all": []}
    [found] = read_checkpoints("a", [made(CheckpointReport, dir="/dir", problem=PROBLEM, **nothing)])
    assert found == UNKNOWN
    assert newest_of_run([found]) == found
    assert checkpoints(found)["problem"] == PROBLEM


def test_it_is_told_where_checkpoints_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_checkpoints([UNKNOWN], 10.0)
    said = " ".join(capsys.readouterr().out.split())
    assert said == f"a:/dir there may be more than those found: {PROBLEM} none found"
    status = dataclasses.replace(run_status(), checkpoints=(UNKNOWN,))
    assert checkpoint_lines(status) == ["checkpoint: none known on a", f"            there may be others: {PROBLEM}"]


def test_hosts_that_share_a_directory_stand_before_it_together(capsys: pytest.CaptureFixture[str]) -> None:
    shared = dataclasses.replace(FOUND, host="node-1", others=("node-2", "node-3"), problem="")
    show_checkpoints([shared], 10.0)
    assert capsys.readouterr().out.startswith("node-[1-3]:/dir\n")


def test_a_directory_that_only_a_command_line_names_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    show_checkpoints([dataclasses.replace(FOUND, guessed=True)], 10.0)
    assert capsys.readouterr().out.startswith("a:/dir (which no setting names)\n")


def test_what_other_hosts_hold_is_told_in_the_place_of_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    part = dataclasses.replace(FOUND.all[0], complete=False, problem="a shard is missing", shards=3, held=(0,))
    place = dataclasses.replace(FOUND, newest_complete=None, incomplete=(), all=(part,), problem="")
    show_checkpoints([place], 10.0, lambda *_: {1: "b", 2: "c"})
    assert "2 shards of 3 on b,c alone, which a restore here does not see" in capsys.readouterr().out
    show_checkpoints([place], 10.0, lambda *_: {1: "b"})
    assert "1 shard of 3 on b, others on no host that answers" in capsys.readouterr().out

"""Starts that failed before anything ran: what this machine keeps of them, and when it counts."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.cli.scope import Scope
from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.model import TaskState
from dtctl.operations.failed_starts import FailedStart
from dtctl.operations.history import Memory
from dtctl.operations.local import make_local
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.plan import plan_roster
from dtctl.plan.run import plan_run
from dtctl.transport.fanout import SomeHostsFailed
from tests.unit.clusters import cluster
from tests.unit.diagnosing import ended, facts, running

WHY = PreflightError("port 2222 is in use on a", detail="a: port 2222 of ps:0", hint="dtctl up --ports-from 2300")


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Memory()


def record(run: str = "digits-1", created: float = 1.0) -> RunRecord:
    return record_of(plan_run(cluster(), {name: name for name in "abcd"}, local_python="python3"), run, created)


def test_a_failed_start_is_read_as_up_has_shown_it(memory: Memory) -> None:
    memory.note_failure(record(), WHY)
    found = Memory().failed_start(record())
    assert found is not None
    assert (found.error.summary, found.error.detail, found.error.hint) == (WHY.summary, WHY.detail, WHY.hint)
    assert found.verdict.outcome is Outcome.FAILED
    assert memory.failed_start(record(), "digits-1") is not None
    assert memory.failed_start(record(), "digits-2") is None
    assert (named := memory.record_of_failed("digits-1")) is not None
    assert named.run == "digits-1"
    assert memory.record_of_failed("digits-2") is None


def test_of_several_hosts_the_first_cause_is_the_summary(memory: Memory) -> None:
    errors = {"a": AgentError("setup_failed", "pip ended with 1", detail="no such package", host="a")}
    memory.note_failure(record(), SomeHostsFailed("prepare", errors, 2))
    found = memory.failed_start(record())
    assert found is not None
    assert (found.error.summary, found.error.detail) == ("a: pip ended with 1", "no such package")


@pytest.mark.parametrize(
    "refusal",
    [
        UsageError("no"),
        AgentError("changed_run", "it is live"),
        SomeHostsFailed("prepare", {"a": AgentError("locked", "up is running")}, 2),
    ],
)
def test_a_refusal_for_a_live_run_is_no_failed_start(memory: Memory, refusal: DtctlError) -> None:
    memory.note_failure(record(), refusal)
    assert memory.failed_start(record()) is None


def test_a_run_that_starts_ends_the_memory_of_the_failure(memory: Memory) -> None:
    memory.note_failure(record(), WHY)
    memory.save(record("digits-2", 2.0))
    assert memory.failed_start(record()) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "record": {}}'])
def test_a_damaged_file_counts_as_none(memory: Memory, tmp_path: Path, text: str) -> None:
    memory.note_failure(record(), WHY)
    [file] = (tmp_path / "state/dtctl/failed_starts").iterdir()
    file.write_text(text)
    assert memory.failed_start(record()) is None
    assert memory.record_of_failed("digits-1") is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("created", "NaN"), ("hosts", "{}"), ("cluster", "7"), ("version", "0"), ("at", "Infinity"), ("at", "NaN")],
)
def test_a_failed_start_with_an_invalid_record_or_time_counts_as_none(
    memory: Memory, tmp_path: Path, field: str, value: str
) -> None:
    memory.note_failure(record(), WHY)
    [file] = (tmp_path / "state/dtctl/failed_starts").iterdir()
    data = json.loads(file.read_bytes())
    (data if field == "at" else data["record"])[field] = json.loads(value)
    file.write_text(json.dumps(data))
    assert memory.failed_start(record()) is None


def test_a_failed_start_counts_unless_a_run_was_live_after_it() -> None:
    tried = FailedStart(record(), WHY, at=1000.0)
    none = dataclasses.replace(facts(running("worker:0")).status, time=0.0)
    assert tried.comes_after(none, None), "no host has a run"
    over = facts(ended("worker:0", "")).status
    over = dataclasses.replace(over, verdict=dataclasses.replace(over.verdict, outcome=Outcome.FAILED))
    assert tried.comes_after(over, None), "it had ended before"
    assert not FailedStart(record(), WHY, at=950.0).comes_after(over, None), "it went on after the failed start"
    live = facts(running("worker:0")).status
    assert live.tasks[next(iter(live.tasks))].state is TaskState.RUNNING
    assert not FailedStart(record(), WHY, at=time.time()).comes_after(live, None)


AWAY: dict[str, DtctlError] = {"a": TransportError("a: no route to host")}


@pytest.mark.parametrize(
    ("outcome", "errors", "is_shown"),
    [("", AWAY, False), ("Failed", AWAY, True), ("Stopped", AWAY, True), (None, AWAY, True), ("", {}, True)],
)
def test_a_run_that_may_be_live_is_not_hidden_while_no_host_answers(
    memory: Memory, tmp_path: Path, outcome: str | None, errors: dict[str, DtctlError], is_shown: bool
) -> None:
    file = tmp_path / "cluster.yaml"
    if outcome is not None:
        memory.save(dataclasses.replace(record(), file=file, outcome=outcome))
    memory.note_failure(dataclasses.replace(record("digits-2"), file=file), WHY)
    asked = dataclasses.replace(record(), file=file, run=None)
    unknown = RunStatus(asked, {}, Verdict(Outcome.CREATED, (fact("no_run"),)), (), 0.0, errors=errors)
    shown = Scope().or_not_started(unknown)
    assert (shown.not_started is not None) is is_shown
    assert shown.errors == errors
    assert Scope(run="digits-2").or_not_started(unknown).not_started is not None, "it is asked for"


def test_place_of_a_local_run_stays_if_a_start_on_hosts_fails(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    here = record_of(plan_roster(make_local(dataclasses.replace(cluster(), file=file))))
    memory.keep_place(here, file)
    assert memory.place_of(file) is not None
    memory.note_failure(dataclasses.replace(record(), file=file), WHY)
    memory.forget_failure(file)
    assert memory.place_of(file) == here


def test_later_commands_ask_the_hosts_of_the_last_start_even_if_it_failed(memory: Memory, tmp_path: Path) -> None:
    """`dtctl logs --setup`, for example, which `up` has named, after a local start that was refused."""
    file = tmp_path / "cluster.yaml"
    here = record_of(plan_roster(make_local(dataclasses.replace(cluster(), file=file))))
    memory.keep_place(here, file)
    memory.note_failure(dataclasses.replace(record(), file=file), WHY)
    asked = memory.place_of(file)
    assert asked is not None
    assert not asked.is_local
    os.utime(memory._place_of(file), (time.time() + 1,) * 2)
    assert memory.place_of(file) == here, "a local start was refused since"

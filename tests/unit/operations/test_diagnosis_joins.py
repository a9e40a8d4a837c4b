"""What `diagnose` asks hosts, and what it reads beside the words of a log: disks, GPUs, checkpoints, signals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.errors import TransportError
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.snapshot import Outcome
from dtctl.rooms.diagnose import signatures
from dtctl.rooms.diagnose.operation import diagnose
from tests.unit.coordinated import Agents, Beating, moved_record, record, viewed
from tests.unit.diagnosing import ended, facts, host, machine, running, says, vitals
from tests.unit.fakes import FakeTransport
from tests.unit.tasks import changed, checkpoint, checkpoint_directory, past_attempt

TASK = running("worker:0")
MEMORY = {"available_bytes": 8 << 30, "memory_bytes": 16 << 30}


def test_a_port_is_that_of_the_log_or_the_tasks_own_or_unknown() -> None:
    named = says(TASK, "E add_port.cc:83] No address added out of total 1 resolved for '0.0.0.0:7777'")
    assert signatures.port(facts(named), named, {}) == {"taken": "port 7777", "program_port": "7777"}
    assert signatures.port(facts(TASK), TASK, {}) == {"taken": "port 2222", "own_port": "2222"}
    other = running("worker:9")
    assert signatures.port(facts(TASK), other, {}) == {"taken": "a port", "opener": "worker:9"}


def test_holder_of_a_port_at_the_end_is_reported_before_the_present_one() -> None:
    hosts = {"gpu-a": host({"worker:0": vitals(holder="pid 8 (now)")})}
    now = signatures.port(facts(TASK, hosts=hosts), TASK, {})
    assert now == {"taken": "port 2222", "own_port": "2222", "holder": "pid 8 (now)", "holder_pid": "8"}
    held = changed(TASK, why=(fact("port_held", port=9, text="pid 7 (then)"),))
    then = signatures.port(facts(held, hosts=hosts), held, {})
    assert then == {"taken": "port 9", "program_port": "9", "holder": "pid 7 (then)", "holder_pid": "7"}


SAVED = checkpoint("model.ckpt-7", 7)


@pytest.mark.parametrize(
    ("directories", "fields"),
    [
        ((), {}),
        ((checkpoint_directory("gpu-a", "/o", SAVED, newest_complete=None),), {}),
        ((checkpoint_directory("gpu-b", "/o", SAVED),), {"checkpoint": "/o/model.ckpt-7", "holder_host": "gpu-b"}),
    ],
)
def test_the_checkpoint_that_trainers_restore_is_the_newest_complete_one(
    directories: tuple[Checkpoints, ...], fields: dict[str, str]
) -> None:
    found = facts(TASK)
    found = dataclasses.replace(found, status=dataclasses.replace(found.status, checkpoints=directories))
    assert signatures.checkpoint(found, TASK, {}) == fields


@pytest.mark.parametrize(
    ("how", "short"),
    [
        ({}, False),
        ({"history": (past_attempt(1, 900.0, 960.0, None, 9, asked=False),)}, False),
        ({"history": (past_attempt(1, 900.0, 960.0, None, 9, asked=False, short_of_memory=True),)}, True),
        ({"why": (fact("killed", signal=9), fact("out_of_memory", count=1))}, True),
        ({"why": (fact("killed", signal=9),)}, False),
    ],
)
def test_the_kernel_has_killed_it_where_it_says_so(how: dict[str, Any], short: bool) -> None:
    task = changed(TASK, **how)
    assert signatures.killed(facts(task, machines={"gpu-a": machine()}), task, {}) == (MEMORY if short else None)


NAMES = {4: "SIGILL", 9: "SIGKILL", 11: "SIGSEGV"}


@pytest.mark.parametrize(
    ("code", "signal", "by"),
    [(None, 9, {9}), (137, None, {9}), (139, None, {11}), (1, None, set()), (None, 4, {4}), (None, None, set())],
)
def test_an_end_by_a_signal_is_known_by_itself_or_by_the_shells_code(
    code: int | None, signal: int | None, by: set[int]
) -> None:
    task = ended("worker:0", "", code=code or 0, signal=signal)
    task = changed(task, code=code)
    found = facts(task, machines={"gpu-a": machine()})
    assert {number for number, name in NAMES.items() if signatures.killed_by(name)(found, task, {}) == MEMORY} == by
    assert all(signatures.killed_by(NAMES[number])(found, task, {}) is None for number in NAMES.keys() - by)
    assert signatures.killed_by("SIGKILL")(facts(TASK), TASK, {}) is None, "it has not ended"


GONE = TransportError("cannot reach it")


def test_each_host_is_asked_in_one_conversation() -> None:
    agents = Agents(viewed())
    transport = FakeTransport(agents)
    found = diagnose(record(), transport)
    assert sorted(transport.opened) == ["a", "b", "c", "d"]
    assert sorted((host, kind) for host, kind, _ in agents.asked) == sorted(
        (host, kind) for host in "abcd" for kind in ("status", "diagnose")
    )
    assert [one.signature.name for one in found.found] == ["frozen"]
    assert found.errors == {}


def test_reports_of_other_hosts_are_used_without_coordinator() -> None:
    transport = FakeTransport(Agents(viewed()), {"c": GONE})
    found = diagnose(record(), transport)
    assert sorted(found.facts.hosts) == ["a", "b", "d"]
    assert list(found.errors) == ["c"]
    assert "frozen" in [one.signature.name for one in found.found]
    assert found.status.verdict.outcome is not Outcome.FAILED


def test_report_about_foreign_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Agents(viewed())
    monkeypatch.setattr(type(record()), "names_on", lambda self, host: frozenset({"ps:0", "ps:1", "worker:0"}))
    found = diagnose(record(), FakeTransport(agents))
    assert list(found.errors) == ["d"]
    assert "invalid record" in found.errors["d"].summary


def test_a_host_that_the_run_was_moved_to_and_that_only_beats_is_waited_for_once() -> None:
    here = moved_record("e", spare=True)
    agents = Beating(run=here, on="e")
    transport = FakeTransport(agents, {"c": GONE})
    found = diagnose(dataclasses.replace(record(), others={"e": here.hosts["e"]}), transport)
    assert [kind for host, kind, _ in agents.asked if host == "e"] == ["status"]
    assert set(found.errors) == {"c", "e"}

"""What `diagnose` asks hosts, and what it reads beside the words of a log: disks, GPUs, checkpoints, signals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.errors import TransportError
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.diagnosis import signatures
from dtctl.operations.diagnosis.diagnose import diagnose
from dtctl.operations.snapshot import Outcome
from tests.unit.coordinated import Agents, Beating, moved_record, record, viewed
from tests.unit.diagnosing import ended, facts, host, machine, running, vitals
from tests.unit.fakes import FakeTransport
from tests.unit.tasks import changed, checkpoint, checkpoint_directory, past_attempt

TASK = running("worker:0")
MEMORY = {"available_bytes": 8 << 30, "memory_bytes": 16 << 30}


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("OSError: bind: 127.0.0.1:7077 Address already in use", ("port 7077", "program_port")),
        ("UnknownError: Could not start gRPC server", ("port 2222", "own_port")),
        ("OSError: [Errno 98] Address already in use", ("a port other than the task's own (2222)", "opener")),
    ],
)
def test_a_port_is_that_of_the_log_or_the_tasks_own_or_unknown(log: str, expected: tuple[str, str]) -> None:
    task = ended("worker:0", log)
    found = signatures.port(facts(task), task, {})
    assert (found["taken"], [*found][1]) == expected


def test_holder_of_a_port_at_the_end_is_reported_before_the_present_one() -> None:
    hosts = {"gpu-a": host({"worker:0": vitals(holder="pid 8 (now)")})}
    now = {"taken": "port 2222", "own_port": "2222", "holder": "pid 8 (now)", "holder_pid": "8"}
    assert signatures.port(facts(TASK, hosts=hosts), TASK, {}) == now
    held = changed(TASK, why=(fact("port_held", port=9, text="pid 7 (then)"),))
    then = {"taken": "port 9", "program_port": "9", "holder": "pid 7 (then)", "holder_pid": "7"}
    assert signatures.port(facts(held, hosts=hosts), held, {}) == then


@pytest.mark.parametrize(
    ("number", "limit", "found"),
    [
        (9, None, None),
        (9, {"what": "ulimit -t", "text": "60 s"}, {"limit": "ulimit -t is 60 s"}),
        (24, {"what": "ulimit -t", "text": "60 s"}, {"limit": "ulimit -t is 60 s"}),
        (24, None, {}),
        (9, {"what": "ulimit -v", "text": "9 kB"}, None),
    ],
)
def test_a_limit_of_cpu_time_ends_with_its_signal_or_with_sigkill(number: int, limit: Any, found: Any) -> None:
    task = ended("worker:0", "", code=None, signal=number, beside=fact("limit", **limit) if limit else None)
    assert signatures.cpu_limit(facts(task), task, {}) == found


SPLIT = "ValueError: Attempt to convert a value (PerReplica:{\n"


@pytest.mark.parametrize(
    ("file", "keras", "is_keras_3"),
    [
        ("site-packages/keras/src/utils/traceback_utils.py", "3.15.1", True),
        ("site-packages/keras/src/utils/traceback_utils.py", "2.15.0", False),
        ("site-packages/tf_keras/src/utils/traceback_utils.py", "3.15.1", False),
        ("train.py", "3.15.1", False),
        ("", "3.15.1", True),
    ],
)
def test_a_value_of_several_replicas_is_the_fault_of_keras_3_where_that_was_called(
    file: str, keras: str, is_keras_3: bool
) -> None:
    frames = f'Traceback (most recent call last):\n  File "/v/{file}", line 1, in f\n' if file else ""
    task = ended("worker:0", frames + SPLIT)
    known = facts(task, hosts={"gpu-a": host({"worker:0": vitals(packages={"keras": keras})})})
    found = signatures.keras_3(known, task, {"split": "Attempt"})
    assert (found is not None) is is_keras_3
    assert signatures.keras_3(facts(task), task, {"split": "Attempt"}) != {} or file


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

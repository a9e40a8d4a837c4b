"""When the tasks of a run that was stopped certainly act no more, also on hosts that gave no answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.answers import Prepared
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.spec import HOLD_S, LEASED_S, held_within_s
from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus, Verdict
from dtctl.operations.stop import StopResult
from dtctl.operations.up.result import UpReport
from dtctl.operations.up.succession import Unended, left_open, unended, unknown_ends, wait_s
from dtctl.operations.up.up import await_ends
from dtctl.plan import plan_roster
from dtctl.render import starting
from tests.unit.fakes import FakeTransport
from tests.unit.operations.test_stopping import with_spares

LIMIT_S = held_within_s(HOLD_S)


def record(**fields: Any) -> RunRecord:
    """ps on a and b, workers on c and d; five hosts elect the coordinator."""
    return dataclasses.replace(record_of(plan_roster(with_spares())), **{"hold_s": HOLD_S, "voting": 5, **fields})


def stopped(known: RunRecord, *open_: str, **fields: Any) -> StopResult:
    """A stop that these hosts have not answered."""
    ended = tuple(task for task, host in known.roster.items() if host not in open_)
    errors: Mapping[str, DtctlError] = {host: TransportError("away") for host in open_}
    return StopResult(stopped=ended, errors=errors, known=known, **fields)


def test_a_stop_that_has_reached_everyone_leaves_nothing_open() -> None:
    assert unended("r", stopped(record())) is None
    assert unended("r", StopResult(errors={"a": TransportError("away")})) is None, "no host knows a run"


@pytest.mark.parametrize("left_out", [{"absent": ("c",)}, {"inactive": ("c",)}])
def test_host_on_which_nothing_ran_is_not_waited_for(left_out: dict[str, Any]) -> None:
    assert unended("r", stopped(record(), "c", **left_out)) is None


@pytest.mark.parametrize(
    ("fields", "hosts", "silent_s", "expected_s"),
    [
        ({}, ["c"], {"c": 10.0}, LIMIT_S - 10.0),
        ({}, ["c", "d"], {"c": 10.0, "d": 20.0}, LIMIT_S - 10.0),
        ({}, ["c"], {"c": 5000.0}, 0.0),
        ({}, ["c"], {"c": None}, LIMIT_S),
        ({}, ["c"], {}, LIMIT_S),
        ({}, ["c"], None, LIMIT_S + LEASED_S),
        ({}, ["c", "d"], None, LIMIT_S + LEASED_S),
        ({}, ["a", "b", "c"], None, None),
        ({"voting": 3}, ["c", "d"], None, None),
        ({"hold_s": None, "voting": 0}, ["c"], {"c": 5000.0}, None),
        ({"hold_s": None, "voting": 0}, ["c"], None, None),
    ],
    ids=[
        "its coordinator has lost it a while ago",
        "the one that was heard last counts",
        "a host that crashed long ago",
        "since when is unknown",
        "its coordinator has not missed it yet",
        "the coordinator is away too",
        "two of five voters",
        "most of five voters",
        "most of three voters",
        "a host that does not hold its tasks",
        "two hosts",
    ],
)
def test_time_alone_says_when_a_host_acts_no_more(
    fields: dict[str, Any], hosts: list[str], silent_s: Any, expected_s: float | None
) -> None:
    assert wait_s(record(**fields), hosts, silent_s) == expected_s


def prepared(*hosts: str, wait: float | None) -> Prepared:
    open_ = {"run": "digits-0", "hosts": list(hosts), "wait_s": wait}
    return made(Prepared, unchanged=False, run="digits-1", current=None, replaces=None, left_open=open_)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ({"a": prepared("c", wait=9.0), "b": prepared("c", "d", wait=3.0)}, [Unended("digits-0", ("c", "d"), 9.0)]),
        ({"a": prepared("c", wait=9.0), "b": prepared("c", wait=None)}, [Unended("digits-0", ("c",), None)]),
        ({"a": prepared("b", wait=9.0), "b": prepared("a", wait=9.0)}, []),
    ],
    ids=["the longest time", "one that is unknown", "those that are asked now know it themselves"],
)
def test_a_run_that_was_stopped_before_is_waited_for_as_its_hosts_report(reports: Any, expected: list[Unended]) -> None:
    assert left_open(reports) == expected


class Hearing(UpReport):
    def __init__(self) -> None:
        self.unknown: list[Unended] = []
        self.seconds: list[int] = []

    def unknown_end(self, left: Unended) -> None:
        self.unknown.append(left)

    def awaiting_end(self, left: Unended, seconds: int) -> None:
        self.seconds.append(seconds)


def test_a_start_waits_for_the_longest_and_asks_about_what_is_unknown() -> None:
    report, known, unknown = Hearing(), Unended("r", ("c",), 0.2), Unended("r", ("d",), None)
    await_ends([None, known, unknown, dataclasses.replace(known, wait_s=0.0)], report)
    assert (report.unknown, report.seconds) == ([unknown], [1])


def test_tasks_of_hosts_that_were_stopped_are_not_open() -> None:
    known = record()
    result = stopped(known, "c")
    found = unended("r", dataclasses.replace(result, already=(TaskId("worker", 0),)))
    assert found is None


@pytest.mark.parametrize(
    ("fields", "lost", "unknown"),
    [
        ({}, ("c",), ()),
        ({}, (), ()),
        ({"hold_s": None}, (), ()),
        ({"hold_s": None}, ("c",), ("c",)),
        ({"voting": 3}, ("a", "c"), ("a", "c")),
    ],
    ids=["five voters", "all answer", "two hosts, both answer", "two hosts", "most of three voters"],
)
def test_replace_asks_before_anything_changes_where_it_could_not_be_known(
    fields: dict[str, Any], lost: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    run = record(**fields)
    tasks = {task: TaskStatus.unknown(task, host, fact("no_answer")) for task, host in run.roster.items()}
    errors: Mapping[str, DtctlError] = {host: TransportError("away") for host in lost}
    found = RunStatus(run, tasks, Verdict(Outcome.RUNNING, ()), (), 1.0, errors=errors)
    assert unknown_ends(found, FakeTransport(lambda *_: [])) == unknown
    ended = dataclasses.replace(found, verdict=Verdict(Outcome.STOPPED, ()))
    assert unknown_ends(ended, FakeTransport(lambda *_: [])) == ()


def test_a_refused_start_names_the_command_that_insists() -> None:
    refused = starting.unknown_end(["gpu-2"], "digits-1", "dtctl replace gpu-2 gpu-9 --yes --force")
    assert "gpu-2 gave no answer" in refused.summary
    assert refused.hint.endswith("dtctl replace gpu-2 gpu-9 --yes --force")

"""Hosts that take the places of others: what each host's agent reads of the run then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import InvalidValue, made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.spec import OLDEST, hosts_of
from dtctl.agent.run import gang
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import moved, on, with_spares

PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "c"}
SPEC = with_spares("async-ps", PLACES, "s", "t")


def own(host: str, **slots_: str) -> list[str]:
    return [task["id"] for task in gang.with_moves(on(SPEC, host), moved(**slots_))["tasks"]]


@pytest.mark.parametrize(
    ("host", "now", "tasks"),
    [
        ("c", {}, ["worker:0", "worker:1"]),
        ("s", {}, []),
        ("c", {"c": "s"}, []),
        ("s", {"c": "s"}, ["worker:0", "worker:1"]),
        ("t", {"c": "s"}, []),
        ("s", {"c": "s", "a": "s"}, ["worker:0", "worker:1", "ps:0"]),
        ("c", {"c": "c"}, ["worker:0", "worker:1"]),
    ],
)
def test_a_host_has_the_tasks_of_its_slot(host: str, now: dict[str, str], tasks: list[str]) -> None:
    assert own(host, **now) == tasks


def test_the_roster_names_the_new_host_its_addresses_and_the_slot() -> None:
    after = gang.with_moves(SPEC, moved(a="t"))
    assert [(one["task"], one["host"], one["address"], one["slot"]) for one in after["roster"]][:2] == [
        ("ps:0", "t", "t:2222", "a"),
        ("chief:0", "b", "b:2222", None),
    ]
    assert hosts_of(after) == ["t", "b", "c", "a", "s"]
    assert SPEC["roster"][0]["host"] == "a", "the spec as it was written stays as it is"


@pytest.mark.parametrize("now", [{"a": "b"}, {"a": "x"}, {"x": "s"}, {"s": "t"}])
def test_moves_that_cannot_be_are_refused(now: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        gang.with_moves(SPEC, moved(**now))


def test_a_spare_takes_only_the_places_that_it_was_prepared_for() -> None:
    spec: Any = {**on(SPEC, "s"), "slots": {}}
    with pytest.raises(InvalidValue):
        gang.with_moves(spec, moved(a="s"))
    assert gang.with_moves(spec, moved(a="t"))["tasks"] == []


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / "s"))
    spec = on(SPEC, "s")
    files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)
    return files


def test_run_state_contains_only_the_hosts_current_tasks(run: RunFiles) -> None:
    Path(paths.attempt_directory(run.directory, "worker:1", 3)).mkdir(parents=True)
    run.write_moved(moved(c="s"))
    assert list(run.state()["tasks"]) == list(run.intent()["tasks"]) == ["worker:0", "worker:1"]
    assert [entry["attempt"] for entry in run.state()["tasks"].values()] == [0, 3]
    state = run.state()
    state["tasks"]["worker:0"]["attempt"] = 9
    paths.write_json(run.state_path, state)
    run.write_moved(moved(2, c="s", a="s"))
    assert {task: entry["attempt"] for task, entry in run.state()["tasks"].items()} == {
        "worker:0": 9,
        "worker:1": 3,
        "ps:0": 0,
    }
    run.write_moved(moved(3, c="t", a="s"))
    assert list(run.state()["tasks"]) == ["ps:0"]
    assert run.spec()["moved"]["number"] == 3
    assert run.original()["tasks"] == []


@pytest.mark.parametrize("text", ["{", '{"number": 1, "slots": {"c": "nobody"}}'])
def test_damaged_moves_are_an_error(run: RunFiles, text: str) -> None:
    Path(run.path("moved.json")).write_text(text)
    with pytest.raises(paths.Damaged, match=r"moved\.json"):
        run.spec()


def test_live_run_of_an_older_version_is_read_with_its_moves(run: RunFiles) -> None:
    run.write_moved(moved(c="s"))
    for name in ("spec.json", "moved.json"):
        record = json.loads(Path(run.path(name)).read_text())
        Path(run.path(name)).write_text(json.dumps({**record, "version": OLDEST, "seats": record.pop("slots")}))
    assert [task["id"] for task in run.spec()["tasks"]] == ["worker:0", "worker:1"]


def test_credentials_of_pending_hosts_of_a_run_of_an_older_version_are_read(run: RunFiles) -> None:
    assert run.pending_hosts() == {}
    own = {"key": "key", "certificate": "certificate", "authority": "authority"}
    Path(run.path("latecomers.json")).write_text(json.dumps({"credentials": {"d": {**own, "knock": "0" * 64}}}))
    assert run.pending_hosts() == {"d": {**own, "port_token": "0" * 64}}


def test_hosts_are_numbered_without_gaps_in_the_order_of_their_first_ranks() -> None:
    """Ranks begin with the lead; a host that takes no part has no number."""
    together = with_spares("collective", {"worker:0": "b", "worker:1": "a", "worker:2": "a", "worker:3": "c"})["roster"]

    def numbers(*without: str) -> list[str]:
        tasks = [member["task"] for member in together]
        return [gang.Gang(together, "worker:0", task, without).name("NODE") for task in tasks]

    assert numbers() == ["0", "1", "1", "2"]
    assert numbers("worker:1-2") == ["0", "", "", "1"]

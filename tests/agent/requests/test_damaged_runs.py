"""Runs whose files do not hold what they should: nobody asks them anything, and they can be ended and removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.records.spec import OLDEST
from tests.agent.host import AgentHost, AgentRefused, Fields, kill, shell, task
from tests.hosts.processes import alive
from tests.reasons import reason_of
from tests.waiting import eventually

FIFO = "a FIFO, for which somebody would wait"
MISSING = "missing"
DAMAGES = [
    ("spec.json", MISSING),
    ("state.json", MISSING),
    ("intent.json", MISSING),
    ("spec.json", "{"),
    ("spec.json", "[]"),
    ("spec.json", '{"version": 4}'),
    ("state.json", '{"run": "r", "host": "h1", "tasks": {"worker:0": {"attempt": "one"}}}'),
    ("state.json", '{"run": "r", "host": "h1", "tasks": {}}'),
    ("intent.json", '{"serial": 1, "tasks": {"worker:0": {"want": "dance"}}}'),
    ("intent.json", "\0" * 100),
    ("state.json", FIFO),
]


every_damage = pytest.mark.parametrize(
    ("name", "text"), DAMAGES, ids=[f"{name}-{text[:12]!a}" for name, text in DAMAGES]
)


def frozen(host: AgentHost) -> Fields:
    """A run whose trainer lives, and whose agent cannot write its files again."""
    spec = host.started(shell("worker:0", "trap '' TERM; while :; do sleep 0.1; done"))
    (host.run_directory(spec) / "retired").touch()
    kill(host.supervisor(spec))
    eventually(lambda: not alive(host.supervisor(spec)))
    return spec


def damage(host: AgentHost, spec: Fields, name: str, text: str) -> None:
    path = host.run_directory(spec) / name
    if text in (FIFO, MISSING):
        path.unlink()
    if text == FIFO:
        os.mkfifo(path)
    elif text != MISSING:
        path.write_text(text)


@pytest.mark.parametrize(("name", "text"), [damage for damage in DAMAGES if damage[0] != "intent.json"])
def test_a_damaged_file_is_named_with_what_to_type_next(host: AgentHost, name: str, text: str) -> None:
    spec = host.finished(shell("worker:0", "true"))
    damage(host, spec, name, text)
    with pytest.raises(AgentRefused) as refused:
        host.ask("status")
    assert refused.value.code == "damaged"
    assert str(host.run_directory(spec) / name) in refused.value.frame["detail"]
    assert "dtctl down" in refused.value.frame["hint"]


def test_a_run_of_another_version_is_not_called_damaged_and_can_be_ended(host: AgentHost) -> None:
    spec = frozen(host)
    file = host.run_directory(spec) / "spec.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2, "unheard": "of"}))
    for request in ("status", "stop", "events"):
        with pytest.raises(AgentRefused) as refused:
            host.ask(request)
        assert refused.value.code == "other_version"
        assert refused.value.frame["detail"].startswith(f"{file} is of version 2, and this dtctl reads ")
        assert "dtctl down" in refused.value.frame["hint"]
    assert host.ask("down", grace_s=0.2)["removed"] == [spec["run"]]
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def to_the_version_before(host: AgentHost, spec: Fields) -> Fields:
    file = host.run_directory(spec) / "spec.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": OLDEST}))
    return spec


def test_a_run_of_the_version_before_is_shown_and_stopped_while_its_agent_lives(host: AgentHost) -> None:
    spec = to_the_version_before(host, host.started(task("worker:0", "sleep", "1000")))
    assert host.ask("status")["run"] is not None
    host.ask("stop")
    assert host.state(spec)["tasks"]["worker:0"]["state"] == "stopped"


def test_no_agent_of_this_version_begins_with_the_records_of_an_older_one(host: AgentHost) -> None:
    spec = to_the_version_before(host, frozen(host))
    with pytest.raises(AgentRefused) as refused:
        host.ask("stop")
    assert refused.value.code == "other_version"
    assert host.ask("down", grace_s=0.2)["removed"] == [spec["run"]]


@every_damage
def test_down_ends_and_removes_a_damaged_run(host: AgentHost, name: str, text: str) -> None:
    spec = frozen(host)
    damage(host, spec, name, text)
    assert host.processes()
    answer = host.ask("down", grace_s=0.2)
    assert (answer["removed"], answer["survivors"]) == ([spec["run"]], [])
    assert host.processes() == []
    assert not (host.root / "runs" / spec["run"]).exists()
    assert host.ask("status")["run"] is None
    host.up(host.spec(task("worker:0", "sleep", "1000")))


def test_down_of_one_run_leaves_a_damaged_other_one(host: AgentHost) -> None:
    damaged, other = host.finished(shell("worker:0", "true")), host.finished(shell("worker:0", "true"))
    damage(host, damaged, "state.json", "{")
    assert host.ask("down", run=other["run"])["removed"] == [other["run"]]
    assert host.run_directory(damaged).exists()
    assert host.ask("down", run=damaged["run"])["removed"] == [damaged["run"]]


@every_damage
def test_gc_removes_a_damaged_run_once_it_is_dead(host: AgentHost, name: str, text: str) -> None:
    spec = frozen(host)
    damage(host, spec, name, text)
    assert host.ask("gc", all=True)["runs"] == []
    assert host.run_directory(spec).exists()
    for pid in host.processes():
        kill(pid)
    eventually(lambda: not host.processes())
    (listed,) = host.ask("gc", all=True, dry_run=True)["runs"]
    assert (listed["run"], listed["cluster"], listed["host"]) == (spec["run"], "c", "h1")
    assert name in reason_of(listed)
    assert host.run_directory(spec).exists()
    assert [run["run"] for run in host.ask("gc", all=True)["runs"]] == [spec["run"]]
    assert not (host.root / "runs" / spec["run"]).exists()
    assert host.ask("status")["run"] is None


def test_gc_leaves_a_damaged_run_of_another_cluster_or_machine(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"))
    damage(host, spec, "spec.json", "{")
    assert host.ask("gc", cluster="other")["runs"] == []
    (host.run_directory(spec) / "machine").write_text("0123 elsewhere\n")
    assert host.ask("gc", all=True)["runs"] == []
    assert host.run_directory(spec).exists()


def test_runs_lists_damaged_runs_beside_the_others(host: AgentHost) -> None:
    damaged, other = host.finished(shell("worker:0", "true")), host.finished(shell("worker:0", "true"))
    damage(host, damaged, "spec.json", "{")
    answer = host.ask("runs", cluster=None)
    assert [run["run"] for run in answer["runs"]] == [other["run"]]
    (listed,) = answer["damaged"]
    assert (listed["run"], listed["host"]) == (damaged["run"], "h1")
    assert "spec.json is damaged" in listed["problem"]


def test_a_spec_that_is_of_another_run_removes_nothing_of_that_one(host: AgentHost) -> None:
    """As when somebody has copied it, or written it."""
    victim, liar = host.finished(shell("worker:0", "true")), host.finished(shell("worker:0", "true"))
    damage(host, liar, "spec.json", json.dumps(victim))
    with pytest.raises(AgentRefused, match="is of another run"):
        host.ask("status", run=liar["run"])
    assert host.ask("down", run=liar["run"])["removed"] == [liar["run"]]
    assert host.run_directory(victim).exists()


def test_bundles_stay_as_long_as_a_damaged_run_may_use_them(host: AgentHost) -> None:
    spec = frozen(host)
    bundle = host.root / "bundles" / ("0" * 64)
    bundle.mkdir(parents=True)
    (bundle / "manifest.json").write_text("{}")
    damage(host, spec, "spec.json", "{")
    assert host.ask("gc", all=True)["bundles"] == []
    assert bundle.exists()


def test_a_damaged_start_record_hides_no_survivor(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    pid = host.start_record(spec, "worker:0")["pid"]
    (host.run_directory(spec) / "retired").touch()
    kill(host.supervisor(spec))
    (host.attempt(spec, "worker:0") / "start.json").write_text('{"started": "yesterday"}')
    state = host.state(spec)
    state["tasks"]["worker:0"]["state"] = "stopped"
    damage(host, spec, "state.json", json.dumps({**state, "finished": True}))
    answer = host.ask("stop", grace_s=0)
    assert [one["pid"] for one in answer["survivors"]] == [pid]


def lines(path: Path, *more: str) -> None:
    path.write_text("".join(line + "\n" for line in [*path.read_text().splitlines(), *more]))


def test_lines_of_the_history_that_do_not_hold_are_passed_over_and_counted(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"))
    path = host.run_directory(spec) / "history.jsonl"
    good = path.read_text().splitlines()
    lines(
        path,
        "{",
        "[]",
        '{"time": "now"}',
        "x" * (2 << 20),
        "\0",
        json.dumps({**json.loads(good[0]), "n": len(good) + 5}),
    )
    with host.open() as talk:
        talk.send("events", **host.about({"from": 0, "follow": False}))
        events = []
        while (frame := talk.receive())["type"] == "event":
            events.append(frame)
    assert (frame["passed_over"], frame["next"]) == (5, len(good) + 6)
    assert [line["n"] for line in events] == [*range(len(good)), len(good) + 5]
    assert {line["host"] for line in events if line["kind"] == "task"} == {"h1"}


def removed(host: AgentHost, spec: Fields, what: str) -> None:
    """As somebody removes it by mistake, or a file system that is no longer mounted."""
    shutil.rmtree({"run": host.run_directory(spec), "runs": host.root / "runs", "root": host.root}[what])


@pytest.mark.parametrize("what", ["run", "runs", "root"])
def test_processes_of_a_run_without_files_are_found_and_down_ends_them(host: AgentHost, what: str) -> None:
    spec = frozen(host)
    trainer = host.start_record(spec, "worker:0")["pid"]
    removed(host, spec, what)
    for request, fields in (("status", {}), ("stop", {"run": spec["run"]}), ("events", {"run": spec["run"]})):
        with pytest.raises(AgentRefused) as refused:
            host.ask(request, **fields)
        assert refused.value.code == "damaged"
        assert f"{trainer} /bin/sh" in refused.value.frame["detail"]
        assert str(host.run_directory(spec)) in refused.value.frame["detail"]
        assert "dtctl down" in refused.value.frame["hint"]
    (run,) = host.ask("runs", cluster=None)["damaged"]
    assert (run["run"], run["host"], run["cluster"]) == (spec["run"], "h1", "c")
    assert host.ask("down", grace_s=0.2)["survivors"] == []
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    assert host.ask("status")["run"] is None
    with pytest.raises(AgentRefused, match="no_run"):
        host.ask("stop", run=spec["run"])
    host.up(host.spec(task("worker:0", "sleep", "1000")))


def test_down_of_one_run_ends_no_processes_of_another_without_files(host: AgentHost) -> None:
    lost = frozen(host)
    removed(host, lost, "run")
    other = f"{lost['run']}-other"
    for request in ("down", "status"):
        with pytest.raises(AgentRefused, match="no_run"):
            host.ask(request, run=other)
    assert host.processes()
    host.ask("down", run=lost["run"], grace_s=0)
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_gc_ends_the_processes_of_a_run_without_files(host: AgentHost) -> None:
    spec = frozen(host)
    removed(host, spec, "root")
    assert host.ask("gc", all=False)["survivors"] == []
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_stop_holds_though_the_intents_are_missing_and_no_agent_lives(host: AgentHost) -> None:
    spec = frozen(host)
    damage(host, spec, "intent.json", MISSING)
    assert host.ask("stop", grace_s=0.2)["stopped"] == ["worker:0"]
    assert "Traceback" not in (host.run_directory(spec) / "agent.log").read_text()

"""gc: orphans of dead runs and old files go; what lives, what is another's, and what is at work stays."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from dtctl.agent.requests import orphans
from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, Fields, kill, python_task, shell, task
from tests.hosts.processes import alive, environment
from tests.hosts.sandbox import make_directory
from tests.reasons import reason_of
from tests.waiting import eventually

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
)


def gc(host: AgentHost, **fields: object) -> Fields:
    return host.ask("gc", **{"dry_run": False, "all": True, **fields})


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_live_run_and_all_that_is_its_own_stay(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"), shell("ps:0", "setsid sleep 1000 & sleep 1000"))
    before = host.processes()
    result = gc(host)
    assert {name: value for name, value in result.items() if name not in ("type", "payload", "dry_run")} == {
        "processes": [],
        "survivors": [],
        "runs": [],
        "bundles": [],
        "environments": [],
        "files": [],
        "written": [],
        "kept": [],
        "omitted": 0,
        "freed_bytes": 0,
    }
    assert set(before) <= set(host.processes())
    assert host.ask("status")["state"]["tasks"]["worker:0"]["attempt"] == 1


def lose_directory(host: AgentHost, spec: Fields) -> list[int]:
    """As when a user has removed ~/.dtctl/runs; what is left of the run's trainers."""
    host.run_directory(spec).parent.rename(host.directory / "lost")
    return [pid for pid in host.processes() if any(each.startswith(b"DTCTL_KEY=") for each in environment(pid))]


def test_processes_of_a_run_whose_directory_is_gone_are_ended(host: AgentHost) -> None:
    spec = host.started(python_task("worker:0", STUBBORN), shell("ps:0", "setsid env -i sleep 1000 & sleep 1000"))
    eventually(lambda: "up" in host.log(spec, "worker:0"))
    left = lose_directory(host, spec)
    assert len(left) >= 2
    answer = gc(host, dry_run=True)
    assert set(left) <= {orphan["pid"] for orphan in answer["processes"]}
    assert all(alive(pid) for pid in left)
    result = gc(host)
    assert {orphan["run"] for orphan in result["processes"]} == {spec["run"]}
    assert result["survivors"] == []
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_cluster_is_asked_about_alone_unless_it_is_all(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    (pid,) = lose_directory(host, spec)
    assert gc(host, all=False, cluster="other")["processes"] == []
    assert alive(pid)
    assert [orphan["pid"] for orphan in gc(host, all=False)["processes"]] == [pid]


def test_processes_of_another_root_are_not_touched(make_host: MakeHost) -> None:
    mine, other = make_host("h1"), make_host("h1")
    spec = other.started(task("worker:0", "sleep", "1000"))
    (pid,) = lose_directory(other, spec)
    assert gc(mine)["processes"] == []
    assert alive(pid)
    assert [orphan["pid"] for orphan in gc(other)["processes"]] == [pid]


def test_a_trainer_that_has_outlived_its_finished_run_is_ended(host: AgentHost) -> None:
    """As when it hung in the kernel while it was stopped."""
    spec = host.started(task("worker:0", "sleep", "1000"))
    pid = host.start_record(spec, "worker:0")["pid"]
    with host.open() as talk:  # before there is an agent that is at work on a stop
        agent = host.state(spec)["agent"]["pid"]
        (host.run_directory(spec) / "retired").touch()
        kill(agent)
        eventually(lambda: not alive(agent))
        assert talk.ask("gc", **host.about({"dry_run": False, "all": True}))["processes"] == []
        state = host.state(spec)
        (host.run_directory(spec) / "state.json").write_text(json.dumps({**state, "finished": True}))
        found = talk.ask("gc", **host.about({"dry_run": False, "all": True}))["processes"]
    assert [orphan["pid"] for orphan in found] == [pid]
    assert not alive(pid)


def test_a_finished_run_whose_agent_is_back_is_alive(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    state = host.state(spec)
    path = host.run_directory(spec) / "state.json"
    kill(host.supervisor(spec), signal.SIGSTOP)  # so that it does not write its own again
    path.write_text(json.dumps({**state, "finished": True}))
    assert gc(host)["processes"] == []
    assert gc(host)["runs"] == []
    path.write_text(json.dumps(state))
    kill(host.supervisor(spec), signal.SIGCONT)


def test_agents_of_runs_that_are_gone_are_strays_when_they_are_old(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    keeper = host.start_record(spec, "worker:0")["keeper"]["pid"]
    (trainer,) = lose_directory(host, spec)
    eventually(lambda: {*host.processes()} == {keeper, trainer}, what="guard and supervisor to go")
    assert [orphan.process.pid for orphan in orphans.find(str(host.root))] == [trainer]
    found = orphans.find(str(host.root), young_s=0)
    assert {orphan.process.pid for orphan in found} == {keeper, trainer}
    assert {orphan.run for orphan in found} == {spec["run"]}
    assert orphans.end(found) == []


def test_old_runs_go_by_their_number_when_a_new_one_is_kept(host: AgentHost) -> None:
    ended = [host.finished(shell("worker:0", "true"), keep=2) for _ in range(3)]
    os.mkfifo(go := host.root.parent / "go")
    newest = host.started(shell("worker:0", f"read -r line < {go}"), keep=2)
    assert [host.run_directory(spec).exists() for spec in ended] == [False, True, True]
    assert gc(host)["runs"] == []
    go.write_text("\n")
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    assert [run["run"] for run in gc(host, dry_run=True)["runs"]] == [ended[1]["run"]]
    result = gc(host)
    assert [run["run"] for run in result["runs"]] == [ended[1]["run"]]
    assert result["freed_bytes"] > 0
    assert [host.run_directory(spec).exists() for spec in ended] == [False, False, True]
    assert host.ask("status")["run"] == newest["run"]


def test_a_run_that_ends_at_once_is_not_pruned_by_its_own_start(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"), keep=0, ttl_s=0)
    assert host.ask("status")["run"] == spec["run"]


def test_a_run_goes_when_its_time_to_live_is_over_even_the_current_one(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"), ttl_s=3600)
    assert gc(host)["runs"] == []
    state = host.state(spec)
    for entry in state["tasks"].values():
        entry["since"] -= 7200
    (host.run_directory(spec) / "state.json").write_text(json.dumps(state))
    (run,) = gc(host)["runs"]
    assert (run["run"], run["cluster"], run["host"]) == (spec["run"], "c", "h1")
    assert "ttl" in reason_of(run)
    assert not (host.root / "runs" / spec["run"]).exists()
    assert host.ask("status")["run"] is None


def test_of_a_cluster_that_was_taken_down_the_newest_run_goes_too(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"))
    assert gc(host)["runs"] == []
    (run,) = gc(host, all=False, over=True)["runs"]
    assert (run["run"], reason_of(run)) == (spec["run"], "its cluster was taken down")
    assert not host.run_directory(spec).exists()


def test_a_run_of_another_machine_with_the_same_home_is_left_to_it(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"), ttl_s=0)
    (host.run_directory(spec) / "machine").write_text("0123 elsewhere\n")
    assert gc(host)["runs"] == []
    assert host.run_directory(spec).exists()


def test_a_cluster_that_a_controller_works_on_is_passed_over(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"), ttl_s=0)
    with host.open() as talk:
        host.prepare(talk, host.spec(task("worker:0", "sleep", "1000")))
        assert gc(host)["runs"] == []
        assert host.run_directory(spec).exists()
        assert (host.root / "clusters" / "c" / "h1" / "lock").exists()
    eventually(lambda: [run["run"] for run in gc(host)["runs"]] == [spec["run"]])


def test_what_was_half_made_or_half_removed_goes_once_it_is_old(host: AgentHost) -> None:
    host.ask("status")
    runs = host.root / "runs"
    young, old, empty, removed = runs / "r1" / "h1", runs / "r2" / "h1", runs / "r3", runs / ".removed-0123"
    for path in (young, old, empty, removed):
        path.mkdir(parents=True)
        (path / "secrets.json").write_text("{}") if path is not empty else None
    for path in (old, empty):
        age(path, 7200)
    assert set(gc(host)["files"]) == {str(old), str(empty), str(removed)}
    assert young.exists()
    assert not any(path.exists() for path in (old, empty, removed))


def test_unused_programs_are_removed(host: AgentHost) -> None:
    host.started(task("worker:0", "sleep", "1000"))
    (mine,) = (path for path in (host.root / "agent").iterdir() if len(path.name) == 64)
    old, fresh, in_use, back = (host.root / "agent" / (digit * 64) for digit in "0123")
    for path in (old, fresh, in_use, back):
        shutil.copytree(mine, path)
    for path in (mine, old, in_use, back):
        age(path, 7200)
    (host.root / "agent" / "current").symlink_to(back.name)
    lock = os.open(in_use / "lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        assert gc(host)["files"] == [str(old)]
    finally:
        os.close(lock)
    assert not old.exists()
    assert all(path.exists() for path in (mine, fresh, in_use, back))


def test_files_of_fork_servers_go_unless_their_process_lives(host: AgentHost) -> None:
    names = ["killed", "killed.lock", "living", "living.lock"]
    directory = host.root / "sessions"
    directory.mkdir(mode=0o700, parents=True)
    for name in names:
        (directory / name).touch()
    with (directory / "living.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gc(host)
        assert sorted(path.name for path in directory.iterdir()) == names[2:]


def test_the_program_of_an_agent_is_held_by_each_of_its_processes(host: AgentHost) -> None:
    spec = host.started(task("worker:0", "sleep", "1000"))
    keeper = host.start_record(spec, "worker:0")["keeper"]["pid"]
    for pid in (host.supervisor(spec), keeper):
        assert any(str(path.readlink()).endswith("/lock") for path in Path(f"/proc/{pid}/fd").iterdir())
    trainer = host.start_record(spec, "worker:0")["pid"]
    assert len(list(Path(f"/proc/{trainer}/fd").iterdir())) == 3


def test_locks_of_what_is_not_there_any_more_go(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"))
    host.ask("down", grace_s=0, by="")
    lock = host.root / "bundles" / ("a" * 64 + ".lock")
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    result = gc(host)
    assert str(lock) in result["files"]
    assert str(host.root / "clusters" / "c" / "h1" / "lock") in result["files"]
    assert list((host.root / "clusters").iterdir()) == []
    assert host.up({**spec, "run": "again", "digest": "again"})["tasks"]["worker:0"]


def test_a_dry_run_changes_nothing(host: AgentHost) -> None:
    spec = host.finished(shell("worker:0", "true"), ttl_s=0)
    (host.root / "bundles").mkdir()
    (host.root / "bundles" / ("a" * 64 + ".lock")).touch()
    before = sorted(str(path) for path in host.root.rglob("*") if "__pycache__" not in str(path))
    result = gc(host, dry_run=True)
    assert [run["run"] for run in result["runs"]] == [spec["run"]]
    assert result["files"]
    assert sorted(str(path) for path in host.root.rglob("*") if "__pycache__" not in str(path)) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root")
def test_a_process_of_another_user_is_not_touched(host: AgentHost) -> None:
    import subprocess

    (host.root / "runs").mkdir(parents=True)
    env = {"DTCTL_KEY": "k", "DTCTL_RUN_DIR": f"{host.root}/runs/gone/h1", "DTCTL_CLUSTER": "c", **host.env}
    with subprocess.Popen(["sleep", "1000"], env=env, user=65534) as process:
        try:
            assert orphans.find(str(host.root)) == []
        finally:
            process.kill()
    with subprocess.Popen(["sleep", "1000"], env=env) as process:
        assert [orphan.process.pid for orphan in orphans.find(str(host.root))] == [process.pid]
        assert orphans.end(orphans.find(str(host.root))) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root")
def test_live_runs_of_other_accounts_are_listed_by_their_supervisors(host: AgentHost) -> None:
    import subprocess

    if (python := shutil.which("python3", path="/usr/bin:/usr/local/bin")) is None:
        pytest.skip("every user needs a Python")
    directory = make_directory("agent")
    directory.chmod(0o755)
    (directory / "program").write_text("import time; time.sleep(1000)")
    runs = ("letters-1", "letters-1", "-rf")  # one twice, and what is no name
    others = [
        subprocess.Popen(
            [python, "-IS", str(directory / "program"), "supervise", f"/home/bob/.dtctl/runs/{run}/gpu-1"], user=user
        )
        for run, user in [*((run, 65534) for run in runs), ("own-1", os.geteuid())]
    ]
    try:
        found = [one for one in host.ask("runs", cluster=None)["foreign"] if one["run"] in (*runs, "own-1")]
        assert found == [{"run": "letters-1", "account": "nobody"}]
        assert host.ask("runs")["foreign"] == []
    finally:
        for one in others:
            one.kill()
            one.wait()
        shutil.rmtree(directory)

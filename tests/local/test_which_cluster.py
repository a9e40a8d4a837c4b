"""Which cluster a command means, several starts at once, and what an interrupted one leaves; as a user types it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.desk import CLUSTER, Desk
from tests.waiting import PATIENCE_S, eventually, read_until


@pytest.fixture
def elsewhere(home: Desk) -> Path:
    directory = home.home / "elsewhere"
    directory.mkdir()
    return directory


def other_project(home: Desk, name: str, cluster: str) -> Path:
    directory = home.home / name
    directory.mkdir()
    text = (home.project / "cluster.yaml").read_text().replace("name: demo", f"name: {cluster}")
    (directory / "cluster.yaml").write_text(text)
    (directory / "stand_in.py").write_bytes((home.project / "stand_in.py").read_bytes())
    return directory


def test_elsewhere_a_run_is_looked_at_and_ended_only_by_its_name(home: Desk, elsewhere: Path) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: "worker:1 step" in home.dtctl("logs", "worker:1", cwd=elsewhere))
    assert f"this is demo in {home.project}" in home.run("status", cwd=elsewhere).stderr
    for words in (["stop"], ["down", "--yes"], ["restart", "worker:1"], ["gc", "--yes"], ["exec", "--", "true"]):
        refused = home.run(*words, cwd=elsewhere)
        assert (refused.returncode, refused.stdout) == (2, "")
        for told in ("demo-2", str(home.project), f"dtctl {words[0]} --cluster demo"):
            assert told in refused.stderr
    assert set(home.states().values()) == {"running"}
    done = home.run("stop", "--cluster", "demo", cwd=elsewhere)
    assert (done.returncode, done.stdout) == (0, "3 tasks stopped, 0 left\n")
    assert done.stderr.startswith("stopping demo-")
    assert done.stderr.endswith(": 3 tasks on 2 hosts\n")
    assert "Stopped" in home.run("stop", cwd=elsewhere).stderr, "how it ended is remembered"


def test_a_run_of_the_same_name_from_another_directory_is_not_replaced(home: Desk) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    other = other_project(home, "other", "demo")
    (other / "cluster.yaml").write_text((other / "cluster.yaml").read_text().replace("grace: 2s", "grace: 3s"))
    refused = home.run("up", "--local", "--replace", cwd=other)
    assert refused.returncode == 2
    for file in (home.project / "cluster.yaml", other / "cluster.yaml"):
        assert str(file) in refused.stderr
    assert set(home.states().values()) == {"running"}
    replaced = home.run("up", "--local", "--replace", "--set", "grace=1s")
    assert replaced.returncode == 0, replaced.stderr
    assert ": 3 tasks on 2 hosts" in next(line for line in replaced.stderr.splitlines() if line.startswith("stopping"))


def test_several_starts_at_the_same_time_take_ports_of_their_own(home: Desk) -> None:
    home.write_cluster()
    places = [other_project(home, name, name) for name in ("one", "two", "three")]
    starts = [home.start("up", "--local", "-q", cwd=place) for place in places]
    said = [start.communicate(timeout=PATIENCE_S)[0] for start in starts]
    assert [start.returncode for start in starts] == [0, 0, 0], said
    for place in places:
        home.dtctl("down", "--yes", cwd=place)


def test_an_interrupt_before_anything_was_started_says_so_and_leaves_no_trace(home: Desk) -> None:
    file = home.write_cluster(CLUSTER.replace("  dialect: flags", "  dialect: flags\n  setup: echo begun; sleep 100"))
    with home.start("up", "--local") as starting:
        read_until(starting.stdout, "begun")
        starting.send_signal(signal.SIGINT)
        said = starting.communicate(timeout=PATIENCE_S)[0]
    assert starting.returncode == 130
    assert "interrupted: nothing was started" in said
    assert not list((home.home / ".local" / "state" / "dtctl" / "runs").glob("*.json"))
    file.unlink()
    refused = home.run("stop")
    assert (refused.returncode, "dtctl init" in refused.stderr) == (2, True)

"""Sixty real agents behind one sshd: what commands show of them, what they do at rest, and a drain and a loss."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts.processes import command, content, marked
from tests.hosts.sshd import SSHD, Sshd
from tests.waiting import eventually

pytestmark = [
    pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)"),
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]

HOSTS = 60
REST_S = 20.0
LONG_S = 240.0
DRAINED = [f"n{number}" for number in range(21, 31)]
"""More than a reason has room for facts."""


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    with Sshd() as made:
        yield made


@pytest.fixture(scope="module")
def user(server: Sshd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Their trainers may go on without each other; each has a port of its own, because they are on one machine."""
    with desk(tmp_path_factory.mktemp("many") / "home") as made:
        made.write_ssh_config(server.ssh_config_text("n*"))
        names = [f"n{number:02}" for number in range(1, HOSTS + 1)]
        jobs = ", ".join(f"w{name}: {{hosts: [{name}], port: {port}}}" for port, name in enumerate(names, 21001))
        text = cluster_text(
            jobs=f"{{{jobs}}}",
            trainer="command: [python, stand_in.py], dialect: none",
            recovery="{max_restarts: 3, backoff: 100ms..200ms}",
        )
        made.write_cluster(text, hosts=f'hosts:\n  "n[01-{HOSTS}]":\n', tick=5)
        assert made.dtctl("up", timeout_s=LONG_S) == ""
        eventually(lambda: set(made.states().values()) == {"running"}, LONG_S, "all to run", 1.0)
        yield made


def intents(server: Sshd) -> dict[Path, int]:
    """When each file with what tasks are to do was written."""
    return {file: file.stat().st_mtime_ns for file in server.home.glob(".dtctl/runs/*/*/intent.json")}


def processor_s(pids: list[int]) -> float:
    """Seconds of processor time of those of these processes that live."""
    fields = (content(pid, "stat").rpartition(b")")[2].split() for pid in pids)
    return sum(int(own[11]) + int(own[12]) for own in fields if own) / os.sysconf("SC_CLK_TCK")


def test_at_rest_no_intent_is_written_and_the_agents_take_a_part_of_one_processor(user: Desk, server: Sshd) -> None:
    time.sleep(5)  # the start is over
    pids = [*marked(f"HOME={server.home}")]
    before, began_s = intents(server), processor_s(pids)
    time.sleep(REST_S)
    assert len(before) >= HOSTS, before
    assert intents(server) == before
    assert processor_s(pids) - began_s < 0.01 * HOSTS * REST_S, "more than 1 % of a processor for each host"


@pytest.mark.parametrize(
    ("words", "most_lines"),
    [
        (("status",), HOSTS + 10),
        (("events",), HOSTS + 10),
        (("checkpoints",), 5),
        (("check",), 40),
        (("diagnose",), 20),
        (("gpus",), 10),
        (("logs", "-n", "1"), HOSTS),
    ],
)
def test_a_command_about_sixty_hosts_is_one_screen(user: Desk, words: tuple[str, ...], most_lines: int) -> None:
    done = user.run(*words, timeout_s=LONG_S)
    assert done.returncode in (0, 1), done
    assert len(done.stdout.splitlines()) <= most_lines, done.stdout
    heard = [line for line in done.stderr.splitlines() if not line.startswith("waiting for ")]
    assert len(heard) <= 10, done.stderr


def test_ten_hosts_are_drained_and_return_without_a_further_order(user: Desk, server: Sshd) -> None:
    for host in DRAINED:
        user.dtctl("drain", host, timeout_s=LONG_S)
    drained = {f"w{host}:0" for host in DRAINED}
    eventually(
        lambda: not drained & {task for task, state in user.states().items() if state == "running"},
        LONG_S,
        "their tasks to stop",
        1.0,
    )
    time.sleep(5)  # the others pause, because a run needs all of its jobs
    before = intents(server)
    time.sleep(8)
    assert intents(server) == before
    for host in DRAINED:
        user.dtctl("undrain", host, timeout_s=LONG_S)
    eventually(lambda: set(user.states().values()) == {"running"}, LONG_S, "all to run again", 1.0)


def test_a_trainer_that_dies_is_started_again_and_no_other(user: Desk) -> None:
    before = {task["task"]: task["attempt"] for task in user.status()["tasks"]}
    user.dtctl("exec", "wn33:0", "--", "kill", "-9", str(user.task("wn33:0")["pid"]))
    expected = {**before, "wn33:0": before["wn33:0"] + 1}
    eventually(
        lambda: {task["task"]: task["attempt"] for task in user.status()["tasks"]} == expected,
        LONG_S,
        "another attempt of one task",
        1.0,
    )


def test_sixty_hosts_are_stopped_and_nothing_is_left(user: Desk, server: Sshd) -> None:
    assert user.dtctl("stop", timeout_s=LONG_S).endswith("0 left\n")
    user.dtctl("down", "--yes", timeout_s=LONG_S)
    eventually(lambda: not _trainers(server), LONG_S, "all trainers to end", 1.0)


def _trainers(server: Sshd) -> list[int]:
    return [pid for pid in marked(f"HOME={server.home}") if "stand_in" in command(pid)]

"""Another user of a host where a run trains: in spite of his deeds, it trains, answers, and reports its problems."""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.link.links import client_hello
from tests.hostile.beside import CHECKPOINTS
from tests.hostile.neighbour import CONNECTIONS, PORT
from tests.hostile.neighbourhood import LEAD, OTHER, SECRET, SETUP, SharedHost, doing, names, open_home
from tests.nights import at_night
from tests.unit.agent.poisons import left_in
from tests.waiting import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user"),
    pytest.mark.xdist_group("neighbours"),
]

MOST_S = PATIENCE_S
"""For four answers at once, which take a few seconds on an idle machine: a hang takes longer."""

BY_DAY = ("FIFOs", "an index of a terabyte", "a file that is a FIFO every other moment")
"""One of each kind; all of them run at night."""

STRANGERS_BY_DAY = ("a thousand who begin TLS without a proof", "a thousand who say anything")

DIAL_S = 2.0
TRIES = 10
"""One of this many must take less, as the machine may be busy."""

SQUAT_S = 10.0


@pytest.fixture(scope="module")
def place() -> Iterator[SharedHost]:
    with open_home() as directory:
        made = SharedHost(directory)
        try:
            with doing("read command lines") as looking:
                looking.hear()
                made.up()
                made.seen = looking.end()
            yield made
        finally:
            made.desk.remove()


def goes_on(place: SharedHost) -> dict[str, str]:
    """Checks that it trains and answers. Returns the answers."""
    place.trains_on()
    began = time.monotonic()
    answers = place.answers()
    assert time.monotonic() - began < MOST_S
    assert not left_in("".join(answers.values()))
    return answers


@pytest.mark.parametrize("what", at_night(CHECKPOINTS, but=BY_DAY))
def test_foreign_files_beside_checkpoints_block_no_command(place: SharedHost, what: str) -> None:
    before, attempts = place.untouched(), set(place.steps())
    try:
        with doing("beside checkpoints", what=what, directory=str(place.output)) as deed:
            deed.hear()
            answers = goes_on(place)
            deed.end()
    finally:
        place.sweep()
    assert re.search(CHECKPOINTS[what][1], answers["checkpoints"])
    assert place.untouched() == before
    assert set(place.steps()) == attempts
    assert place.genuine == names(place.output)


def test_recovery_of_a_ps_writes_through_no_foreign_link(place: SharedHost) -> None:
    """Then damaged checkpoints are moved, and `checkpoint` is written."""
    before = place.untouched()
    with doing("beside checkpoints", what="links to what is the user's own", directory=str(place.output)) as deed:
        deed.end()
        os.kill(place.desk.task("ps:0")["pid"], signal.SIGKILL)
        eventually(lambda: place.desk.task("ps:0")["attempt"] == 2, MOST_S, "ps:0 to come back")
        eventually(lambda: set(place.desk.states().values()) == {"running"}, MOST_S, "the run to train again")
        goes_on(place)
    place.sweep()
    assert place.untouched() == before


@pytest.mark.parametrize("what", at_night(PORT, but=STRANGERS_BY_DAY))
def test_an_agent_connects_despite_many_strangers(place: SharedHost, what: str) -> None:
    facts = {"port": place.port, "port_token": place.token_proof().hex(), "tls": client_hello().hex()}
    with doing(what, **facts) as deed:
        deed.hear()
        measured = []
        for _ in range(TRIES):  # the machine may be busy with other work
            measured.append(place.dial_s())
            if measured[-1] < DIAL_S:
                break
        goes_on(place)
        assert deed.end() in (100, CONNECTIONS)
    print(f"{what}: an agent got in after {min(measured):.2f} s")
    assert min(measured) < DIAL_S
    eventually(place.connected, MOST_S, "the agents to be connected")


def own_files(place: SharedHost) -> list[Path]:
    return [path for own in (".dtctl", ".local", ".cache") for path in (place.desk.home / own).rglob("*")]


def test_nothing_of_a_run_can_be_opened_or_locked_by_another_user(place: SharedHost) -> None:
    paths = own_files(place)
    assert {"state.json", "link.key", "log", "secrets.json"} & {path.name for path in paths}
    with doing("open", paths=[str(path) for path in paths]) as deed:
        assert deed.end() == []


def test_processes_of_a_run_are_closed_to_another_user(place: SharedHost) -> None:
    pids = list(place.desk.processes())
    assert len(pids) > 5
    with doing("read environments", pids=pids) as deed:
        assert deed.end() == []
    with doing("signal", pids=pids) as deed:
        assert deed.end() == []
    goes_on(place)


def test_no_command_line_contains_a_secret(place: SharedHost) -> None:
    """Of all processes from before the start until every task ran."""
    seen = "\n".join(place.seen)
    assert re.search("-IS\0[^\0]*\0supervise", seen)  # isolated from the working directory
    assert "stand_in.py" in seen
    credentials = place.directory(OTHER)
    key = (credentials / "link.key").read_text().splitlines()[1]
    port_token = (credentials / "link.port_token").read_text().strip()
    for secret in (SECRET, SETUP, key, port_token):
        assert secret not in seen


def test_dtctl_writes_only_in_private_directories(place: SharedHost) -> None:
    assert list(place.temporary.iterdir()) == []
    assert place.genuine == names(place.output)
    home = {".dtctl", ".local", ".cache", "project", "victim"}
    assert names(place.desk.home) <= home
    assert names(place.desk.project) == {"cluster.yaml", "stand_in.py"}
    for own in (".dtctl", ".local/state/dtctl", ".cache/dtctl"):
        path = place.desk.home / own
        assert not path.exists() or stat.S_IMODE(path.stat().st_mode) == 0o700
    for pid in place.desk.processes():
        for held in Path(f"/proc/{pid}/fd").iterdir():
            leads = str(held.readlink())
            assert not leads.startswith("/") or leads.startswith((str(place.desk.home / ".dtctl"), "/dev/null")), leads


def test_agents_return_after_the_coordinators_port_was_taken_and_left(place: SharedHost) -> None:
    with doing("take a port", port=place.port) as deed:
        deed.hear()
        os.kill(place.supervisor(LEAD), signal.SIGKILL)
        assert deed.hear() == "has it"
        left = time.monotonic() + SQUAT_S
        problem = f"agents cannot reach the coordinator: port {place.port}: address already in use"
        eventually(lambda: place.desk.status()["warnings"] == [problem], MOST_S, "the port to be reported")
        assert problem in place.story()
        assert problem in goes_on(place)["status"].replace("\n", " ")
        time.sleep(max(left - time.monotonic(), 0))
        place.trains_on()
        deed.end()
    began = time.monotonic()
    eventually(lambda: place.connected() and not place.desk.status()["warnings"], MOST_S, "the agents to be back")
    print(f"agents were back {time.monotonic() - began:.1f} s after the port was left")
    assert "agents can reach the coordinator again" in place.story()
    place.trains_on()


def tells(place: SharedHost, words: tuple[str, ...]) -> bool:
    return any(all(word in reason for word in words) for reason in place.story())


def test_a_failure_names_the_port_taken_between_two_attempts(place: SharedHost) -> None:
    task = place.desk.task("worker:0")
    with doing("take a port", port=place.worker_port) as deed:
        deed.hear()
        os.kill(task["pid"], signal.SIGKILL)
        assert deed.hear() == "has it"
        words = ("exit code 1 (OSError: [Errno 98] Address already in use", f"port {place.worker_port} is held by ")
        eventually(lambda: tells(place, words), MOST_S, "the port to be reported")
        deed.end()
    eventually(lambda: place.desk.states()["worker:0"] == "running", MOST_S, "the task to be back")
    place.trains_on()


def test_the_run_can_be_stopped_and_removed_after_all_deeds(place: SharedHost) -> None:
    place.desk.dtctl("stop", "--grace", "2s")
    assert place.desk.outcome() == "Stopped"
    place.desk.dtctl("down", "--yes")
    assert place.desk.processes() == {}
    assert list((place.desk.home / ".dtctl").glob("runs/*/*")) == []
    assert place.genuine == names(place.output)

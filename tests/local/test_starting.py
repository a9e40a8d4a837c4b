"""A start as a user sees it: its end, the reason of a failure, the effect of Ctrl-C; and the smallest template."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.rooms.init.operation import about_template, template_names
from tests.desk import Desk, cluster_text, desk
from tests.local.test_top import Terminal
from tests.waiting import PATIENCE_S, eventually

SILENT = "[sh, -c, 'echo loading; exec sleep 1000']"
"""It opens no port, and reports no step."""

COUNTS = "[sh, -c, 'for step in $(seq 1000); do echo step $step; sleep 0.1; done']"
FAILS = "[sh, -c, 'echo the daemon is away >&2; exit 125']"


def write(home: Desk, command: str) -> Path:
    trainer = f"command: {command}, dialect: flags"
    return home.write_cluster(cluster_text(trainer=trainer, recovery="{backoff: 20s..20s}"))


def test_up_returns_when_a_program_that_opens_no_port_reports_steps(home: Desk) -> None:
    write(home, COUNTS)
    done = home.run("up", "--local")
    assert done.returncode == 0, done.stderr
    assert "started: 3 tasks" in done.stderr
    assert all(task["ready"] for task in home.status()["tasks"])


def test_a_program_that_fails_the_same_way_again_ends_the_start_with_its_cause(home: Desk) -> None:
    write(home, FAILS)
    done = home.run("up", "--local")
    assert done.returncode == 1
    assert "ps:0 on node-1 failed; the end of its log:" in done.stderr
    assert "  ps:0 | the daemon is away" in done.stderr
    assert "failed to start: ps:0 on node-1: exit code 125, twice in a row; all tasks were stopped" in done.stderr
    assert done.stderr.count("exit code 125") == done.stderr.count("daemon is away") == 1, "one problem, said once"
    assert " started: " not in done.stderr
    assert home.outcome() == "Failed"
    assert "the daemon is away" in home.dtctl("logs", "ps:0")
    assert home.processes() == {}


HERE = "hosts:\n  node-1: {transport: local}\n  node-2: {transport: local}\n"


def test_lead_at_a_new_address_of_its_machine_takes_the_ports_of_the_replaced_run(
    home: Desk,
) -> None:
    """Hosts of the file may be addresses of one machine; the coordinator's port and the trainers' are set."""
    coordinator, worker = free_ports(2)

    def write_on(*hosts: str) -> None:
        text = cluster_text(jobs=f"{{worker: {{hosts: [{', '.join(hosts)}], port: {worker}}}}}")
        home.write_cluster(text + f"coordinator: {{{{port: {coordinator}}}}}\n", hosts=HERE)

    write_on("node-1")
    home.dtctl("up", "-q")
    for hosts in (["node-2", "node-1"], ["node-1", "node-2"], ["node-2", "node-1"]):
        write_on(*hosts)
        done = home.run("up", "--replace")
        assert done.returncode == 0, done.stderr
        assert home.task("worker:0")["host"] == hosts[0]
    home.dtctl("stop")
    write_on("node-2")
    with socket.create_server(("", worker)):
        taken = home.run("up")
    assert (taken.returncode, f"port {worker} is in use" in taken.stderr) == (5, True), taken.stderr


def free_ports(count: int) -> list[int]:
    """They are below those that the system hands out to outgoing connections, and others may follow each."""
    found = []
    for port in range(20_000, 30_000, 10):
        with suppress(OSError), socket.create_server(("", port)):
            found.append(port)
        if len(found) == count:
            break
    return found


BINDS = "import socket, sys; open_ = socket.socket(); open_.bind(('127.0.0.1', int(sys.argv[1])))"


def test_every_command_reports_the_same_cause_of_a_failed_start(home: Desk) -> None:
    """Another program on the host has a port that the trainers open."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = json.dumps(["python3", "-c", BINDS, str(taken.getsockname()[1])])
        home.write_cluster(cluster_text(trainer=f"command: {command}", recovery="{backoff: 100ms..200ms}"))
        done = home.run("up", "--local")
    cause = "ps:0 could not bind its port (OSError: [Errno 98] Address already in use)"
    assert done.returncode == 1
    assert f"failed to start: {cause}, 3 times in a row" in done.stderr
    assert done.stderr.count("could not bind") == 1
    in_short = "ps:0 could not bind its port (OSError)"
    assert re.search(rf": Failed( after \w+)? · {re.escape(in_short)}", home.dtctl("status"))
    assert home.outcome() == "Failed"
    assert home.task("ps:0")["state"] == "failed"
    assert f": Failed, {in_short}" in home.run("wait").stderr
    assert f" Failed: {cause}\n" in home.dtctl("events")
    assert " Failed " in home.dtctl("runs").splitlines()[1]
    diagnosis = home.dtctl("diagnose")
    assert diagnosis.startswith("ps:0 on node-1 exited 1 at ")
    assert "is taken" in diagnosis


def test_an_interrupt_after_all_hosts_have_started_leaves_the_run_and_its_logs(home: Desk) -> None:
    """There is no prompt here, because there is no terminal."""
    write(home, SILENT)
    with home.start("up", "--local") as starting:
        eventually(lambda: sum("sleep 1000" in command for command in home.processes().values()) >= 3, 60)
        eventually(lambda: set(home.states().values()) == {"running"})
        starting.send_signal(signal.SIGINT)
        output = starting.communicate(timeout=PATIENCE_S)[0]
    assert starting.returncode == 130
    assert "interrupted: run demo-" in output
    assert " continues" in output
    assert set(home.states().values()) == {"running"}
    assert "loading" in home.dtctl("logs", "ps:0")


@pytest.mark.parametrize(("answer", "states"), [("y\n", {"stopped"}), ("\n", {"running"}), ("\x03", {"running"})])
def test_on_a_terminal_an_interrupt_asks_what_becomes_of_the_run(home: Desk, answer: str, states: set[str]) -> None:
    write(home, SILENT)
    home.env.pop("CI", None)
    with Terminal(home, "up", "--local") as terminal:
        terminal.shows("loading")
        terminal.press("\x03")
        terminal.shows("Stop run demo-")
        terminal.press(answer)
        code, output = terminal.ended(), terminal.seen
    assert code == 130, output
    assert set(home.states().values()) == states
    assert "loading" in home.dtctl("logs", "ps:0"), "no interrupt removes logs"
    assert ("interrupted: run demo-" in output) is (states == {"running"})


def test_a_controller_that_is_killed_while_it_waits_for_tasks_changes_nothing(home: Desk) -> None:
    write(home, SILENT)
    with home.start("up", "--local") as starting:
        eventually(lambda: (home.run("status").returncode == 0) and set(home.states().values()) == {"running"}, 60)
        starting.kill()
    assert set(home.states().values()) == {"running"}
    home.dtctl("stop")


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", name="hello") as made:
        made.dtctl("init", "--template", "hello")
        yield made


def learnt(user: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((user.home / "dtctl" / user.project.name / "output" / "model.json").read_text())
    return found


def is_the_line(model: dict[str, Any]) -> bool:
    return bool(abs(model["slope"] - 3) < 0.2 and abs(model["offset"] + 1) < 0.1)


def test_init_lists_every_template_with_its_purpose(newcomer: Desk) -> None:
    shown = newcomer.dtctl("init", "--list")
    for name in template_names():
        assert name in shown
        assert about_template(name)[:40] in shown


def test_init_reports_the_packages_of_its_own_template_alone(tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="hello") as made:
        (made.project / "requirements.txt").write_text("# of another program\nflask\n")
        assert "it needs" not in made.run("init", "--template", "hello").stderr
        assert "it needs tensorflow" in made.run("init", "elsewhere").stderr


def test_the_smallest_template_learns_and_ends(newcomer: Desk) -> None:
    shown = newcomer.dtctl("up", "--local", "-f")
    assert "y = 3." in shown or "y = 2." in shown
    assert newcomer.outcome() == "Succeeded"
    model = learnt(newcomer)
    assert model["step"] == 300
    assert is_the_line(model)


def test_the_smallest_template_continues_after_a_stop_and_a_kill(newcomer: Desk) -> None:
    newcomer.dtctl("up", "--local", "--set", "trainer.args.train_steps=1000000")
    eventually(lambda: "step 100 " in newcomer.dtctl("logs", "worker:0"), what="steps")
    newcomer.dtctl("stop")
    saved = learnt(newcomer)["step"]
    assert saved >= 100
    newcomer.dtctl("up", "--local", "--set", "trainer.args.train_steps=1000000")
    eventually(lambda: f"begins at step {saved}\n" in newcomer.dtctl("logs", "worker:0"), what="the beginning")
    eventually(lambda: learnt(newcomer)["step"] > saved, what="another save")
    os.kill(newcomer.task("worker:0")["pid"], signal.SIGKILL)
    eventually(lambda: newcomer.task("worker:0")["restarts"] == 1, what="the restart")
    before = learnt(newcomer)["step"]
    eventually(lambda: learnt(newcomer)["step"] > before, what="a save of the second attempt")
    newcomer.dtctl("stop")
    assert is_the_line(learnt(newcomer))

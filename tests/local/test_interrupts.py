"""Ctrl-C, SIGTERM and a closed terminal, in every command that may take long and at any moment of it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.nights import at_night
from tests.waiting import eventually

COMMANDS = (
    *("status --watch", "logs -f", "events -f", "metrics -f", "wait", "exec -- sleep 60", "check", "diagnose"),
    *("dashboard", "data push", "data push -o json", "data verify", "data drop --yes", "push"),
    *("report", "runs", "up --local", "up --local -o json"),
)
ENDINGS = {signal.SIGTERM: {143}, signal.SIGINT: {130}, signal.SIGHUP: {129, -signal.SIGHUP}}
MOMENTS_S = (0.0, 0.4, 1.2)
"""After the command has begun to care for its end; a busy machine has another moment, and the same outcome."""

CASES = [
    f"{words}: {number.name} after {delay_s} s" for words in COMMANDS for number in ENDINGS for delay_s in MOMENTS_S
]
BY_DAY = CASES[:: 2 * len(ENDINGS) * len(MOMENTS_S) + 1]
"""Of the kinds of ends and of the moments one after the other, with every other command."""

HOSTS = "hosts:\n  node-1: {transport: local}\n  node-2: {transport: local}\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A run that continues whatever ends its commands."""
    with desk(tmp_path_factory.mktemp("interrupts") / "home") as made:
        (made.project / "digits").mkdir()
        for number in range(200):
            (made.project / "digits" / f"{number}.rec").write_bytes(bytes([number]) * 100_000)
        text = cluster_text(
            jobs='{worker: {hosts: "node-[1-2]"}}',
            trainer="command: [python, stand_in.py], dialect: none, code: code",
            dirs=f"{{data: {made.home}/data}}",
            data="{from: digits}",
        )
        (made.project / "code").mkdir()
        (made.project / "stand_in.py").rename(made.project / "code/stand_in.py")
        made.write_cluster(text, hosts=HOSTS, tick=0.2)
        made.env["PYTHONWARNINGS"] = ""  # a socket that an interrupt leaves open for a moment is no fault
        made.dtctl("data", "push", "-q")
        made.dtctl("up", "-q")
        yield made


def _catches(pid: int, number: int) -> bool:
    """proc(5): SigCgt. Python itself catches SIGINT."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(caught >> (number - 1) & 1)


@pytest.mark.parametrize("case", at_night(CASES, but=BY_DAY))
def test_an_ended_command_says_so_and_changes_nothing_else(running: Desk, case: str) -> None:
    words, _, when = case.partition(": ")
    number, delay_s = signal.Signals[when.split()[0]], float(when.split()[2])
    with running.start(*words.split()) as command:
        eventually(lambda: command.poll() is not None or _catches(command.pid, signal.SIGTERM), what="its handler")
        time.sleep(delay_s)
        ended_by_itself = command.poll() is not None
        command.send_signal(number)
        output, _ = command.communicate(timeout=60)
    assert "Traceback" not in output
    assert "Exception ignored" not in output
    if command.returncode in ENDINGS[number] and command.returncode > 0:
        assert any(said in output for said in ("interrupted", "continues", "ended", "detached")), output
        documents = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
        assert {one["exitCode"] for one in documents if one["kind"] == "Error"} <= ENDINGS[number]
    else:
        assert ended_by_itself or command.returncode in {0, 1, 5, *ENDINGS[number]}, output
    assert set(running.states().values()) == {"running"}

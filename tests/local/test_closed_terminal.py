"""A terminal that is closed while a command runs in it: SIGHUP, and output that goes nowhere."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.nights import at_night
from tests.waiting import PATIENCE_S, eventually

HOSTS = "hosts:\n  node-1: {transport: local}\n  node-2: {transport: local}\n"
HUNG_UP = (129, -signal.SIGHUP)
"""The second one, which a shell shows as the first, before dtctl has begun and after it has finished its work."""
COMMANDS = (
    *("status --watch", "logs -f", "events -f", "metrics -f", "wait", "exec -- sleep 60", "check", "diagnose"),
    *("dashboard", "push", "runs", "restart worker:1", "up -f"),
)
LEADS = {"leads the terminal's session": True, "has left the terminal's session": False}
"""Only a process of its session is sent SIGHUP; any other finds that its output goes nowhere."""
CASES = [f"{words}, {how}" for words in COMMANDS for how in LEADS]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("closed") / "home") as made:
        made.write_cluster(
            cluster_text(trainer="command: [python, stand_in.py], dialect: flags"), hosts=HOSTS, tick=0.2
        )
        made.env["PYTHONWARNINGS"] = ""
        made.dtctl("up", "-q")
        yield made


def closed(user: Desk, words: str, errors: Path, *, leads: bool, after_s: float = 0.6) -> int:
    """The exit code of a command whose terminal is closed. `errors`: gets stderr of one that has left its session."""
    master, slave = pty.openpty()
    with errors.open("wb") as file:
        command = subprocess.Popen(
            user.argv(*words.split()),
            cwd=user.project,
            env={**user.env, "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave if leads else file,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if leads else None,
        )
    os.close(slave)
    os.set_blocking(master, False)
    until = time.monotonic() + after_s
    while time.monotonic() < until:
        try:
            os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # it has ended
            break
    os.close(master)
    try:
        return command.wait(PATIENCE_S if leads else 3)
    except subprocess.TimeoutExpired:  # it has nothing to print, and so does not notice
        assert not leads
        command.terminate()
        command.wait(PATIENCE_S)
        return 129


@pytest.mark.parametrize("case", at_night(CASES, but=CASES[::5]))
def test_a_closed_terminal_ends_a_command_without_a_traceback(running: Desk, case: str, tmp_path: Path) -> None:
    words, _, how = case.partition(", ")
    code = closed(running, words, tmp_path / "errors", leads=LEADS[how])
    said = (tmp_path / "errors").read_text()
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert code in {0, 1, 5, *HUNG_UP}, f"{code}: {said}"
    eventually(lambda: set(running.states().values()) == {"running"}, what="all tasks")


def test_a_command_that_is_hung_up_twice_finishes_what_it_has_left_to_do(running: Desk) -> None:
    """The shell sends SIGHUP, and the kernel, too."""
    with running.start("logs", "-f") as following:
        assert following.stdout is not None
        following.stdout.readline()
        following.send_signal(signal.SIGHUP)
        following.send_signal(signal.SIGHUP)
        rest, _ = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 129
    assert "the run continues" in rest
    assert "Traceback" not in rest


def test_under_nohup_a_command_goes_on(running: Desk) -> None:
    ignoring = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        following = running.start("logs", "-f")
    finally:
        signal.signal(signal.SIGHUP, ignoring)
    with following:
        assert following.stdout is not None
        following.stdout.readline()
        following.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert following.stdout.readline()
        following.terminate()
        following.communicate(timeout=PATIENCE_S)


def test_a_stop_whose_terminal_is_closed_is_completed_or_was_not_begun(tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        user.write_cluster()
        user.dtctl("up", "--local")
        for after_s in (0.2, 0.3, 0.5):
            assert closed(user, "stop", tmp_path / "errors", leads=True, after_s=after_s) in {0, *HUNG_UP}
            eventually(lambda: set(user.states().values()) in ({"running"}, {"stopped"}), what="all tasks, or none")
        user.dtctl("stop")
        assert user.processes() == {}


def test_a_start_whose_terminal_is_closed_leaves_a_whole_run_or_none(tmp_path: Path) -> None:
    with desk(tmp_path / "home") as user:
        user.write_cluster()
        user.env["PYTHONWARNINGS"] = ""
        for after_s in (0.2, 0.35, 0.5, 0.8):
            code = closed(user, "up --local", tmp_path / "errors", leads=True, after_s=after_s)
            assert code in {0, *HUNG_UP}
            found = user.run("status")
            if found.returncode == 0 and "Stopped" not in found.stdout:
                eventually(lambda: set(user.states().values()) == {"running"}, what="all tasks, or none")
                user.dtctl("down", "--yes")
            else:
                eventually(lambda: user.processes() == {}, what="nothing to be left")

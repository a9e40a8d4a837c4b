"""`dtctl tensorboard` against a real sshd: its pages come over the session, and nothing is left at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.board.test_board import STAND_IN
from tests.desk import Desk, desk
from tests.hosts.sshd import SSHD, Sshd
from tests.ssh.test_commands import configure
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: [testhost]}}}}
dirs: {{output: OUT}}
trainer:
  command: [python, -c, "import time; time.sleep(1000)"]
  dialect: none
  env: {{PYTHONPATH: PACKAGES}}
grace: 2s
"""


@pytest.fixture
def trains(tmp_path: Path) -> Iterator[Desk]:
    """A run whose Python has something of that name, with an event file in its output directory."""
    package, out = tmp_path / "packages" / "tensorboard", tmp_path / "out" / "train"
    for place in (package, out):
        place.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text(STAND_IN)
    (out / "events.out.tfevents.1.host").touch()
    with desk(tmp_path / "home") as made, Sshd() as sshd:
        (made.home / ".ssh").mkdir(mode=0o700)
        configure(made, sshd)
        text = CLUSTER.replace("OUT", str(out.parent)).replace("PACKAGES", str(package.parent))
        made.write_cluster(text, hosts="hosts:\n  testhost:\n")
        made.dtctl("up")
        yield made


def boards(out: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--logdir" in words and str(out).encode() in words:
            found.append(int(process.name))
    return found


def begun(desk: Desk) -> tuple[subprocess.Popen[str], str]:
    board = desk.start("tensorboard")
    assert board.stdout is not None
    url = next(line for line in board.stdout if line.startswith("http://")).strip()
    with urllib.request.urlopen(url, timeout=60) as page:
        assert page.read() == b"['train']"
    with urllib.request.urlopen(url + "2000000", timeout=60) as page:
        assert len(page.read()) == 2_000_000
    return board, url


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 130), (signal.SIGKILL, -9)],
    ids=lambda value: str(getattr(value, "name", "")),
)
def test_nothing_is_left_whatever_ends_it(trains: Desk, tmp_path: Path, number: signal.Signals, code: int) -> None:
    board, url = begun(trains)
    with board:
        assert len(boards(tmp_path / "out")) == 1
        os.kill(board.pid, number)
        assert board.wait(60) == code
        if number != signal.SIGKILL:
            assert boards(tmp_path / "out") == [], "it has ended when the command has"
    eventually(lambda: not boards(tmp_path / "out"), 60, "its end")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_one_that_ends_by_itself_is_told(trains: Desk, tmp_path: Path) -> None:
    board, _ = begun(trains)
    with board:
        assert board.stdout is not None
        os.kill(boards(tmp_path / "out")[0], signal.SIGKILL)
        assert board.wait(60) == 1
        assert "TensorBoard on testhost has ended by itself" in board.stdout.read()

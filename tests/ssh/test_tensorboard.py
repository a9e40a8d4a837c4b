"""`dtctl tensorboard` against a real sshd: its pages come over the session, and nothing remains at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.test_tensorboard import STAND_IN
from tests.browser import Page, tensorboards
from tests.desk import Desk, desk
from tests.hosts.sshd import SSHD, Sshd
from tests.ssh.test_commands import configure
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: [testhost]}}}}
dirs: {{output: out}}
trainer:
  command: [python, train.py, "{{output_dir}}"]
  dialect: none
  env: {{PYTHONPATH: "{{output_dir}}/packages"}}
grace: 1s
"""
TRAINER = """\
import pathlib, shutil, sys, time
out = pathlib.Path(sys.argv[1])
shutil.copytree("packages", out / "packages", dirs_exist_ok=True)
(out / "train").mkdir(exist_ok=True)
(out / "train" / "events.out.tfevents.1.host").touch()
print("step 1", flush=True)
time.sleep(1000)
"""
ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}


@pytest.fixture
def trains(tmp_path: Path) -> Iterator[Desk]:
    """A run whose Python has a module of that name, with an event file in its output directory."""
    with desk(tmp_path / "home", name=f"board-{uuid.uuid4().hex[:8]}") as made, Sshd() as sshd:
        configure(made, sshd)
        package = made.project / "packages" / "tensorboard"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "main.py").write_text(STAND_IN)
        (made.project / "train.py").write_text(TRAINER)
        made.write_cluster(CLUSTER, hosts="hosts:\n  testhost:\n")
        made.dtctl("up")
        eventually(lambda: "step 1" in made.dtctl("logs"), 60, "an event file")
        yield made


def begun(of: Desk) -> tuple[subprocess.Popen[str], str]:
    board = of.start("tensorboard")
    assert board.stdout is not None
    url = next(line for line in board.stdout if line.startswith("http://")).strip()
    page = Page(url)
    assert "'train'" in page.below()
    assert len(page.below("2000000")) == 2_000_000
    return board, url


def test_nothing_is_left_whatever_ends_it(trains: Desk) -> None:
    for number, code in ENDS.items():
        board, url = begun(trains)
        with board:
            assert len(tensorboards(trains.name)) == 1
            os.kill(board.pid, number)
            assert board.wait(60) == code
            if number != signal.SIGKILL:
                assert tensorboards(trains.name) == [], "it has ended when the command has"
        eventually(lambda: not tensorboards(trains.name), 60, f"its end after {number.name}")
        with pytest.raises(ConnectionRefusedError):
            Page(url)
    board, url = begun(trains)
    with board:
        os.kill(tensorboards(trains.name)[0], signal.SIGKILL)
        assert board.wait(60) == 1
        assert board.stdout is not None
        assert "TensorBoard on testhost has ended by itself" in board.stdout.read()

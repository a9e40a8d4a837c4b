"""A real Slurm with four nodes, made once, and a user at its login node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import LOCAL_HOSTS, Desk, cluster_text
from tests.hosts.slurm import Slurm, missing
from tests.waiting import PATIENCE_S, eventually

HERE = Path(__file__).parent
CLUSTER = cluster_text(grace="1s")
"""Its hosts node-1 and node-2 become nodes of the allocation."""

SAVER = """\
import pathlib, signal, sys, time

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
step = int((out / "state").read_text()) if (out / "state").exists() else 0
print("starts at step", step, flush=True)
while not asked and not (out / "enough").exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.2)
if asked:
    time.sleep(1)
    (out / "state").write_text(str(step))
"""
"""A trainer that saves when it is asked to end, for which it takes a second, and continues from there."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """One worker of pytest-xdist has them all, because each would start a Slurm of its own."""
    if HERE in item.path.parents:
        item.add_marker(pytest.mark.xdist_group("slurm"))


@pytest.fixture(scope="session")
def lasting_slurm() -> Iterator[Slurm]:
    if reason := missing():
        pytest.skip(f"no Slurm: {reason}")
    with Slurm(4) as made:
        yield made


@pytest.fixture
def slurm(lasting_slurm: Slurm) -> Iterator[Slurm]:
    """Four idle nodes, n1 to n4, and a login node; nothing runs there, and all homes are empty."""
    yield lasting_slurm
    lasting_slurm.restore()


class SlurmDesk(Desk):
    """What `train` types on the login node, in a project that all nodes see. `home` is that of outside."""

    def __init__(self, slurm: Slurm) -> None:
        super().__init__(slurm.train.home)
        self.slurm = slurm
        self.env = {"COLUMNS": "160", "PYTHONWARNINGS": "error"}
        self.inside = f"{slurm.train.home_inside}/project"

    def write_cluster(self, text: str = CLUSTER, /, *, hosts: str = LOCAL_HOSTS, **args: object) -> Path:
        file = super().write_cluster(text, hosts=hosts, **args)
        for path in (self.project, *self.project.rglob("*")):
            os.chown(path, self.slurm.train.uid, self.slurm.train.uid)
        return file

    @property
    def out(self) -> Path:
        """Where the saver saves."""
        return self.home / "out"

    def write_saver(self, **sections: str) -> None:
        """A cluster of one task that saves."""
        (self.project / "saver.py").write_text(SAVER)
        trainer = f"command: [python, saver.py, {self.slurm.train.home_inside}/out], dialect: flags"
        self.write_cluster(
            cluster_text(**{"jobs": "{worker: {hosts: [node-1]}}", "grace": "3s", **sections, "trainer": trainer})
        )

    def run(
        self, *words: str, timeout_s: float = PATIENCE_S, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        argv = self.slurm.argv(self.argv(*words), self.slurm.train, self.env, self.inside)
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        argv = self.slurm.argv(self.argv(*words), self.slurm.train, self.env, self.inside)
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def log(self) -> str:
        """What the controllers of the jobs have printed."""
        return "".join(path.read_text() for path in (self.home / ".local/state/dtctl/slurm").glob("*.log"))

    def up(self, *words: str) -> str:
        """Submits; gives the job's id."""
        printed = self.dtctl("up", "--on", "slurm", *words)
        return printed.partition("job ")[2].partition(":")[0]

    def wait_for_states(self, *states: str) -> None:
        """Waits until all tasks are in one of these states."""
        eventually(lambda: set(self.states().values()) == {*states}, what=f"tasks to be {states}", every_s=0.3)


@pytest.fixture
def user(slurm: Slurm) -> SlurmDesk:
    return SlurmDesk(slurm)

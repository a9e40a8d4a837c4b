"""Commands typed on a laptop, which reaches the login node of a real Slurm over SSH."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts.slurm import Slurm
from tests.waiting import eventually


class Laptop(Desk):
    """A home and a project that the cluster does not see."""

    slurm: Slurm

    def write(self, text: str = "", *, trusted: bool = True, **args: object) -> None:
        known = self.home / "known_hosts"
        known.write_text(self.slurm.known_hosts_text() if trusted else "")
        program = Path(sys.prefix) / "bin" / "dtctl"
        sections = {
            "on": "slurm",
            "slurm": f"{{login: front, dtctl: {program}}}",
            "ssh": f"{{user: train, identity_file: {self.slurm.key}, known_hosts: {known}}}",
            "grace": "2s",
        }
        hosts = f"hosts:\n  node-[1-2]:\n  front: {{ssh: {self.slurm.login.address}}}\n"
        self.write_cluster(text or cluster_text(**sections), hosts=hosts, **args)


@pytest.fixture
def laptop(slurm: Slurm, tmp_path: Path) -> Iterator[Laptop]:
    with desk(tmp_path / "laptop", kind=Laptop) as made:
        assert isinstance(made, Laptop)
        made.slurm = slurm
        made.env["PATH"] = f"{Path(sys.prefix)}/bin:/nonexistent"
        yield made
        made.run("stop")


def test_a_run_is_submitted_watched_and_taken_down_from_a_laptop(slurm: Slurm, laptop: Laptop) -> None:
    laptop.write(until_file="/home/train/enough")
    printed = laptop.dtctl("up")
    job = printed.partition("job ")[2].partition(":")[0]
    eventually(lambda: set(laptop.states().values()) == {"running"}, what="tasks to run", every_s=1)
    assert "step" in laptop.dtctl("logs", "worker:1")
    assert "worker:1 attempt 1 on n2" in laptop.dtctl("events")
    assert json.loads(laptop.dtctl("checkpoints", "-o", "json"))["kind"]
    (slurm.train.home / "enough").touch()
    laptop.dtctl("wait")
    assert slurm.wait_for(job, "COMPLETED", "FAILED")["ExitCode"] == "0:0"
    laptop.dtctl("down", "--yes")
    assert [*(slurm.train.home / ".local/state/dtctl/slurm").iterdir()] == []
    assert [*(slurm.train.home / ".local/share/dtctl/projects").iterdir()] == []
    eventually(lambda: not slurm.busy(), what="nothing to be left")


def test_stop_from_a_laptop_ends_the_job(slurm: Slurm, laptop: Laptop) -> None:
    laptop.write()
    job = laptop.dtctl("up").partition("job ")[2].partition(":")[0]
    eventually(lambda: set(laptop.states().values()) == {"running"}, what="tasks to run", every_s=1)
    assert "3 tasks stopped, 0 left" in laptop.dtctl("stop")
    slurm.wait_for(job, "FAILED", "COMPLETED", "CANCELLED")


def test_values_of_secrets_reach_trainers_and_no_command_line(slurm: Slurm, laptop: Laptop) -> None:
    laptop.write()
    file = laptop.project / "cluster.yaml"
    file.write_text(file.read_text().replace("{command:", "{secrets: [API_TOKEN], command:"))
    laptop.env["API_TOKEN"] = "tok-very-secret"
    laptop.dtctl("allow", "--yes")
    laptop.dtctl("up")
    eventually(lambda: set(laptop.states().values()) == {"running"}, what="tasks to run", every_s=1)
    pid = laptop.task("worker:0")["pid"]
    environ = slurm["n1"].box.run(["cat", f"/proc/{pid}/environ"])
    assert "API_TOKEN=tok-very-secret" in environ
    assert not any("very-secret" in line for machine in slurm.machines for line in machine.processes(slurm.train))
    laptop.dtctl("stop")


def test_an_unknown_host_key_of_the_login_node_is_refused(laptop: Laptop) -> None:
    laptop.write(trusted=False)
    refused = laptop.run("up")
    assert refused.returncode != 0
    assert "host key" in refused.stderr


def test_a_command_before_the_first_up_says_so(laptop: Laptop) -> None:
    laptop.write()
    refused = laptop.run("status")
    assert "nothing was started from this cluster file" in refused.stderr


def test_a_login_node_without_dtctl_is_reported(laptop: Laptop) -> None:
    laptop.write()
    file = laptop.project / "cluster.yaml"
    file.write_text(file.read_text().replace(f"{sys.prefix}/bin/dtctl", "/nowhere/dtctl"))
    refused = laptop.run("up")
    assert "/nowhere/dtctl: command not found" in refused.stderr
    assert "slurm.dtctl" in refused.stderr

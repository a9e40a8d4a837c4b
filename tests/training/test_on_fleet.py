"""The first trainer from `init` to `down` with real TensorFlow: on three hosts over SSH, and on this machine."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet, module_fleet
from tests.waiting import eventually, read_until

# By day tests/documents/test_typed.py types the same: README, on two hosts.
pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

START_S = 180.0
"""Three imports of TensorFlow at once on two cores, and the wait of a non-chief for the chief."""


fleet = module_fleet(3, trusted=False)


def idle(fleet: Fleet) -> bool:
    """Nothing of ours runs on any host."""
    return not any(host.processes() for host in fleet.hosts)


def write_inventory(user: Desk, fleet: Fleet, workers: str = "gpu-[2-3]") -> None:
    """Puts the fleet's hosts and this Python into the file that `dtctl init` wrote, as its user would."""
    file = user.project / "cluster.yaml"
    text = file.read_text()
    hosts = "hosts:\n" + "".join(f"  {host.name}: {host.address}\n" for host in fleet.hosts)
    text = re.sub(r"^hosts:\n(?:  .*\n)+", hosts, text, flags=re.MULTILINE)
    text = re.sub(r"^  ps: .*$", "  ps: {hosts: gpu-1}", text, flags=re.MULTILINE)
    text = re.sub(r"^  worker: .*$", f'  worker: {{hosts: "{workers}"}}', text, flags=re.MULTILINE)
    text = text.replace("  # python: /opt/venv/bin/python", f"  python: {sys.executable}")
    file.write_text(text)


def test_a_model_is_trained_stopped_resumed_and_taken_down(fleet: Fleet, tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="digits") as user:
        user.write_ssh_config(fleet.ssh_config.read_text())
        user.project = user.home / "digits"
        user.dtctl("init", "digits", cwd=user.home)
        write_inventory(user, fleet)
        assert "3 tasks on 3 hosts" in user.dtctl("validate")

        refused = user.run("up")
        assert refused.returncode == 4
        assert "the host key is not known" in refused.stderr
        assert "dtctl trust" in refused.stderr
        assert idle(fleet)
        trusted = user.dtctl("trust", "--yes")
        assert trusted.count("ssh-ed25519") == 3
        assert "SHA256:" in trusted

        # A first run with a goal that it will not reach, so that it can be stopped in its midst.
        user.dtctl("up", "--set", "trainer.args.train_steps=1000000", "--set", "trainer.args.save_secs=2")
        assert user.states() == {"ps:0": "running", "worker:0": "running", "worker:1": "running"}
        with user.start("logs", "-f") as following:
            read_until(following.stdout, r"worker:1 +\| step \d+ +loss")
            following.send_signal(signal.SIGINT)
            assert "the run continues" in following.communicate()[0]
        saved = eventually(lambda: newest_step(user), START_S, "a complete checkpoint")
        assert user.dtctl("stop", timeout_s=120) == "3 tasks stopped, 0 left\n"
        assert idle(fleet)
        stopped_at = newest_step(user)
        assert stopped_at >= saved

        # The second run goes on from there to a goal that it reaches.
        goal = stopped_at + 600
        user.dtctl("up", "--set", f"trainer.args.train_steps={goal}")
        done = user.run("wait", timeout_s=START_S * 2)
        assert done.returncode == 0, done.stderr
        assert idle(fleet)
        log = user.dtctl("logs", "worker:0", "-n", "all")
        resumed = re.search(r"starts at step (\d+)", log)
        assert resumed
        assert int(resumed[1]) >= saved
        accuracy = re.search(r"held-out accuracy (0\.\d+)", log)
        assert accuracy
        assert float(accuracy[1]) > 0.95
        assert newest_step(user) >= goal
        assert user.states() == {
            "ps:0": "stopped",
            "worker:0": "succeeded",
            "worker:1": "succeeded",
        }

        user.dtctl("down", "--yes")
        assert idle(fleet)
        chief = fleet["gpu-2"].home
        assert list((chief / "dtctl" / "digits" / "output").glob("model.ckpt-*.index"))
        for host in fleet.hosts:
            assert not list((host.home / ".dtctl").glob("runs/*"))
            assert not list((host.home / ".dtctl").glob("bundles/*/tree"))


def newest_step(user: Desk, *, code: int = 0) -> int:
    """Step of the run's newest complete checkpoint; 0 if there is none."""
    found = json.loads(user.dtctl("checkpoints", "-o", "json", code=code))["checkpoints"]
    return max((entry["newestComplete"]["step"] for entry in found if entry["newestComplete"]), default=0)


@pytest.mark.timeout(600)
def test_the_first_trainer_learns_to_read_digits(tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="digits") as user:
        user.project = user.home / "digits"
        user.dtctl("init", "digits", cwd=user.home)
        done = user.run("up", "--local", "-f", timeout_s=500)
        assert done.returncode == 0, done.stderr
        accuracy = re.search(r"held-out accuracy (0\.\d+)", done.stdout)
        assert accuracy
        assert float(accuracy[1]) > 0.95
        # Asynchronous updates of both. On a busy machine one may begin long after the other.
        own_steps = [int(count) for count in re.findall(r"worker \d made (\d+) steps", done.stdout)]
        assert len(own_steps) == 2
        assert min(own_steps) > 10
        result = json.loads((user.home / "dtctl" / "digits" / "output" / "result.json").read_text())
        assert result["step"] >= 3000
        assert user.processes() == {}

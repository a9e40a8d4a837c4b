"""`dtctl` commands against a real sshd: many hosts at once, unusual shells, and the use of one connection."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts import sandbox
from tests.hosts.sshd import SSHD, Sshd
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

JOBS = "{worker: {hosts: [testhost]}}"


def one_task(jobs: str = JOBS, trainer: str = "") -> str:
    return cluster_text(
        jobs=jobs, trainer=f"command: [python, stand_in.py], dialect: none{trainer}", recovery="{max_restarts: 0}"
    )


ONE = one_task()


def ports_of(hosts: list[str]) -> str:
    """A job for each host: the hosts are one machine, so each task needs a port of its own."""
    jobs = (f"w{host}: {{hosts: [{host}], port: {port}}}" for port, host in enumerate(hosts, 21001))
    return f"{{{', '.join(jobs)}}}"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home") as made:
        yield made


def configure(user: Desk, sshd: Sshd, alias: str = "testhost", login: str | None = None) -> None:
    text = sshd.ssh_config_text(alias)
    user.write_ssh_config(text.replace(f"User {sshd.user}", f"User {login or sshd.user}"))


@pytest.mark.parametrize("count", [pytest.param(64, marks=pytest.mark.nightly), 12])
def test_many_hosts_behind_one_sshd_with_its_default_limits(user: Desk, count: int) -> None:
    """The limits allow ten unfinished logins, and refuse some of more."""
    with Sshd() as sshd:
        configure(user, sshd, "n*")
        jobs = ports_of([f"n{n:02}" for n in range(1, count + 1)])
        user.write_cluster(one_task(jobs), hosts=f'hosts:\n  "n[01-{count}]":\n', tick=5)
        assert user.dtctl("up", timeout_s=240) == ""
        assert sshd.logins() == count, "one login a host"
        assert list(user.states().values()) == ["running"] * count
        assert sshd.logins() == count + 1, "status needs the coordinator alone"
        assert user.dtctl("stop", timeout_s=240) == f"{count} tasks stopped, 0 left\n"


def test_each_command_opens_one_connection_to_each_queried_host(user: Desk) -> None:
    everyone, coordinator = 2, 1
    asked = [
        (("up", "-q"), everyone),
        (("status",), coordinator),
        (("logs",), everyone),
        (("exec", "--", "true"), everyone),
        (("push", "-q"), everyone),
        (("stop",), coordinator),
        (("up", "-q"), everyone),
        (("down", "-y"), everyone),
    ]
    with Sshd() as sshd:
        configure(user, sshd, "n*")
        user.write_cluster(one_task(ports_of(["n1", "n2"])), hosts='hosts:\n  "n[1-2]":\n', tick=5)
        for command, hosts in asked:
            before = (sshd.logins(), sshd.sessions())
            user.dtctl(*command, timeout_s=240)
            opened = (sshd.logins() - before[0], sshd.sessions() - before[1])
            assert opened == (hosts, hosts), f"dtctl {' '.join(command)}: so many connections, and commands over them"


def test_a_run_without_a_record_here_continues_and_is_found_by_its_file(user: Desk) -> None:
    with Sshd() as sshd:
        configure(user, sshd)
        file = user.write_cluster(ONE, hosts="hosts: {testhost: }")
        (user.home / ".local").mkdir()
        (user.home / ".local" / "state").write_text("a file where the directory should be")
        done = user.run("up", "-q", timeout_s=240)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert "cannot be remembered" in done.stderr
        assert f"dtctl status -c {file}" in done.stderr
        assert user.states() == {"worker:0": "running"}
        assert user.dtctl("stop", "-c", str(file), cwd=user.home) == "1 task stopped, 0 left\n"


def test_corrected_key_in_the_file_is_used_for_the_run_at_once(user: Desk) -> None:
    with Sshd() as sshd:
        configure(user, sshd)
        key = next(line.split()[1] for line in sshd.ssh_config_text("testhost").splitlines() if "IdentityFile" in line)
        old = user.home / "old_key"
        old.write_bytes(Path(key).read_bytes())
        old.chmod(0o600)
        config = (user.home / ".ssh" / "config").read_text()
        kept = [line for line in config.splitlines() if "IdentityFile" not in line]
        (user.home / ".ssh" / "config").write_text("\n".join(kept) + "\n")
        user.write_cluster(ONE, hosts=f"hosts: {{testhost: {{ssh: {{identity_file: {old}}}}}}}")
        user.dtctl("up", timeout_s=240)
        old.unlink()
        assert user.run("status").returncode == 4
        user.write_cluster(ONE, hosts=f"hosts: {{testhost: {{ssh: {{identity_file: {key}}}}}}}")
        assert user.states() == {"worker:0": "running"}
        assert user.dtctl("stop") == "1 task stopped, 0 left\n"


def test_two_users_with_the_same_cluster_on_one_host_do_not_touch_each_other(user: Desk, tmp_path: Path) -> None:
    if reason := sandbox.missing():
        pytest.skip(f"users cannot be made: {reason}")
    with Sshd(shells={"ann": "/bin/sh", "bob": "/bin/sh"}) as sshd, desk(tmp_path / "other") as other:
        configure(user, sshd, login="ann")
        configure(other, sshd, login="bob")
        user.write_cluster(one_task("{worker: {hosts: [testhost], port: 21001}}"), hosts="hosts: {testhost: }")
        other.write_cluster(one_task("{worker: {hosts: [testhost], port: 21002}}"), hosts="hosts: {testhost: }")
        user.dtctl("up")
        other.dtctl("up")
        assert user.dtctl("stop") == "1 task stopped, 0 left\n"
        assert other.states() == {"worker:0": "running"}
        user.dtctl("down", "--yes")
        assert other.dtctl("stop") == "1 task stopped, 0 left\n"
        other.dtctl("down", "--yes")


def test_a_second_controller_is_refused_with_the_holder_of_the_lock(user: Desk, tmp_path: Path) -> None:
    with Sshd() as sshd:
        configure(user, sshd)
        # The first controller prepares for as long as the setup command takes.
        user.write_cluster(one_task(trainer=", setup: sleep 30"), hosts="hosts: {testhost: }")
        with user.start("up") as first:
            lock = sshd.home / ".dtctl" / "clusters" / "demo" / "testhost" / "lock"
            eventually(lambda: lock.exists() and lock.read_text())
            second = user.run("up")
            first.send_signal(signal.SIGINT)
            assert first.wait() == 130
    assert second.returncode == 6
    assert "another dtctl is at work on demo" in second.stderr
    assert re.search(rf"dtctl up by \S+@\S+ \(pid {first.pid} there\), since 20.* s ago\)", second.stderr)
    assert "wait for it, or interrupt it there" in second.stderr


def test_certain_failure_is_reported_and_nothing_starts(user: Desk) -> None:
    with Sshd() as sshd:
        configure(user, sshd)
        (user.project / "near.py").write_text("import json\n\nimport no_such_thing\n")
        (user.project / "stand_in.py").write_text("import near\n")
        file = user.write_cluster(ONE, hosts="hosts: {testhost: }")
        done = user.run("up")
        assert done.returncode == 5, done.stderr
        assert "worker:0 will fail on testhost: the program imports no_such_thing (near.py:3), which" in done.stderr
        assert "dtctl up --force" in done.stderr
        file.write_text(file.read_text().replace("dialect: none", "dialect: none, python: /nope"))
        done = user.run("up")
        assert done.returncode == 5, done.stderr
        assert "testhost has no /nope, which worker:0 needs" in done.stderr
        file = user.write_cluster(ONE, hosts="hosts: {testhost: {gpus: 2}}")
        (user.project / "stand_in.py").write_text("print('step 1')\n")
        done = user.run("up")
        if not any(Path(driver).exists() for driver in ("/dev/nvidiactl", "/dev/kfd")):
            assert done.returncode == 5, done.stderr
            assert "worker:0 on testhost needs GPU 0, 1, but the host has no driver" in done.stderr
        assert ": Failed · nothing was started" in user.dtctl("status")

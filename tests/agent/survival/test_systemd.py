"""Hosts that end a user's processes at logout: who is meant, and how the agent gets out of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.survival import systemd
from dtctl.agent.survival.systemd import Rules
from tests.agent.host import AgentHost, AgentRefused, task

SESSION = "12:pids:/user.slice/user-1000.slice/session-7.scope\n1:name=systemd:/user.slice\n"


@pytest.mark.parametrize(
    ("cgroup", "meant"),
    [
        (SESSION, True),
        ("0::/user.slice/user-1000.slice/session-c2.scope\n", True),
        ("0::/user.slice/user-1000.slice/session-3.scope/below\n", True),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-u3.scope\n", False),
        ("0::/system.slice/cron.service\n", False),
        ("0::/\n", False),
        ("", False),
    ],
)
def test_what_is_in_the_scope_of_a_login_is_reported_by_its_cgroup(cgroup: str, meant: bool) -> None:
    assert systemd.in_session(cgroup) is meant


@pytest.mark.parametrize(
    ("rules", "meant"),
    [
        (Rules(), False),
        (Rules(True), True),
        (Rules(True, exclude="root ada"), False),
        (Rules(True, only="bob"), False),
        (Rules(True, only="bob ada"), True),
        (Rules(False, only="ada"), True),
        (Rules(True, only="ada", exclude="ada"), False),
    ],
)
def test_rules_of_logind_cover_a_user(rules: Rules, meant: bool) -> None:
    """As manager_shall_kill in systemd's src/login/logind-core.c."""
    assert rules.cover("ada") is meant


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_rules_of_files_are_those_of_the_last_word(tmp_path: Path) -> None:
    assert not systemd.rules_of_files(str(tmp_path)).kill
    assert systemd.rules_of_files(str(tmp_path)).exclude == ["root"]
    write(tmp_path / "usr/lib/systemd/logind.conf", "[Login]\nKillUserProcesses=yes\n")
    assert systemd.rules_of_files(str(tmp_path)).kill
    write(tmp_path / "etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\nKillExcludeUsers=\n")
    assert not systemd.rules_of_files(str(tmp_path)).kill, "the file in /etc hides that in /usr/lib"
    assert systemd.rules_of_files(str(tmp_path)).exclude == []
    write(tmp_path / "usr/lib/systemd/logind.conf.d/50-kill.conf", "[Login]\nKillUserProcesses = true\n")
    assert systemd.rules_of_files(str(tmp_path)).kill
    write(tmp_path / "run/systemd/logind.conf.d/60-not.conf", "[Login]\nKillUserProcesses=no\nKillOnlyUsers=ada bob\n")
    assert not systemd.rules_of_files(str(tmp_path)).kill
    assert systemd.rules_of_files(str(tmp_path)).only == ["ada", "bob"]
    write(tmp_path / "etc/systemd/logind.conf.d/60-not.conf", "")
    assert systemd.rules_of_files(str(tmp_path)).kill, "the drop-in in /etc hides that of the same name in /run"


SYSTEMCTL = "exit 0"
LOGINCTL = 'cat "$HOME/lingers"'
BUSCTL = """\
case "$5" in
  KillUserProcesses) echo "b true" ;;
  KillOnlyUsers) echo "as 0" ;;
  KillExcludeUsers) echo 'as 1 "somebody"' ;;
esac
"""
SYSTEMD_RUN = """\
[ "$1" = --version ] && exit
echo "$*" >> "$HOME/ran"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
IN_A_SESSION = """\
[ -n "$SEPARATED" ] || SEPARATED=1 exec unshare --mount "$0" "$@"
mount --bind "$HOME/cgroup" /proc/$$/cgroup || exit 9
unset SEPARATED
export XDG_RUNTIME_DIR="$HOME"
exec "{python}" "$@"
"""


@pytest.fixture
def strict(host: AgentHost) -> AgentHost:
    """A host whose logind kills at logout; the session process sees itself in the scope of a login."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("to show a process another /proc needs root and unshare")
    python = (host.directory / "bin" / "python3").read_text().split('"')[1]
    scripts = {"systemctl": SYSTEMCTL, "loginctl": LOGINCTL, "busctl": BUSCTL, "systemd-run": SYSTEMD_RUN}
    for name, script in {**scripts, "python3": IN_A_SESSION.format(python=python)}.items():
        program = host.directory / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
    (host.home / "cgroup").write_text(SESSION)
    (host.home / "lingers").write_text("no\n")
    return host


def test_up_is_refused_where_the_agent_would_be_killed(strict: AgentHost) -> None:
    with strict.open() as talk, pytest.raises(AgentRefused) as refused:
        strict.prepare(talk, strict.spec(task("worker:0", "sleep", "1000")))
    assert refused.value.code == "would_be_killed"
    assert "loginctl enable-linger root" in refused.value.frame["hint"]
    assert "systemctl --user does not work here" in refused.value.frame["detail"]


def test_without_lingering_user_systemd_is_not_used(strict: AgentHost) -> None:
    write(strict.home / "systemd/private", "")
    with strict.open() as talk, pytest.raises(AgentRefused) as refused:
        strict.prepare(talk, strict.spec(task("worker:0", "sleep", "1000")))
    assert refused.value.code == "would_be_killed"
    assert "lingering is off" in refused.value.frame["detail"]


def test_with_lingering_the_agent_is_started_below_the_users_own_systemd(strict: AgentHost) -> None:
    write(strict.home / "systemd/private", "")
    (strict.home / "lingers").write_text("yes\n")
    spec = strict.spec(task("worker:0", "sleep", "1000"))
    assert strict.up(spec)["tasks"]["worker:0"]["state"] == "running"
    ran = (strict.home / "ran").read_text()
    assert ran.startswith("--user --scope --quiet --collect -- ")
    assert str(strict.run_directory(spec)) in ran


def test_an_excluded_user_is_left_alone(strict: AgentHost) -> None:
    busctl = strict.directory / "bin" / "busctl"
    busctl.write_text(busctl.read_text().replace("somebody", "root"))
    strict.up(strict.spec(task("worker:0", "sleep", "1000")))
    assert not (strict.home / "ran").exists()


def test_logind_is_not_queried_outside_of_a_login(strict: AgentHost) -> None:
    (strict.home / "cgroup").write_text("0::/system.slice/ssh.service\n")
    (strict.directory / "bin" / "busctl").write_text("#!/bin/sh\ntouch $HOME/asked\n")
    strict.up(strict.spec(task("worker:0", "sleep", "1000")))
    assert not (strict.home / "asked").exists()

"""The entry by which a host brings its agents back, with programs that record what they are asked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.agent import bootstrap
from dtctl.agent.host import daemon, machine, processes, programs
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.survival import reboot
from dtctl.agent.survival.systemd import unit_text
from dtctl.transport.payload import agent_program
from tests.unit.agent.supervise import supervised

SYSTEMCTL = """\
echo "systemctl $*" >> "$HOME/asked"
case "$*" in
  "--user show-environment") ;;
  *" enable "*) touch "$HOME/enabled-$4" ;;
  *" disable "*) rm "$HOME/enabled-$4" ;;
  *" is-enabled "*) [ -e "$HOME/enabled-$3" ] && echo enabled ;;
esac
"""
LOGINCTL = """\
echo "loginctl $*" >> "$HOME/asked"
case "$*" in
  *show-user*) cat "$HOME/lingers" ;;
  *enable-linger*) [ -e "$HOME/may-linger" ] && echo yes > "$HOME/lingers" ;;
esac
"""
CRONTAB = """\
case "$1" in
  -l) [ -e "$HOME/broken" ] && { echo "crontab: the spool cannot be read" >&2; exit 1; }
      [ -e "$HOME/table" ] || { echo "no crontab for ada" >&2; exit 1; }
      cat "$HOME/table" ;;
  -r) rm "$HOME/table" ;;
  -) cat > "$HOME/table.new" && mv "$HOME/table.new" "$HOME/table" ;;
esac
"""


class Account:
    """A home directory, a root in it, and the programs of the machine in PATH."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / ".dtctl"
        self.lingers("no")

    def has_systemd(self) -> None:
        (self.home / "systemd").mkdir()
        (self.home / "systemd" / "private").touch()

    def has(self, name: str, script: str) -> None:
        program = self.home / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)

    def lingers(self, word: str) -> None:
        (self.home / "lingers").write_text(f"{word}\n")

    @property
    def asked(self) -> str:
        return (self.home / "asked").read_text()

    @property
    def units(self) -> list[Path]:
        return sorted(self.home.glob(".config/systemd/user/*"))

    @property
    def table(self) -> str | None:
        path = self.home / "table"
        return path.read_text() if path.exists() else None

    def keep_run(self, run: str, wanted: str = "auto") -> Path:
        files = RunFiles(str(self.root / "runs" / run / "h1"))
        spec = supervised.spec(run=run, recovery=supervised.recovery(reboot=wanted))
        files.begin(files.stage(spec, {}, {}, processes.myself()), spec)
        return Path(files.directory)

    def offer(self) -> tuple[str | None, str]:
        return reboot.offer(str(self.root))[:2]


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    (tmp_path / "bin").mkdir()
    (tmp_path / ".dtctl" / "agent").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")  # nothing of the machine's own may be asked
    for tool in ("cat", "mv", "rm", "touch"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool, path="/usr/bin:/bin")))
    monkeypatch.setattr(machine, "home_is_the_accounts", lambda: True)
    monkeypatch.setattr(reboot, "_daemon_runs", lambda: True)
    made = Account(tmp_path)
    made.has("systemctl", SYSTEMCTL)
    made.has("loginctl", LOGINCTL)
    made.has("crontab", CRONTAB)
    return made


@pytest.fixture
def systemd(account: Account) -> Account:
    account.has_systemd()
    account.lingers("yes")
    return account


def test_a_user_who_lingers_gets_a_unit(systemd: Account) -> None:
    assert systemd.offer() == ("systemd", "")
    (unit,) = systemd.units
    text = unit.read_text()
    assert f'"-BIS" "{systemd.root}/agent/current" "revive"' in text
    assert "KillMode=process" in text
    assert "Restart=always\nRestartSec=60\n" in text
    assert f"start {unit.name}" in systemd.asked
    assert machine.machine_id() in text
    assert "enable-linger" not in systemd.asked
    assert systemd.asked.index("daemon-reload") < systemd.asked.index(f"enable {unit.name}")
    assert systemd.table is None
    assert (systemd.root / "agent" / "current").is_symlink()


def test_the_unit_is_made_once(systemd: Account) -> None:
    systemd.offer()
    before = systemd.asked.count(" enable ")
    assert systemd.offer() == ("systemd", "")
    assert systemd.asked.count(" enable ") == before == 1


def test_lingering_is_switched_on_where_no_password_is_needed(systemd: Account) -> None:
    systemd.lingers("no")
    (systemd.home / "may-linger").touch()
    assert systemd.offer() == ("systemd", "")
    assert "loginctl --no-ask-password enable-linger" in systemd.asked


def test_without_lingering_it_is_cron(systemd: Account) -> None:
    systemd.lingers("no")
    assert systemd.offer() == ("cron", "")
    assert systemd.units == []
    assert systemd.table is not None
    assert systemd.table.startswith("@reboot ")


def test_without_systemd_it_is_cron_and_other_lines_stay(account: Account) -> None:
    (account.home / "table").write_text("17 4 * * * true\n")
    assert account.offer() == ("cron", "")
    assert account.offer() == ("cron", "")
    assert account.table is not None
    lines = account.table.splitlines()
    assert lines[0] == "17 4 * * * true"
    assert len(lines) == 1 + len(reboot.WHEN)
    assert all(str(account.root / "agent" / "current") in line for line in lines[1:])


def test_the_line_does_what_it_says(account: Account) -> None:
    """By the way of an agent's program that only tells how it was started."""
    account.offer()
    program = account.root / "agent" / "current"
    program.unlink()
    program.mkdir()
    (program / "__main__.py").write_text(
        f"import sys; open({str(account.home / 'arguments')!r}, 'w').write(repr(sys.argv))"
    )
    assert account.table is not None
    for when, line in zip(reboot.WHEN, account.table.splitlines(), strict=True):
        (account.home / "arguments").unlink(missing_ok=True)
        command = line.removeprefix(f"{when} ")
        subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/usr/bin:/bin"}, check=True)
        assert (account.home / "arguments").read_text() == repr([str(program), "revive"])
    assert [path.name for path in program.iterdir()] == ["__main__.py"], "and no cache is made beside it"


def test_hidden_processes_of_others_are_reported_and_revival_is_still_installed(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reboot, "_daemon_runs", lambda: None)
    kind, unsure = account.offer()
    assert kind == "cron"
    assert unsure == "whether cron runs is unknown, as /proc hides the processes of other users (hidepid)"
    assert account.table is not None
    assert len(account.table.splitlines()) == len(reboot.WHEN)


@pytest.mark.parametrize(
    ("names", "first", "runs"),
    [(["cron"], "", True), (["sshd"], "systemd", False), (["sshd"], "", None), ([], "", None)],
)
def test_a_cron_daemon_is_absent_only_where_others_are_seen(
    monkeypatch: pytest.MonkeyPatch, names: list[str], first: str, runs: bool | None
) -> None:
    shown = {1: first, **dict(enumerate(names, 7))}
    monkeypatch.setattr(processes, "of_user", lambda user: range(7, 7 + len(names)))
    monkeypatch.setattr(processes, "_read_proc", lambda pid, name: shown[pid].encode())
    assert reboot._daemon_runs() is runs


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda account, _: (account.home / "bin" / "crontab").unlink(), "there is no crontab command"),
        (lambda _, patch: patch.setattr(reboot, "_daemon_runs", lambda: False), "no cron daemon runs"),
        (lambda account, _: (account.home / "broken").touch(), "crontab -l: crontab: the spool cannot be read"),
        (lambda account, _: account.has("crontab", "[ $1 = -l ] || exit 1; echo no crontab for you >&2; exit 1"), "1"),
        (
            lambda account, _: account.has("crontab", "[ $1 = -l ] || exec cat; echo no crontab for you >&2; exit 1"),
            "kept",
        ),
    ],
    ids=["no crontab", "no daemon", "unreadable", "not allowed", "not kept"],
)
def test_without_systemd_and_cron_the_reason_is_reported(
    account: Account, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Account, pytest.MonkeyPatch], None], why: str
) -> None:
    (account.home / "table").write_text("17 4 * * * true\n")
    spoil(account, monkeypatch)
    kind, reason = account.offer()
    assert kind is None
    assert reason.startswith("systemctl --user does not work here, and ")
    assert why in reason
    assert account.table == "17 4 * * * true\n"


def test_a_session_with_another_home_leaves_the_account_alone(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(account.home))
    kind, why = account.offer()
    assert kind is None
    assert "not the home directory" in why
    assert not (account.home / "asked").exists()


@pytest.mark.parametrize("kind", ["systemd", "cron"])
def test_the_entry_goes_with_the_files_of_the_last_run_that_needs_it(account: Account, kind: str) -> None:
    if kind == "systemd":
        account.has_systemd()
        account.lingers("yes")
    first, second = account.keep_run("r1"), account.keep_run("r2")
    account.keep_run("r3", "never")
    elsewhere = account.keep_run("r4")
    (elsewhere / "machine").write_text("of another machine\n")
    assert account.offer() == (kind, "")
    shutil.rmtree(first)
    reboot.withdraw(str(account.root))
    assert account.units or account.table
    shutil.rmtree(second)
    reboot.withdraw(str(account.root))
    assert account.units == []
    assert account.table is None
    assert not list(account.home.glob("enabled-*"))
    assert (account.root / "agent" / "current").is_symlink()  # the other machine's entry begins with it
    shutil.rmtree(elsewhere)
    reboot.withdraw(str(account.root))
    assert not (account.root / "agent" / "current").is_symlink()


def finish(directory: Path, finished: bool = True) -> None:
    path = directory / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "finished": finished}))


@pytest.mark.parametrize("kind", ["systemd", "cron"])
def test_the_entry_goes_when_the_last_run_that_needs_it_has_ended(account: Account, kind: str) -> None:
    """Whichever of them has made it, and whichever agent ends last."""
    if kind == "systemd":
        account.has_systemd()
        account.lingers("yes")
    mine = "MAILTO=ada\n17 4 * * * true # my own\n"
    (account.home / "table").write_text(mine)
    first, second = account.keep_run("r1"), account.keep_run("r2")
    account.offer()
    finish(first)
    reboot.withdraw(str(account.root))
    assert account.units or "@reboot" in (account.table or "")
    finish(second)
    reboot.withdraw(str(account.root))
    assert account.units == []
    assert account.table == mine
    assert first.exists()
    assert not (account.root / "agent" / "current").is_symlink()


def test_a_restarted_run_needs_its_entry_again(account: Account) -> None:
    run = account.keep_run("r1")
    account.offer()
    finish(run)
    reboot.withdraw(str(account.root))
    assert account.table is None
    finish(run, finished=False)
    assert reboot.offer(str(account.root)) == ("cron", "", True)
    assert reboot.offer(str(account.root)) == ("cron", "", False)
    reboot.withdraw(str(account.root))
    assert account.table is not None


def test_a_damaged_state_counts_as_one_that_continues(account: Account) -> None:
    run = account.keep_run("r1")
    account.offer()
    (run / "state.json").write_text("{")
    reboot.withdraw(str(account.root))
    assert account.table is not None


def test_another_machine_that_shares_the_home_directory_keeps_its_program(account: Account) -> None:
    elsewhere = account.keep_run("r1")
    (elsewhere / "machine").write_text("of another machine\n")
    account.offer()
    reboot.withdraw(str(account.root))
    assert account.table is None
    assert (account.root / "agent" / "current").is_symlink()


def test_roots_of_one_user_have_entries_of_their_own(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    other = account.home / "other"
    (other / "agent").mkdir(parents=True)
    account.offer()
    reboot.offer(str(other))
    assert account.table is not None
    assert account.table.count("@reboot") == 2
    reboot.withdraw(str(other))
    assert account.table.count("@reboot") == 1
    assert str(account.root) in account.table


def test_the_path_in_the_entry_stays_while_the_program_changes(account: Account) -> None:
    (account.root / "agent" / "current").symlink_to("of-an-earlier-version")
    path = programs.set_current(str(account.root))
    assert Path(path) == account.root / "agent" / "current"
    assert Path(path).readlink().name == Path(programs.directory()).name


def test_a_program_that_a_restart_begins_with_is_written_to_the_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "agent" / agent_program().sha256
    written: list[str] = []

    def keep() -> None:
        bootstrap.keep(str(program), zlib.compress(agent_program().content), pytest.fail)

    keep()
    monkeypatch.setattr(programs, "directory", lambda: str(program))
    monkeypatch.setattr(os, "fsync", lambda opened: written.append(str(Path(f"/proc/self/fd/{opened}").readlink())))
    asked: list[object] = []
    monkeypatch.setattr(daemon, "detached", asked.append)
    reboot.settle_later()
    assert len(asked) == 1
    reboot.settle(str(program))
    assert {str(path) for path in (program.parent, program, *program.rglob("*"))} - set(written) == {
        str(program / "settled")
    }
    for name in ("source", "settled"):
        os.utime(program / name, ns=(1, 1))
    reboot.settle_later()
    assert len(asked) == 1
    keep()
    reboot.settle_later()
    assert len(asked) == 2


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
@pytest.mark.parametrize("directory", ["plain", "50% of $HOME", 'it\'s "quoted" \\ so'])
def test_the_unit_is_a_valid_one_for_any_path(tmp_path: Path, directory: str) -> None:
    program = tmp_path / directory / "python3"
    program.parent.mkdir()
    program.symlink_to("/bin/true")
    unit = tmp_path / "dtctl-agent.service"
    unit.write_text(unit_text([str(program), "-BIS", str(tmp_path / directory), "revive"], "0" * 32))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

"""What others may put in the way of an entry in a crontab or of a unit: nobody waits, nothing else is touched."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dtctl.agent.host import locks
from dtctl.agent.survival import reboot, systemd
from tests import impostors
from tests.agent.survival.test_reboot import Account, account  # noqa: F401 (a fixture)

pytestmark = pytest.mark.timeout(60)

USERS = "MAILTO=ada\n17 4 * * * echo 'a \\\\% sign' # dtctl-agent-0123456789ab of mine\n"


@contextmanager
def held_by_a_trainer(path: Path) -> Iterator[None]:
    """Holds the lock, and shows life all the time, as an agent does that is at work."""
    path.parent.mkdir(exist_ok=True)
    over = threading.Event()
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def touch() -> None:
            while not over.wait(0.02):
                os.utime(path)

        thread = threading.Thread(target=touch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_a_lock_that_a_trainer_holds_keeps_no_start_waiting(
    account: Account,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.3)
    account.keep_run("r1")
    (account.home / "table").write_text(USERS)
    with held_by_a_trainer(account.home / ".dtctl/reboot.lock"):
        assert account.offer() == ("cron", "")
    assert (account.table or "").startswith(USERS)


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_a_lock_that_is_no_file_is_a_reason_and_touches_nothing(account: Account, what: str) -> None:  # noqa: F811
    lock = account.home / ".dtctl/reboot.lock"
    impostors.NO_FILES[what](lock)
    (account.home / "table").write_text(USERS)
    kind, why = account.offer()
    assert kind is None
    assert str(lock) in why
    assert account.table == USERS
    reboot.withdraw(str(account.root))
    assert impostors.unharmed(lock)


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_what_lies_in_place_of_the_unit_is_replaced_or_named(account: Account, what: str) -> None:  # noqa: F811
    account.has_systemd()
    account.lingers("yes")
    unit = account.home / ".config/systemd/user" / reboot._unit(str(account.root))
    unit.parent.mkdir(parents=True)
    impostors.NO_FILES[what](unit)
    kind, why = account.offer()
    if kind == "systemd":
        assert unit.is_file()
        assert not unit.is_symlink()
    else:
        assert why
    reboot.withdraw(str(account.root))
    victim = impostors.victim(unit)
    assert not victim.exists() or victim.read_text() == "the user's own\n"


@pytest.mark.parametrize("name", ["two\nlines", "re\rturn", "back\\\\slash"])
def test_a_home_that_no_crontab_can_hold_leaves_it_as_it_is(account: Account, name: str) -> None:  # noqa: F811
    root = account.home / name
    (root / "agent").mkdir(parents=True)
    (account.home / "table").write_text(USERS)
    kind, why, _ = reboot.offer(str(root))
    assert kind is None
    assert "cannot be written into a crontab" in why
    assert "\n" not in why
    assert account.table == USERS


@pytest.mark.parametrize("name", ["a b", "50%", "it's", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "#x", "*"])
def test_a_home_of_any_name_is_one_word_of_the_entry(account: Account, name: str, tmp_path: Path) -> None:  # noqa: F811
    root = account.home / name
    (root / "agent").mkdir(parents=True)
    (account.home / "table").write_text(USERS)
    assert reboot.offer(str(root))[0] == "cron"
    table = account.table or ""
    assert table.startswith(USERS)
    assert table.count("\n") == USERS.count("\n") + len(reboot.WHEN)
    reboot.withdraw(str(root))
    assert account.table == USERS


@pytest.mark.parametrize("more", ["\nExecStartPre=/bin/false", "\n[Install]", "\rUser=root", '"\r\nUser=root'])
def test_no_path_adds_a_line_to_a_unit(more: str) -> None:
    """systemd ends a line at a carriage return, too (read_line in src/basic/fileio.c)."""
    plain, hostile = (
        systemd.unit_text(["/usr/bin/python3", "-BIS", path, "revive"], "0" * 32) for path in ("/x", f"/x{more}")
    )
    assert len(re.split("[\r\n]", hostile)) == len(re.split("[\r\n]", plain))


def test_a_crontab_that_another_program_holds_up_is_given_up(
    account: Account,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reboot, "CRONTAB_LIMIT_S", 0.3)
    (account.home / "bin/sleep").symlink_to("/bin/sleep")
    account.has("crontab", "exec sleep 30")
    began = time.monotonic()
    kind, why = account.offer()
    assert kind is None
    assert "timed out" in why
    assert time.monotonic() - began < 25

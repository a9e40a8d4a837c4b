"""`ssh: {client: openssh}`: `ssh` prompts on the terminal for what a login needs, once for all commands."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_FAILED, AUTH_PARTIALLY_SUCCESSFUL, AUTH_SUCCESSFUL
from paramiko.server import InteractiveQuery

from dtctl.errors import TransportError
from dtctl.model import Host
from dtctl.transport.seam import answering
from dtctl.transport.ssh.kept import OpensshTransport
from tests.hosts.keys import PASSPHRASE, make_key
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct
from tests.ssh.test_hung import HungServer, hung
from tests.waiting import PATIENCE_S, eventually

LOG_IN_TWICE = """\
from contextlib import nullcontext
from pathlib import PosixPath
from dtctl.model import Host, SshSettings
from dtctl.transport.connect import Transports
from dtctl.transport.seam import answering
for _ in range(2):
    answering(Transports(ssh_config={config!r}, asking=lambda host: nullcontext()), {host!r}).close()
print("logged in twice", flush=True)
"""
PIN, CODE = "1234", "246810"
SOFTHSM = next(Path("/usr/lib").glob("**/softhsm/libsofthsm2.so"), None) if shutil.which("softhsm2-util") else None


@pytest.fixture(scope="module")
def locked() -> Iterator[Sshd]:
    """A server that accepts a key with a passphrase."""
    with Sshd(authorized=[make_key("asked-for", passphrase=PASSPHRASE)]) as server:
        yield server


def with_passphrase(server: Sshd) -> Host:
    return direct(server, identity_file=str(make_key("asked-for", passphrase=PASSPHRASE)), client="openssh")


@contextmanager
def asked(host: Host, question: str, config: Path | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Two logins at a terminal, the first of which has just shown the prompt and echoes nothing."""
    with at_a_terminal(LOG_IN_TWICE.format(host=host, config=config)) as (terminal, process):
        shown = ""
        while question not in shown:
            assert select.select([terminal], [], [], PATIENCE_S)[0], shown
            shown += os.read(terminal, 1000).decode()
        eventually(lambda: not echoes(terminal), what="the terminal to echo nothing")
        yield terminal, process


def answer(host: Host, question: str, reply: str, config: Path | None = None) -> None:
    with asked(host, question, config) as (terminal, process):
        os.write(terminal, f"{reply}\n".encode())
        assert process.stdout is not None
        assert process.stdout.readline() == b"logged in twice\n"
        assert echoes(terminal)


def test_passphrase_is_requested_once_for_all_commands(locked: Sshd) -> None:
    before = locked.logins()
    answer(with_passphrase(locked), "Enter passphrase for key", PASSPHRASE)
    assert locked.logins() == before + 1


def test_login_without_a_terminal_fails_with_a_command_to_type(locked: Sshd) -> None:
    with pytest.raises(TransportError, match="ssh cannot log in to gpu-a") as caught:
        answering(OpensshTransport(), direct(locked, identity_file=with_passphrase(locked).reach.identity_file))  # type: ignore[union-attr]
    assert "`ssh-add`" in caught.value.detail
    assert "`dtctl exec -- true` on a terminal" in caught.value.detail


def test_interrupt_at_a_prompt_restores_the_echo(locked: Sshd) -> None:
    with Sshd(authorized=locked.authorized) as other:
        host = with_passphrase(other)
        with asked(host, "Enter passphrase for key") as (terminal, process):
            os.write(terminal, b"\x03")
            assert process.wait(PATIENCE_S) == -signal.SIGINT
            eventually(lambda: echoes(terminal), what="the terminal to echo again")


def test_host_with_another_key_shows_no_prompt(locked: Sshd, home: Path) -> None:
    """Its prompt would be that of a stranger."""
    known = home / "known_hosts"
    known.write_text(f"[{locked.address}]:{locked.port} {make_key('stranger').with_suffix('.pub').read_text()}")
    host = direct(locked, identity_file=str(make_key("asked-for", passphrase=PASSPHRASE)), known_hosts=str(known))

    def asking(host: str) -> None:
        raise AssertionError(f"{host} asks")

    with pytest.raises(TransportError, match=r"the host key of gpu-a .* has changed"):
        answering(OpensshTransport(asking=asking), host)  # type: ignore[arg-type]


class SecondFactor(HungServer):
    """A server that requires a code in addition to the key."""

    wants = "publickey"

    def get_allowed_auths(self, username: str) -> str:
        return self.wants

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.wants = "keyboard-interactive"
        return int(AUTH_PARTIALLY_SUCCESSFUL)

    def check_auth_interactive(self, username: str, submethods: str) -> InteractiveQuery:
        return InteractiveQuery("", "", ("Verification code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return int(AUTH_SUCCESSFUL if responses == [CODE] else AUTH_FAILED)


def test_second_factor_is_requested_once_for_all_commands() -> None:
    with hung("nowhere", SecondFactor) as host:
        answer(host, "Verification code: ", CODE)


@pytest.mark.skipif(SOFTHSM is None, reason="no PKCS#11 token here (Debian: softhsm2)")
def test_pin_of_a_smart_card_is_requested_once_for_all_commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SoftHSM in place of the card, with a key that never leaves it."""
    (home / "tokens").mkdir()
    (home / "softhsm2.conf").write_text(f"directories.tokendir = {home}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(home / "softhsm2.conf"))
    card, key = make_key("card", "rsa"), str(shutil.copy(make_key("card", "rsa"), home / "exported"))
    token = ["--token", "card", "--pin", PIN]
    for command in (
        ["softhsm2-util", "--init-token", "--free", "--label", "card", "--so-pin", "5678", "--pin", PIN],
        ["ssh-keygen", "-q", "-p", "-N", "", "-m", "PKCS8", "-f", key],
        ["softhsm2-util", *token, "--import", key, "--label", "login", "--id", "01"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    with Sshd(authorized=[card]) as server:
        config = home / "config"
        config.write_text(f"Host *\n  PKCS11Provider {SOFTHSM}\n  IdentityFile none\n")
        host = direct(server, identity_file=None, client="openssh")
        answer(host, "Enter PIN for 'card'", PIN, config)
        assert server.logins() == 1


ASK = (
    "import sys, threading; from dtctl.transport.connect import terminal_passphrase\n"
    "ask = terminal_passphrase()\n"
    "thread = threading.Thread(target=lambda: print('got', ask('~/.ssh/k'), flush=True), daemon=True)\n"
    "try: thread.start(); thread.join()\n"
    "except KeyboardInterrupt: sys.exit(130)\n"
)


@contextmanager
def at_a_terminal(script: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Runs a script with a terminal of its own and its output in a pipe. Returns our end of the terminal."""
    ours, theirs = pty.openpty()
    name = os.ttyname(theirs)
    takes_terminal = f"import os, fcntl, termios; fcntl.ioctl(os.open({name!r}, os.O_RDWR), termios.TIOCSCTTY)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", takes_terminal + script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield ours, process
    finally:
        process.kill()
        process.communicate()
        os.close(theirs)
        os.close(ours)


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_a_passphrase_is_read_from_the_terminal_without_echo() -> None:
    with at_a_terminal(ASK) as (terminal, process):
        assert os.read(terminal, 100) == b"Passphrase for ~/.ssh/k: "
        eventually(lambda: not echoes(terminal))
        os.write(terminal, b"open sesame\n")
        assert process.stdout is not None
        assert process.stdout.readline() == b"got open sesame\n"
        assert b"sesame" not in os.read(terminal, 100)
        assert echoes(terminal)


def test_an_interrupt_restores_the_echo_of_the_terminal() -> None:
    with at_a_terminal(ASK) as (terminal, process):
        os.read(terminal, 100)
        eventually(lambda: not echoes(terminal))
        os.write(terminal, b"\x03")
        assert process.wait(PATIENCE_S) == 130
        assert echoes(terminal)


def test_without_a_terminal_there_is_no_prompt() -> None:
    script = "from dtctl.transport.connect import terminal_passphrase as t; print(t())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, start_new_session=True)
    assert done.stdout.strip() == "None"

"""Real SSH servers on a port of loopback: OpenSSH with host keys and, as root, users of its own; and dropbear."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.hosts import keys, sandbox
from tests.hosts.ports import free_port
from tests.hosts.processes import command, marked
from tests.hosts.sandbox import Sandbox, User, make_directory, make_user
from tests.waiting import PATIENCE_S

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
HOST_KEY_KINDS = ("ed25519", "ecdsa", "rsa")
MARK = "DTCTL_TEST_SSHD"


class Sshd:
    """`with Sshd() as sshd:` gives `.address .port .user .key .known_hosts .ssh_config .home`.

    As root there are users of every name in `shells` ({user: login shell}), the first of which is `.user`, and all that
    they leave running ends with the server. Otherwise the only user is the one who runs the tests, with another HOME.
    Its host keys are written to `.known_hosts` unless `trusted` is false.
    `address` None: every address of loopback, 127.x.y.z.
    """

    def __init__(
        self,
        *,
        address: str | None = "127.0.0.1",
        shells: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        authorized: Sequence[Path] | None = None,
        host_keys: Sequence[str] = HOST_KEY_KINDS,
        trusted: bool = True,
        visible: Sequence[Path] = (Path(sys.base_prefix), Path(sys.prefix)),
    ) -> None:
        self.address = address or "127.0.0.1"
        self.any_loopback = address is None
        self.key = keys.make_key("login")
        self.authorized = [self.key] if authorized is None else list(authorized)
        self.directory = make_directory("sshd")
        self.directory.chmod(0o711)
        self.options = dict(options or {})
        self.host_keys = {kind: keys.make_key(f"host-{kind}", kind) for kind in host_keys}
        self.trusted = trusted
        self.visible = visible
        self.port = 0
        self.log = self.directory / "log"
        self.known_hosts = self.directory / "known_hosts"
        self.ssh_config = self.directory / "ssh_config"
        self.users = self._make_users(shells or {"train": "/bin/bash"})
        self.user = next(iter(self.users))
        self.home = self.users[self.user].home
        self._sandbox: Sandbox | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def _make_users(self, shells: Mapping[str, str]) -> dict[str, User]:
        if sandbox.missing():
            home = self.directory / "home"
            home.mkdir(mode=0o700)
            return {getpass.getuser(): User(getpass.getuser(), os.getuid(), home)}
        homes = self.directory / "homes"
        return {name: make_user(name, index, homes / name, shell) for index, (name, shell) in enumerate(shells.items())}

    def __enter__(self) -> Sshd:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def start(self) -> None:
        """Starts the server, at the same port if it ran before."""
        if SSHD is None:
            raise RuntimeError("these tests need sshd (Debian: apt install openssh-server)")
        self.port = self.port or free_port(self.address)
        command = [SSHD, "-D", "-f", str(self._write_config()), "-E", str(self.log)]
        if reason := sandbox.missing():
            print(f"sshd runs without a sandbox: {reason}", file=sys.stderr)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        else:
            self._sandbox = Sandbox(self.directory, list(self.users.values()), visible=self.visible)
            self._sandbox.start(command)
            self._process = self._sandbox.process
        wait_for_banner(self.address, self.port, self._process)
        if self.trusted:
            self.known_hosts.write_text(self.known_hosts_text())
        self.ssh_config.write_text(self.ssh_config_text())

    def _write_config(self) -> Path:
        listen = f"0.0.0.0:{self.port} rdomain lo" if self.any_loopback else f"{self.address}:{self.port}"
        authorized = self.directory / "authorized_keys"
        authorized.write_text("".join(keys.public_text(key) for key in self.authorized))
        authorized.chmod(0o644)
        lines = [
            f"ListenAddress {listen}",
            *(f"HostKey {path}" for path in self.host_keys.values()),
            *(f"{name} {value}" for name, value in self.options.items()),
            f"AuthorizedKeysFile {authorized}",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PidFile none",
            "PrintMotd no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "Subsystem sftp internal-sftp",
            "LogLevel VERBOSE",
        ]
        if sandbox.missing():
            lines.append(f"SetEnv HOME={self.home} {MARK}={self.directory.name}")
        config = self.directory / "sshd_config"
        config.write_text("\n".join(lines) + "\n")
        return config

    def known_hosts_text(self, name: str | None = None) -> str:
        """Lines that pin this server's keys, for its own address and port or under a name."""
        where = name or (self.address if self.port == 22 else f"[{self.address}]:{self.port}")
        return "".join(f"{where} {' '.join(keys.public_text(key).split()[:2])}\n" for key in self.host_keys.values())

    def ssh_config_text(self, alias: str = "testhost", extra: str = "") -> str:
        return (
            f"Host {alias}\n  HostName {self.address}\n  Port {self.port}\n  User {self.user}\n"
            f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n{extra}\n"
        )

    @property
    def init(self) -> int:
        """The pid of the first process in there; 0 when it is not alive."""
        if self._sandbox is not None:
            return self._sandbox.init
        return self._process.pid if self._process else 0

    def logins(self) -> int:
        """How many logins succeeded so far."""
        return self.log.read_text(errors="replace").count("Accepted publickey")

    def sessions(self) -> int:
        """How many commands were begun so far, over whichever connections."""
        return self.log.read_text(errors="replace").count("Starting session: command")

    def processes(self) -> list[str]:
        """Command lines of what the server's users run, less sshd's own."""
        if self._sandbox is not None:
            uids = {str(user.uid) for user in self.users.values()}
            table = [line.split(None, 1) for line in self._sandbox.run(["ps", "-e", "-o", "uid=,args="]).splitlines()]
            return [args for uid, args in table if uid in uids and not args.startswith("sshd:")]
        lines = map(command, marked(f"{MARK}={self.directory.name}"))
        return [line for line in lines if not line.startswith("sshd:")]

    def stop(self) -> None:
        """Ends the server and all that its users left running."""
        if self._sandbox is not None:
            self._sandbox.kill()
        elif self._process is not None:
            self._process.terminate()
            self._process.wait()
            for pid in marked(f"{MARK}={self.directory.name}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._sandbox = self._process = None


def wait_for_banner(address: str, port: int, server: subprocess.Popen[bytes] | None) -> None:
    """Returns when the server greets as SSH servers do; fails when it ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(OSError), socket.create_connection((address, port), timeout=10) as connection:
            if connection.recv(4) == b"SSH-":
                return
        assert server is None or server.poll() is None, f"the SSH server ended with {server and server.returncode}"
        assert time.monotonic() < deadline, f"no SSH server at {address}:{port} after {PATIENCE_S} s"
        time.sleep(0.02)


DROPBEAR = shutil.which("dropbear", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


@contextmanager
def dropbear() -> Iterator[tuple[int, Path]]:
    """Starts dropbear as root on 127.0.0.1 for the user `train`; yields its port and a known_hosts file."""
    assert DROPBEAR is not None
    directory = make_directory("dropbear")
    directory.chmod(0o711)
    user = make_user("train", 0, directory / "home")
    (user.home / ".ssh").mkdir(mode=0o755)
    (user.home / ".ssh" / "authorized_keys").write_text(keys.public_text(keys.make_key("login")))
    user.home.chmod(0o755)
    port, host_key = free_port(), directory / "host_key"
    made = subprocess.run(
        ["dropbearkey", "-t", "ed25519", "-f", str(host_key)], check=True, capture_output=True, text=True
    )
    public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519"))
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public.split()[:2])}\n")
    box = Sandbox(directory, [user])
    try:
        box.start([DROPBEAR, "-F", "-r", str(host_key), "-p", f"127.0.0.1:{port}", "-s", "-P", str(directory / "pid")])
        wait_for_banner("127.0.0.1", port, box.process)
        yield port, directory / "known_hosts"
    finally:
        box.kill()
        shutil.rmtree(directory)

"""One transport for all hosts: each host is reached by the one that its settings name."""

from __future__ import annotations

import atexit
import functools
import getpass
import os
import pkgutil
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dtctl import rooms
from dtctl.errors import TransportError
from dtctl.model import OPENSSH, TRANSPORTS, Host, Reach, SshSettings
from dtctl.transport.seam import Session, Transport, TransportOptions
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.timeouts import UNOBSERVED, Waiting

if TYPE_CHECKING:
    from dtctl.transport.ssh.kept import OpensshTransport
    from dtctl.transport.ssh.route import Routes, Station
    from dtctl.transport.ssh.transport import SshTransport


class Transports:
    """Opens conversations with hosts of every kind.

    `ssh_config`: the file that replaces ~/.ssh/config and /etc/ssh/ssh_config, as ssh -F; the others are those of
    TransportOptions.
    """

    def __init__(
        self,
        *,
        local_root: Path | None = None,
        ssh_config: Path | None = None,
        passphrase: Callable[[str], str | None] | None = None,
        asking: Callable[[str], AbstractContextManager[None]] | None = None,
        waiting: Waiting = UNOBSERVED,
    ) -> None:
        self._means = TransportOptions(
            local_root,
            ConfigFiles(ssh_config),
            _in_turn(waiting, passphrase) if passphrase is not None else None,
            _announced(waiting, asking) if asking is not None else None,
            waiting,
        )
        self._lock = threading.Lock()
        self._made: dict[str, Transport] = {}
        self.reached = False
        """Whether a host has been connected to: its agent may have received a request."""
        self._dialled: dict[str, float] = {}
        self._failed: dict[str, TransportError] = {}
        self._begun: dict[str, Session] = {}

    def resume(self, *begun: Session | None) -> None:
        """Adds open conversations: each is returned by the next `open` of its host."""
        self._begun.update({session.host.name: session for session in begun if session is not None})

    def open(self, host: Host) -> Session:
        if (begun := self._begun.pop(host.name, None)) is not None:
            return begun
        if not _opener(host.reach):
            raise TransportError(f"{host.name} is reached by {host.reach.transport!r}, which this dtctl does not know")
        self._dialled[host.name] = time.monotonic()
        try:
            with self._means.waiting.on(host.name, "no connection"):
                session = self._transport(_opener(host.reach)).open(host)
        except TransportError as error:
            self._failed[host.name] = error.with_traceback(None)
            raise
        finally:
            self._dialled.pop(host.name, None)
        self._failed.pop(host.name, None)
        self.reached = True
        return session

    def dialled(self) -> dict[str, float]:
        """Hosts whose connection is still being made, and how long that has taken so far."""
        now = time.monotonic()
        return {host: now - since for host, since in dict(self._dialled).items()}

    def failed(self) -> dict[str, TransportError]:
        """Hosts whose last connection failed, and why."""
        return dict(self._failed)

    def hostname(self, settings: SshSettings) -> str:
        """The name or address that SSH connects to."""
        return self._means.ssh_files.hostname(settings)

    def stations(self, host: Host) -> list[Station]:
        """The gateways to a host that is reached by SSH, and the host, for their host keys."""
        assert isinstance(host.reach, SshSettings)
        return self._routes(host.reach).stations(host.name, host.reach)

    def _routes(self, settings: SshSettings) -> Routes:
        return cast("SshTransport | OpensshTransport", self._transport(_opener(settings))).logins

    def _transport(self, opener: str) -> Transport:
        with self._lock:
            if opener not in self._made:
                make: Callable[[TransportOptions], Transport] = pkgutil.resolve_name(opener)
                self._made[opener] = make(self._means)
            return self._made[opener]


def _in_turn(waiting: Waiting, passphrase: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The same prompt; while it lasts, nothing is reported as awaited."""

    def prompt(path: str) -> str | None:
        with waiting.asking():
            return passphrase(path)

    return prompt


def _announced(
    waiting: Waiting, asking: Callable[[str], AbstractContextManager[None]]
) -> Callable[[str], AbstractContextManager[None]]:
    """The same of the prompts of `ssh`."""

    @contextmanager
    def prompting(host: str) -> Iterator[None]:
        with waiting.asking(), asking(host):
            yield

    return prompting


def _opener(reach: Reach) -> str:
    """Where the function is that makes the transport; empty for one that is not known."""
    if isinstance(reach, SshSettings) and reach.client == "openssh":
        return OPENSSH
    return TRANSPORTS.get(reach.transport) or rooms.of(reach.transport, "transport") or ""


def terminal_passphrase(
    shown: Callable[[str], str] = str, still: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Callable[[str], str | None] | None:
    """A `passphrase` for `Transports` that prompts on the terminal, even if stdin is not one; None without a terminal.

    `shown` escapes the key's path, which a cluster file may name. `still` is entered during the prompt, and stops all
    output.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return None

    def prompt(path: str) -> str | None:
        with still():
            return _ask(shown(path))

    return prompt


def _ask(path: str) -> str | None:
    _restore_terminal_at_exit()
    try:
        return getpass.getpass(f"Passphrase for {path}: ")
    except EOFError:
        return None


@functools.cache
def _restore_terminal_at_exit() -> None:
    """Restores the echo at exit: threads make connections, so Ctrl-C may end the program while one reads without it."""
    with suppress(OSError, termios.error):
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        before = termios.tcgetattr(terminal)
        atexit.register(termios.tcsetattr, terminal, termios.TCSANOW, before)

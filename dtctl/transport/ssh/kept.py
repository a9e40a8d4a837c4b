"""The agent on a host over the user's own `ssh`, which logs in once and keeps the connection for later commands."""

from __future__ import annotations

import math
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.folder import Folder, temporary_folder
from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.fanout import asking, idle
from dtctl.transport.local import Child, ChildStream, Process
from dtctl.transport.ssh import errors
from dtctl.transport.ssh.config import ConfigFiles, split_target
from dtctl.transport.ssh.control import Control, KeptProcess, is_alive
from dtctl.transport.ssh.forks import ForkServer
from dtctl.transport.ssh.known_hosts import HostKey, parse_known_hosts, read
from dtctl.transport.ssh.openssh import control_path, quoted, ssh_words
from dtctl.transport.ssh.program import no_program, run
from dtctl.transport.ssh.route import FAILURE_KEPT_S, HostKeys, Routes, connect_timeout, forwards_agent
from dtctl.transport.stream import RemoteExit, converse, text_of
from dtctl.transport.timeouts import UNOBSERVED, Waiting

if TYPE_CHECKING:
    from dtctl.transport.seam import Session, TransportOptions

ANSWER_S = 5.0
"""How long a host may take to open a session on a kept connection, and at most half of the time for a connection; after
that a new one is made."""
_LEAST_TIMEOUT_S = 1.0
"""What `ssh` takes: whole seconds."""
LOGIN_S = 60.0
"""Added to the connection's timeout, for a key that must be touched or confirmed."""
ANSWERED_S = 300.0
"""The time for a person to answer the prompts of `ssh`."""
ASKS = ("BatchMode=no", "NumberOfPasswordPrompts=3")

Asking = Callable[[str], AbstractContextManager[None]]
"""See TransportOptions.asking."""

QUIET = (
    *("BatchMode=yes", "ClearAllForwardings=yes", "ForwardX11=no", "PermitLocalCommand=no"),
    *("RemoteCommand=none", "RequestTTY=no", "ServerAliveInterval=15", "ServerAliveCountMax=3"),
)
"""Options that exclude settings for the user's own sessions, and end a dead connection."""
NO_AGENT = "ForwardAgent=no"
UNSEEN = (
    *("ControlPath=none", "ControlMaster=no", "PreferredAuthentications=none"),
    *("StrictHostKeyChecking=accept-new", "UpdateHostKeys=no", "HashKnownHosts=no"),
)
"""Options for reading a host's key, which is written to a separate file before the session ends."""
KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521", "rsa-sha2-512,rsa-sha2-256")


class OpensshTransport:
    def __init__(
        self, files: ConfigFiles | None = None, waiting: Waiting = UNOBSERVED, asking: Asking | None = None
    ) -> None:
        self.logins = KeptLogins(files or ConfigFiles(), asking)
        self._waiting = waiting

    @classmethod
    def of(cls, means: TransportOptions) -> OpensshTransport:
        return cls(means.ssh_files, means.waiting, means.asking)

    def open(self, host: Host) -> Session:
        assert isinstance(host.reach, SshSettings)
        settings = split_target(host.reach)
        with idle():
            process = self.logins.run(host.name, settings, payload.BY_SHELL)
        forks = ForkServer(control_path(settings, self.logins.files))
        opening = forks.opening(settings.keep_s)
        begins = payload.BEGINS if isinstance(process, KeptProcess) else b""  # a fork server needs no shell
        stream = ChildStream(process, closing_s=0)
        return converse(host, stream, self._waiting, opening, forks.forward, begins=begins)


@dataclass
class _Login:
    """The last attempt to log in to a host, which one thread makes for all."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    error: DtctlError | None = None
    failed_at: float = 0.0


class KeptLogins(Routes):
    """Connections by their control sockets. Safe for many threads, and for many processes.

    A process that logs in renames its socket when the login is complete; a connection that had the name before gets no
    new user.
    """

    def __init__(self, files: ConfigFiles, asking: Asking | None = None) -> None:
        super().__init__(files)
        self._asking = asking
        self._question = threading.Lock()
        """Held while a host prompts: only one may at a time."""
        self._lock = threading.Lock()
        self._logins: dict[Path, _Login] = {}

    def run(self, name: str, settings: SshSettings, command: str) -> Process:
        """Runs a command over the kept connection, or a new one.

        `name` is the host's in the inventory. Raises TransportError.
        """
        path, timeout_s = control_path(settings, self.files), self._timeout_s(settings)
        deadline = time.monotonic() + timeout_s
        while True:
            tried = _identity(path)
            with suppress(OSError):  # there is none, its host does not answer, or it opens no more sessions
                return _kept_session(path, command, min(ANSWER_S, timeout_s / 2), agent=settings.forward_agent)
            if made := self._log_in_once(name, settings, path, tried, command, within_s=deadline - time.monotonic()):
                return made

    def scan(self, name: str, settings: SshSettings) -> list[HostKey]:
        settings = split_target(settings)
        timeout_s = self._timeout_s(settings)
        own = [f"ConnectTimeout={round(timeout_s)}", *UNSEEN, *QUIET, NO_AGENT]
        hops = self._reach_gateways(name, settings)
        shown: list[HostKey] = []
        for types in KEY_TYPES:
            with temporary_folder("dtctl-key-") as folder:
                file = folder.path / "known_hosts"
                files = [f"UserKnownHostsFile={quoted(file)}", "GlobalKnownHostsFile=/dev/null"]
                options = [*files, f"HostKeyAlgorithms={types}", *own]
                done = run([*self._words(settings, hops, options), "true"], timeout_s + LOGIN_S)
                shown += [line.key for line in parse_known_hosts(read(file), file)]
        if not shown:
            to = self.host_keys(name, settings).destination
            raise errors.shows_no_key(to, text_of(done.stderr))
        return list(dict.fromkeys(shown))

    def pin(self, host_keys: HostKeys, keys: Iterable[HostKey]) -> Path:
        file = super().pin(host_keys, keys)
        with self._lock:
            self._logins.clear()
        return file

    def _log_in_once(
        self,
        name: str,
        settings: SshSettings,
        path: Path,
        tried: int | None,
        command: str = "",
        within_s: float | None = None,
    ) -> KeptProcess | None:
        """Runs the command, if there is one. None if another thread or process has logged in since `tried`.

        `within_s`: the rest of the time for a connection; None: all of it.
        """
        with self._lock:
            login = self._logins.setdefault(path, _Login())
        with login.lock:
            if login.error is not None and time.monotonic() - login.failed_at < FAILURE_KEPT_S:
                raise login.error
            if (now := _identity(path)) is not None and now != tried:
                return None
            try:
                return self._log_in(name, settings, path, command, within_s)
            except DtctlError as error:
                login.error, login.failed_at = error, time.monotonic()
                raise

    def _log_in(
        self, name: str, settings: SshSettings, path: Path, command: str, within_s: float | None
    ) -> KeptProcess | None:
        timeout_s = self._timeout_s(settings)
        if within_s is not None:
            timeout_s = max(min(timeout_s, _LEAST_TIMEOUT_S), within_s)
        hops = self._reach_gateways(name, settings)
        new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        to = self.host_keys(name, settings).destination
        agent = "ForwardAgent=yes" if forwards_agent(to, settings, self.files.lookup(settings)) else NO_AGENT
        own = [f"ControlPath={quoted(new)}", f"ControlPersist={max(1, round(settings.keep_s))}", *QUIET, agent]
        words = self._words(settings, hops, ["ControlMaster=yes", f"ConnectTimeout={math.ceil(timeout_s)}", *own])
        words[-1:] = ["-fN", words[-1]]
        begun = time.monotonic()
        try:
            child = Child(words)
        except FileNotFoundError as error:
            raise no_program() from error
        ending = child.wait(timeout_s + LOGIN_S)
        child.close()
        if ending.exit_code != 0:
            failure, refused = self._explain(name, settings, ending, is_late=time.monotonic() - begun >= timeout_s)
            if not (refused and self._log_in_by_answers(name, words)):
                raise failure
        try:
            return _session(new, command, timeout_s, agent=settings.forward_agent) if command else None
        except OSError as error:
            raise errors.no_session(self.host_keys(name, settings).destination, str(error)) from error
        finally:
            with suppress(FileNotFoundError), Folder(path.parent) as folder:  # it may have ended already
                folder.move(new.name, folder, path.name, overwrite=True)

    def _log_in_by_answers(self, name: str, words: Sequence[str]) -> bool:
        """Repeats the login with the user's terminal, if there is one, and returns whether it succeeded."""
        if self._asking is None:
            return False
        options = [word for option in ASKS for word in ("-o", option)]
        with asking(), self._question, self._asking(name):
            process = subprocess.Popen([words[0], *options, *words[1:]], stdout=subprocess.DEVNULL)
            try:
                return process.wait(ANSWERED_S) == 0
            except subprocess.TimeoutExpired:
                process.terminate()  # then `ssh` restores the terminal's echo
                process.wait()
                return False

    def _explain(
        self, name: str, settings: SshSettings, ending: RemoteExit, *, is_late: bool
    ) -> tuple[TransportError, bool]:
        """The reason of a failed login, and whether a host with the right key refused it.

        The output of `ssh` is only shown; the host's key is read once more.
        """
        keys, printed, refused = self.host_keys(name, settings, name), text_of(ending.stderr), False
        if ending.exit_code is None:
            return errors.login_timed_out(keys.destination, self._timeout_s(settings) + LOGIN_S), False
        if not is_late:
            with suppress(TransportError):
                shown = self.scan(name, settings)
                try:
                    keys.require_trusted(shown)
                except TransportError as error:
                    return error, False
                refused = True
        user, unasked = str(self.files.lookup(settings)["user"]), refused and self._asking is None
        return errors.cannot_log_in_by_ssh(keys.destination, user, printed, unasked=unasked), refused

    def _reach_gateways(self, name: str, settings: SshSettings) -> list[SshSettings]:
        hops = self.hops(settings)
        for hop in hops:
            path = control_path(hop, self.files)
            tried = None if is_alive(path) else _identity(path)
            try:
                self._log_in_once(hop.target, hop, path, tried)
            except TransportError as error:
                raise errors.through_gateway(self.host_keys(name, settings).destination, error) from error
        return hops

    def _words(self, settings: SshSettings, hops: Sequence[SshSettings], own: Sequence[str]) -> list[str]:
        def options(one: SshSettings) -> list[str]:
            gateway = [f"ControlPath={quoted(control_path(one, self.files))}", "ControlMaster=no", *QUIET, NO_AGENT]
            direct = ["ProxyJump=none"] if (one.jump or "").lower() == "none" else []
            return [word for option in (*(own if one is settings else gateway), *direct) for word in ("-o", option)]

        return ssh_words(settings, self.files, hops, options)

    def _timeout_s(self, settings: SshSettings) -> float:
        return connect_timeout(settings, self.files.lookup(settings))


def _kept_session(path: Path, command: str, timeout_s: float, *, agent: bool) -> Process:
    try:
        return ForkServer(path).session(timeout_s)
    except TimeoutError:  # the host would not open a session either
        raise
    except OSError:
        return _session(path, command, timeout_s, agent=agent)


def _session(path: Path, command: str, timeout_s: float, *, agent: bool) -> KeptProcess:
    control = Control(path)
    try:
        return control.run(command, timeout_s, agent=agent)
    except BaseException:
        control.close()
        raise


def _identity(path: Path) -> int | None:
    """The inode of the socket that has this name now; None if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return None

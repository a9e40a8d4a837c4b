"""The settings for a host in the user's ssh_config, as `ssh -G` reads them, for both clients.

The cluster file and the command line override them.
"""

from __future__ import annotations

import functools
import getpass
import os
import pwd
import re
import shlex
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtctl.config.names import check_host, check_names, check_own_host, split_place
from dtctl.dataclass import dataclass
from dtctl.errors import TransportError, UsageError
from dtctl.model import SshSettings
from dtctl.transport.ssh.mentions import SYSTEM_CONFIG, Mentions, account_home
from dtctl.transport.ssh.program import run


@dataclass(frozen=True)
class LoginTarget:
    """The target of a login: [USER@]HOST[:PORT], where HOST may be an alias or an IPv6 address in brackets."""

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> LoginTarget:
        """Raises UsageError."""
        user, host, port = split_place(text)
        return cls(host, user, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")


def split_target(settings: SshSettings) -> SshSettings:
    """Moves a user and port from the target into their own fields. Raises UsageError."""
    place = LoginTarget.parse(settings.target)
    check_names({"user": settings.user, "jump": settings.jump})
    return replace(settings, target=place.host, user=settings.user or place.user, port=settings.port or place.port)


def last_gateway(settings: SshSettings, jump: str) -> SshSettings:
    """The last of the jump hosts as a host of its own, reached through those before it."""
    *earlier, last = (LoginTarget.parse(hop) for hop in jump.split(","))
    way = ",".join(map(str, earlier)) or None
    return replace(settings, target=last.host, user=last.user, port=last.port, jump=way, forward_agent=False)


class ConfigFiles:
    """What `ssh -G` says of a host, asked once for each host, user and port. Safe for many threads.

    `path` None: ~/.ssh/config, then /etc/ssh/ssh_config; otherwise only that file, as for ssh -F.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._mentions: Mentions | None = None
        self._answers: dict[SshSettings, Future[Mapping[str, Any]]] = {}

    @property
    def words(self) -> list[str]:
        """The words that make `ssh` read these files; by itself it reads those of the account's home, not of $HOME."""
        path = self.path or Path("~/.ssh/config")
        is_default = self.path is None and (Path.home() == account_home() or not path.expanduser().exists())
        return [] if is_default else ["-F", str(path.expanduser())]

    def lookup(self, settings: SshSettings) -> Mapping[str, Any]:
        """The options for one host, keys in lower case; not to be changed.

        `hostname`, `user` and `port` are always there, other options if they differ from OpenSSH's defaults. Their
        tokens are expanded. `identityfile` is a list. Raises UsageError, TransportError.
        """
        settings = split_target(settings)
        key = SshSettings(check_host(settings.target), user=settings.user, port=settings.port)
        with self._lock:
            answer = self._answers.get(key)
            if is_first := answer is None:
                answer = self._answers[key] = Future()
        if is_first:
            try:
                answer.set_result(self._ask(key) if key.target in self._mentioned() else _unmentioned(key))
            except BaseException as error:  # raised in all threads that wait for it
                answer.set_exception(error)
        return answer.result()

    def hostname(self, settings: SshSettings) -> str:
        """The name or address that SSH connects to."""
        return str(self.lookup(settings)["hostname"])

    def _mentioned(self) -> Mentions:
        with self._lock:
            if self._mentions is None:
                path = Path(self.words[1]) if self.words else None
                if self.path is not None and path is not None and not path.exists():
                    raise UsageError(f"there is no SSH configuration {path}")
                files = [account_home() / ".ssh" / "config", SYSTEM_CONFIG] if path is None else [path]
                self._mentions = Mentions([file for file in files if str(file) != os.devnull])
            return self._mentions

    def _ask(self, settings: SshSettings) -> Mapping[str, Any]:
        if shutil.which("ssh") is None:
            raise TransportError(
                f"the SSH configuration has settings for {settings.target}, and there is no `ssh` that could read them",
                hint="install OpenSSH's client; or dtctl -F /dev/null uses no configuration",
            )
        given = ["-l", settings.user] if settings.user else []
        given += ["-p", str(settings.port)] if settings.port else []
        answer = _answer([*self.words, *given], settings.target)
        found = {key: value for key, value in answer.items() if key in ALWAYS or value != _defaults().get(key)}
        options: dict[str, Any] = {key: values[0] for key, values in found.items()}
        check_own_host(options["hostname"])
        tokens = _tokens(settings.target, options)
        for key in EXPANDED & found.keys():
            options[key] = _expanded(options[key], tokens)
        if "identityfile" in found:
            options["identityfile"] = [_expanded(file, tokens) for file in found["identityfile"]]
        return options


ALWAYS = ("hostname", "user", "port")
EXPANDED = {"proxycommand", "identityagent", "userknownhostsfile", "globalknownhostsfile"}
"""Options whose tokens `ssh -G` leaves to be expanded; in `identityfile` too."""

CONFIG_TIMEOUT_S = 30.0
"""The time for a `Match exec` of the user's, and to make a name canonical."""


def _unmentioned(settings: SshSettings) -> Mapping[str, Any]:
    """The options of a host for which no file has any."""
    try:
        account = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        account = getpass.getuser()
    return {"hostname": settings.target, "user": settings.user or account, "port": str(settings.port or 22)}


@functools.cache
def _defaults() -> Mapping[str, Sequence[str]]:
    """The answer for a host without any configuration."""
    return _answer(["-F", os.devnull], "default")


def _answer(words: Sequence[str], host: str) -> Mapping[str, Sequence[str]]:
    """The values of each option, as `ssh -G` prints them. Raises TransportError."""
    done = run(["ssh", *words, "-G", host], CONFIG_TIMEOUT_S)
    if done.returncode != 0:
        detail = done.stderr.decode("utf-8", "replace").strip()
        raise TransportError(
            f"ssh cannot read its configuration for {host}", detail=detail, hint=f"ssh -G {host}    shows it"
        )
    values: dict[str, list[str]] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        if key.endswith("knownhostsfile"):  # it does not quote a path with blanks
            value = " ".join(f'"{path}"' for path in re.split(r" (?=[/~%]|none$)", value))
        values.setdefault(key, []).append(value)
    return values


def _tokens(alias: str, options: Mapping[str, str]) -> Mapping[str, str]:
    """The values of ssh_config(5), TOKENS; those of `%C`, `%j` and such are not known here and stay as they are."""
    node, home = os.uname().nodename, str(Path.home())
    known = {"%": "%", "d": home, "h": options["hostname"], "i": str(os.getuid()), "l": node, "n": alias}
    local = _unmentioned(SshSettings(alias))["user"]
    more = {"L": node.partition(".")[0], "k": options.get("hostkeyalias", alias), "p": options["port"], "u": local}
    return {**known, **more, "r": options["user"]}


def _expanded(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), text)


def known_hosts_files(settings: SshSettings, options: Mapping[str, str]) -> tuple[Path, ...]:
    """Files in which the host's keys may be pinned."""
    everyones = _paths(options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"))
    return tuple(dict.fromkeys([*users_known_hosts(settings, options), *everyones]))


def users_known_hosts(settings: SshSettings, options: Mapping[str, str]) -> tuple[Path, ...]:
    """Those of the files that are the user's own: new keys belong into the first, and never into those of everyone."""
    own = [file] if (file := configured_known_hosts(settings)) else []
    users = _paths(options.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"))
    return tuple(dict.fromkeys([*own, *users]))


def configured_known_hosts(settings: SshSettings) -> Path | None:
    """The file that the cluster file names."""
    return Path(settings.known_hosts).expanduser() if settings.known_hosts else None


def _paths(words: str) -> list[Path]:
    split = shlex.split(words) if '"' in words else words.split()
    return [Path(word).expanduser() for word in split if word != "none"]

"""The settings for a host in the user's ssh_config; the cluster file and the command line override them.

paramiko parses the format (it is imported only if there is something to parse), except `Include`, which is done here.
"""

from __future__ import annotations

import functools
import glob
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.config.names import check_host, check_names, check_own_host, check_user, split_place
from dtctl.dataclass import dataclass
from dtctl.errors import TransportError, UsageError
from dtctl.folder import read_regular

if TYPE_CHECKING:
    from paramiko.config import SSHConfig, SSHConfigDict

    from dtctl.model import SshSettings

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
INCLUDE_DEPTH = 16
MOST_BYTES = 16_000_000

_KEYWORD = re.compile(r"\s*(?P<keyword>\w+)(?:\s*=\s*|\s+)(?P<rest>.*\S)")


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
    return replace(settings, target=last.host, user=last.user, port=last.port, jump=way)


class ConfigFiles:
    """The files, read once and parsed once for each pair of user and port that override them.

    `path` None: ~/.ssh/config, then /etc/ssh/ssh_config; otherwise only that file, as for ssh -F.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._text: str | None = None
        self._parsed: dict[tuple[str | None, int | None], SSHConfig] = {}

    def text(self) -> str:
        """The text of all files, with includes in place. Raises UsageError if `path` cannot be read."""
        if self._text is None:
            user_directory = Path("~/.ssh").expanduser()
            if self.path is not None:
                self._text = _read(self.path.expanduser(), user_directory, must_exist=True)
            else:
                user = _read(user_directory / "config", user_directory)
                # A Host line of the user's file must not extend into the system's.
                self._text = f"{user}\nHost *\n{_read(SYSTEM_CONFIG, SYSTEM_CONFIG.parent)}"
        return self._text

    def parsed(self, user: str | None = None, port: int | None = None) -> SSHConfig:
        """The configuration for paramiko and Fabric. Given settings win, also in %r and %p. Raises TransportError."""
        from paramiko.config import SSHConfig
        from paramiko.ssh_exception import ConfigParseError

        if user:
            check_user(user)
        with self._lock:
            if (user, port) not in self._parsed:
                given = f"  User {user}\n" if user else ""
                given += f"  Port {port}\n" if port else ""
                try:
                    config = SSHConfig.from_file(StringIO(f"Host *\n{given}\n{self.text()}"))
                except ConfigParseError as error:
                    raise TransportError(
                        "the SSH configuration cannot be read", detail=f"{self.path or '~/.ssh/config'}: {error}"
                    ) from error
                config.lookup = _checked(config.lookup)  # type: ignore[method-assign,assignment]
                self._parsed[user, port] = config
            return self._parsed[user, port]

    def lookup(self, settings: SshSettings) -> Mapping[str, Any]:
        """The options for one host, keys in lower case; not to be changed."""
        settings = split_target(settings)
        return self.parsed(settings.user, settings.port).lookup(settings.target)

    def hostname(self, settings: SshSettings) -> str:
        """The name or address that SSH connects to."""
        if not re.search(r"^\s*hostname\b", self.text(), re.IGNORECASE | re.MULTILINE):
            return split_target(settings).target  # without importing paramiko
        return str(self.lookup(settings)["hostname"])


def _checked(lookup: Callable[[str], SSHConfigDict]) -> Callable[[str], SSHConfigDict]:
    """A lookup that checks names, for us and for Fabric: only plain names get into a ProxyCommand or to `Match exec`.

    It is cached, because both look up each host several times, and each time paramiko determines the user.
    """

    @functools.cache
    def of(host: str) -> SSHConfigDict:
        options = lookup(check_host(host))
        check_own_host(options["hostname"])
        return options

    return of


def _read(path: Path, base: Path, must_exist: bool = False) -> str:
    try:
        return "".join(_lines(path, base, 0))
    except (FileNotFoundError, NotADirectoryError) as error:
        if must_exist:
            raise UsageError(f"there is no SSH configuration {path}") from error
        return ""
    except OSError as error:
        raise UsageError(f"cannot read the SSH configuration {error.filename}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the SSH configuration {path} is not UTF-8 text") from error


def _lines(path: Path, base: Path, depth: int) -> Iterator[str]:
    """The file's lines, with those of the files that it includes.

    A block that an included file begins ends with that file, as in OpenSSH; but it counts even if the Include itself is
    in a block for other hosts.
    """
    if depth > INCLUDE_DEPTH:
        raise UsageError(f"the SSH configuration includes itself: {path}")
    block = "Host *\n"
    content = b"" if str(path) == os.devnull else read_regular(path, MOST_BYTES)  # `-F /dev/null`: no configuration
    for line in content.decode("utf-8").splitlines(keepends=True):
        match = _KEYWORD.match(line)
        keyword = match["keyword"].lower() if match else ""
        if match is None or keyword != "include":
            block = line if keyword in ("host", "match") else block
            yield line if line.endswith("\n") else line + "\n"
            continue
        for pattern in match["rest"].replace('"', "").split():
            for name in sorted(glob.glob(str(base / Path(pattern).expanduser()))):  # noqa: PTH207 (may be absolute)
                yield from _lines(Path(name), base, depth + 1)
        yield block


def known_hosts_files(settings: SshSettings, options: Mapping[str, str]) -> tuple[Path, ...]:
    """Files in which the host's keys may be pinned; new ones belong into the first."""
    own = [file] if (file := configured_known_hosts(settings)) else []
    users = _paths(options.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"))
    everyones = _paths(options.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"))
    return tuple(dict.fromkeys([*own, *users, *everyones]))


def configured_known_hosts(settings: SshSettings) -> Path | None:
    """The file that the cluster file names."""
    return Path(settings.known_hosts).expanduser() if settings.known_hosts else None


def _paths(words: str) -> list[Path]:
    home = str(Path.home())
    split = shlex.split(words) if '"' in words else words.split()
    return [Path(word.replace("%d", home)).expanduser() for word in split if word != "none"]

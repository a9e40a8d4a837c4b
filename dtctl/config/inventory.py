"""The `hosts` section: ranges become single hosts, and `ssh` supplies what a host leaves out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtctl.config.document import Findings
from dtctl.config.names import check_host, check_names, split_place, why_not_written
from dtctl.config.ranges import expand, expand_value, first_past, fold
from dtctl.config.sections import ClusterFile, HostEntry
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError
from dtctl.model import Host, Local, OtherTransport, Reach, SshSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MOST_HOSTS = 10_000
_RANGED = ("target", "user", "identity_file", "jump", "known_hosts")
"""Keys of `ssh` in which a range stands for one value for each host. Elsewhere, in env say, [0-9] is just text."""


def read_hosts(content: ClusterFile, home: Path, findings: Findings) -> dict[str, Host]:
    """Every host by name, in the order of the file. Relative paths of the controller start at `home`."""
    reader = _Reader(content, home, findings)
    reader.check_defaults()
    hosts: dict[str, Host] = {}
    entry_of: dict[str, str] = {}
    if too_many := first_past(MOST_HOSTS, ((key, key, 1) for key in content.hosts)):
        summary = f"hosts.{too_many} is past the {MOST_HOSTS:,} hosts that a cluster can have"
        findings.add(("hosts", too_many), summary, "check the ends of the ranges", at_key=True)
        return {}
    for key, entry in content.hosts.items():
        names = reader.names(key)
        twice = [name for name in names if entry_of.setdefault(name, key) != key]
        if twice:
            summary = f"hosts.{key} names {fold(twice)}, which hosts.{entry_of[twice[0]]} already names"
            findings.add(("hosts", key), summary, "keep one of them", at_key=True)
        for host in reader.hosts(key, names, entry):
            hosts.setdefault(host.name, host)
    return hosts


@dataclass(frozen=True)
class _Reader:
    """Reads the entries of `hosts`. `names` are those that an entry's key stands for."""

    content: ClusterFile
    home: Path
    findings: Findings

    def check_defaults(self) -> None:
        said = self.content.ssh.said()
        for key in ("user", "jump"):
            with self.findings.refusals("ssh", key):
                check_names({key: said.get(key)})
        self._check_known_hosts(("ssh",), said, said)

    def _check_known_hosts(self, path: tuple[str, ...], said: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Checks that unseen keys are pinned only in the user's own file. `own` holds what is at `path`."""
        known_hosts = said.get("known_hosts")
        if not {"known_hosts", "host_keys"} & own.keys() or said.get("host_keys") != "accept-new" or not known_hosts:
            return
        with suppress(UsageError):  # there is no such home directory, which is reported elsewhere
            if reason := why_not_written(Path(local_path(known_hosts, self.home)), self.home):
                at = (*path, "known_hosts" if "known_hosts" in own else "host_keys")
                summary = f"{self.findings.name(*at)}: new host keys are not written to {known_hosts!r}: {reason}"
                self.findings.add(at, summary, "known_hosts: known_hosts    is a file next to this one")

    def names(self, key: str) -> list[str]:
        """The names in `key`; none when they cannot be used."""
        names: list[str] = []
        with self.findings.refusals("hosts", key, owner="hosts", at_key=True):
            names = expand(key)
        unfit = next((name for name in names if not _NAME.fullmatch(name)), None)
        if unfit is not None:
            expected = "expected letters, digits, '.', '_' and '-', starting with a letter or digit"
            summary = f"hosts: {unfit!r} cannot be the name of a host, {expected}"
            self.findings.add(("hosts", key), summary, at_key=True)
            return []
        if len(set(names)) < len(names):
            twice = {name for name in names if names.count(name) > 1}
            self.findings.add(("hosts", key), f"hosts.{key} names {fold(twice)} more than once", at_key=True)
        return list(dict.fromkeys(names))

    def hosts(self, key: str, names: Sequence[str], entry: HostEntry) -> list[Host]:
        self._check_directories(key, entry)
        path = ("hosts", key, "address")
        addresses = self._spread(names, entry.address, path)
        if not self.findings.has(*path):
            with self.findings.refusals(*path):
                for address in filter(None, addresses):
                    check_host(address)
        dirs = entry.dirs.said()
        return [
            Host(name, reach, address, entry.gpus, entry.python, entry.env, dirs)
            for name, reach, address in zip(names, self._reaches(key, names, entry), addresses, strict=True)
        ]

    def _reaches(self, key: str, names: Sequence[str], entry: HostEntry) -> Sequence[Reach]:
        """How each of the entry's hosts is reached."""
        chosen = entry.transport
        if chosen == SshSettings.transport:
            return self._ssh_reaches(key, names, entry)
        if "ssh" in entry.written:
            summary = f"hosts.{key} has both transport: {chosen} and ssh, expected one of them"
            self.findings.add(("hosts", key, "ssh"), summary, "`ssh` holds the settings for SSH", at_key=True)
        if chosen == Local.transport:
            return [Local()] * len(names)
        if entry.address is None:
            summary = f"hosts.{key} has no address, by which the other hosts reach it; only SSH knows one"
            hint = "write, for example, address: 10.0.0.10"
            self.findings.add(("hosts", key, "transport"), summary, hint, at_key=True)
        return [OtherTransport(chosen, name) for name in names]

    def _ssh_reaches(self, key: str, names: Sequence[str], entry: HostEntry) -> Sequence[SshSettings]:
        path = ("hosts", key, "ssh")
        ranged = {field: self._spread(names, getattr(entry.ssh, field), (*path, field)) for field in _RANGED}
        reached = [SshSettings(name) for name in names]
        if self.findings.has(*path):
            return reached
        with self.findings.refusals(*path):
            for index, name in enumerate(names):
                values = {field: row[index] for field, row in ranged.items() if row[index] is not None}
                own, defaults = entry.ssh.said() | values, self.content.ssh.said()
                reached[index] = ssh_settings(name, own, defaults, self.home)
                if not self.findings.has(*path):
                    self._check_known_hosts(path, defaults | own, own)
        return reached

    def _check_directories(self, key: str, entry: HostEntry) -> None:
        """A directory of one host alone would leave the tasks of the others without."""
        for name in entry.dirs.said():
            if getattr(self.content.dirs, name) is None and not self.findings.has("dirs"):
                path = ("hosts", key, "dirs", name)
                summary = f"{self.findings.name(*path)} is set, but dirs.{name} is not"
                hint = f"write, for example, dirs: {{{name}: /data}}, for the other hosts"
                self.findings.add(path, summary, hint, at_key=True)

    def _spread(self, names: Sequence[str], text: str | None, path: tuple[str, ...]) -> Sequence[str | None]:
        """One value for each name: those of the range in `text`, or `text` for all."""
        values = None
        if text is not None and names:
            with self.findings.refusals(*path):
                values = expand_value(text)
        if values is None:
            return [text] * len(names)
        if len(values) != len(names):
            counts = f"{text} makes {_counted(values, 'value')}, but {path[1]} makes {_counted(names, 'host')}"
            hint = "give both ranges the same length, or write one value for all"
            self.findings.add(path, f"{self.findings.name(*path)}: {counts}", hint)
            return [text] * len(names)
        return values


def _counted(things: Sequence[str], word: str) -> str:
    return f"{len(things)} {word}{'s' if len(things) != 1 else ''}"


def ssh_settings(name: str, own: Mapping[str, Any], defaults: Mapping[str, Any], home: Path) -> SshSettings:
    """The settings of the host `name`: its own over the defaults. Raises UsageError.

    Relative paths of the controller start at `home`.
    """
    inside = _split(own.get("target") or name)
    for key in ("user", "port"):
        if key in inside and key in own:
            raise UsageError(
                f"{own['target']!r} names a {key}, and so does {key} next to it", hint="leave one of them out"
            )
    check_names(own)
    chosen = {**defaults, **own, **inside}
    chosen.update({key: local_path(chosen[key], home) for key in ("identity_file", "known_hosts") if key in chosen})
    if "known_hosts" in chosen:
        chosen["project"] = str(home)
    return SshSettings(**chosen)


def _split(target: str) -> dict[str, Any]:
    user, host, port = split_place(target)
    found = {"user": user, "target": host, "port": port}
    return {key: value for key, value in found.items() if value is not None}


def local_path(text: str, home: Path) -> str:
    """Raises UsageError."""
    try:
        return str(home / Path(text).expanduser())
    except RuntimeError as error:
        raise UsageError(f"{text!r} has no such home directory") from error

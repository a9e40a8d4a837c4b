"""Known host keys, as OpenSSH keeps them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). No SSH library is needed."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostKey:
    """A public key as it stands in known_hosts; `type` is for example ssh-ed25519."""

    type: str
    blob: bytes

    @classmethod
    def parse(cls, key_type: str, encoded: str) -> HostKey:
        """Raises ValueError."""
        try:
            return cls(key_type, base64.b64decode(encoded, validate=True))
        except binascii.Error as error:
            raise ValueError("not base64") from error

    def is_of_its_type(self) -> bool:
        """The key itself begins with its type, too (RFC 4253, 6.6)."""
        name = self.type.encode()
        return self.blob.startswith(len(name).to_bytes(4, "big") + name)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.blob).decode()

    @property
    def fingerprint(self) -> str:
        """The form that ssh-keygen -l prints."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class Pinned:
    """One line of a known_hosts file."""

    patterns: tuple[str, ...]
    key: HostKey
    file: Path
    line: int
    revoked: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def matches(self, name: str) -> bool:
        """`name` as `host_key_name` makes it, in small letters. A negated pattern that matches outweighs all others."""
        found = False
        for pattern in self.patterns:
            if pattern.startswith("|1|"):
                found = found or _hash_matches(pattern, name)
            elif pattern.startswith("!"):
                if _glob_matches(pattern[1:], name):
                    return False
            else:
                found = found or _glob_matches(pattern, name)
        return found


def host_key_name(host: str, port: int = 22) -> str:
    """How known_hosts writes a host: its name alone, or [name]:port; in small letters, or its hash would be another.

    As OpenSSH does before it reads, hashes or writes a name (ssh.c; `write_host_entry` and `match_hostname`).
    """
    return (host if port == 22 else f"[{host}]:{port}").lower()


def _glob_matches(pattern: str, name: str) -> bool:
    # Only * and ? are special in known_hosts; a bracket stands for itself.
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hash_matches(pattern: str, name: str) -> bool:
    """|1|SALT|HASH, as HashKnownHosts writes them."""
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)


def parse_known_hosts(text: str, file: Path) -> list[Pinned]:
    """Lines that cannot be read are passed over, as OpenSSH does; so are certificate authorities."""
    pinned = []
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@revoked"):
            continue
        try:
            key = HostKey.parse(fields[1], fields[2])
        except ValueError:
            continue
        pinned.append(Pinned(tuple(fields[0].split(",")), key, file, number, revoked=bool(marker)))
    return pinned


class KnownFile:
    """The lines of one file, found by host name without looking at all of them for each of many hosts."""

    def __init__(self, pinned: Sequence[Pinned]) -> None:
        self._plain: dict[str, list[Pinned]] = {}
        self._special: list[Pinned] = []
        self._found: dict[str, list[Pinned]] = {}
        for line in pinned:
            if any(set(pattern) & set("*?!|") for pattern in line.patterns):
                self._special.append(line)
                continue
            for name in {pattern.lower() for pattern in line.patterns}:
                self._plain.setdefault(name, []).append(line)

    def of(self, name: str) -> list[Pinned]:
        """In the order of the file."""
        if name not in self._found:
            special = [line for line in self._special if line.matches(name)]
            self._found[name] = sorted([*self._plain.get(name.lower(), []), *special], key=lambda line: line.line)
        return self._found[name]


_PATTERN = re.compile(r"""!?[^\s"'`$\\;&<>|(){}=,#@!]+""")
_HASHED = re.compile(r"\|1\|[A-Za-z0-9+/=]+\|[A-Za-z0-9+/=]+")
_AUTHORIZED_KEYS_OPTIONS = {
    *("agent-forwarding", "cert-authority", "port-forwarding", "pty", "user-rc", "x11-forwarding", "restrict"),
    *("no-agent-forwarding", "no-port-forwarding", "no-pty", "no-user-rc", "no-x11-forwarding"),
    *("no-touch-required", "verify-required"),
}
"""sshd(8), AUTHORIZED_KEYS FILE FORMAT: they stand where known_hosts has names. All others have a value, after `=`."""


def is_known_hosts_line(line: str) -> bool:
    """Whether a line can stand in known_hosts and nowhere else; a comment and a blank line can."""
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return True
    if fields[0] in ("@cert-authority", "@revoked"):
        fields = fields[1:]
    if len(fields) < 3:
        return False
    names = fields[0].lower().split(",")
    if not (_HASHED.fullmatch(fields[0]) or all(map(_PATTERN.fullmatch, names))):
        return False
    if _AUTHORIZED_KEYS_OPTIONS.issuperset(names):
        return False
    try:
        return HostKey.parse(fields[1], fields[2]).is_of_its_type()
    except ValueError:
        return False

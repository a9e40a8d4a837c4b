"""Known host keys, as OpenSSH keeps them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). No SSH library is needed."""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dtctl.errors import TransportError


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

    @property
    def base64(self) -> str:
        return base64.b64encode(self.blob).decode()

    @property
    def fingerprint(self) -> str:
        """As ssh-keygen -l prints it."""
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
        """`name` as `host_key_name` makes it. A negated pattern that matches outweighs all others."""
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
    """How known_hosts writes a host: its name alone, or [name]:port."""
    return host if port == 22 else f"[{host}]:{port}"


def _glob_matches(pattern: str, name: str) -> bool:
    # Only * and ? are special in known_hosts; a bracket stands for itself.
    return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


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
    for number, line in enumerate(text.splitlines(), 1):
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


class KnownHosts:
    """Several known_hosts files as one, each read once. Safe for many threads."""

    def __init__(self) -> None:
        self._files: dict[Path, KnownFile] = {}
        self._lock = threading.Lock()

    def of(self, name: str, files: Sequence[Path]) -> list[Pinned]:
        """The lines for a host (`host_key_name`), in the order of the files; a missing file is an empty one."""
        with self._lock:
            return [pinned for file in files for pinned in self._read(file).of(name)]

    def _read(self, file: Path) -> KnownFile:
        if file not in self._files:
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, NotADirectoryError):
                text = ""
            except OSError as error:
                raise TransportError(f"cannot read {file}: {error.strerror}") from error
            self._files[file] = KnownFile(parse_known_hosts(text, file))
        return self._files[file]

    def pin(self, name: str, keys: Iterable[HostKey], file: Path) -> None:
        """Adds lines for a host to a file, which is made if it is missing (0600); lines that it has are not doubled."""
        with self._lock, _locked(file) as descriptor:
            there = {pinned.key for pinned in self._again(file).of(name) if not pinned.revoked}
            _append(descriptor, [f"{name} {key.type} {key.base64}" for key in keys if key not in there])
            self._again(file)

    def learn(self, name: str, key: HostKey, file: Path) -> list[Pinned]:
        """Pins the first key that was ever seen of a host.

        If another thread or program was faster nothing is added; the lines that it wrote are given back, to be checked.
        """
        with self._lock, _locked(file) as descriptor:
            pinned = self._again(file).of(name)
            if not pinned:
                _append(descriptor, [f"{name} {key.type} {key.base64}"])
                self._again(file)
            return pinned

    def _again(self, file: Path) -> KnownFile:
        self._files.pop(file, None)
        return self._read(file)


@contextmanager
def _locked(file: Path) -> Iterator[int]:
    """The file, made if it is missing, open to be added to by this process alone. Raises TransportError."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TransportError(f"cannot write {file}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, lines: Sequence[str]) -> None:
    """In one write, so that nobody ever reads half a line."""
    size = os.fstat(descriptor).st_size
    unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    os.write(descriptor, (("\n" if unfinished else "") + "".join(f"{line}\n" for line in lines)).encode())

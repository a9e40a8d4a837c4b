"""Known host keys in OpenSSH's format (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"), from several files as from one."""

from __future__ import annotations

import base64
import binascii
import errno
import fcntl
import fnmatch
import hashlib
import hmac
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dtctl.config.names import is_named_so, is_of_ssh, why_not_written
from dtctl.dataclass import dataclass
from dtctl.errors import ExitCode, TransportError
from dtctl.folder import PRIVATE, folder_of, read_regular


@dataclass(frozen=True)
class HostKey:
    """A public key as in known_hosts; `type` is for example ssh-ed25519."""

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
        """Whether the key itself begins with its type, too (RFC 4253, 6.6)."""
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
        """Whether the line is for `name`, as `host_key_name` returns it.

        A matching negated pattern outweighs all others.
        """
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
    """The name of a host in known_hosts: its name alone, or [name]:port, in lower case, on which its hash depends.

    As OpenSSH does before it reads, hashes or writes a name (ssh.c; `write_host_entry` and `match_hostname`).
    """
    return (host if port == 22 else f"[{host}]:{port}").lower()


def _glob_matches(pattern: str, name: str) -> bool:
    # Only * and ? are special in known_hosts; a bracket is literal.
    return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))


def _hash_matches(pattern: str, name: str) -> bool:
    """Whether it is the hash of the name: |1|SALT|HASH, as HashKnownHosts writes it."""
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)


AUTHORITY = "@cert-authority"


def parse_known_hosts(text: str, file: Path) -> list[Pinned]:
    """The lines of a file without invalid ones and certificate authorities; OpenSSH skips invalid ones, too."""
    return _marked(text, file, ("", "@revoked"))


def has_authority(text: str, name: str) -> bool:
    """Whether a certificate authority may vouch for the host (`host_key_name`)."""
    return AUTHORITY in text and any(line.matches(name) for line in _marked(text, Path(), (AUTHORITY,)))


def _marked(text: str, file: Path, markers: Sequence[str]) -> list[Pinned]:
    pinned = []
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in markers:
            continue
        try:
            key = HostKey.parse(fields[1], fields[2])
        except ValueError:
            continue
        pinned.append(Pinned(tuple(fields[0].split(",")), key, file, number, revoked=marker == "@revoked"))
    return pinned


class KnownFile:
    """The lines of one file, found by host name without matching all of them for each of many hosts."""

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
        """The lines for a host, in the order of the file."""
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
"""Options without a value, where known_hosts has names (sshd(8), AUTHORIZED_KEYS FILE FORMAT). All others contain `=`.
"""


def is_known_hosts_line(line: str) -> bool:
    """Whether a line is valid in known_hosts and in no other file; a comment and a blank line are."""
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return True
    if fields[0] in (AUTHORITY, "@revoked"):
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
            self._files[file] = KnownFile(parse_known_hosts(read(file), file))
        return self._files[file]

    def pin(self, name: str, keys: Iterable[HostKey], file: Path) -> None:
        """Adds lines for a host to a file, which is made if it is missing (0600); existing lines are not repeated."""
        with self._lock, locked(file) as descriptor:
            there = {pinned.key for pinned in self._again(file).of(name) if not pinned.revoked}
            append(descriptor, [f"{name} {key.type} {key.base64}" for key in keys if key not in there])
            self._again(file)

    def learn(self, name: str, key: HostKey, file: Path) -> list[Pinned]:
        """Pins the first key that was ever seen of a host.

        If another thread or program was faster nothing is added; the lines that it wrote are returned, to be checked.
        """
        with self._lock, locked(file) as descriptor:
            pinned = [line for line in self._again(file).of(name) if not line.revoked or line.key == key]
            if not pinned:
                append(descriptor, [f"{name} {key.type} {key.base64}"])
                self._again(file)
            return pinned

    def _again(self, file: Path) -> KnownFile:
        self._files.pop(file, None)
        return self._read(file)


MOST_BYTES = 16_000_000
LOCK_PATIENCE_S = 10.0
"""How long to wait for a lock: other users who may read the file can lock it, too."""


def check_place(file: Path, project: Path | None) -> None:
    """Raises TransportError for a file that a cluster file in `project` may not choose for new keys."""
    if reason := why_not_written(file, project):
        raise _unwritable(
            file, reason, hint="known_hosts: known_hosts    names a file next to the cluster file; or leave it out"
        )
    try:
        with suppress(FileNotFoundError), folder_of(file, project):
            pass
    except OSError as error:
        raise _not_added_to(file, error) from error
    if is_of_ssh(file) and not is_named_so(file) and not parse_known_hosts(read(file), file):
        raise _unwritable(file, "it holds no host key, so it may be another kind of file")


def check_content(file: Path) -> None:
    """Raises TransportError for a file that holds anything but lines of known host keys."""
    _check_lines(read(file), file)


def read(file: Path) -> str:
    """The text of a file; empty for a missing file and for /dev/null. Raises TransportError."""
    try:
        return "" if os.path.realpath(file) == os.devnull else read_regular(file, MOST_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise TransportError(f"cannot read {file}: {_reason(error)}") from error


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """The file, locked and open for appending; made if it is missing (0600).

    Raises TransportError, also for a file with anything but lines of known host keys: an added line may mean something
    else to those who read it.
    """
    try:
        with folder_of(file, make=PRIVATE) as (folder, name), folder.append(name) as opened:
            descriptor = os.dup(opened.fileno())
    except OSError as error:
        raise _not_added_to(file, error) from error
    try:
        _check_ownership(descriptor, file)
        _lock(descriptor, file)
        _check_lines(os.pread(descriptor, MOST_BYTES, 0).decode("utf-8", "replace"), file)
        yield descriptor
    except OSError as error:
        raise _not_added_to(file, error) from error
    finally:
        os.close(descriptor)


def append(descriptor: int, lines: Sequence[str]) -> None:
    """Appends all lines or none, in one write, so that no reader ever sees half a line.

    In place and not by replacing the file: ssh itself appends to it at any time, without a lock. Raises OSError, and
    TransportError for a host whose name gives the line another meaning: `no-pty ssh-ed25519 ...` lets a key log in.
    """
    for line in lines:
        if not is_known_hosts_line(line):
            raise TransportError(
                f"the key of a host that is called {line.split()[0]!r} is not kept",
                hint="the word has a meaning of its own in authorized_keys; reach the host by another name",
            )
    size = os.fstat(descriptor).st_size
    unfinished = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    data = (("\n" if unfinished else "") + "".join(f"{line}\n" for line in lines)).encode()
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)  # some file systems report a full disk or quota only now
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _check_ownership(descriptor: int, file: Path) -> None:
    """Raises TransportError unless the file is the user's own. Its group may write to it, as with a umask of 002."""
    state = os.fstat(descriptor)
    if state.st_uid != os.geteuid():
        raise _unwritable(file, "it belongs to another user")
    if state.st_mode & stat.S_IWOTH:
        raise _unwritable(file, "every user may write to it", hint=f"chmod o-w {file}")


def _lock(descriptor: int, file: Path) -> None:
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _unwritable(file, f"another program has locked it for {LOCK_PATIENCE_S:g} s") from None
            time.sleep(0.01)


def _check_lines(text: str, file: Path) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if not is_known_hosts_line(line):
            raise _unwritable(
                file,
                f"line {number} is not a line of known host keys",
                hint="if it really is a known_hosts file, remove the line",
            )


def _unwritable(file: Path, reason: str, *, hint: str = "") -> TransportError:
    return TransportError(f"cannot write {file}: {reason}", hint=hint)


def _not_added_to(file: Path, error: OSError) -> TransportError:
    """The error for a file to which no key was added. It is unchanged."""
    failure = _unwritable(file, _reason(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        failure = TransportError(
            f"host keys cannot be kept: the disk of {file} is full",
            detail=f"{_reason(error)}; existing keys in it are unchanged",
            hint=f"df {shlex.quote(str(file.parent))}    shows it; free some space, then try again",
        )
    elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR):
        failure.hint = "known_hosts: FILE    under ssh: in the cluster file names another one"
    failure.exit_code = ExitCode.PREFLIGHT
    return failure


def _reason(error: Exception) -> str:
    text: str = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]

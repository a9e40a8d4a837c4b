"""Private keys, from files and agents, and logins with them, which never wait for a password prompt.

Each key is read once, and its passphrase requested once, for all hosts.
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from io import StringIO
from pathlib import Path
from typing import Any

from paramiko.agent import AgentKey, AgentSSH
from paramiko.ecdsakey import ECDSAKey
from paramiko.ed25519key import Ed25519Key
from paramiko.message import Message
from paramiko.pkey import PKey
from paramiko.rsakey import RSAKey
from paramiko.ssh_exception import BadAuthenticationType, PasswordRequiredException, SSHException
from paramiko.transport import Transport

from dtctl.dataclass import dataclass
from dtctl.folder import read_regular

DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
KEY_BYTES = 1 << 20
"""More than the size of any key; a cluster file may name a file that is no key."""

PASSPHRASE_TRIES = 3
AGENT_TIMEOUT_S = 60.0
"""The time for a key that must be touched or confirmed."""

Passphrase = Callable[[str], "str | None"]
"""Prompts a person for the passphrase of a key file; None without an answer."""

CLASSES: dict[str, type[PKey]] = {"ssh-rsa": RSAKey, "ssh-ed25519": Ed25519Key}


@dataclass
class KeyFile:
    """The contents of a private key's file that are known before it is unlocked."""

    path: Path
    text: str = field(default="", repr=False)
    type: str = ""
    blob: bytes = b""
    """The public key, if the file or the .pub file next to it contains it; empty otherwise."""
    key: PKey | None = None
    certified: PKey | None = None
    """The key with the certificate in PATH-cert.pub next to it."""
    locked: bool = False
    problem: str = ""
    """Why it cannot be used."""

    def __str__(self) -> str:
        home = str(Path.home())
        text = str(self.path)
        return "~" + text[len(home) :] if text.startswith(home + os.sep) else text


class Agent(AgentSSH):
    """An ssh-agent for all threads: each request has a connection of its own. Raises OSError and SSHException."""

    _connect: Callable[[None], None]

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._connect(None)  # requests the keys

    def _send_message(self, msg: Any) -> tuple[int, Message]:
        """Sends one request and returns its answer (draft-miller-ssh-agent, 3)."""
        question: bytes = msg.asbytes() if isinstance(msg, Message) else msg
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(AGENT_TIMEOUT_S)
            connection.connect(self._path)
            connection.sendall(len(question).to_bytes(4, "big") + question)
            with connection.makefile("rb") as answers:
                size = int.from_bytes(answers.read(4), "big")
                answer = answers.read(size)
        if not answer or len(answer) != size:
            raise SSHException("the agent does not answer")
        return answer[0], Message(answer[1:])


class Keyring:
    """The keys of all connections of a command. Safe for many threads."""

    def __init__(self, passphrase: Passphrase | None = None) -> None:
        self._passphrase = passphrase
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._files: dict[Path, KeyFile] = {}
        self._agents: dict[str, Agent | None] = {}

    def file(self, path: Path) -> KeyFile:
        with self._lock:
            if path not in self._files:
                self._files[path] = read_key_file(path)
            return self._files[path]

    def unlock(self, file: KeyFile) -> bool:
        """Whether the key can be used now. Prompts for its passphrase, unless it has done so before."""
        with self._asking:
            for _ in range(PASSPHRASE_TRIES):
                if not file.locked or file.problem or self._passphrase is None:
                    break
                answer = self._passphrase(str(file))
                if answer is None:
                    file.problem = "no passphrase was given"
                else:
                    load(file, answer)
            else:
                file.problem = "the passphrase was wrong"
            return file.key is not None

    def agent_keys(self, path: str) -> tuple[AgentKey, ...]:
        """Keys of the agent at a socket; none if there is no agent."""
        with self._lock:
            if path not in self._agents:
                try:
                    self._agents[path] = Agent(path)
                except (OSError, SSHException):
                    self._agents[path] = None
            agent = self._agents[path]
            return tuple(agent.get_keys()) if agent else ()


def read_key_file(path: Path) -> KeyFile:
    """Reads a key as far as possible without its passphrase."""
    file = KeyFile(path)
    try:
        file.text = _text(path)
        file.type, file.blob = public_half(file.text, path)
    except (FileNotFoundError, NotADirectoryError):
        file.problem = "there is no such file"
        return file
    except OSError as error:
        file.problem = (error.strerror or str(error)).lower()
        return file
    except UnicodeDecodeError:
        file.problem = "not a key in a known format"
        return file
    load(file, None)
    if file.key is None and not file.locked:
        file.problem = "not a private key of a known kind"
    return file


def load(file: KeyFile, passphrase: str | None) -> None:
    """Sets `key` or `locked`: neither if it is no key; changes nothing if the passphrase is wrong."""
    kinds: list[type[PKey]] = [CLASSES.get(file.type, ECDSAKey)] if file.type else [Ed25519Key, ECDSAKey, RSAKey]
    for kind in kinds:
        try:
            file.key = kind.from_private_key(StringIO(file.text), passphrase)
            file.certified = _certified(kind, file, passphrase)
        except PasswordRequiredException:
            file.locked = True
            return
        except (SSHException, ValueError, TypeError, IndexError, OSError):
            continue
        file.locked = False
        return


def _certified(kind: type[PKey], file: KeyFile, passphrase: str | None) -> PKey | None:
    try:
        certificate = _text(file.path.with_name(file.path.name + "-cert.pub"))
    except FileNotFoundError:
        return None
    key: PKey = kind.from_private_key(StringIO(file.text), passphrase)
    key.load_certificate(certificate)
    return key


def _text(path: Path) -> str:
    """The content of a file. Raises OSError, also for anything but a regular file, and UnicodeDecodeError."""
    return read_regular(path, KEY_BYTES).decode("ascii")


def public_half(text: str, path: Path) -> tuple[str, bytes]:
    """Type and public key from the file itself (OpenSSH's PROTOCOL.key), or from the .pub file next to it."""
    words = text.split()
    if len(words) > 1 and not text.startswith("-----"):
        return _public_line(words)  # a public key, named in place of the private key in an agent
    body = "".join(line for line in text.splitlines() if line and not line.startswith("-----") and ":" not in line)
    try:
        raw = base64.b64decode(body)
    except binascii.Error:
        raw = b""
    magic = b"openssh-key-v1\0"
    if raw.startswith(magic):
        message = Message(raw[len(magic) :])
        for _ in ("cipher", "kdf", "kdf options"):
            message.get_binary()
        message.get_int()  # number of keys
        blob = message.get_binary()
        return Message(blob).get_text(), blob
    try:
        return _public_line(_text(path.with_name(path.name + ".pub")).split())
    except (OSError, UnicodeDecodeError):
        return "", b""


def _public_line(words: list[str]) -> tuple[str, bytes]:
    try:
        return words[0], base64.b64decode(words[1])
    except (IndexError, binascii.Error):
        return "", b""


@dataclass(eq=False)
class LoginRefused(Exception):
    """The keys that were tried, and the methods that the host accepts."""

    user: str
    offered: list[str] = field(default_factory=list)
    """Key files, or names of keys that agents hold."""
    unusable: list[str] = field(default_factory=list)
    """Key files that were named but could not be offered, and why."""
    locked: list[str] = field(default_factory=list)
    """Key files that need a passphrase, which could not be requested."""
    accepts: list[str] = field(default_factory=list)
    """Methods, as RFC 4252 names them; empty if the host sent none."""
    more_than_a_key: bool = False
    """A key was right, but the host then wants one of `accepts` as well."""
    late: bool = False
    """The host did not answer in time."""
    ended: str = ""
    """How the connection ended before all keys were offered."""


class KeyAuthentication:
    """A login to one host (Fabric calls it an authentication strategy).

    Keys that need no passphrase come first: the named ones (in an agent, or in their files), then the others of the
    agent; then those that need one.
    """

    def __init__(self, ssh_config: Mapping[str, Any], fabric_config: Any, username: str, *, keyring: Keyring) -> None:
        self._keyring = keyring
        self._named = [*fabric_config.authentication.identities, *ssh_config.get("identityfile", [])]
        self._only_named = str(ssh_config.get("identitiesonly", "no")).lower() == "yes"
        self._agent = _agent_path(ssh_config.get("identityagent"))
        self._failure = LoginRefused(username)

    def authenticate(self, transport: Transport) -> list[str]:
        """Returns when the login is complete. Raises LoginRefused."""
        failure = self._failure
        for label, key in self._offers():
            failure.offered.append(label)
            asked = time.monotonic()
            try:
                failure.accepts = transport.auth_publickey(failure.user, key)
            except BadAuthenticationType as error:
                failure.accepts = error.allowed_types
                raise failure from error
            except (SSHException, EOFError, OSError) as error:
                late = transport.auth_timeout is not None and time.monotonic() - asked >= transport.auth_timeout
                if late or not transport.is_active():
                    failure.late, failure.ended = late, _described(error)
                    raise failure from error
                continue
            if failure.accepts:
                failure.more_than_a_key = True
                raise failure
            return []
        return self._without_keys(transport)

    def _without_keys(self, transport: Transport) -> list[str]:
        """Requests the methods that the host accepts; some devices let everyone in."""
        try:
            return transport.auth_none(self._failure.user)
        except BadAuthenticationType as error:
            self._failure.accepts = error.allowed_types
            raise self._failure from error
        except (SSHException, EOFError, OSError) as error:
            self._failure.ended = _described(error)
            raise self._failure from error

    def _offers(self) -> Iterator[tuple[str, PKey]]:
        in_agent = {key.asbytes(): key for key in self._keyring.agent_keys(self._agent)} if self._agent else {}
        locked: list[KeyFile] = []
        for file in self._files():
            if (held := in_agent.pop(file.blob, None)) is not None:
                yield f"{file} (agent)", held
            elif file.key is not None:
                yield from _with_certificate(file)
            elif file.locked:
                locked.append(file)
            elif self._named:
                self._failure.unusable.append(f"{file}: {file.problem}")
        if not self._only_named:
            for key in in_agent.values():
                yield f"{key.comment or key.get_name()} (agent)", key
        for file in locked:
            if self._keyring.unlock(file):
                yield from _with_certificate(file)
            elif file.problem:
                self._failure.unusable.append(f"{file}: {file.problem}")
            else:
                self._failure.locked.append(str(file))

    def _files(self) -> list[KeyFile]:
        names = [name for name in self._named if name != "none"] or ([] if self._named else DEFAULT_FILES)
        paths = dict.fromkeys(Path(name).expanduser() for name in names)
        return [self._keyring.file(path) for path in paths]


def _with_certificate(file: KeyFile) -> Iterator[tuple[str, PKey]]:
    if file.certified is not None:
        yield f"{file}-cert.pub", file.certified
    if file.key is not None:
        yield str(file), file.key


def _agent_path(setting: str | None) -> str:
    """The socket of the agent that `IdentityAgent` names; empty for none."""
    if setting is None or setting == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if setting.startswith("$"):
        return os.environ.get(setting[1:].strip("{}"), "")
    return "" if setting == "none" else str(Path(setting).expanduser())


def _described(error: BaseException) -> str:
    return str(error) or type(error).__name__

"""Logging in with keys, and with nothing else: a prompt for a password is never waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paramiko.pkey import PKey
from paramiko.ssh_exception import BadAuthenticationType, SSHException
from paramiko.transport import Transport

from dtctl.transport.ssh.keyring import DEFAULT_FILES, KeyFile, Keyring


@dataclass(eq=False)
class LoginRefused(Exception):
    """What was tried, and what the host says it accepts."""

    user: str
    offered: list[str] = field(default_factory=list)
    """Key files, or names of keys that agents hold."""
    unusable: list[str] = field(default_factory=list)
    """Key files that were named but could not be offered, and why."""
    locked: list[str] = field(default_factory=list)
    """Key files that need a passphrase, when there was nobody to ask."""
    accepts: list[str] = field(default_factory=list)
    """Methods, as RFC 4252 names them; empty if the host did not tell."""
    more_than_a_key: bool = False
    """A key was right, but the host then wants one of `accepts` as well."""
    late: bool = False
    """The host did not answer in time."""
    ended: str = ""
    """How the connection ended before all keys were offered."""


class KeyAuthentication:
    """What Fabric calls an authentication strategy: one login to one host.

    Keys that need no passphrase come first: those that were named (in an agent, or in their files), then the others
    of the agent; then those that need one.
    """

    def __init__(self, ssh_config: Mapping[str, Any], fabric_config: Any, username: str, *, keyring: Keyring) -> None:
        self._keyring = keyring
        self._named = [*fabric_config.authentication.identities, *ssh_config.get("identityfile", [])]
        self._only_named = str(ssh_config.get("identitiesonly", "no")).lower() == "yes"
        self._agent = _agent_path(ssh_config.get("identityagent"))
        self._story = LoginRefused(username)

    def authenticate(self, transport: Transport) -> list[str]:
        """Returns when the login is complete. Raises LoginRefused."""
        story = self._story
        for label, key in self._offers():
            story.offered.append(label)
            asked = time.monotonic()
            try:
                story.accepts = transport.auth_publickey(story.user, key)
            except BadAuthenticationType as error:
                story.accepts = error.allowed_types
                raise story from error
            except (SSHException, EOFError, OSError) as error:
                late = transport.auth_timeout is not None and time.monotonic() - asked >= transport.auth_timeout
                if late or not transport.is_active():
                    story.late, story.ended = late, _told(error)
                    raise story from error
                continue
            if story.accepts:
                story.more_than_a_key = True
                raise story
            return []
        return self._without_keys(transport)

    def _without_keys(self, transport: Transport) -> list[str]:
        """Asks for the methods that the host accepts; some devices let everybody in."""
        try:
            return transport.auth_none(self._story.user)
        except BadAuthenticationType as error:
            self._story.accepts = error.allowed_types
            raise self._story from error
        except (SSHException, EOFError, OSError) as error:
            self._story.ended = _told(error)
            raise self._story from error

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
                self._story.unusable.append(f"{file}: {file.problem}")
        if not self._only_named:
            for key in in_agent.values():
                yield f"{key.comment or key.get_name()} (agent)", key
        for file in locked:
            if self._keyring.unlock(file):
                yield from _with_certificate(file)
            elif file.problem:
                self._story.unusable.append(f"{file}: {file.problem}")
            else:
                self._story.locked.append(str(file))

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


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__

"""How hosts are reached: the transports that a cluster file can name, and what each has to know of a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal


@dataclass(frozen=True)
class TransportKind:
    """A transport by the place of its code, which is imported when the first host needs it."""

    opener: str
    """MODULE:NAME of what makes a `dtctl.transport.seam.Transport` from a `dtctl.transport.means.TransportOptions`."""
    settings: tuple[str, ...] = ()
    """What a cluster file has to say of each host: `transport: {NAME: {SETTING: ...}}`."""


TRANSPORTS: dict[str, TransportKind] = {
    "ssh": TransportKind("dtctl.transport.ssh.transport:SshTransport.of"),
    "local": TransportKind("dtctl.transport.local:LocalTransport.of"),
}
"""By the names in a cluster file. The settings of `ssh` are a section of their own."""


@dataclass(frozen=True)
class SshSettings:
    """None leaves the choice to ~/.ssh/config and then to the defaults of SSH."""

    transport: ClassVar[str] = "ssh"

    target: str
    """A name or address, or an alias of ~/.ssh/config."""
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump: str | None = None
    """[USER@]HOST[:PORT], as for ssh -J."""
    host_keys: Literal["strict", "accept-new"] = "strict"
    known_hosts: str | None = None
    project: str | None = None
    """The directory of the cluster file: new keys are written to `known_hosts` only here and in ~/.ssh."""
    connect_timeout_s: float = 15.0

    @property
    def machine(self) -> tuple[str, ...]:
        return self.transport, self.target, str(self.port or 22), self.jump or ""


@dataclass(frozen=True)
class Local:
    """This machine."""

    transport: ClassVar[str] = "local"

    @property
    def machine(self) -> tuple[str, ...]:
        return (self.transport,)


@dataclass(frozen=True)
class Other:
    """Any other transport of TRANSPORTS, with the settings that it asks for."""

    transport: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> tuple[str, ...]:
        return self.transport, *self.settings.values()


Reach = SshSettings | Local | Other
"""`machine` is the same for two hosts of an inventory that are one machine, as far as their settings tell."""

"""What a contender is given: the hosts, how to reach them, and how many at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.clients import Clients
from benchmarks.servers import Servers, loopback_servers

MARK = "DTCTL_BENCHMARK_CLIENT"
"""In the environment of every client, and so of what it leaves in the background."""

SAME_FOR_ALL = {"KexAlgorithms": "curve25519-sha256,curve25519-sha256@libssh.org"}
"""One key exchange for everybody: OpenSSH's own choice takes ten times the CPU, and not all libraries have it."""

SCRIPT = "set -- $SSH_CONNECTION\n{}\necho reached $3\n"
"""The address that was connected to is the third word, so each host answers with its own."""


@dataclass(frozen=True)
class Field:
    servers: Servers
    width: int
    """How many hosts at once."""

    @property
    def hosts(self) -> Sequence[str]:
        return self.servers.addresses

    @property
    def directory(self) -> Path:
        return self.servers.directory

    @property
    def description(self) -> Path:
        """For the programs of the libraries, written by `field`."""
        return self.directory / "field.json"

    def ssh_config(self, *, kept: bool) -> Path:
        """Of OpenSSH: a connection for each command, or one that is kept open for the next ones."""
        return self.directory / ("ssh_config_kept" if kept else "ssh_config")

    def env(self, *, kept: bool = False) -> dict[str, str]:
        return {**self.servers.env, MARK: f"{self.directory.name}-{'kept' if kept else 'new'}"}

    def clients(self, *, kept: bool) -> Clients:
        """The processes of those who were given this environment."""
        return Clients(f"{MARK}={self.env(kept=kept)[MARK]}", f"ssh: {self.control}/" if kept else "")

    @property
    def control(self) -> Path:
        """Where OpenSSH's kept connections have their sockets."""
        return self.directory / "cm"

    def put(self, name: str, text: str) -> None:
        """Into the home of every user there."""
        for user in self.servers.sshd.users.values():
            (user.home / name).write_text(text)
            (user.home / name).chmod(0o644)

    def put_script(self, name: str, does: str) -> None:
        """One that does something and tells on which host it was."""
        self.put(name, SCRIPT.format(does))


@contextmanager
def field(hosts: int, width: int, directory: Path, *, homes: bool) -> Iterator[Field]:
    with loopback_servers(hosts, directory, homes=homes, options=SAME_FOR_ALL) as servers:
        made = Field(servers, width)
        config = servers.ssh_config.read_text() + "  Ciphers ^aes128-gcm@openssh.com\n  LogLevel ERROR\n"
        made.ssh_config(kept=False).write_text(config)
        made.control.mkdir()
        control = f"  ControlMaster auto\n  ControlPath {made.control}/%C\n  ControlPersist 600\n"
        made.ssh_config(kept=True).write_text(config + control)
        places = list(zip(servers.addresses, servers.users, strict=True))
        login = {"port": servers.sshd.port, "key": str(servers.sshd.key)}
        known = {"known_hosts": str(directory / "known_hosts"), "width": width}
        made.description.write_text(json.dumps({"hosts": places, **login, **known}))
        yield made

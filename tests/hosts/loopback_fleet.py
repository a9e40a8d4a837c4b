"""What stands in for a fleet where there is no root: one sshd per host on loopback, each with its own home.

Its hosts share pids, host name and network, so they can crash, but not be cut off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tests.hosts import fleet, keys, sandbox
from tests.hosts.fleet import Fleet
from tests.hosts.scratch import make_directory
from tests.hosts.sshd import MARK, Sshd


class LoopbackHost:
    def __init__(self, name: str, sshd: Sshd) -> None:
        self.name, self.sshd = name, sshd
        self.address, self.port, self.user, self.home = sshd.address, sshd.port, sshd.user, sshd.home

    def exec(self, *argv: str) -> str:
        """Standard output of a command with the host's home; no SSH."""
        environment = {**os.environ, "HOME": str(self.home), MARK: self.sshd.directory.name}
        answer = subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=environment, cwd=self.home)
        return answer.stdout.decode(errors="replace")

    def processes(self) -> list[str]:
        """Command lines of what was started on the host and still runs."""
        return self.sshd.processes()


class LoopbackFleet:
    """As Fleet, as far as it goes."""

    def __init__(self, count: int, prefix: str = "gpu-", trusted: bool = True) -> None:
        self.count, self.prefix, self.trusted = count, prefix, trusted

    def __enter__(self) -> LoopbackFleet:
        self.directory = make_directory("fleet")
        self.key = keys.make_key("login")
        self.known_hosts = self.directory / "known_hosts"
        self.ssh_config = self.directory / "ssh_config"
        self.shared = self.directory / "shared"
        self.shared.mkdir()
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.directory)
            servers = [stack.enter_context(Sshd(address=_address(index))) for index in range(1, self.count + 1)]
            self._stack = stack.pop_all()
        self.hosts = [LoopbackHost(f"{self.prefix}{index}", sshd) for index, sshd in enumerate(servers, 1)]
        if self.trusted:
            self.known_hosts.write_text("".join(sshd.known_hosts_text() for sshd in servers))
        self.ssh_config.write_text(
            "".join(
                f"Host {host.name}\n  HostName {host.address}\n  Port {host.port}\n  User {host.user}\n"
                f"  IdentityFile {self.key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n\n"
                for host in self.hosts
            )
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> LoopbackHost:
        return next(host for host in self.hosts if host.name == name)

    def crash(self, host: LoopbackHost) -> None:
        host.sshd.stop()

    def boot(self, host: LoopbackHost) -> None:
        host.sshd.start()

    def processes(self, host: LoopbackHost) -> list[str]:
        return host.processes()

    def cluster_yaml(self) -> str:
        """The `ssh` and `hosts` sections of a cluster.yaml for this fleet."""
        lines = ["ssh:", f"  identity_file: {self.key}", f"  known_hosts: {self.known_hosts}", "hosts:"]
        lines += [f"  {h.name}: {{ssh: {{target: {h.address}, port: {h.port}, user: {h.user}}}}}" for h in self.hosts]
        return "\n".join(lines) + "\n"


def _address(index: int) -> str:
    """macOS has 127.0.0.1 alone; there the hosts differ in their ports."""
    return f"127.0.0.{index}" if sys.platform.startswith("linux") else "127.0.0.1"


def best_fleet(count: int, *, prefix: str = "gpu-", trusted: bool = True) -> Fleet | LoopbackFleet:
    """A fleet of separate hosts, or else the stand-in with the reason printed."""
    reason = fleet.missing() or sandbox.missing()
    if not reason:
        return Fleet(count, prefix=prefix, trusted=trusted)
    print(f"hosts are sshd on loopback, not network namespaces: {reason}", file=sys.stderr)
    return LoopbackFleet(count, prefix=prefix, trusted=trusted)


def describe(hosts: Sequence[Any]) -> str:
    return "\n".join(f"  {host.name:<8} {host.user}@{host.address}:{host.port}   home {host.home}" for host in hosts)

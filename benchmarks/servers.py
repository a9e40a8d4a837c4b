"""Many hosts on one machine: one sshd that answers on all of 127.0.1.x, as several users."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import CannotRun, client_environment
from tests.hosts import sandbox
from tests.hosts.sshd import SSHD, Sshd

# More than the default of 10:30:100 would admit; the same for all contenders.
OPTIONS = {"MaxStartups": "500", "LogLevel": "ERROR"}


@dataclass(frozen=True)
class Servers:
    addresses: Sequence[str]
    users: Sequence[str]
    """The user of each address."""
    sshd: Sshd
    directory: Path
    """The directory of the client, with `ssh_config`, `known_hosts`, the cluster file and its code."""
    home: Path
    """The home of the client, elsewhere: a cluster file in or above a home needs consent to send its code."""
    env: dict[str, str]

    @property
    def ssh_config(self) -> Path:
        return self.directory / "ssh_config"

    def write_cluster(self, trainer: str, *, port: int = 0, workers: int = 0) -> None:
        """Writes a cluster.yaml with a worker on every host, or `workers` on them in turn.

        `port`: of SSH, if not sshd's own.
        """
        hosts = [
            f"  host-{number}: {{ssh: {{target: {address}, user: {user}}}, address: 127.0.0.1}}"
            for number, (address, user) in enumerate(zip(self.addresses, self.users, strict=True), 1)
        ]
        ssh = f"{{port: {port or self.sshd.port}, identity_file: {self.sshd.key}, known_hosts: known_hosts}}"
        places = ", ".join(f"host-{at % len(hosts) + 1}" for at in range(workers or len(hosts)))
        head = ["name: bench", *(["ports: auto"] if workers else []), f"ssh: {ssh}", "hosts:", *hosts]
        lines = [*head, f"jobs: {{worker: {{hosts: [{places}]}}}}", f"trainer: {{code: code, {trainer}}}", ""]
        (self.directory / "cluster.yaml").write_text("\n".join(lines))
        (self.directory / "code").mkdir(exist_ok=True)
        (self.directory / "code" / "train.py").touch()


@contextmanager
def loopback_servers(
    count: int, directory: Path, *, homes: bool, options: Mapping[str, str] | None = None
) -> Iterator[Servers]:
    """Servers at `count` addresses; with `homes` each is a user of its own, so that nothing is shared between them."""
    if reason := sandbox.missing():
        raise CannotRun(reason)
    if SSHD is None:
        raise CannotRun("no sshd")
    names = [f"train{number}" for number in range(1, count + 1)] if homes else ["train"]
    settings, shells = {**OPTIONS, **(options or {})}, dict.fromkeys(names, "/bin/sh")
    with (
        tempfile.TemporaryDirectory(prefix="bench-home-") as home,
        Sshd(address=None, shells=shells, options=settings, host_keys=["ed25519"]) as sshd,
    ):
        addresses = [f"127.0.{1 + at // 250}.{1 + at % 250}" for at in range(count)]
        users = names if homes else names * count
        servers = Servers(addresses, users, sshd, directory, Path(home), client_environment(Path(home)))
        known = "".join(sshd.known_hosts_text(f"[{address}]:{sshd.port}") for address in addresses)
        (directory / "known_hosts").write_text(known)
        servers.ssh_config.write_text(
            "".join(
                f"Host {address}\n  User {user}\n"
                for address, user in zip(servers.addresses, servers.users, strict=True)
            )
            + f"Host *\n  Port {sshd.port}\n  IdentityFile {sshd.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {directory / 'known_hosts'}\n  BatchMode yes\n"
        )
        yield servers


def need(*programs: str) -> None:
    if absent := [program for program in programs if shutil.which(program) is None]:
        raise CannotRun(f"{', '.join(absent)} not found")

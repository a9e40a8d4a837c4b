"""Separate hosts on one Linux machine: own address, pids, host name, users, home and boot id; and their faults."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dtctl.transport.payload import agent_program
from tests.hosts import keys, network, sandbox
from tests.hosts.network import Network
from tests.hosts.sandbox import Sandbox, User, make_directory, make_user, sweep_directories
from tests.hosts.sshd import HOST_KEY_KINDS, SSHD, wait_for_banner
from tests.waiting import eventually

USER = "train"

CRON = shutil.which("cron", path="/usr/sbin")
"""Debian's, which every host then runs; its `@reboot` lines are carried out at each boot."""


def missing() -> str:
    """Why real fleets cannot be made here; empty if they can."""
    return sandbox.missing() or network.missing()


def sweep() -> None:
    """Removes what fleets of dead test processes left behind."""
    network.sweep()
    sweep_directories()


@dataclass
class FleetHost:
    """`home` is the home directory of `train` as seen from here; inside it is /home/train."""

    name: str
    address: str
    home: Path
    user: str
    port: int
    directory: Path
    index: int
    host_keys: Mapping[str, Path]
    box: Sandbox
    login: User

    @property
    def is_up(self) -> bool:
        return self.box.init != 0

    def exec(self, *argv: str, root: bool = False) -> str:
        """Standard output of a command on the host, as `train` in its home (or as root); no SSH."""
        return self.box.run(argv, None if root else self.login)

    def processes(self) -> list[str]:
        """Command lines of what runs on the host as `train`, less those of sshd and of fork servers, which stay as long
        as a kept connection."""
        table = [line.split(None, 1) for line in self.exec("ps", "-e", "-o", "uid=,args=", root=True).splitlines()]
        ours = [args for uid, args in table if uid == str(self.login.uid)]
        return [args for args in ours if not args.startswith(("sshd:", "dtctl-sessions"))]

    def clear(self) -> None:
        """Ends what runs as `train`, and empties its crontab and its home, but for the agent's programs."""
        self.exec("sh", "-c", f"pkill -9 -U {self.login.uid} || true", root=True)
        eventually(lambda: not self.processes(), what=f"nothing to run on {self.name}")
        _empty(self.directory / "cron-crontabs")
        _empty(self.home, keep=".dtctl")
        _empty(self.home / ".dtctl", keep="agent")
        (self.home / ".dtctl" / "agent" / "current").unlink(missing_ok=True)

    def settle(self) -> None:
        """Leaves the host as after an earlier `up`: otherwise a process writes the agent's program to the disk at any
        time.
        """
        program = self.home / ".dtctl" / "agent" / agent_program().sha256
        program.mkdir(parents=True)
        (program / "settled").touch()
        os.utime(program / "settled", (2**32, 2**32))  # later than all that will be kept there
        for path in (program / "settled", program, program.parent, program.parent.parent):
            path.chmod(0o600 if path.is_file() else 0o700)
            os.chown(path, self.login.uid, self.login.uid)

    def known_hosts_text(self, *names: str) -> str:
        where = ",".join(names or (self.address,))
        return "".join(f"{where} {' '.join(keys.public_text(key).split()[:2])}\n" for key in self.host_keys.values())


@dataclass
class Fleet:
    """`with Fleet(4) as fleet:` makes hosts gpu-1 to gpu-4 and removes every trace of them at the end.

    `.ssh_config` knows them by name and `.known_hosts` holds their keys if `trusted`. `.shared` is one directory that
    all hosts see at the same path, as with NFS. Host names resolve on the hosts, but not here.
    """

    count: int
    prefix: str = "gpu-"
    shell: str = "/bin/bash"
    trusted: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """Further lines of sshd_config."""
    visible: Sequence[Path] = (Path(sys.base_prefix), Path(sys.prefix))
    """Directories below /root and /home that the hosts' users may read: the Python that runs the tests."""

    def __enter__(self) -> Fleet:
        sweep()
        self.directory = make_directory("fleet")
        self.directory.chmod(0o711)
        self.key = keys.make_key("login")
        self.hosts: list[FleetHost] = []
        self.known_hosts = self.directory / "known_hosts"
        self.ssh_config = self.directory / "ssh_config"
        self.shared = self.directory / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        try:
            self.network = Network(self.count)
            self.hosts = [self._make_host(index) for index in range(1, self.count + 1)]
            self._write_files()
            for host in self.hosts:
                self._launch(host)
            for host in self.hosts:
                wait_for_banner(host.address, 22, host.box.process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for host in self.hosts:
            host.box.kill()
        if hasattr(self, "network"):
            self.network.remove()
        shutil.rmtree(self.directory)

    def __getitem__(self, name: str) -> FleetHost:
        return next(host for host in self.hosts if host.name == name)

    def _make_host(self, index: int) -> FleetHost:
        name, address = f"{self.prefix}{index}", self.network.address(index)
        directory = self.directory / name
        directory.mkdir()
        login = make_user(USER, 0, directory / "home", self.shell)
        files = {
            "/etc/hosts": directory / "hosts",
            "/etc/hostname": directory / "hostname",
            "/proc/sys/kernel/random/boot_id": directory / "boot_id",
        }
        daemons = [CRON] if CRON else []
        box = Sandbox(directory, [login], name, self.network.netns(index), files, self.visible, daemons)
        host_keys = {kind: keys.make_key(f"{name}-{kind}", kind) for kind in HOST_KEY_KINDS}
        return FleetHost(name, address, login.home, USER, 22, directory, index, host_keys, box, login)

    def _write_files(self) -> None:
        names = "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            (host.directory / "hosts").write_text(names)
            (host.directory / "hostname").write_text(host.name + "\n")
            (host.directory / "authorized_keys").write_text(keys.public_text(self.key))
            (host.directory / "sshd_config").write_text(self._sshd_config(host))
        if self.trusted:
            self.known_hosts.write_text("".join(host.known_hosts_text() for host in self.hosts))
        self.ssh_config.write_text(
            "".join(f"Host {host.name}\n  HostName {host.address}\n\n" for host in self.hosts)
            + f"Host {self.prefix}* {self.network.subnet}.*\n  User {USER}\n  IdentityFile {self.key}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n"
        )

    def _sshd_config(self, host: FleetHost) -> str:
        lines = [
            f"ListenAddress {host.address}:22",
            *(f"HostKey {path}" for path in host.host_keys.values()),
            *(f"{name} {value}" for name, value in self.options.items()),
            f"AuthorizedKeysFile {host.directory}/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PidFile none",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
        ]
        return "\n".join(lines) + "\n"

    def _launch(self, host: FleetHost) -> None:
        (host.directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        assert SSHD is not None
        host.box.start([SSHD, "-D", "-f", str(host.directory / "sshd_config"), "-E", str(host.directory / "sshd.log")])

    def crash(self, host: FleetHost) -> None:
        """The host dies at once, as by a power cut; its files stay."""
        host.box.kill()

    def boot(self, host: FleetHost) -> None:
        """Starts a crashed host again, with another boot id; returns when it takes logins."""
        self.power_on(host)
        wait_for_banner(host.address, 22, host.box.process)

    def power_on(self, host: FleetHost) -> None:
        """Does the same as `boot` but returns at once, for hosts that cannot be reached from here."""
        self._launch(host)

    def cut(self, host: FleetHost) -> None:
        """Takes the host off the network; its processes live on and packets to it vanish."""
        self.network.cut(host.index)

    def heal(self, host: FleetHost) -> None:
        self.network.heal(host.index)

    def busy(self) -> dict[str, list[str]]:
        """What runs as `train` on any host that is up, by the host's name."""
        return {host.name: found for host in self.hosts if host.is_up and (found := host.processes())}

    def restore(self) -> None:
        """Restores the fleet as it was made, except for the boot ids, whatever was done to it."""
        for host in self.hosts:
            self.heal(host)
            if not host.is_up:
                self.boot(host)
            host.clear()
        _empty(self.shared)

    def cluster_yaml(self, client: str = "fabric") -> str:
        """The `ssh` and `hosts` sections of a cluster.yaml for this fleet."""
        lines = ["ssh:", f"  client: {client}", f"  user: {USER}"]
        lines += [f"  identity_file: {self.key}", f"  known_hosts: {self.known_hosts}"]
        return "\n".join([*lines, "hosts:", *(f"  {host.name}: {{ssh: {host.address}}}" for host in self.hosts)]) + "\n"


def module_fleet(count: int, **fields: Any) -> Any:
    """A fixture: such a fleet for the tests of one module."""

    @pytest.fixture(scope="module")
    def made() -> Iterator[Fleet]:
        if reason := missing():
            pytest.skip(f"no fleet: {reason}")
        with Fleet(count, **fields) as fleet:
            yield fleet

    return made


def _empty(directory: Path, keep: str = "") -> None:
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink() and path.name != keep:
            shutil.rmtree(path)
        elif path.name != keep:
            path.unlink()

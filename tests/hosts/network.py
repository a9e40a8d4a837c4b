"""A bridge and network namespaces joined to it, named after the process that made them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.hosts.sandbox import is_alive, owner

MINE = re.compile(r"d(?P<owner>[0-9a-z]{9})(?P<count>[0-9a-z])(br|h\d+)")
"""Names of interfaces and namespaces; at most 15 characters, which is what Linux allows."""

_counts = iter("0123456789abcdefghijklmnopqrstuvwxyz" * 1000)


def missing() -> str:
    """Why such networks cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "ip (Debian: iproute2) not found"
    name = f"dtp{os.getpid()}"  # several suites may ask at once
    probe = subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"no bridge can be made: {probe.stderr.strip()}"
    ip("link", "delete", name)
    return ""


def ip(*args: str) -> str:
    return subprocess.run(["ip", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


class Network:
    """Hosts 1 to n at `.address(i)`, each in the namespace `.netns(i)`; the tests' own process has `.gateway`."""

    def __init__(self, count: int) -> None:
        self.name = "d" + owner() + next(_counts)
        self.count = count
        self.subnet = _free_subnet()
        self.gateway = f"{self.subnet}.254"
        try:
            self._build()
        except BaseException:
            self.remove()
            raise

    def _build(self) -> None:
        bridge = f"{self.name}br"
        ip("link", "add", bridge, "type", "bridge")
        ip("address", "add", f"{self.gateway}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for index in range(1, self.count + 1):
            outside, netns = f"{self.name}h{index}", self.netns(index)
            ip("netns", "add", netns)
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", netns)
            ip("link", "set", outside, "master", bridge, "up")
            ip("-n", netns, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            ip("-n", netns, "link", "set", "lo", "up")
            ip("-n", netns, "link", "set", "eth0", "up")

    def netns(self, index: int) -> str:
        return f"{self.name}h{index}"

    def address(self, index: int) -> str:
        return f"{self.subnet}.{index}"

    def cut(self, index: int) -> None:
        ip("link", "set", f"{self.name}h{index}", "down")

    def heal(self, index: int) -> None:
        ip("link", "set", f"{self.name}h{index}", "up")

    @contextmanager
    def narrow_uplink(self, mbit: int) -> Iterator[Callable[[], int]]:
        """What this process sends to the hosts shares so many Mbit/s; hosts among themselves do not. Gives the bytes
        that have been sent."""
        bridge = f"{self.name}br"

        def sent_bytes() -> int:
            found: int = json.loads(ip("-json", "-stats", "link", "show", "dev", bridge))[0]["stats64"]["tx"]["bytes"]
            return found

        before = sent_bytes()
        limit = ("rate", f"{mbit}mbit", "burst", "128kb", "latency", "50ms")
        subprocess.run(["tc", "qdisc", "add", "dev", bridge, "root", "tbf", *limit], check=True)
        try:
            yield lambda: sent_bytes() - before
        finally:
            subprocess.run(["tc", "qdisc", "del", "dev", bridge, "root"], check=True)

    def remove(self) -> None:
        _remove({self.name + "br", *(self.netns(index) for index in range(1, self.count + 1))})


def _free_subnet() -> str:
    routes = ip("-4", "route", "show", "table", "all")
    for third in range(256):
        if f"10.77.{third}." not in routes:
            return f"10.77.{third}"
    raise RuntimeError("no subnet of 10.77.0.0/16 is free")


def existing() -> set[str]:
    namespaces = Path("/run/netns")
    names = {path.name for path in namespaces.iterdir()} if namespaces.is_dir() else set()
    names |= {name for _, name in socket.if_nameindex()}  # /sys shows those of the network in which it was mounted
    return {name for name in names if MINE.fullmatch(name)}


def _remove(names: set[str]) -> None:
    """Kills what lives in these namespaces, then removes them and the interfaces of these names."""
    for name in sorted(names & existing()):
        _remove_namespace(name)
        # The outer end of a veth pair goes with its namespace, but only after a while.
        subprocess.run(["ip", "link", "delete", name], capture_output=True)


def _remove_namespace(name: str) -> None:
    namespace = Path(f"/run/netns/{name}")
    try:
        if namespace.exists():
            for pid in ip("netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("netns", "delete", name)
    except subprocess.CalledProcessError:  # who sweeps beside us may have been quicker
        if namespace.exists():
            raise


def sweep() -> list[str]:
    """Removes what dead test processes left behind; gives the names."""
    leftovers = {name for name in existing() if not is_alive(name[1:10])}
    _remove(leftovers)
    return sorted(leftovers)

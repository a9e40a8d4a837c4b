"""What can happen to one host of a fleet, besides `Fleet.crash` and `Fleet.cut`; what can be undone is a context."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from tests.hosts.fleet import Fleet, FleetHost
from tests.hosts.network import ip
from tests.waiting import eventually

STOP = signal.SIGSTOP
CGROUPS = Path("/sys/fs/cgroup")
WRONG_CLOCK = Path(__file__).with_name("wrong_clock.py")


def send(host: FleetHost, pid: int, number: int = signal.SIGKILL) -> None:
    """Signals a process by its number on that host; one that has ended meanwhile is passed over."""
    host.exec("sh", "-c", f"kill -{int(number)} {pid} || true", root=True)


@contextmanager
def frozen(host: FleetHost, pid: int) -> Iterator[None]:
    send(host, pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(host, pid, signal.SIGCONT)


def kill_user(host: FleetHost) -> None:
    """`kill -9 -1` as the login user: agents, keepers, trainers, sessions."""
    with suppress(subprocess.CalledProcessError):  # the shell that does it is one of them
        host.exec("sh", "-c", "kill -9 -1")


def power_cut(fleet: Fleet, host: FleetHost) -> None:
    """A crash of which the peers hear nothing: connections to the host stay half open."""
    fleet.cut(host)
    fleet.crash(host)


def power_up(fleet: Fleet, host: FleetHost) -> None:
    fleet.heal(host)
    fleet.boot(host)


def destroy(fleet: Fleet, host: FleetHost) -> None:
    """Its files are lost, too: what is booted in its place, if anything is, knows of no run."""
    power_cut(fleet, host)
    for name in ("runs", "clusters"):
        shutil.rmtree(host.home / ".dtctl" / name, ignore_errors=True)


@contextmanager
def drop_incoming(host: FleetHost) -> Iterator[None]:
    """What is sent to the host is lost; it can still send."""
    with _firewall(host, "INPUT", "-i", "eth0", "-j", "DROP"):
        yield


@contextmanager
def drop_outgoing(host: FleetHost) -> Iterator[None]:
    """What the host sends is lost; it can still hear."""
    with _firewall(host, "OUTPUT", "-o", "eth0", "-j", "DROP"):
        yield


@contextmanager
def drop_incoming_from(host: FleetHost, *others: FleetHost) -> Iterator[None]:
    """What these send to the host is lost; whoever else reaches it still does."""
    with ExitStack() as stack:
        for other in others:
            stack.enter_context(_firewall(host, "INPUT", "-s", other.address, "-j", "DROP"))
        yield


@contextmanager
def without_sshd(host: FleetHost) -> Iterator[None]:
    """Its port refuses and its sessions are dead. (The fleet's sshd is the host's init, so it cannot die alone.)"""
    with _firewall(host, "INPUT", "-p", "tcp", "--dport", "22", "-j", "REJECT", "--reject-with", "tcp-reset"):
        host.exec("sh", "-c", "pkill -9 -f '^sshd: ' || true", root=True)
        yield


def closed_port(host: FleetHost, port: int, how: str = "DROP") -> AbstractContextManager[None]:
    """A firewall that lets nobody from elsewhere in there: it drops, or rejects as if nobody listened."""
    reply = ["--reject-with", "tcp-reset"] if how == "REJECT" else []
    return _firewall(host, "INPUT", "-i", "eth0", "-p", "tcp", "--dport", str(port), "-j", how, *reply)


@contextmanager
def slowed(host: FleetHost, pid: int, processors: float) -> Iterator[None]:
    """The process gets no more of the processors than that, by a control group of its own."""
    hierarchy = next(root for root in (CGROUPS / "cpu", CGROUPS / "cpu,cpuacct", CGROUPS) if root.is_dir())
    group = hierarchy / f"dtctl-test-slow-{os.getpid()}"
    group.mkdir()
    quota_us = int(processors * 100_000)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} 100000")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    try:
        (group / "cgroup.procs").write_text(str(seen_from_here(host, pid)))
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (hierarchy / "cgroup.procs").write_text(line)
        eventually(lambda: _removed(group), what="the end of the cgroup")


@contextmanager
def without_controllers(fleet: Fleet) -> Iterator[None]:
    """Nothing passes between the tests' own process and any host; among the hosts all does."""
    gateway = fleet.network.gateway
    with ExitStack() as stack:
        for host in fleet.hosts:
            stack.enter_context(_firewall(host, "INPUT", "-s", gateway, "-j", "DROP"))
            stack.enter_context(_firewall(host, "OUTPUT", "-d", gateway, "-j", "DROP"))
        yield


@contextmanager
def split(fleet: Fleet, alone: FleetHost) -> Iterator[None]:
    """The host is cut off from the others, and so is the tests' own process, which reaches that host alone."""
    others = [host for host in fleet.hosts if host is not alone]
    with ExitStack() as stack:
        for host in others:
            stack.enter_context(_firewall(alone, "INPUT", "-s", host.address, "-j", "DROP"))
            for source in (alone.address, fleet.network.gateway):
                stack.enter_context(_firewall(host, "INPUT", "-s", source, "-j", "DROP"))
        yield


@contextmanager
def shut(host: FleetHost, ports: str, how: str = "DROP", *, source: str = "", chain: str = "INPUT") -> Iterator[None]:
    """TCP connections to these ports (2222, or 2222:2299) are dropped or rejected; `source`: those from there alone."""
    only = ["-s", source] if source else []
    with _firewall(host, chain, "-p", "tcp", "--dport", ports, *only, "-j", how):
        yield


@contextmanager
def without_large_packets(host: FleetHost, ports: str) -> Iterator[None]:
    """Those that the host sends from these ports are lost, as where an MTU on the way is smaller and nobody says so."""
    with _firewall(
        host, "OUTPUT", "-p", "tcp", "--sport", ports, "-m", "length", "--length", "1000:65535", "-j", "DROP"
    ):
        yield


@contextmanager
def name_stands_for(host: FleetHost, name: str, address: str) -> Iterator[None]:
    """Adds a name to the /etc/hosts of that host only."""
    file = host.directory / "hosts"
    before = file.read_text()
    lines = [line for line in before.splitlines() if line.split()[1:] != [name]]
    file.write_text("\n".join([*lines, f"{address} {name}"]) + "\n")  # in place: it is mounted
    try:
        yield
    finally:
        file.write_text(before)


@contextmanager
def _firewall(host: FleetHost, *rule: str) -> Iterator[None]:
    """In the host's network, so it outlives a crash of the host."""
    iptables = ["netns", "exec", host.box.netns, "iptables", "-w"]
    ip(*iptables, "-I", *rule)
    try:
        yield
    finally:
        ip(*iptables, "-D", *rule)


@contextmanager
def small_disk(host: FleetHost, path: str, size_mib: int) -> Iterator[None]:
    """A disk of its own below the home directory; what is on it is seen on the host only, and goes with it."""
    options = f"size={size_mib}m,mode=700,uid={host.login.uid},gid={host.login.uid}"
    host.exec("mkdir", "-p", path)
    mounted = f"{host.login.home_inside}/{path}"
    host.exec("mount", "-t", "tmpfs", "-o", options, "dtctl-test", mounted, root=True)
    try:
        yield
    finally:
        if host.is_up:
            host.exec("umount", "-l", mounted, root=True)


@contextmanager
def small_homes(fleet: Fleet, size_mib: int) -> Iterator[None]:
    """Each home is a disk of its own, which outlives a crash of its host. What is in it at the end is lost."""
    with ExitStack() as stack:
        for host in fleet.hosts:
            stack.enter_context(small_home(fleet, host, size_mib))
        yield


@contextmanager
def small_home(fleet: Fleet, host: FleetHost, size_mib: int) -> Iterator[None]:
    """The home of one host."""
    options = f"size={size_mib}m,mode=700,uid={host.login.uid},gid={host.login.uid}"
    fleet.crash(host)  # a host that runs would keep the home that it has
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "dtctl-test", str(host.home)], check=True)
    try:
        fleet.boot(host)
        host.settle()
        yield
    finally:
        fleet.crash(host)
        subprocess.run(["umount", "--lazy", str(host.home)], check=True)
        fleet.boot(host)


@contextmanager
def full_home(host: FleetHost) -> Iterator[None]:
    """Fills a small home to the last byte, whatever is removed there meanwhile."""
    assert os.path.ismount(host.home)  # never the disk of this machine
    filling = host.home / ".filling"
    ends = threading.Event()
    filler = threading.Thread(target=_fill, args=(filling, ends), daemon=True)
    filler.start()
    try:
        yield
    finally:
        ends.set()
        filler.join()
        filling.unlink()


def _fill(path: Path, ends: threading.Event) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
            if ends.wait(0.05):
                return


@contextmanager
def paused(host: FleetHost) -> Iterator[None]:
    """All that runs there as `train` stands still, and goes on afterwards, as on a virtual machine that was moved."""
    every = f"pkill -%s -U {host.login.uid} || true"
    host.exec("sh", "-c", every % "STOP", root=True)
    try:
        yield
    finally:
        if host.is_up:
            host.exec("sh", "-c", every % "CONT", root=True)


@contextmanager
def full_disk(host: FleetHost, path: str) -> Iterator[None]:
    """Fills the small disk at `path` to the last byte."""
    host.exec("mountpoint", "-q", path)  # never the disk of this machine
    filling = f"{path}/filling"
    fill = "dd if=/dev/zero of={} bs={} 2>/dev/null || true"
    host.exec("sh", "-c", f"{fill.format(filling, '4k')}; {fill.format(filling + '2', 1)}")
    try:
        yield
    finally:
        host.exec("rm", "-f", filling, filling + "2")


def out_of_memory(host: FleetHost, pid: int) -> None:
    """The kernel kills the process for want of memory: it is put where there is none. Needs `memory_cgroups()`."""
    hierarchy = memory_cgroups()
    assert hierarchy is not None, "no memory cgroups"
    group = hierarchy / f"dtctl-test-{os.getpid()}"
    group.mkdir()
    try:
        limit = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
        (group / limit).write_text("0")
        outside = seen_from_here(host, pid)
        (group / "cgroup.procs").write_text(str(outside))
        eventually(lambda: not _lives(outside), what="the kernel to kill for want of memory")
        assert "oom_kill 1" in "".join(path.read_text() for path in group.glob("memory.*o*m*") if _counts(path))
    finally:
        eventually(lambda: _removed(group), what="the end of the cgroup")


def memory_cgroups() -> Path | None:
    """Where memory cgroups can be made; None when that is not given to us here."""
    for hierarchy in (CGROUPS / "memory", CGROUPS):
        probe = hierarchy / f"dtctl-probe-{os.getpid()}"
        with suppress(OSError):
            probe.mkdir()
            found = {path.name for path in probe.iterdir()} & {"memory.limit_in_bytes", "memory.max"}
            probe.rmdir()
            if found:
                return hierarchy
    return None


def _counts(path: Path) -> bool:
    return path.name in ("memory.oom_control", "memory.events")


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def seen_from_here(host: FleetHost, pid: int) -> int:
    """The number outside of a process that has `pid` on the host."""
    namespace = Path(f"/proc/{host.box.init}/ns/pid").readlink()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "ns/pid").readlink() == namespace and _number_inside(entry) == pid:
                return int(entry.name)
    raise ProcessLookupError(f"{host.name} has no process {pid}")


def has_process(host: FleetHost, pid: int) -> bool:
    with suppress(ProcessLookupError):
        return bool(seen_from_here(host, pid))
    return False


def _number_inside(entry: Path) -> int:
    lines = (entry / "status").read_text().splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith("NSpid:")), 0)


@contextmanager
def stranger_with_pid(host: FleetHost, pid: int) -> Iterator[None]:
    """A process of the same user that has nothing to do with us gets this number; it must outlive the context."""
    eventually(lambda: _start_stranger(host, pid), what=f"the number {pid} to be given away")
    try:
        yield
        assert "sleep 86400" in host.exec("ps", "-o", "args=", "-p", str(pid)), "the stranger was killed"
    finally:
        send(host, pid)


def _start_stranger(host: FleetHost, pid: int) -> bool:
    """False when another process was quicker to be started."""
    become = f"setpriv --reuid={host.login.uid} --regid={host.login.uid} --clear-groups"
    script = f"echo {pid - 1} > /proc/sys/kernel/ns_last_pid; {become} sleep 86400 >/dev/null 2>&1 & echo $!"
    given = int(host.exec("sh", "-c", script, root=True))
    if given != pid:
        send(host, given)
    return given == pid


@contextmanager
def taken_port(host: FleetHost, port: int, when: str = "true") -> Iterator[None]:
    """Somebody else listens there as soon as the shell command `when` succeeds (in the home) and the port is free."""
    script = (
        "import os, socket, sys, threading, time\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
        "print('ready', flush=True)\n"
        "while os.system(sys.argv[2]): time.sleep(0.005)\n"
        "while True:\n"
        "  try: listener = socket.create_server(('', int(sys.argv[1]))); break\n"
        "  except OSError: time.sleep(0.005)\n"
        "time.sleep(86400)\n"
    )
    inside = ["nsenter", "--target", str(host.box.init), "--all", "env", f"--chdir={host.login.home_inside}"]
    command = [*inside, sys.executable, "-c", script, str(port), when]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taker:
        try:
            assert taker.stdout is not None
            assert taker.stdout.readline() == b"ready\n"
            yield
        finally:
            taker.communicate()


@contextmanager
def clock_of_its_own(host: FleetHost) -> Iterator[Path]:
    """Python programs of those who log in from now on read a wall clock that is wrong by the seconds in the file given.

    See wrong_clock.py.
    """
    clock = host.home / ".clock"
    clock.write_text("0")
    with other_python(host, WRONG_CLOCK):
        yield clock
    clock.unlink()


@contextmanager
def other_python(host: FleetHost, program: Path) -> Iterator[None]:
    """Who logs in from now on runs `program` in place of `python` and `python3`, with the same words."""
    login_file, folder = host.home / ".bashrc", host.home / ".other-bin"
    folder.mkdir()
    for name in ("python", "python3"):
        (folder / name).write_text("#!/usr/bin/env -S python3.real -IS\n" + program.read_text())
        (folder / name).chmod(0o755)
    (folder / "python3.real").symlink_to(host.exec("sh", "-c", "readlink -f $(command -v python3)").strip())
    login_file.write_text(f"export PATH={host.login.home_inside}/{folder.name}:$PATH\n")
    try:
        yield
    finally:
        login_file.unlink()
        shutil.rmtree(folder)

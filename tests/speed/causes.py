"""What makes a run slow on purpose: links, lost packets, processors and disks of hosts of the fleet."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tests.desk import Desk
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.hosts.network import ip


class Scene:
    """The hosts, and the desk at which the run was started."""

    def __init__(self, fleet: Fleet, user: Desk) -> None:
        self.fleet = fleet
        self.user = user

    def pid(self, task: str) -> tuple[FleetHost, int]:
        """The host of a task, and its pid there."""
        entry = self.user.task(task)
        return self.fleet[entry["host"]], int(entry["pid"])


Cause = Callable[[Scene], AbstractContextManager[None]]


def links(mbit: float, *hosts: str) -> Cause:
    """What these hosts send and receive is limited to so many Mbit/s each way; none named: each host."""

    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        chosen = [host for host in scene.fleet.hosts if not hosts or host.name in hosts]
        shape = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "32kb", "latency", "100ms")
        with ExitStack() as stack:
            for host in chosen:
                inside = ["ip", "netns", "exec", host.box.netns, "tc", "qdisc"]
                outside = ["tc", "qdisc"]
                for words, device in ((inside, "eth0"), (outside, host.box.netns)):
                    subprocess.run([*words, "add", "dev", device, *shape], check=True)
                    stack.callback(subprocess.run, [*words, "del", "dev", device, "root"], check=False)
            yield

    return made


def loses(percent: float, host: str) -> Cause:
    """A share of the packets that reach a host are lost."""

    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        iptables = ["netns", "exec", scene.fleet[host].box.netns, "iptables", "-w"]
        rule = ["INPUT", "-i", "eth0", "-p", "tcp", "--dport", "2222:2299"]
        back = ["INPUT", "-i", "eth0", "-p", "tcp", "--sport", "2222:2299"]
        lost = ["-m", "statistic", "--mode", "random", "--probability", str(percent / 100), "-j", "DROP"]
        for one in (rule, back):
            ip(*iptables, "-I", *one, *lost)
        try:
            yield
        finally:
            for one in (rule, back):
                ip(*iptables, "-D", *one, *lost)

    return made


def throttled(task: str, processors: float) -> Cause:
    """A control group gives the task no more than that."""

    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        with faults.slowed(*scene.pid(task), processors):
            yield

    return made


def beside_others(task: str, programs: int) -> Cause:
    """The task shares one processor with so many programs that are not of the run."""

    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        host, pid = scene.pid(task)
        outside = faults.seen_from_here(host, pid)
        subprocess.run(["taskset", "-a", "-c", "-p", "0", str(outside)], check=True, stdout=subprocess.DEVNULL)
        busy = ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]
        others = [
            subprocess.Popen(["nsenter", "--target", str(host.box.init), "--all", *busy], start_new_session=True)
            for _ in range(programs)
        ]
        try:
            yield
        finally:
            for one in others:
                os.killpg(one.pid, 9)
                one.wait()

    return made


def slow_directory(host: str, path: str, files: int, seconds: float) -> Cause:
    """A directory whose files take so long to read, each: they are pipes that somebody fills; or files, if it is 0."""

    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        there = scene.fleet[host]
        directory = there.home / path
        directory.mkdir(parents=True)
        ends = threading.Event()
        fillers = []
        for number in range(files):
            pipe = directory / f"part-{number}"
            if not seconds:
                pipe.write_bytes(bytes(40960))
                continue
            os.mkfifo(pipe, 0o666)
            fillers.append(threading.Thread(target=_fill, args=(pipe, seconds, ends), daemon=True))
        for made_path in (directory, *directory.iterdir()):
            os.chown(made_path, there.login.uid, there.login.uid)
        for filler in fillers:
            filler.start()
        try:
            yield
        finally:
            ends.set()

    return made


def _fill(pipe: Path, seconds: float, ends: threading.Event) -> None:
    while not ends.is_set():
        with pipe.open("wb", buffering=0) as file:  # opens when somebody reads
            for _ in range(10):
                time.sleep(seconds / 10)
                try:
                    file.write(bytes(4096))
                except BrokenPipeError:
                    break
        time.sleep(0.01)  # so that the reader sees the end


def several(*causes: Cause) -> Cause:
    @contextmanager
    def made(scene: Scene) -> Iterator[None]:
        with ExitStack() as stack:
            for cause in causes:
                stack.enter_context(cause(scene))
            yield

    return made

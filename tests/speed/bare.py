"""The same experiments without agents and sshd: tasks and what measures them, in network namespaces. It is light.

What is tried is the measuring and the rules, not how a controller gets at them: cases of the stand-in only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, State
from dtctl.agent.records.spec import Member
from dtctl.agent.rooms.speed.measuring import Observer
from dtctl.agent.rooms.speed.ring import Ring
from dtctl.model import TaskId
from tests.hosts import gpus
from tests.hosts.network import Network
from tests.speed.cases import Case
from tests.speed.running import EVIDENCE_S, HERE, HOSTS, SETTLES_S, processors, share_of_time

_PORT = 2222


def run(name: str, case: Case, directory: Path) -> dict[str, Any]:
    """The same as `running.run`."""
    assert case.program == "stand-in"
    assert case.during is None
    network = Network(HOSTS)
    with ExitStack() as stack:
        stack.callback(network.remove)
        hosts = [_host(network, index, directory) for index in range(1, HOSTS + 1)]
        scene: Any = SimpleNamespace(fleet=_Hosts(hosts))
        if case.before is not None:
            stack.enter_context(case.before(scene))
        tasks = _placed(case)
        addresses = {task: f"{network.address(int(host[4:]))}:{_port(task)}" for task, host in tasks.items()}
        for host in hosts:
            own = [task for task, place in tasks.items() if place == host.name]
            stack.enter_context(_measured(host, own, tasks, addresses, case))
        _wait(hosts, tasks)
        time.sleep(SETTLES_S)
        first, first_at, busy = _steps(hosts, tasks), time.monotonic(), processors()
        time.sleep(EVIDENCE_S - SETTLES_S)
        last, passed_s = _steps(hosts, tasks), time.monotonic() - first_at
        rates = {task: (last[task] - step) / passed_s for task, step in first.items()}
        counts = {host.name: sum(place == host.name for place in tasks.values()) for host in hosts}
        found = {
            "rate": max(rates.values(), default=None),
            "rates": rates,
            "parameters": None,
            **share_of_time(busy, processors()),
            "kept": {host.name: _kept(host.home, counts[host.name]) for host in hosts if counts[host.name]},
        }
    return found | {"name": name, "expected": case.expected, "about": case.about, "remedy_of": case.remedy_of}


class _Hosts:
    def __init__(self, hosts: list[Any]) -> None:
        self.hosts = hosts

    def __getitem__(self, name: str) -> Any:
        return next(host for host in self.hosts if host.name == name)


def _host(network: Network, index: int, directory: Path) -> Any:
    home = directory / f"gpu-{index}"
    home.mkdir()
    (home / ".gpu").write_text(gpus.gpu(busy=0) + "\n")
    box = SimpleNamespace(netns=network.netns(index))
    return SimpleNamespace(name=f"gpu-{index}", home=home, box=box, login=SimpleNamespace(uid=0))


def _placed(case: Case) -> dict[str, str]:
    """The host of each task."""
    found = {}
    for job, words in case.jobs.items():
        first, last = re.fullmatch(r"gpu-\[?(\d)(?:-(\d)\])?", words).groups()  # type: ignore[union-attr]
        for index, number in enumerate(range(int(first), int(last or first) + 1)):
            found[f"{job}:{index}"] = f"gpu-{number}"
    return found


def _port(task: str) -> int:
    return _PORT + {"ps": 0, "worker": 10, "chief": 20}[TaskId.parse(task).job]


@contextmanager
def _measured(
    host: Any, own: list[str], tasks: dict[str, str], addresses: dict[str, str], case: Case
) -> Iterator[None]:
    """The tasks of a host, and what measures them there."""
    inside = ["ip", "netns", "exec", host.box.netns]
    flags = [
        f"--{job}_hosts=" + ",".join(address for task, address in addresses.items() if task.startswith(f"{job}:"))
        for job in case.jobs
    ]
    args = [
        f"--{name}={str(value).replace('{output_dir}', str(host.home / 'out'))}" for name, value in case.args.items()
    ]
    env = {**os.environ, "HOME": str(host.home), "FAKE_NVML": str(host.home / ".gpu")}
    processes = []
    pids = {}
    for task in own:
        job, _, index = task.partition(":")
        words = [sys.executable, str(HERE / "trainer.py"), f"--job_name={job}", f"--task_index={index}", *flags, *args]
        with (host.home / f"{task}.log").open("wb") as log:
            process = subprocess.Popen([*inside, *words], stdout=log, stderr=log, env=env, start_new_session=True)
        processes.append(process)
        pids[task] = process.pid
    roster = [made(Member, task=task, host=tasks[task], address=address) for task, address in addresses.items()]
    (host.home / "spec").write_text(json.dumps({"host": host.name, "pids": pids, "roster": roster}))
    if own:
        words = [sys.executable, "-m", "tests.speed.bare", str(host.home)]
        processes.append(subprocess.Popen([*inside, *words], start_new_session=True))
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _steps(hosts: list[Any], tasks: dict[str, str]) -> dict[str, int]:
    found = {}
    for host in hosts:
        for task in (one for one, place in tasks.items() if place == host.name):
            step = _last_step(host.home / f"{task}.log")
            if step is not None:
                found[task] = step
    return found


def _last_step(log: Path) -> int | None:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 200))
        found = re.findall(rb"step (\d+)\n", file.read())
    return int(found[-1]) if found else None


def _wait(hosts: list[Any], tasks: dict[str, str]) -> None:
    jobs = {TaskId.parse(task).job for task in tasks}
    reporting = {"chief"} if "chief" in jobs else jobs - {"ps"}
    until = time.monotonic() + 60
    while {task for task in tasks if TaskId.parse(task).job in reporting} - _steps(hosts, tasks).keys():
        assert time.monotonic() < until, [(host.home / f"{task}.log").read_text() for host in hosts for task in tasks]
        time.sleep(0.5)


def _kept(home: Path, tasks: int) -> list[Any]:
    return list(Ring(str(home), tasks).minutes(3))


def observe(home: Path) -> None:
    """What an agent does on a host, for the measuring alone."""
    spec = json.loads((home / "spec").read_text())
    starts = {
        task: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        for task, pid in spec["pids"].items()
    }
    entries = {task: made(Entry, pid=pid, start_time=starts[task]) for task, pid in spec["pids"].items()}
    state = made(State, run="r", host=spec["host"], tasks=entries)
    tasks = [{"id": task} for task in spec["pids"]]
    files: Any = SimpleNamespace(directory=str(home))
    observer = Observer(files, {**spec, "tasks": tasks})  # type: ignore[typeddict-item]
    busy: list[int] = []
    while True:
        for task, entry in state["tasks"].items():
            log = home / f"{task}.log"
            step = _last_step(log)
            if step is not None and step != entry["step"]:
                entry.update({"step": step, "step_time": log.stat().st_mtime, "rate": 1.0})
        busy = [*busy[-9:], int((home / ".gpu").read_text().split()[3])]
        given = [task for task in spec["pids"] if not task.startswith("ps")]
        each: Any = [{"busy": sum(busy) / len(busy) / 100, "given": given}]
        state["machine"] = {"gpus": {"each": each}}  # type: ignore[typeddict-item]
        observer.step(time.monotonic(), time.time(), state)
        time.sleep(1.0)


if __name__ == "__main__":
    observe(Path(sys.argv[1]))

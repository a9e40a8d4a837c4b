"""The CPU and memory of the coordinator's process for 200 hosts, and for 1000."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import CannotRun, heading, show
from benchmarks.processes import cpu_s, memory_mb
from dtctl.agent.host import processes, wake
from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.starting import Credentials
from dtctl.agent.run.runfiles import CREDENTIAL_FILES, RunFiles
from dtctl.config.load import load_cluster
from dtctl.operations.credentials import Authority
from dtctl.operations.up.launch import make_plan
from dtctl.plan.spec import host_spec, run_spec
from dtctl.transport.payload import LOADER, agent_program, opening, whole

GOALS = {200: "3 %", 1000: "10 %"}
"""Shares of a core, by the number of agents."""
MEASURED_S = 30.0
PATIENCE_S = 180.0
ENDS = Path(__file__).with_name("coordinator_ends.py")
CLUSTER = """\
name: many
hosts:
  n-1: {{address: 127.0.1.1}}
  "n-[2-{last}]": {{address: "node-[2-{last}]"}}
jobs:
  ps: {{hosts: "n-[2-21]"}}
  chief: {{hosts: [n-1]}}
  worker: {{hosts: "n-[2-{last}]"}}
trainer: {{code: ., command: [sleep, "3600"], dialect: none}}
coordinator: {{port: {port}}}
"""


def run(rounds: int | None = None) -> None:
    if not sys.platform.startswith("linux"):
        raise CannotRun("the memory of a process is read from /proc")
    for agents, goal in GOALS.items():
        for _ in range(rounds or 1):
            _measure(agents, goal)


def _measure(agents: int, goal: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        spec = _make_run(directory, agents)
        begin = time.monotonic()
        files = RunFiles(str(directory / "runs" / spec["run"] / "n-1"))
        view = Path(files.path("cluster.json"))
        supervisor = _process("-IS", str(_program(directory)), "supervise", files.directory)
        with supervisor as guard, _process("-IS", str(ENDS), str(directory), str(agents)):
            _until(lambda: _connected(view) == agents + 1, "all agents")
            joined_s = time.monotonic() - begin
            pid = json.loads(view.with_name("state.json").read_text())["agent"]["pid"]
            before, begin = cpu_s(pid), time.monotonic()
            time.sleep(MEASURED_S)
            share = (cpu_s(pid) - before) / (time.monotonic() - begin)
            resident, _ = memory_mb(pid)
            _until(lambda: _connected(view) == agents + 1, "all agents, still")
            serial = json.loads(view.read_text())["serial"]
            _stop(files)
            _until(lambda: guard.poll() is not None, "the end of the run")
    heading("coordinator", f"{agents} agents, each of which tells another step every 3 s, over {MEASURED_S:.0f} s")
    show("share of a core", f"{share:.2%}", goal=goal)
    show("memory", f"{resident:.1f} MB", goal="60 MB")
    show("until all have joined", f"{joined_s:.1f} s")
    show("load of the machine", f"{os.getloadavg()[0]:.1f}")
    show("cluster.json written", f"{serial} times")


def _make_run(directory: Path, agents: int) -> Spec:
    """Makes the run directory of the coordinator's host, as `up` does, and all agents' specs for the other process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    file = directory / "cluster.yaml"
    file.write_text(CLUSTER.format(port=port, last=agents + 1))
    plan = make_plan(load_cluster(file), lambda ssh: ssh.target)
    now = time.time()
    common = run_spec(plan, run="many-1", digest="d", bundle=None, created=now, controller="bench", replaced={})
    spec = host_spec(plan, "n-1", common)
    for task in spec["tasks"]:
        task["code"] = False
    authority = Authority(spec["run"])
    for place in spec["roster"]:
        kept = directory / "credentials" / place["host"]
        kept.mkdir(parents=True, exist_ok=True)
        for name, text in dataclasses.asdict(authority.issue(place["host"], coordinates=False)).items():
            (kept / CREDENTIAL_FILES[name]).write_text(text)
    (directory / "spec.json").write_text(json.dumps(spec))
    files = RunFiles(str(directory / "runs" / "many-1" / "n-1"))
    own = made(Credentials, **dataclasses.asdict(authority.issue("n-1", coordinates=True)))
    files.begin(files.stage(spec, {}, {"PATH": os.environ["PATH"]}, processes.myself(), own), spec)
    return spec


def _stop(files: RunFiles) -> None:
    """Requests a stop, as `dtctl stop` does."""
    request = {"serial": 1, "kind": "stop", "tasks": None, "grace_s": 1, "reason": "measured", "by": "bench"}
    files.write_urgent(files.path("requests.json"), {"serial": 1, "requests": [request]})
    wake.ring(files.wake_path)


def _program(directory: Path) -> Path:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "DTCTL_ROOT": str(directory)}
    words = [sys.executable, *shlex.split(LOADER)[1:]]
    subprocess.run(words, input=opening() + whole(), stdout=subprocess.DEVNULL, env=env, check=True)
    return directory / "agent" / agent_program().sha256


def _connected(view: Path) -> int:
    if not view.exists():
        return 0
    return sum(host["connected"] for host in json.loads(view.read_text())["hosts"].values())


@contextmanager
def _process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise CannotRun(f"{what} could not be had within {PATIENCE_S:.0f} s")
        time.sleep(0.1)

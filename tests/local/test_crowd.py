"""Real agents of many hosts on this machine: they start, lose some at random, recover and end.

DTCTL_CROWD sets the number of hosts (40). 300 take up to 18 GB while they start, because of a conversation with each,
and then 5 GB. `-s` prints the cost of an agent and of the coordinator.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import cpu_s, memory_mb
from tests.desk import Desk
from tests.waiting import eventually

HOSTS = int(os.environ.get("DTCTL_CROWD", "40"))
LOST = max(2, HOSTS // 15)
PATIENCE_S = 120.0 + 4.0 * HOSTS
QUIET_S = 20.0

AGENT_MB = 12.0
COORDINATOR_MB = 60.0

CLUSTER = f"""\
name: {{name}}
strategy: async-ps
hosts: {{{{"n-[1-{HOSTS}]": {{{{transport: local}}}}}}}}
jobs:
  ps: {{{{hosts: [n-1]}}}}
  chief: {{{{hosts: [n-2]}}}}
  worker: {{{{hosts: "n-[3-{HOSTS}]"}}}}
ports: auto
trainer:
  command: [sh, train.sh, "{{{{job_name}}}}"]
  dialect: none
recovery: {{{{max_run_restarts: 10000}}}}
grace: 2s
"""
TRAINER = """\
[ "$1" = ps ] && exec sleep 100000
step=0
while [ ! -e "$HOME/enough" ]; do
  step=$((step + 1))
  echo "step $step"
  sleep 5
done
"""
"""A shell: the test measures dtctl."""


def states_of(home: Desk) -> dict[str, dict[str, Any]]:
    """The state.json of each host."""
    return {file.parent.name: json.loads(file.read_text()) for file in home.home.glob(".dtctl/runs/*/*/state.json")}


def agents(home: Desk) -> dict[str, int]:
    return {host: int(state["agent"]["pid"]) for host, state in states_of(home).items()}


def attempts(home: Desk, hosts: Iterable[str]) -> list[tuple[int, str]]:
    states = states_of(home)
    return [(entry["attempt"], entry["state"]) for host in hosts for entry in states[host]["tasks"].values()]


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def all_of(home: Desk, host: str) -> list[int]:
    """The guard, supervisor, keepers and trainers of a host."""
    states = states_of(home)[host]
    ours = [pid for pid, command in home.processes().items() if re.search(rf"/runs/[^/]+/{host}(/|\s|$)", command)]
    return [*ours, *(entry["pid"] for entry in states["tasks"].values() if entry["pid"])]


def agent_and_trainers(home: Desk, host: str) -> list[int]:
    state = states_of(home)[host]
    return [state["agent"]["pid"], *(entry["pid"] for entry in state["tasks"].values() if entry["pid"])]


def available_mb() -> float:
    return float(re.findall(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)[0]) / 1024


def told_of_cost(home: Desk) -> tuple[list[float], float]:
    """The memory of each agent, and of the coordinator's, in MB, while tasks only take steps; prints all."""
    pids = agents(home)
    lead = pids.pop("n-2")
    before = {pid: cpu_s(pid) for pid in (lead, *pids.values())}
    began = time.monotonic()
    time.sleep(QUIET_S)
    passed_s = time.monotonic() - began
    shares = [(cpu_s(pid) - before[pid]) / passed_s for pid in pids.values()]
    proportional = [memory_mb(pid)[1] for pid in pids.values()]
    lead_mb = memory_mb(lead)[0]
    print(
        f"{HOSTS} hosts: an agent {sum(proportional) / len(pids):.1f} MB PSS, {sum(shares) / len(pids):.3%} of a core"
    )
    print(f"  the coordinator {lead_mb:.1f} MB, {(cpu_s(lead) - before[lead]) / passed_s:.2%} of a core")
    return proportional, lead_mb


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_many_agents_start_recover_from_losses_and_end(home: Desk) -> None:
    (home.project / "train.sh").write_text(TRAINER)
    home.write_cluster(CLUSTER)
    free_mb = available_mb()
    home.dtctl("up", "-q", timeout_s=PATIENCE_S)
    everyone = [f"n-{number}" for number in range(1, HOSTS + 1)]
    eventually(lambda: {state for _, state in attempts(home, everyone)} == {"running"}, PATIENCE_S, every_s=0.5)
    each_mb, lead_mb = told_of_cost(home)
    print(f"  the run takes {(free_mb - available_mb()) / 1024:.1f} GB of this machine, load {os.getloadavg()[0]:.1f}")
    assert max(each_mb) < AGENT_MB
    assert lead_mb < COORDINATOR_MB

    lost = random.Random(HOSTS).sample(everyone[2:], LOST)
    print("lost:", ", ".join(lost))
    for number, host in enumerate(lost):
        kill(all_of(home, host) if number % 2 else agent_and_trainers(home, host))

    def healed() -> bool:
        home.dtctl("status", code=None, timeout_s=PATIENCE_S)  # restarts agents whose guards were killed as well
        return all(attempt >= 2 and state == "running" for attempt, state in attempts(home, lost))

    eventually(healed, PATIENCE_S, what="those that were lost", every_s=2.0)
    others = [host for host in everyone if host not in lost]
    assert set(attempts(home, others)) == {(1, "running")}, "nobody else was touched"

    (home.home / "enough").touch()
    home.dtctl("wait", timeout_s=PATIENCE_S)
    assert home.outcome() == "Succeeded"
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in agents(home).values()), PATIENCE_S)
    home.dtctl("down", "-y", timeout_s=PATIENCE_S)

"""What an agent takes while its task runs and nothing happens."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import DTCTL, CannotRun, client_environment, heading, measure, show
from benchmarks.processes import cpu_s, memory_mb, supervision

IDLE_S = 60.0
CLUSTER = """\
name: idle
hosts: {node-1: {transport: local}}
jobs: {worker: {hosts: [node-1]}}
trainer: {code: code, command: [sleep, "3600"], dialect: none}
"""


def run(rounds: int | None = None) -> None:
    if not sys.platform.startswith("linux"):
        raise CannotRun("the memory of a process is read from /proc")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "code").mkdir()
        (directory / "code" / "train.py").touch()
        (directory / "cluster.yaml").write_text(CLUSTER)
        environment = client_environment(directory)
        measure([*DTCTL, "allow"], cwd=directory, env=environment)
        measure([*DTCTL, "up", "-q"], cwd=directory, env=environment)
        try:
            agent, keepers = supervision(directory / ".dtctl")
            before = {pid: cpu_s(pid) for pid in (agent, *keepers)}
            begin = time.monotonic()
            time.sleep(IDLE_S)
            passed_s = time.monotonic() - begin
            heading("idle", f"an agent with one task, over {passed_s:.0f} s")
            for what, pid in [("agent", agent), *(("keeper of a task", keeper) for keeper in keepers)]:
                resident, proportional = memory_mb(pid)
                show(f"{what}, memory", f"{resident:.1f} MB, {proportional:.1f} MB PSS", goal="12 MB PSS")
                share = (cpu_s(pid) - before[pid]) / passed_s
                show(f"{what}, share of a core", f"{share:.2%}", goal="0.1 %")
        finally:
            measure([*DTCTL, "down", "-y"], cwd=directory, env=environment)

"""Stop of programs that do not want to end: frameworks that swallow SIGTERM, with all that they have started."""

from __future__ import annotations

import signal
import time

import pytest

from tests.agent.host import AgentHost, kill, python_task
from tests.waiting import eventually

GRACE_S = 1.0
FEW_S = 60.0
"""On a machine that is busy; usual are some tenths of a second."""

SWALLOWS = """
import os, signal, time
def swallow():
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM caught, and training goes on", flush=True))
def child(name):
    if os.fork() == 0:
        swallow()
        os.setsid()
        if name == "orphan" and os.fork():
            os._exit(0)
        work(name)
def work(name):
    print("ready:", name, flush=True)
    while True:
        time.sleep(0.05)
swallow()
child("other session")
child("orphan")
work("trainer")
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["at work", "frozen"])
def test_it_ends_soon_after_its_grace_period(host: AgentHost, frozen: bool) -> None:
    spec, pid = host.running(python_task("worker:0", SWALLOWS), grace_s=GRACE_S)
    eventually(lambda: host.log(spec, "worker:0").count("ready") == 3)
    if frozen:
        kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    result = host.ask("stop", tasks=None, grace_s=None, why=[{"kind": "stopped_by", "by": "ada"}], by="")
    assert (result["stopped"], result["survivors"]) == (["worker:0"], [])
    assert GRACE_S <= time.monotonic() - began < GRACE_S + FEW_S
    assert "SIGTERM caught" in host.log(spec, "worker:0")
    entry = host.state(spec)["tasks"]["worker:0"]
    assert (entry["exit"]["signal"], entry["left"]) == (signal.SIGKILL, [])
    assert (result["killed"], entry["exit"]["killed_after_s"]) == ({"worker:0": GRACE_S}, GRACE_S)
    assert entry["reason"] == "killed after 1 s: stopped by ada"
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")

"""The lock that a killed build of PyTorch leaves is named by `diagnose`: with PyTorch itself, which compiles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text
from tests.environments import environment
from tests.waiting import eventually

pytestmark = [pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(1200)]

PATIENCE_S = 500.0

CLUSTER = cluster_text(
    jobs="{worker: {hosts: node-1}}",
    trainer="command: [python, train.py], dialect: none, python: PYTHON, env: {TORCH_EXTENSIONS_DIR: BUILDS}",
    recovery="{max_restarts: 1000, repeat: 0, backoff: 100ms..200ms}",
    grace="100ms",
)

PROGRAM = """\
import os, signal, threading, time
from torch.utils import cpp_extension

def kill():
    while not os.path.exists(LOCK):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

if not os.path.exists(LOCK) and not os.path.exists("again"):
    open("again", "w").close()
    threading.Thread(target=kill, daemon=True).start()
built = cpp_extension.load_inline("slow", "int one() { return 1; }", functions=["one"])
print("built", built.one(), flush=True)
time.sleep(1000)
"""


def test_the_lock_of_a_killed_build_is_named_and_the_command_removes_it(home: Desk, tmp_path: Path) -> None:
    builds, python = tmp_path / "builds", environment("deepspeed")  # it has a build system, too
    lock = builds / "slow/lock"
    builds.mkdir()
    (home.project / "train.py").write_text(
        f"LOCK = {str(lock)!r}\n{PROGRAM}".replace('"again"', repr(f"{tmp_path}/again"))
    )
    home.env["PATH"] = f"{python.parent}:{home.env['PATH']}"
    home.write_cluster(CLUSTER.replace("PYTHON", str(python)).replace("BUILDS", str(builds)))
    home.dtctl("up", "--local", "-q")

    def problem() -> dict[str, object]:
        return next(iter(json.loads(home.dtctl("diagnose", "-o", "json"))["problems"]), {})

    eventually(lambda: problem().get("signature") == "lock_left", PATIENCE_S, "the lock of the killed build")
    shown = home.dtctl("diagnose")
    words = shown[shown.index("dtctl exec") :].split("    ")[0].split()
    assert words[-1] == str(lock)
    home.dtctl("stop")
    home.dtctl(*words[1:])
    home.dtctl("up", "--local", "-q")
    eventually(lambda: "built 1" in home.dtctl("logs"), PATIENCE_S, "the build")
    assert problem().get("signature") != "lock_left"

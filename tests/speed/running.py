"""Runs one experiment on separate hosts, and keeps what was measured, so that it can be judged again."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dtctl.agent.rooms.speed.ring import FILE, Ring
from dtctl.model import TaskId
from dtctl.rooms.init.operation import write_helper
from tests.desk import Desk, desk
from tests.hosts import gpus
from tests.hosts.fleet import USER, Fleet
from tests.speed.cases import Case
from tests.speed.causes import Scene
from tests.waiting import eventually

HERE = Path(__file__).parent
TEMPLATES = HERE.parents[1] / "templates"
HOSTS = 4
EVIDENCE_S = 78.0
"""A whole minute that dtctl judges, and what it takes until that minute began after the cause."""
SETTLES_S = 12.0
"""The first steps, which are not counted."""
START_S = 240.0
_DIALECTS = {"mirrored": "tf_config", "ps-strategy": "tf_config"}


def run(name: str, case: Case, directory: Path) -> dict[str, Any]:
    """What was found. `directory`: for the desk."""
    gpu_file = f"/home/{USER}/.gpu"
    fake = gpus.Gpus(directory, "")
    options = {"SetEnv": f"LD_LIBRARY_PATH={fake.env['LD_LIBRARY_PATH']} FAKE_NVML={gpu_file}"}
    Path(fake.env["LD_LIBRARY_PATH"]).chmod(0o755)
    with Fleet(HOSTS, options=options) as fleet, desk(directory / "home", elsewhere=fleet.busy) as user:
        user.write_ssh_config(fleet.ssh_config.read_text())
        for host in fleet.hosts:
            (host.home / ".gpu").write_text(gpus.gpu(busy=0, used=0) + "\n")
            os.chown(host.home / ".gpu", host.login.uid, host.login.uid)
        _write_project(user, fleet, case)
        scene = Scene(fleet, user)
        with ExitStack() as causes:
            if case.before is not None:
                causes.enter_context(case.before(scene))
            user.dtctl("up", timeout_s=START_S)
            eventually(lambda: _trains(user), START_S, "all to train", 1.0)
            if case.during is not None:
                causes.enter_context(case.during(scene))
            found = _measured(user)
        found |= {"name": name, "expected": case.expected, "about": case.about, "remedy_of": case.remedy_of}
        found["kept"] = {host.name: _kept(fleet, host.home) for host in fleet.hosts}
        if name.startswith("tensorflow") or found["rate"] is None:
            found["logs"] = user.dtctl("logs", "-n", "5", code=None)[-3000:]
        user.dtctl("down", "--yes", "--grace", "1s", code=None)
    return found


def _write_project(user: Desk, fleet: Fleet, case: Case) -> None:
    args = dict(case.args)
    env = {"FAKE_NVML": f"/home/{USER}/.gpu", **case.env}
    trainer: dict[str, object] = {"command": ["python", "trainer.py"], "args": args}
    for file in ("trainer.py", "tensorflow_trainer.py", "fake_gpu.py"):
        shutil.copy(HERE / file, user.project)
    if case.program == "tensorflow":
        trainer |= {"command": ["python", "tensorflow_trainer.py"], "python": sys.executable}
        env |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    elif case.program != "stand-in":
        for path in (TEMPLATES / case.program).glob("*.py"):
            shutil.copy(path, user.project)
        write_helper(user.project)
        trainer |= {"command": ["python", "train.py"], "python": sys.executable}
        env |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
        trainer["dialect"] = _DIALECTS.get(case.strategy, "flags")
    trainer.setdefault("dialect", "flags")
    hosts = fleet.cluster_yaml().replace(": {ssh: ", ": {gpus: 1, ssh: ")
    keys = {
        "jobs": {job: {"hosts": where} for job, where in case.jobs.items()},
        "strategy": case.strategy,
        "trainer": {**trainer, "env": env},
        "dirs": {"output": "output" if case.program == "stand-in" else f"{fleet.shared}/output"},
        "grace": "2s",
    }
    text = f"name: {user.name}\n{hosts}" + "".join(f"{key}: {json.dumps(own)}\n" for key, own in keys.items())
    (user.project / "cluster.yaml").write_text(text)


def _trains(user: Desk) -> bool:
    """Whether each task that reports steps in the end does so; fails if one has failed."""
    tasks = user.status()["tasks"]
    assert not [one for one in tasks if one["state"] == "failed"], user.dtctl("logs", "-n", "30", code=None)
    jobs = {TaskId.parse(one["task"]).job for one in tasks}
    reporting = {"chief"} if "chief" in jobs else jobs - {"ps"}
    return all(one["step"] for one in tasks if TaskId.parse(one["task"]).job in reporting)


def _measured(user: Desk) -> dict[str, Any]:
    """The verdicts over the minute that is over at the end, and the steps a second of that time."""
    began = time.monotonic()
    time.sleep(SETTLES_S)
    first, first_at, busy = _steps(user), time.monotonic(), processors()
    time.sleep(EVIDENCE_S - (time.monotonic() - began))
    last, passed_s, busy_after = _steps(user), time.monotonic() - first_at, processors()
    found = json.loads(user.dtctl("speed", "--minutes", "1", "-o", "json"))
    rates = {task: (last[task] - step) / passed_s for task, step in first.items()}
    return {
        "judged": found["judgedMinutes"],
        "verdicts": found["verdicts"],
        "rate": max(rates.values(), default=None),
        "rates": rates,
        "text": user.dtctl("speed", "--minutes", "1"),
        "parameters": found["parameters"],
        **share_of_time(busy, busy_after),
    }


def share_of_time(before: list[int], after: list[int]) -> dict[str, float]:
    """How busy the machine was."""
    passed = [end - begin for begin, end in zip(before, after, strict=True)]
    return {
        "machine_busy": round(1 - passed[3] / sum(passed), 2),
        "machine_stolen": round(passed[7] / sum(passed), 3),
        "load": os.getloadavg()[0],
    }


def processors() -> list[int]:
    """Ticks of the machine by kind, as /proc/stat counts them."""
    return [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]


def _steps(user: Desk) -> Mapping[str, int]:
    return {one["task"]: one["step"] for one in user.status()["tasks"] if one["step"] is not None}


def _kept(fleet: Fleet, home: Path) -> list[Any]:
    """What the host has measured, minute by minute; the newest first."""
    for file in home.glob(f".dtctl/runs/*/*/{FILE}"):
        tasks = json.loads((file.parent / "spec.json").read_text())["tasks"]
        return list(Ring(str(file.parent), len(tasks)).minutes(3))
    return []

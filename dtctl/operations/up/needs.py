"""What the trainers' Python on this machine lacks, found before anything is started, and without importing it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtctl.agent.records.marks import CODE, HOME
from dtctl.errors import PreflightError
from dtctl.model import Cluster
from dtctl.operations.up.imports import PACKAGES, program_of, words_of
from dtctl.plan.roster import RunPlan, TaskPlan

REQUIREMENTS = "requirements.txt"
"""Beside a program, it says what to install; the templates have one."""

_PROBE = """\
import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Lack:
    """One program that its Python could not run."""

    python: str
    script: str
    modules: tuple[str, ...]
    code: Path

    @property
    def remedy(self) -> str:
        """The command that installs what is missing."""
        if (self.code / REQUIREMENTS).is_file():
            what = ["-r", os.path.relpath(self.code / REQUIREMENTS)]
        else:
            what = [PACKAGES.get(module, module) for module in self.modules]
        return shlex.join([self.python, "-m", "pip", "install", *what])


def check_needs(plan: RunPlan) -> None:
    """Raises PreflightError if a trainer on this machine would fail on its first imports."""
    for lack in lacks(plan):
        *most, last = lack.modules
        named = f"{', '.join(most)} and {last}" if most else last
        raise PreflightError(
            f"{lack.python} cannot run {lack.script}: it lacks {named}",
            detail="nothing was sent or started",
            hint=f"{lack.remedy}\nor name another Python: trainer.python in {plan.cluster.file}"
            "\nor let it fail: dtctl up --force",
        )


def lacks(plan: RunPlan) -> Iterator[Lack]:
    """Of the programs that run on this machine. A setup may still install what is missing, so it is not asked then."""
    if plan.cluster.trainer.setup:
        return
    asked = set()
    for task in plan.tasks:
        key = (task.argv[:3], task.env.get("PYTHONPATH"))
        if _runs_python_here(plan.cluster, task) and key not in asked:
            asked.add(key)
            yield from _lacks_of(task, plan.cluster.trainer.code)


def _runs_python_here(cluster: Cluster, task: TaskPlan) -> bool:
    command = cluster.jobs[task.id.job].launch.command
    return cluster.hosts[task.host].is_local and command[0] in ("python", "python3")


def _lacks_of(task: TaskPlan, code: Path) -> Iterator[Lack]:
    program = program_of(task.argv, code)
    wanted = [name for name in program.modules if name not in sys.stdlib_module_names] if program else []
    if program is None or not wanted:
        return

    def here(text: str) -> str:
        return text.replace(HOME, str(Path.home())).replace(CODE, str(code))

    env = {name: here(task.env[name]) for name in ("PYTHONPATH", "PATH") if name in task.env}
    python = here(task.argv[0])
    missing = _missing(python, wanted, program.directory, env)
    if missing:
        first, *others = words_of(task.argv)
        yield Lack(python, others[0] if first == "-m" else first, missing, code)


def _missing(python: str, modules: Sequence[str], directory: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """Nothing where it cannot be asked: the start itself will tell what is wrong with it."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, *modules],
            cwd=directory,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ()
    said = done.stdout.splitlines()
    return tuple(name for name in modules if said and name in said[-1].split())

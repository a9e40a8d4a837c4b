"""What the trainers' programs need, as far as their text shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dtctl.agent.records.words import CODE, HOME
from dtctl.operations.imports import Program, broken_line, program_of
from dtctl.plan.roster import RunPlan

_MOST_BYTES = 1 << 20

_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*")

_TF = r"\b(?:tf|tensorflow)(?:\.compat\.v[12])?"
_USES = {
    "estimator": re.compile(_TF + r"\.estimator\b"),
    "summaries": re.compile(_TF + r"\.summary\.(?:create_file_writer|scalar|image|text)\b"),
    "ps_strategy": re.compile(r"\bParameterServerStrategy(?:V2)?\s*\("),
    "fit": re.compile(r"\bmodel\.fit\s*\("),
    "graphs": re.compile(r"\b(?:import\s+tensorflow\.compat\.v1|compat\.v1\.disable|disable_v2_behavior)\b"),
    "saves_alone": re.compile(r"\bsharded\s*=\s*False\b|\bexperimental_io_device\b"),
    "saves_as_told": re.compile(r"\bsharded\s*=\s*(?!True|False)"),
    "saves_sharded": re.compile(r"\bsharded\s*=\s*True\b|\bMonitoredTrainingSession\b|\bParameterServerStrategy\b"),
    "keras_2": re.compile(r"\btf_keras\b|\bTF_USE_LEGACY_KERAS\b"),
}
"""What has to be known of a program beside its imports."""


@dataclass(frozen=True)
class Needs:
    """Of the programs of one job. `uses`: names of _USES."""

    modules: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)
    """Module -> where it is imported first, as in train.py:3."""
    broken: tuple[str, int, str] | None = None
    """File, line and words of a syntax error, as the Python of this machine reads the program."""


def runs_python(plan: RunPlan, job: str) -> bool:
    """Whether the command of a job begins with a Python."""
    return _PYTHON.fullmatch(plan.cluster.jobs[job].launch.command[0]) is not None


def needs_of(plan: RunPlan) -> Mapping[str, Needs]:
    """By job; of what is no Python program, or changes the rules of imports, nothing is known."""
    found: dict[str, Needs] = {}
    for task in plan.tasks:
        job = task.id.job
        if job not in found and runs_python(plan, job):
            code = plan.cluster.trainer.code
            program = program_of(task.argv, code, _of_code(code, task.env.get("PYTHONPATH", "")))
            found[job] = _needs(program, task.argv, task.env) if program else Needs(broken=broken_line(task.argv, code))
    return found


def _of_code(code: Path, python_path: str) -> list[Path]:
    """The directories of a PYTHONPATH that travel with the code."""
    parts = [part for part in python_path.split(":") if part]
    return [
        Path(part.replace(CODE, str(code))) if CODE in part else code / part
        for part in parts
        if CODE in part or not (part.startswith("/") or HOME in part)
    ]


def _needs(program: Program, argv: Sequence[str], env: Mapping[str, str]) -> Needs:
    texts = [_text(file) for file in program.files]
    uses = {name for name, pattern in _USES.items() if any(pattern.search(text) for text in texts)}
    if env.get("TF_USE_LEGACY_KERAS") == "1":
        uses.add("keras_2")
    if "saves_as_told" in uses:
        uses -= {"saves_alone", "saves_sharded"}
        uses.add("saves_sharded" if any(word.startswith("--sharded") for word in argv) else "saves_alone")
    elif "saves_alone" in uses:
        uses.discard("saves_sharded")
    own = tuple(name for name in program.modules if name not in sys.stdlib_module_names)
    return Needs(own, frozenset(uses), program.places)


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_MOST_BYTES)
    except OSError:
        return ""

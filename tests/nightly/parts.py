"""The parts of the nightly."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.nightly import wheel
from tests.nightly.pythons import AGENT, CONTROLLER, dependencies, interpreter, lower_bounds
from tests.nightly.running import JOBS, ROOT, Seen, environment, pytest

CASES = os.environ.get("FUZZ", "20000")
"""Of each test that makes up its own."""

SEQUENCES = os.environ.get("SEQUENCES", "10000")
SEQUENCES_FROM = os.environ.get("SEQUENCES_FROM", "0")
FAULTS = os.environ.get("FAULTS", "1000")
SEQUENCES_ON_HOSTS = "tests/faults/test_sequences.py"

WITHOUT_TENSORFLOW = ("tests/unit", "tests/local", "tests/ssh")
OF_THEIR_TIME = ("click<8.5",)
"""What the oldest dependencies depend on in turn. Typer 0.21 uses what click 8.5 warns of, and warnings are errors."""

BESIDE = ("-n", JOBS, "--dist", "loadgroup")
PATIENT = "--timeout=7200"
"""Of one test: what takes a second by day takes hours here, or waits for thousands of commands of others."""


def templates() -> Seen:
    """Every template with its variants: a loss and a stop on this machine, and on separate hosts."""
    return pytest(sys.executable, "-m", "nightly", "tests/templates", "tests/training", DTCTL_NIGHTLY="1")


def faults() -> Seen:
    """Everything that breaks, and the soak; writes docs/faults.md."""
    others = ("tests/faults", "tests/fleet", f"--ignore={SEQUENCES_ON_HOSTS}")
    return pytest(sys.executable, *others, DTCTL_NIGHTLY="1", DTCTL_FAULT_REPORT="docs/faults.md")


def sequences() -> Seen:
    """Faults in pairs and sequences: with processes in memory, and on hosts."""
    in_memory = pytest(
        sys.executable,
        *BESIDE,
        "tests/unit/agent/coordinate/test_sequences.py",
        SEQUENCES=SEQUENCES,
        SEQUENCES_FROM=SEQUENCES_FROM,
    )
    on_hosts = pytest(sys.executable, SEQUENCES_ON_HOSTS, DTCTL_NIGHTLY="1", FAULTS=FAULTS)
    return Seen.of_all(
        {f"{SEQUENCES} sequences in memory, ten a test": in_memory, f"{FAULTS} faults on hosts": on_hosts}
    )


def lies() -> Seen:
    """Every lie of a host on every command that it reaches."""
    return pytest(sys.executable, *BESIDE, PATIENT, "-m", "nightly", "tests/hostile", DTCTL_NIGHTLY="1")


def cases() -> Seen:
    """What a day has no time for of the commands, of agents and of logins; the screen of `dtctl top` on a terminal."""
    folders = ("tests/unit", "tests/agent", "tests/local", "tests/ssh")
    return pytest(sys.executable, *BESIDE, "-m", "nightly", *folders, DTCTL_NIGHTLY="1")


def fuzz() -> Seen:
    """Every test with cases of its own making, with a hundred times as many."""
    files = sorted({str(file.relative_to(ROOT)) for file in ROOT.glob("tests/**/test_*.py") if _is_fuzzed(file)})
    seen = pytest(sys.executable, *BESIDE, PATIENT, *files, FUZZ=CASES)
    return replace(seen, text=f"{CASES} cases each; {seen.text}")


def _is_fuzzed(file: Path) -> bool:
    return "from tests.fuzz import" in file.read_text()


def lowest() -> Seen:
    """The oldest dependencies that pyproject.toml allows: on the oldest Python everything, on the others a part."""
    pieces = {}
    for version in CONTROLLER:
        python = interpreter(version)
        if python is not None:
            tests = WITHOUT_TENSORFLOW if version == CONTROLLER[0] else ("tests/unit",)
            pieces[f"on {version}"] = _lowest_on(version, python, *tests)
    if f"on {CONTROLLER[0]}" not in pieces:
        pieces[f"on {CONTROLLER[0]}"] = Seen(False, "not to be had here")
    return Seen.of_all(pieces)


def _lowest_on(version: str, python: str, *tests: str) -> Seen:
    bounds = [*lower_bounds(dependencies(ROOT), version), *OF_THEIR_TIME]
    with tempfile.TemporaryDirectory() as directory:
        constraints = Path(directory, "lowest.txt")
        constraints.write_text("\n".join(bounds) + "\n")
        with environment(python, ["-e", f"{ROOT}[dev]"], "-c", str(constraints)) as own:
            seen = pytest(own, *BESIDE, *tests)
    return replace(seen, text=f"{seen.text}; {', '.join(bounds)}")


def agents(python: str) -> Seen:
    """The tests that otherwise run on the oldest Python."""
    words = (*BESIDE, "-k", "oldest", "tests/agent")
    return pytest(sys.executable, *words, DTCTL_NIGHTLY="1", DTCTL_AGENT_PYTHON=python)


def pythons() -> Seen:
    """Agents on every Python of theirs, and the rest on every one of its own, as far as they are to be had."""
    pieces: dict[str, Seen] = {}
    absent = []
    for version in AGENT:
        python = interpreter(version)
        if python is None:
            absent.append(version)
            continue
        pieces[f"agents on {version}"] = agents(python)
        if version in CONTROLLER:
            with environment(python, ["-e", f"{ROOT}[dev]"]) as own:
                pieces[f"the rest on {version}"] = pytest(own, *BESIDE, *WITHOUT_TENSORFLOW)
    seen = Seen.of_all(pieces)
    return replace(seen, text=seen.text + (f"; not to be had here: {', '.join(absent)}" if absent else ""))


def documents() -> Seen:
    """README and the quick start, typed in fresh environments."""
    return pytest(sys.executable, "-m", "nightly", "tests/documents", DTCTL_NIGHTLY="1")


PARTS: dict[str, Callable[[], Seen]] = {
    "wheel": wheel.works,
    "documents": documents,
    "lowest": lowest,
    "pythons": pythons,
    "fuzz": fuzz,
    "lies": lies,
    "sequences": sequences,
    "cases": cases,
    "templates": templates,
    "faults": faults,
}
"""The short ones first."""

"""The parts of the nightly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from tests import rooms
from tests.desk import CLUSTER, LOCAL_HOSTS, STAND_IN
from tests.nightly.running import JOBS, ROOT, Limits, PartResult, environment, pytest, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # of pytest

SEQUENCES_ON_HOSTS = "tests/faults/test_sequences.py"
ELECTIONS_FILE = "tests/unit/agent/coordinate/test_election.py"

WITHOUT_TENSORFLOW = ("tests/unit", "tests/local", "tests/ssh")
OF_THEIR_TIME = ("click<8.5",)
"""What the oldest dependencies depend on in turn. Typer 0.21 uses what click 8.5 warns of, and warnings are errors."""

BESIDE = ("-n", JOBS, "--dist", "loadgroup")
PATIENT = "--timeout=7200"
"""Of one test: what takes a second by day takes hours here, or waits for thousands of commands of others."""


AGENT = [f"3.{minor}" for minor in range(8, 15)]
"""What agents run on."""

CONTROLLER = [f"3.{minor}" for minor in range(10, 15)]
"""What the rest runs on."""

ABSENT = "this Python is not installed here"
EXTRAS = ("top", "dashboard")


MARKED = {
    "documents": ("tests/documents",),
    "lies": ("tests/hostile",),
    "cases": ("tests/unit", "tests/agent", "tests/local", "tests/ssh"),
    "templates": ("tests/templates", "tests/training"),
    "faults": ("tests/faults", "tests/fleet", "tests/speed", "tests/slurm"),
}
"""Where tests are marked `nightly`, and the part that has them."""


def templates(limits: Limits) -> PartResult:
    """Every template with its variants: a loss and a stop on this machine, and on separate hosts."""
    return pytest(limits, sys.executable, "-m", "nightly", *MARKED["templates"], DTCTL_NIGHTLY="1")


def faults(limits: Limits) -> PartResult:
    """Everything that breaks; writes docs/faults.md."""
    others = (*MARKED["faults"], f"--ignore={SEQUENCES_ON_HOSTS}")
    return pytest(limits, sys.executable, *others, DTCTL_NIGHTLY="1", DTCTL_FAULT_REPORT="docs/faults.md")


def sequences_in_memory(limits: Limits) -> PartResult:
    """Faults in pairs and sequences, with processes in memory."""
    file = "tests/unit/agent/coordinate/test_sequences.py"
    seen = pytest(
        limits,
        sys.executable,
        *BESIDE,
        file,
        SEQUENCES=f"{limits.sequences}",
        SEQUENCES_FROM=f"{limits.sequences_from}",
    )
    return replace(seen, text=f"{limits.sequences} sequences, ten a test: {seen.text}")


def sequences_on_hosts(limits: Limits) -> PartResult:
    seen = pytest(limits, sys.executable, SEQUENCES_ON_HOSTS, DTCTL_NIGHTLY="1", FAULTS=f"{limits.faults}")
    return replace(seen, text=f"{limits.faults} faults: {seen.text}")


def elections(limits: Limits) -> PartResult:
    """Elections of the coordinator under faults, by seed."""
    seen = pytest(limits, sys.executable, *BESIDE, PATIENT, ELECTIONS_FILE, ELECTIONS=f"{limits.elections}")
    return replace(seen, text=f"{limits.elections} elections, a hundred a test; {seen.text}")


def searches(limits: Limits) -> PartResult:
    """Elections of the coordinator in every order of few events."""
    return pytest(limits, sys.executable, *BESIDE, PATIENT, "-m", "nightly", ELECTIONS_FILE, DTCTL_NIGHTLY="1")


def lies(limits: Limits) -> PartResult:
    """Every lie of a host on every command that it reaches."""
    return pytest(limits, sys.executable, *BESIDE, PATIENT, "-m", "nightly", *MARKED["lies"], DTCTL_NIGHTLY="1")


def cases(limits: Limits) -> PartResult:
    """What a day has no time for of the commands, of agents and of logins; the screen of `dtctl top` on a terminal."""
    own = (*MARKED["cases"], f"--ignore={ELECTIONS_FILE}")
    return pytest(limits, sys.executable, *BESIDE, "-m", "nightly", *own, DTCTL_NIGHTLY="1")


def fuzz(limits: Limits) -> PartResult:
    """Every test with cases of its own making, with a hundred times as many."""
    files = sorted({str(file.relative_to(ROOT)) for file in ROOT.glob("tests/**/test_*.py") if _is_fuzzed(file)})
    seen = pytest(limits, sys.executable, *BESIDE, PATIENT, "-m", "hypothesis", *files, FUZZ=f"{limits.fuzz}")
    return replace(seen, text=f"{limits.fuzz} cases each; {seen.text}")


def _is_fuzzed(file: Path) -> bool:
    return "from tests.fuzz import" in file.read_text()


def lowest(version: str, limits: Limits) -> PartResult:
    """The oldest dependencies that pyproject.toml allows: on the oldest Python everything, on the others a part."""
    python = interpreter(version)
    if python is None:
        return PartResult(version != CONTROLLER[0], ABSENT, whole=False)
    bounds = [*lower_bounds(dependencies(ROOT), version), *OF_THEIR_TIME]
    tests = WITHOUT_TENSORFLOW if version == CONTROLLER[0] else ("tests/unit",)
    with tempfile.TemporaryDirectory() as directory:
        constraints = Path(directory, "lowest.txt")
        constraints.write_text("\n".join(bounds) + "\n")
        with environment(python, ["-e", f"{ROOT}[dev]"], "-c", str(constraints)) as own:
            seen = pytest(limits, own, *BESIDE, *tests)
    return replace(seen, text=f"{seen.text}; {', '.join(bounds)}")


def agents(version: str, limits: Limits) -> PartResult:
    """The tests that otherwise run on the oldest Python."""
    python = interpreter(version)
    if python is None:
        return PartResult(True, ABSENT, whole=False)
    arguments = (*BESIDE, "-k", "oldest", "tests/agent")
    return pytest(limits, sys.executable, *arguments, DTCTL_NIGHTLY="1", DTCTL_AGENT_PYTHON=python)


def controller(version: str, limits: Limits) -> PartResult:
    """All that is not the agent, with the newest dependencies."""
    python = interpreter(version)
    if python is None:
        return PartResult(True, ABSENT, whole=False)
    with environment(python, ["-e", f"{ROOT}[dev]"]) as own:
        return pytest(limits, own, *BESIDE, *WITHOUT_TENSORFLOW)


def documents(limits: Limits) -> PartResult:
    """README and the quick start, typed in fresh environments."""
    return pytest(limits, sys.executable, "-m", "nightly", *MARKED["documents"], DTCTL_NIGHTLY="1")


def interpreter(version: str) -> str | None:
    """One of that version that really runs, since a shim may only pretend."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for candidate in filter(None, [shutil.which(f"python{version}"), *map(str, pyenv)]):
        tell = [candidate, "-ISc", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(tell, capture_output=True, text=True, check=False).stdout.strip() == version:
            return candidate
    return None


def dependencies(project: Path) -> list[str]:
    """Of dtctl and of its extras for screens, as pyproject.toml has them now: an installation may be an older one."""
    with (project / "pyproject.toml").open("rb") as file:
        metadata = tomllib.load(file)["project"]
    return [*metadata["dependencies"], *(each for extra in EXTRAS for each in metadata["optional-dependencies"][extra])]


def lower_bounds(dependencies: list[str], version: str) -> Iterator[str]:
    """`typer>=0.19` -> `typer==0.19`: the versions that a constraint file holds pip to, on a Python of this version."""
    for requirement in map(Requirement, dependencies):
        if requirement.marker and not requirement.marker.evaluate({"python_version": version, "extra": ""}):
            continue
        bounds = [each.version for each in requirement.specifier if each.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"{requirement} has no lower bound")
        yield f"{requirement.name}=={bounds[0]}"


def wheel(_: Limits) -> PartResult:
    """The wheel as a user has it: built, installed in an environment of its own, and used far from the checkout."""
    with tempfile.TemporaryDirectory(prefix="dtctl-wheel-") as directory:
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", directory, str(ROOT)])
        (built,) = Path(directory).glob("dtctl-*.whl")
        with environment(sys.executable, [str(built)]) as python:
            home = Path(directory, "home")
            home.mkdir()
            User(python, home).tries_it()
        return PartResult(True, f"{built.name}: --help, init, up --local, logs, wait, stop, down")


class User:
    def __init__(self, python: str, home: Path) -> None:
        self._dtctl, self.home = str(Path(python).with_name("dtctl")), home
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "160"}

    def dtctl(self, *args: str, directory: str = ".") -> str:
        return run([self._dtctl, *args], cwd=self.home / directory, env=self._environment)

    def tries_it(self) -> None:
        assert str(ROOT) not in self.dtctl("--version")
        assert "up" in self.dtctl("--help")
        assert "trainer.command" in self.dtctl("explain")
        self.finds_what_is_shipped()
        self.dtctl("init", "--template", "hello", "first")
        try:
            self.dtctl("up", "--local", directory="first")
            self.dtctl("wait", directory="first")
            assert "step" in self.dtctl("logs", "-n", "all", directory="first")
        finally:
            self.dtctl("down", "--yes", directory="first")
        self.stops_a_trainer_of_their_own()

    def finds_what_is_shipped(self) -> None:
        share = Path(self._dtctl).parents[1] / "share"
        assert "dtctl" in run(["man", "-l", str(share / "man/man1/dtctl.1")])
        for script in (
            "bash-completion/completions/dtctl",
            "zsh/site-functions/_dtctl",
            "fish/vendor_completions.d/dtctl.fish",
        ):
            assert "_DTCTL_COMPLETE" in (share / script).read_text()
        assert [*share.parent.glob("lib/python*/site-packages/dtctl/py.typed")]

    def stops_a_trainer_of_their_own(self) -> None:
        project = self.home / "second"
        project.mkdir()
        shutil.copy(STAND_IN, project)
        (project / "cluster.yaml").write_text(CLUSTER.format(name="second", hosts=LOCAL_HOSTS, args="{}"))
        try:
            self.dtctl("up", "--local", directory="second")
            assert "running" in self.dtctl("status", directory="second")
            assert "3 tasks stopped, 0 left" in self.dtctl("stop", directory="second")
        finally:
            self.dtctl("down", "--yes", directory="second")


def without_room(room: str, _: Limits) -> PartResult:
    """dtctl without a room and those that need it; without any, if it is the core that is named."""
    with tempfile.TemporaryDirectory(prefix="dtctl-rooms-") as place:
        problems = rooms.Trial(Path(place)).of("" if room == rooms.CORE else room)
    for problem in problems:
        print(problem, flush=True)
    failing = ", ".join(problem.partition(":")[0] for problem in problems)
    return PartResult(not problems, f"failed without it: {failing}" if failing else "dtctl stands without it")


Piece = Callable[[Limits], PartResult]

PARTS: dict[str, dict[str, Piece]] = {
    "wheel": {"": wheel},
    "documents": {"": documents},
    "lowest": {version: partial(lowest, version) for version in CONTROLLER},
    "pythons": {
        **{f"agent-{version}": partial(agents, version) for version in AGENT},
        **{f"controller-{version}": partial(controller, version) for version in CONTROLLER},
    },
    "rooms": {name: partial(without_room, name) for name in (rooms.CORE, *rooms.names())},
    "fuzz": {"": fuzz},
    "lies": {"": lies},
    "sequences": {"memory": sequences_in_memory, "hosts": sequences_on_hosts},
    "elections": {"seeds": elections, "searches": searches},
    "cases": {"": cases},
    "templates": {"": templates},
    "faults": {"": faults},
}
"""Each part with its pieces, by name; "" is all of a part that has one piece. The short ones first."""


PIECES: dict[str, Piece] = {
    f"{part}:{name}" if name else part: run for part, pieces in PARTS.items() for name, run in pieces.items()
}

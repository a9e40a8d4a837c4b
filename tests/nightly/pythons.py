"""The interpreters that are to be had here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # of pytest

AGENT = [f"3.{minor}" for minor in range(8, 15)]
"""What agents run on."""

CONTROLLER = [f"3.{minor}" for minor in range(10, 15)]
"""What the rest runs on."""

EXTRAS = ("top", "dashboard")


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
        told = tomllib.load(file)["project"]
    return [*told["dependencies"], *(each for extra in EXTRAS for each in told["optional-dependencies"][extra])]


def lower_bounds(dependencies: list[str], version: str) -> Iterator[str]:
    """`typer>=0.19` -> `typer==0.19`: the versions that a constraint file holds pip to, on a Python of this version."""
    for requirement in map(Requirement, dependencies):
        if requirement.marker and not requirement.marker.evaluate({"python_version": version, "extra": ""}):
            continue
        bounds = [each.version for each in requirement.specifier if each.operator == ">="]
        if len(bounds) != 1:
            raise ValueError(f"{requirement} has no lower bound")
        yield f"{requirement.name}=={bounds[0]}"

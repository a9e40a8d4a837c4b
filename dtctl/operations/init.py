"""Write a template's files where a user wants to begin."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import dtctl
from dtctl.config.suggest import did_you_mean
from dtctl.errors import UsageError

PACKAGE = Path(dtctl.__file__).resolve().parent
HELPER = {Path("graceful.py"): PACKAGE / "trainer.py"}
"""Hosts have no dtctl that a trainer could import from: it takes the module along, as a file of its own."""
IGNORED = ".dtctlignore"
"""What stays at home: the same for all templates, and beside them."""


def templates_directory() -> Path:
    """In an installed package beside this one's modules, in a checkout at its top level."""
    packaged = PACKAGE / "templates"
    return packaged if packaged.is_dir() else PACKAGE.parent / "templates"


def template_names() -> list[str]:
    return sorted(path.name for path in templates_directory().iterdir() if (path / "cluster.yaml").is_file())


def about_template(name: str) -> str:
    """When to choose it: the first line of its cluster.yaml."""
    with (templates_directory() / name / "cluster.yaml").open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip()


def requirements(name: str) -> tuple[str, ...]:
    """What a template's trainer needs beside Python."""
    file = templates_directory() / name / "requirements.txt"
    return tuple(file.read_text(encoding="utf-8").split()) if file.is_file() else ()


def write_template(name: str, directory: Path) -> tuple[Path, ...]:
    """The files that were written. Raises UsageError, before anything is written, if one of them is there already."""
    names = template_names()
    if name not in names:
        raise UsageError(
            f"there is no template {name!r}", hint=did_you_mean(name, names) or f"templates: {', '.join(names)}"
        )
    source = templates_directory() / name
    files = {
        path.relative_to(source): path
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return _write({**files, **HELPER, Path(IGNORED): source.parent / IGNORED}, directory)


def write_helper(directory: Path) -> tuple[Path, ...]:
    """Only what makes a trainer save on SIGTERM, for one that is there already. Raises as `write_template` does."""
    return _write(HELPER, directory)


def _write(files: Mapping[Path, Path], directory: Path) -> tuple[Path, ...]:
    there = sorted(directory / path for path in files if (directory / path).exists())
    if there:
        raise UsageError(f"{there[0]} already exists", hint="dtctl init DIR    writes to another directory")
    for path, source in files.items():
        target = directory / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return tuple(sorted(directory / path for path in files))

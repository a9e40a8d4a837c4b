"""Writes the files of a template to a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dtctl
from dtctl.config import FILE_NAME
from dtctl.config.names import CLUSTER_PATTERN, CLUSTER_WORDS, LONGEST_CLUSTER
from dtctl.errors import UsageError, did_you_mean
from dtctl.folder import Folder
from dtctl.rooms import each

UNNAMED = "training"
"""The name of a cluster whose directory's name contains no usable character."""
_NAMED = re.compile(r"^name: (\S+)", re.MULTILINE)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
PACKAGE = Path(dtctl.__file__).resolve().parent
HELPER = {Path("graceful.py"): PACKAGE / "trainer.py"}
"""The helper module, which is copied to the trainer: dtctl cannot be imported on the hosts."""
IGNORED = ".dtctlignore"
"""Files that are not pushed: the same for all templates, and stored next to them."""


def templates_directory() -> Path:
    """The directory of templates: next to the modules of an installed package, or at the top of a checkout."""
    packaged = PACKAGE / "templates"
    return packaged if packaged.is_dir() else PACKAGE.parent / "templates"


def template_names() -> list[str]:
    return sorted(path.name for path in templates_directory().iterdir() if (path / "cluster.yaml").is_file())


def about_template(name: str) -> str:
    """A template's use case: the first line of its cluster.yaml."""
    with (templates_directory() / name / "cluster.yaml").open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip()


def requirements(name: str) -> tuple[str, ...]:
    """The packages that a template's trainer needs."""
    file = templates_directory() / name / "requirements.txt"
    return tuple(file.read_text(encoding="utf-8").split()) if file.is_file() else ()


def cluster_name(directory: Path, text: str | None) -> str:
    """`text`, or else the directory's name turned into a valid cluster name. Raises UsageError for an invalid
    `text`.
    """
    if text is None:
        return _UNFIT.sub("-", directory.absolute().resolve().name).lstrip("._-")[:LONGEST_CLUSTER] or UNNAMED
    if not re.fullmatch(CLUSTER_PATTERN, text):
        raise UsageError(f"{text!r} cannot be the name of a cluster", hint=f"a name has {CLUSTER_WORDS}")
    return text


def write_template(name: str, directory: Path, cluster: str) -> tuple[Path, ...]:
    """Writes the files for a cluster of that name, which is also in the paths on the hosts; returns the written files.

    Raises UsageError, before anything is written, if one of them is there already.
    """
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
    text = _named(files.pop(Path(FILE_NAME)).read_text(encoding="utf-8"), cluster)
    return _write({**files, **HELPER, Path(IGNORED): source.parent / IGNORED}, directory, {Path(FILE_NAME): text})


def write_helper(directory: Path) -> tuple[Path, ...]:
    """Writes only the module that makes an existing trainer save on SIGTERM. Raises as `write_template` does."""
    return _write(HELPER, directory)


def from_source(source: str, directory: Path, name: str | None) -> Any:
    """What the room that reads such sources has made of it. Raises UsageError if there is no such room."""
    make = next(each("source"), None)
    if make is None:
        raise UsageError("this dtctl imports nothing", hint="install dtctl again, with all its files")
    return make(source, directory, name)


def _named(text: str, cluster: str) -> str:
    """The cluster file of a template with another name, also in the paths on the hosts."""
    own = _NAMED.search(text)
    assert own is not None, "each template has a name"
    # These words are text only in quotes.
    written = f'"{cluster}"' if cluster.lower() in ("true", "false", "null") else cluster
    return _NAMED.sub(f"name: {written}", text.replace(f"~/dtctl/{own[1]}", f"~/dtctl/{cluster}"), count=1)


def _write(
    files: Mapping[Path, Path], directory: Path, texts: Mapping[Path, str] = MappingProxyType({})
) -> tuple[Path, ...]:
    """Copies the files and writes the other texts to the same directory."""
    paths = sorted(directory / path for path in (*files, *texts))
    there = [path for path in paths if os.path.lexists(path)]
    if there:
        raise UsageError(f"{there[0]} already exists", hint="dtctl init DIR    writes to another directory")
    for path in (*files, *texts):
        target = directory / path
        try:
            content = texts[path].encode() if path in texts else files[path].read_bytes()
            with Folder(target.parent, directory, make=0o777) as folder, folder.new(target.name, 0o666) as file:
                file.write(content)
        except OSError as error:
            raise UsageError(f"cannot write {target}: {error.strerror}") from error
    return tuple(paths)

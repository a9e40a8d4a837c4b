"""Finds cluster.yaml. load.py reads it into a `Cluster`, and reference.py describes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dtctl.errors import UsageError

FILE_NAME = "cluster.yaml"
OTHER_NAME = "cluster.yml"
VARIABLE = "DTCTL_CONFIG"


def find_cluster_file(argument: Path | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """The argument, $DTCTL_CONFIG, or the nearest cluster.yaml from `cwd` up to the root of its repository.

    A named file is returned as it is named: its reader reports what is wrong with it.
    """
    if argument is not None:
        return argument
    if named := environ.get(VARIABLE):
        return _named_by_variable(Path(named).expanduser(), cwd)
    candidates = [folder / FILE_NAME for folder in _folders(cwd)]
    for is_there in (Path.is_file, Path.exists):  # a directory of that name is reported as such, if there is no file
        for candidate in candidates:
            if is_there(candidate):
                return candidate
    for other in (folder / OTHER_NAME for folder in _folders(cwd)):
        if other.is_file():
            raise UsageError(
                f"there is no {FILE_NAME} here, but a {OTHER_NAME}",
                detail=f"without a name dtctl looks for {FILE_NAME} alone",
                hint=f"mv {other} {other.with_name(FILE_NAME)}    or name it: dtctl COMMAND -c {other}",
            )
    raise UsageError(
        "no cluster file is given, and none is here",
        detail=f"no file was named, ${VARIABLE} is not set, and there is no {', no '.join(map(str, candidates))}",
        hint="dtctl init    writes one; or name yours: dtctl COMMAND path/to/cluster.yaml",
    )


def _named_by_variable(file: Path, cwd: Path) -> Path:
    if not (cwd / file).exists():
        raise UsageError(
            f"${VARIABLE} names {file}, which does not exist",
            hint=f"unset {VARIABLE}    or set it to a cluster file",
        )
    return cwd / file


def _folders(cwd: Path) -> list[Path]:
    """`cwd` and, inside a repository, its parents up to the root; a file in / or ~ is ignored."""
    lineage = [cwd, *cwd.parents]
    for index, folder in enumerate(lineage):
        if (folder / ".git").exists():
            return lineage[: index + 1]
    return [cwd]

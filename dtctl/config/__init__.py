"""cluster.yaml: found, read, checked, and turned into `dtctl.model.Cluster`.

What reads a file is imported by the functions that need it, so that `dtctl --help` and completion stay quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster
    from dtctl.config.load import Checked


__all__ = ["check_cluster", "cluster_schema", "find_cluster_file", "load_cluster", "reference_markdown"]


def load_cluster(file: Path, *, overrides: Sequence[str] = (), needs_files: bool = True) -> Cluster:
    """The cluster that `file` describes, with `--set path=value` overrides. Raises ConfigError with every problem.

    `needs_files`: the code and the env_file have to be on this machine.
    """
    from dtctl.config.load import load

    return load(file, overrides, needs_files=needs_files)


def check_cluster(file: Path, *, overrides: Sequence[str] = ()) -> Checked:
    """The same for one who is about to start it: its findings hold what cannot work, and what is hardly meant."""
    from dtctl.config.load import check

    return check(file, overrides)


def cluster_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of cluster.yaml, for editors."""
    from dtctl.config.reference import json_schema

    return json_schema()


def reference_markdown() -> str:
    """docs/cluster-yaml.md."""
    from dtctl.config.reference import markdown

    return markdown()


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

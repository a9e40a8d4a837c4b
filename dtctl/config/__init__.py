"""cluster.yaml: found, read, checked, and turned into `dtctl.model.Cluster`.

pydantic and PyYAML are imported by the functions that need them, so that `dtctl --help` and completion stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.config.discovery import find_cluster_file
from dtctl.model import Cluster

if TYPE_CHECKING:
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

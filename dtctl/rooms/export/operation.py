"""Writes a cluster for other engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError
from dtctl.folder import Folder
from dtctl.rooms.export import kubernetes, slurm
from dtctl.rooms.export.dockerfile import dockerfile
from dtctl.rooms.export.kubernetes import Exported
from dtctl.rooms.export.limits import unsaid
from dtctl.rooms.export.pods import fitting, refuse_secrets, secret_variables

_KUBERNETES: Mapping[str, Callable[[Cluster, str], Exported]] = {
    "tfjob": kubernetes.tfjob,
    "jobset": kubernetes.jobset,
    "trainjob": kubernetes.trainjob,
}
TARGETS = (*_KUBERNETES, "slurm", "dockerfile")


@dataclass(frozen=True)
class Export:
    target: str
    text: str
    warnings: tuple[str, ...]
    image: str = ""


def export(cluster: Cluster, target: str, code_id: str, image: str | None) -> Export:
    """The text for an engine, with what it cannot say as comments in it. Raises PreflightError."""
    if target == "dockerfile":
        return Export(target, dockerfile(cluster, code_id), ())
    name = image or f"registry.example.com/{fitting(cluster.name)}:{code_id[:12]}"
    if target == "slurm":
        plan = slurm.planned(cluster)
        refuse_secrets(plan)
        warnings = _warnings(cluster, Exported((), plan), target)
        return Export(target, slurm.batch(cluster, plan, _header(cluster, target, warnings), code_id), warnings)
    made = _KUBERNETES[target](cluster, name)
    refuse_secrets(made.plan)
    warnings = _warnings(cluster, made, target)
    if image is None:
        warnings = (*warnings, f"image: push yours as {name}, or name another with --image")
    documents = [yaml.safe_dump(one, sort_keys=False, width=1000) for one in made.manifests]
    return Export(target, "\n".join([*_header(cluster, target, warnings), "---\n".join(documents)]), warnings, name)


def write(text: str, file: Path) -> None:
    """Writes a new file. Raises UsageError if it exists, or cannot be written."""
    try:
        with Folder(file.parent, file.parent, make=0o777) as folder, folder.new(file.name, 0o666) as opened:
            opened.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}", hint="name a file that does not exist") from error


def _warnings(cluster: Cluster, made: Exported, target: str) -> tuple[str, ...]:
    found = [*unsaid(cluster, made.plan, target), *made.warnings]
    if secrets := dict.fromkeys([*cluster.trainer.secrets, *secret_variables(made.plan)]):
        names = ", ".join(secrets)
        where = "sbatch passes your environment on" if target == "slurm" else f"Secret {fitting(cluster.name)}-secrets"
        found.append(f"secrets: the values of {names} are not written here ({where})")
    return tuple(found)


def _header(cluster: Cluster, target: str, warnings: tuple[str, ...]) -> list[str]:
    lines = [f"# Written by dtctl export {target} from {cluster.file.name}. What dtctl does and this file cannot say:"]
    return lines + [f"#   {_one_line(text)}" for text in warnings]


def _one_line(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in text)

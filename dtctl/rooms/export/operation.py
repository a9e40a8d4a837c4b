"""Writes a cluster for other engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from dtctl.bundle import Bundle
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import UsageError
from dtctl.folder import Folder
from dtctl.operations.run_record import RunRecord
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


def export_with_agent(
    cluster: Cluster, bundle: Bundle, image: str | None, environ: Mapping[str, str], namespace: str | None
) -> tuple[Export, RunRecord]:
    """A JobSet whose pods run agents, with keys of the run, and the run's record. Raises PreflightError."""
    from dtctl.rooms.export.agents import with_agents  # imported late: rarely needed

    name = image or f"registry.example.com/{fitting(cluster.name)}:{bundle.code_id[:12]}"
    made = with_agents(cluster, name, bundle, environ, namespace)
    warnings = made.warnings
    if cluster.trainer.secrets:
        names = ", ".join(cluster.trainer.secrets)
        warnings += (f"secrets: the values of {names} are not written here (Secret {fitting(cluster.name)}-secrets)",)
    if image is None:
        warnings += (f"image: push yours as {name}, or name another with --image",)
    documents = [yaml.safe_dump(one, sort_keys=False, width=1000) for one in made.manifests]
    header = [
        f"# Written by dtctl export jobset --with-agent from {cluster.file.name}. It has keys of {made.record.run}.",
        "# What is not as over SSH:",
        *(f"#   {_one_line(text)}" for text in warnings),
    ]
    return Export("jobset", "\n".join([*header, "---\n".join(documents)]), warnings, name), made.record


def write(text: str, file: Path, *, is_private: bool = False) -> None:
    """Writes a new file; a private one is for this user alone. Raises UsageError if it exists, or cannot be written."""
    try:
        with (
            Folder(file.parent, file.parent, make=0o777) as folder,
            folder.new(file.name, 0o600 if is_private else 0o666) as opened,
        ):
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

"""Which directories, and whether the number of GPUs, a trainer is handed over."""

from __future__ import annotations

from collections.abc import Sequence

from dtctl.config.sections import ClusterFile, LaunchKeys
from dtctl.config.yaml.document import Findings, Path
from dtctl.model import PLATFORM_NAMES


def platform_names(said: Sequence[str] | None, content: ClusterFile) -> tuple[str, ...]:
    """The names one by one: `flags` and `env` stand for the directories that are set and num_gpus."""
    with_value = [name for name in PLATFORM_NAMES if name == "num_gpus" or directory_is_set(name, content)]
    groups = {"flags": with_value, "env": [name.upper() for name in with_value]}
    return tuple(dict.fromkeys(name for word in said or () for name in groups.get(word, [word])))


def directory_is_set(field: str, content: ClusterFile) -> bool:
    """`field`: output_dir, say."""
    return field.endswith("_dir") and getattr(content.dirs, field.removesuffix("_dir")) is not None


def check_platform(path: tuple[str, ...], section: LaunchKeys, content: ClusterFile, findings: Findings) -> None:
    for index, word in enumerate(section.platform or ()):
        field = word.lower()
        if field.endswith("_dir") and not directory_is_set(field, content) and not findings.has("dirs"):
            lacks_directory((*path, "platform", index), word, findings)


def lacks_directory(at: Path, field: str, findings: Findings) -> None:
    name = field.strip("{}").lower().removesuffix("_dir")
    summary = f"{findings.name(*at)}: {field} has no value, because dirs.{name} is not set"
    findings.add(at, summary, f"write, for example, dirs: {{{name}: /data}}")

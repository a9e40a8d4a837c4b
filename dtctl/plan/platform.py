"""Directories and devices as a trainer reads them, by choice: --data_dir or DATA_DIR. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.model import Launch


def platform_words(launch: Launch, fields: Mapping[str, str]) -> tuple[str, ...]:
    """Less those that the trainer's own arguments have."""
    own = {word.partition("=")[0] for word in launch.args}
    names = [name for name in launch.platform if name.islower() and f"--{name}" not in own]
    return tuple(f"--{name}={_value(name, fields)}" for name in names)


def platform_env(launch: Launch, fields: Mapping[str, str]) -> Mapping[str, str]:
    return {name: _value(name.lower(), fields) for name in launch.platform if name.isupper()}


def _value(name: str, fields: Mapping[str, str]) -> str:
    return fields["num_gpus" if name == "num_gpu" else name]

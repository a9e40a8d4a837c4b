"""The machine form of the results of `init`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dtctl.render.machine import document


def init(cluster: str, files: Sequence[Path]) -> dict[str, Any]:
    return {"cluster": cluster, "files": document.plain(files)}


def templates(found: Mapping[str, str]) -> dict[str, Any]:
    return {"templates": [{"name": name, "use": use} for name, use in found.items()]}

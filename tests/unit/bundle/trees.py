"""Code directories, and the files of them that are sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan


def write(code: Path, files: Mapping[str, str], *empty: str) -> Path:
    for name, text in {**files, **dict.fromkeys(empty, "")}.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    return code


def sent(code: Path | Bundle) -> set[str]:
    bundle = scan(code) if isinstance(code, Path) else code
    return {file.path for file in bundle.manifest.files}

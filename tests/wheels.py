"""Wheels of small packages, made here: tests install them without an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(directory: Path, name: str, version: str = "1.0", text: str = "") -> Path:
    """A package of one module, whose text also says its `VERSION`."""
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n{text}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, content)
    return wheel

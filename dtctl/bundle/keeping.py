"""A bundle that is kept on this machine until it is sent: it stays as it was when the code directory changes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from dtctl.bundle import Bundle, FileEntry, Manifest
from dtctl.bundle.sender import read_part
from dtctl.errors import DtctlError, PreflightError
from dtctl.folder import PRIVATE, Folder, make_private, read_regular

MANIFEST = "manifest.json"
TREE = "tree"
_MANIFEST_BYTES = 1 << 28


def keep(bundle: Bundle, directory: Path) -> None:
    """Copies the bundle into a new directory, for this user alone. Raises PreflightError for a file that is not what
    was scanned, and for a copy that cannot be written.
    """
    try:
        make_private(directory)
        with Folder(directory) as folder:
            with folder.below(TREE, make=PRIVATE) as tree:
                tree.refuse_without_room(bundle.total_bytes)
                for file in bundle.manifest.files:
                    _copy(bundle.root, file, tree)
            folder.replace(MANIFEST, bundle.manifest.canonical)
    except OSError as error:
        raise PreflightError(f"the code cannot be kept in {directory}", detail=str(error)) from error


def _copy(root: Path, file: FileEntry, tree: Folder) -> None:
    above, _, name = file.path.rpartition("/")
    hasher = hashlib.sha256()
    with tree.below(above, make=PRIVATE) as place, place.new(name) as copy:
        for part in read_part(root / file.path, file.size, size=file.size):
            hasher.update(part)
            copy.write(part)
    if hasher.hexdigest() != file.sha256:
        raise PreflightError(f"{root / file.path} changed while it was copied", hint="run dtctl up again")


def kept(directory: Path, bundle_id: str) -> Bundle:
    """The bundle with this id that `keep` has put there. Raises DtctlError if any of it has changed or is gone."""
    try:
        manifest = _parsed(read_regular(directory / MANIFEST, _MANIFEST_BYTES))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(directory, str(error)) from error
    if manifest.id != bundle_id:
        raise _damaged(directory / MANIFEST, f"its digest is {manifest.id[:12]}, expected {bundle_id[:12]}")
    root = directory / TREE
    for file in manifest.files:
        _verify(root, file)
    return Bundle(root=root, manifest=manifest, skipped=())


def _parsed(content: bytes) -> Manifest:
    data = json.loads(content)
    return Manifest(
        files=tuple(FileEntry(*file) for file in data["files"]),
        links=tuple((path, target) for path, target in data["links"]),
        dirs=tuple((path, mode) for path, mode in data["dirs"]),
        cluster=data.get("cluster", ""),
    )


def _verify(root: Path, file: FileEntry) -> None:
    hasher = hashlib.sha256()
    try:
        for part in read_part(root / file.path, file.size, size=file.size):
            hasher.update(part)
    except PreflightError as error:
        raise _damaged(root / file.path, error.detail) from error
    if hasher.hexdigest() != file.sha256:
        raise _damaged(root / file.path, "its content is another one")


def _damaged(path: Path, why: str) -> DtctlError:
    return DtctlError(
        f"{path} is not as it was submitted", detail=why, hint="dtctl up --replace    submits the code as it is now"
    )


def remove(directory: Path) -> None:
    """Removes a kept bundle, and all else in its directory."""
    shutil.rmtree(directory, ignore_errors=True)

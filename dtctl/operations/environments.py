"""The files from which the trainers' environment is created: requirements that the cluster file names, and wheels.

None of them is interpreted here. pip, uv and conda read them on the hosts, where nothing but these files is beside
them (agent/run/environments.py): whatever a file includes has to be named too, and its content counts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import posixpath
import stat
from collections.abc import Mapping
from pathlib import Path

from dtctl.bundle import Bundle, FileEntry, Manifest
from dtctl.config.cluster import Cluster, Environment
from dtctl.errors import PreflightError
from dtctl.folder import open_regular
from dtctl.plan.spec import EnvironmentContent

_CHUNK = 1 << 20
_WHEEL = ".whl"
_MODE = 0o644
_FILL = "pip download --only-binary=:all: --dest %s -r requirements.txt    fills it"


def environment_files(cluster: Cluster) -> Mapping[str, str]:
    """The files by their paths in the code, with their SHA-256. Raises PreflightError where one cannot be read."""
    said, code = cluster.trainer.environment, cluster.trainer.code
    if said is None:
        return {}
    return {name: _sha256(code, name) for name in dict.fromkeys(map(posixpath.normpath, _names(said)))}


def _names(said: Environment) -> list[str]:
    if said.kind == "requirements":
        return [said.what, *said.files]
    if said.kind == "uv":
        return [posixpath.join(said.what, name) for name in ("pyproject.toml", "uv.lock")] + [*said.files]
    return [said.file, *said.files] if said.file else []


def _sha256(code: Path, name: str) -> str:
    digest = hashlib.sha256()
    try:
        with os.fdopen(open_regular(code / name), "rb") as file:
            for chunk in iter(lambda: file.read(_CHUNK), b""):
                digest.update(chunk)
    except OSError as error:
        hint = f"uv lock    in {(code / name).parent} writes it" if name.endswith("uv.lock") else ""
        raise PreflightError(
            f"{name} cannot be read in the code, {code}: {(error.strerror or str(error)).lower()}",
            hint=hint or "files of trainer.environment are named within the code directory",
        ) from error
    return digest.hexdigest()


def environment_wheels(cluster: Cluster) -> Bundle | None:
    """The wheels of `environment.wheels`; None if the file names none.

    Raises PreflightError for a directory without any, and for one that holds anything else: a source package would be
    built on the hosts, and pip does not search directories below.
    """
    place = cluster.trainer.wheels
    if place is None:
        return None
    from dtctl.bundle.scanning import scan

    names = _wheels_in(place)
    found = scan(place, data=True)
    sent = {file.path: file for file in found.manifest.files}
    for name in names:
        if name not in sent:
            rule = next((one.rule for one in (*found.withheld, *found.skipped) if one.path == name), "")
            detail = f"it usually holds secrets: {rule}" if rule else ""
            raise PreflightError(f"{place / name} cannot be sent", detail=detail, hint="rename it, or remove it")
    files = tuple(FileEntry(name, _MODE, sent[name].size, sent[name].sha256) for name in names)
    return dataclasses.replace(found, manifest=Manifest(files, links=(), dirs=()), skipped=(), withheld=(), twins=())


def environment_content(cluster: Cluster) -> EnvironmentContent:
    """Raises as `environment_files` and `environment_wheels`."""
    return content_with(cluster, environment_wheels(cluster))


def content_with(cluster: Cluster, wheels: Bundle | None) -> EnvironmentContent:
    return EnvironmentContent(environment_files(cluster), wheels.id if wheels is not None else None)


def _wheels_in(place: Path) -> list[str]:
    """The names of the wheels. Raises PreflightError before a byte is read. Names that begin with a dot are left
    out.
    """
    try:
        with os.scandir(place) as entries:
            modes = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries if entry.name[0] != "."}
    except OSError as error:
        summary = f"the wheels in {place} cannot be read: {(error.strerror or str(error)).lower()}"
        raise PreflightError(summary, hint=_FILL % place) from error
    for name, mode in sorted(modes.items()):
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
            what = "a link" if stat.S_ISLNK(mode) else "a directory"
            hint = "trainer.environment.wheels names a directory of files NAME.whl"
            raise PreflightError(f"{place / name} is {what}, expected a wheel", hint=hint)
        if not name.endswith(_WHEEL):
            hint = f"pip wheel --no-deps --wheel-dir {place} ...    builds one, on a machine like the hosts"
            raise PreflightError(f"{place / name} is not a wheel", hint=hint)
    if not modes:
        raise PreflightError(f"{place} holds no wheel", hint=_FILL % place)
    return sorted(modes)

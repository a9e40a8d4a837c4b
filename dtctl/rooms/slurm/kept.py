"""What a run that waits for its job is made of, as it was when the run was submitted: cluster file, code and wheels.

RUN/cluster.yaml
RUN/code/          bundle/keeping.py; RUN/wheels the same
RUN/diff           how the code differs from its commit
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtctl.bundle import keeping
from dtctl.bundle.revision import Inspected
from dtctl.config.load import LIMIT_BYTES
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, PreflightError
from dtctl.folder import make_private, read_regular, replace_file
from dtctl.model import Revision
from dtctl.operations.engines import Lent
from dtctl.plan.spec import EnvironmentContent

CLUSTER = "cluster.yaml"
CODE = "code"
WHEELS = "wheels"
DIFF = "diff"


@dataclass(frozen=True)
class Kept:
    """The digests of what was kept, and what is known of it."""

    file_sha256: str
    bundle: str
    wheels: str | None
    files: Mapping[str, str]
    """Those from which the environment is created, with their SHA-256."""
    revision: Mapping[str, Any] | None

    @classmethod
    def of(cls, parts: Lent) -> Kept:
        return cls(
            file_sha256=_digest(parts.content),
            bundle=parts.bundle.id,
            wheels=parts.environment.wheels,
            files=dict(parts.environment.files),
            revision=dict(vars(parts.inspected.revision)) if parts.inspected is not None else None,
        )


def keep(parts: Lent, directory: Path) -> None:
    """Raises DtctlError where a file has changed since it was scanned, or cannot be written."""
    try:
        make_private(directory)
        replace_file(directory / CLUSTER, parts.content)
        replace_file(directory / DIFF, (parts.inspected.diff if parts.inspected is not None else "").encode())
    except OSError as error:
        raise PreflightError(f"the run cannot be kept in {directory}", detail=str(error)) from error
    keeping.keep(parts.bundle, directory / CODE)
    if parts.wheels is not None:
        keeping.keep(parts.wheels, directory / WHEELS)


def lent(known: Kept, run: str, file: Path, directory: Path) -> Lent:
    """What was kept for the job that starts this run. Raises DtctlError if it is gone, or has changed."""
    try:
        content = read_regular(directory / CLUSTER, LIMIT_BYTES)
        diff = read_regular(directory / DIFF, LIMIT_BYTES).decode()
    except (OSError, ValueError) as error:
        raise DtctlError(f"what was submitted is not in {directory} any more", detail=str(error)) from error
    if _digest(content) != known.file_sha256:
        raise DtctlError(f"{directory / CLUSTER} is not as it was submitted")
    return Lent(
        run=run,
        file=file,
        content=content,
        bundle=keeping.kept(directory / CODE, known.bundle),
        wheels=keeping.kept(directory / WHEELS, known.wheels) if known.wheels is not None else None,
        environment=EnvironmentContent(known.files, known.wheels),
        inspected=Inspected(Revision(**known.revision), diff) if known.revision is not None else None,
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

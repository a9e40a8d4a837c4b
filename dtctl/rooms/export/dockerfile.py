"""The Dockerfile of the trainers' image, from the environment of the cluster file and the code. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dtctl.config.cluster import Cluster
from dtctl.rooms.export.pods import CODE_DIRECTORY

BASE = "docker.io/library/python:3.11-slim"


def dockerfile(cluster: Cluster, code_id: str) -> str:
    """The same text for the same file and code."""
    said = cluster.trainer.environment
    base = said.what if said is not None and said.kind == "container" and said.file is None else BASE
    lines = [
        f"FROM {base}",
        f'LABEL dtctl.cluster="{cluster.name}" dtctl.code="{code_id}"',
        f"WORKDIR {CODE_DIRECTORY}",
    ]
    lines += _environment(cluster)
    lines += [f"COPY . {CODE_DIRECTORY}"]
    if cluster.trainer.setup:
        lines.append("RUN " + json.dumps(["sh", "-c", cluster.trainer.setup], ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _environment(cluster: Cluster) -> Iterator[str]:
    said = cluster.trainer.environment
    if said is None or said.kind == "container":
        if said is not None and said.file is not None:
            yield f"# {said.file} is an image of its own: load it, and name it in FROM"
        return
    if said.kind == "requirements":
        yield f"COPY {json.dumps([said.what, *said.files, './'])}"
        yield "RUN " + json.dumps(["python3", "-m", "pip", "install", "--no-cache-dir", "-r", said.what])
    elif said.kind == "uv":
        place = said.what.rstrip("/")
        yield f"COPY {json.dumps([f'{place}/pyproject.toml', f'{place}/uv.lock', *said.files, './'])}"
        yield (
            "RUN python3 -m pip install --no-cache-dir uv && "
            "UV_PROJECT_ENVIRONMENT=/opt/venv uv sync --frozen --no-install-project"
        )
        yield "ENV VIRTUAL_ENV=/opt/venv PATH=/opt/venv/bin:$PATH"
    else:
        what = json.dumps(said.what)[1:-1]
        yield f"# trainer.environment.{said.kind} ({what}): build a base image with it, and name it in FROM"

"""dtctl schema"""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors."""
    from dtctl.config import cluster_schema

    typer.echo(json.dumps(cluster_schema(), indent=2))

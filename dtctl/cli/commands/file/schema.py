"""dtctl schema"""

from __future__ import annotations


def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors."""
    from dtctl.config import cluster_schema
    from dtctl.render.machine.document import print_document

    print_document(cluster_schema())

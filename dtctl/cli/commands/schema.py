"""dtctl schema"""

from __future__ import annotations

from dtctl.cli.options import OutputOption


def schema(output: OutputOption = "text") -> None:
    """Print the JSON Schema of cluster.yaml, for editors; it is the same in either form of output."""
    from dtctl.config import cluster_schema
    from dtctl.render.machine.document import print_document

    print_document(cluster_schema())

"""Why pip, or another installer, has failed, by what it has written: pure functions of text."""

from __future__ import annotations

import re

NO_INDEX = (
    r"Failed to establish a new connection|NameResolutionError|[Nn]ame or service not known|"
    r"Temporary failure in name resolution|No address associated with hostname|Network is unreachable|"
    r"No route to host|ConnectTimeoutError|dns error|error sending request for url"
)
"""It could not reach the index."""

MANAGED = r"externally-managed-environment|This environment is externally managed"
"""PEP 668: the system's package manager owns that Python."""


def reached_no_index(output: str) -> bool:
    return re.search(NO_INDEX, output) is not None


def hint(output: str, *, with_wheels: bool) -> str:
    """What to do about it, with the lines to paste; empty if that is not known. `with_wheels`: it asks no index."""
    if re.search(MANAGED, output):
        return (
            "this Python is its system's, and pip changes nothing there; in place of pip install, below `trainer:` in "
            "cluster.yaml: environment: {requirements: requirements.txt}"
        )
    if not with_wheels and reached_no_index(output):
        return (
            "this host reaches no package index; where one is reached: pip download --only-binary=:all: --dest wheels "
            "-r requirements.txt    and in cluster.yaml, below `environment:`: wheels: wheels"
        )
    if with_wheels and "No matching distribution found" in output:
        return (
            "packages come from the wheels alone, and these lack one; where a package index is reached: pip download "
            "--only-binary=:all: --dest wheels -r requirements.txt    and then dtctl up again"
        )
    return ""


def without_retries(output: str) -> str:
    """The output without pip's warnings about each retry: they are as long as the error, which follows them."""
    lines = output.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("WARNING: Retrying (")]
    return "".join(kept) if any(line.strip() for line in kept) else output

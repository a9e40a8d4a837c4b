"""Hosts that a run has left out, or replaced, for the failures on them: the next `up` refuses them until `undrain`.

The host itself remembers it: in the files of its last run there and, when these are removed, in a file beside the
cluster's lock.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files, paths
from ..run import drains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.run_state import Intents
    from ..records.spec import Spec


def is_left_out(spec: Spec, own: Intents) -> bool:
    """Whether the run has left out or replaced this host for the failures on it, and nobody has undrained it since.

    `own`: the intents of its tasks.
    """
    return spec["host"] in spec["moved"]["bad"] or drains.is_left_out_as_bad(spec["host"], own)


def remember(root: str, spec: Spec) -> None:
    """Keeps that the run has left this host out, beyond its files."""
    directory = paths.cluster_directory(root, spec["cluster"], spec["host"])
    paths.make_directory(directory)
    paths.write_text(os.path.join(directory, "left-out"), spec["run"] + "\n")


def remembered(root: str, cluster: str, host: str) -> Optional[str]:
    """The removed run that has left the host out; None if there is none. A damaged file counts: it is a person's to
    undrain.
    """
    try:
        text = paths.read_text(_place(root, cluster, host), 4096)
    except (files.Unfit, IsADirectoryError):
        return "(unknown)"
    if text is None:
        return None
    return text if paths.is_component(text) else "(unknown)"


def forget(root: str, cluster: str, host: str) -> bool:
    """Whether there was such a run."""
    was_left_out = remembered(root, cluster, host) is not None
    with suppress(FileNotFoundError):
        os.unlink(_place(root, cluster, host))
    return was_left_out


def _place(root: str, cluster: str, host: str) -> str:
    return os.path.join(paths.cluster_directory(root, cluster, host), "left-out")

"""Which versions of what trains a Python has, by the names of its directories; it is not started for that."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List

WANTED = (
    *("tensorflow", "tensorflow_cpu", "tf_nightly", "keras", "tf_keras", "tensorflow_estimator", "tensorboard"),
    *("torch", "jax", "jaxlib", "mxnet", "numpy", "protobuf"),
)

_INFO = re.compile(r"([A-Za-z0-9_.]+)-([0-9][A-Za-z0-9.+!]*)\.(?:dist|egg)-info\Z")


def versions(python: str, home: str) -> Dict[str, str]:
    """By the names of their packages; nothing where `python`, a path, is no Python."""
    found: Dict[str, str] = {}
    for directory in _directories(python, home):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            matched = _INFO.match(name)
            package = matched.group(1).lower() if matched else ""
            if matched and package in WANTED:
                found.setdefault(package.replace("_", "-"), matched.group(2))
    return found


def _directories(python: str, home: str) -> Iterator[str]:
    """Where that Python looks for packages, the surest first: of a virtual environment only what is in it."""
    own = os.path.dirname(os.path.dirname(python))
    yield from _below(os.path.join(own, "lib"), "site-packages")
    if os.path.exists(os.path.join(own, "pyvenv.cfg")):
        return
    real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    yield from _below(os.path.join(home, ".local", "lib"), "site-packages")
    for root in dict.fromkeys((real, "/usr/local", "/usr")):
        yield from _below(os.path.join(root, "lib"), "site-packages")
        yield from _below(os.path.join(root, "lib"), "dist-packages")


def _below(root: str, leaf: str) -> List[str]:
    try:
        names = sorted((name for name in os.listdir(root) if name.startswith("python3")), reverse=True)
    except OSError:
        return []
    return [os.path.join(root, name, leaf) for name in names]

"""Distributed training on plain SSH machines: the command `dtctl`, and the same operations for Python.

    import dtctl

    cluster = dtctl.load("cluster.yaml")
    run = dtctl.up(cluster)
    print(run.wait())

docs/python-api.md describes it. What is used is imported when it is first used: `import dtctl` takes no time.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dtctl import errors
    from dtctl.api import (
        Checkpoint,
        Cluster,
        LogLine,
        Outcome,
        Point,
        Progress,
        Run,
        Series,
        Status,
        Task,
        TaskState,
        attach,
        load,
        up,
    )

__all__ = [
    "Checkpoint",
    "Cluster",
    "LogLine",
    "Outcome",
    "Point",
    "Progress",
    "Run",
    "Series",
    "Status",
    "Task",
    "TaskState",
    "attach",
    "errors",
    "load",
    "up",
]


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'dtctl' has no attribute {name!r}")
    from importlib import import_module

    found = import_module("dtctl.errors") if name == "errors" else getattr(import_module("dtctl.api"), name)
    globals()[name] = found
    return found


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})

"""Distributed training on plain SSH machines: the command `dtctl`, and the same operations for Python.

    import dtctl

    cluster = dtctl.load("cluster.yaml")
    run = dtctl.up(cluster)
    print(run.wait())

docs/python-api.md describes it. What is used is imported when it is first used: `import dtctl` takes no time.
"""

# ruff: noqa: F403, F405

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dtctl import errors as errors
    from dtctl.api import *

__all__ = [
    "Checkpoint",
    "Cluster",
    "Command",
    "ComparedRun",
    "Comparison",
    "DataPlace",
    "Event",
    "Finding",
    "KnownRun",
    "LogLine",
    "Metric",
    "Outcome",
    "PlannedTask",
    "Point",
    "Progress",
    "Revision",
    "Run",
    "Series",
    "Status",
    "Task",
    "TaskState",
    "attach",
    "compare",
    "errors",
    "load",
    "replace",
    "runs",
    "up",
]
"""The one list of them: dtctl/api/__init__.py says where each is."""


def __getattr__(name: str) -> "Any":
    if name not in __all__:
        raise AttributeError(f"module 'dtctl' has no attribute {name!r}")
    from importlib import import_module

    found = import_module("dtctl.errors") if name == "errors" else getattr(import_module("dtctl.api"), name)
    globals()[name] = found
    return found


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})

"""The modules of the layers below that commands use.

A module of these is imported when it is first used: all take half a second.

mypy knows what is behind these names by tests/late_modules.py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any


class Late:
    """Stands for a package or a module, and has what that has."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._name), name, None)
        if found is None:
            found = import_module(f"{self._name}.{name}")
        return Late(found.__name__) if hasattr(found, "__path__") else found


if TYPE_CHECKING:
    from dtctl import operations as operations
    from dtctl import render as render
    from dtctl import rooms as rooms
    from dtctl.render import errors as errors
    from dtctl.render.machine import document as document
    from dtctl.render.machine import results as results
    from dtctl.render.terminal import console as console
else:
    operations, render, rooms = Late("dtctl.operations"), Late("dtctl.render"), Late("dtctl.rooms")
    errors = Late("dtctl.render.errors")
    document, results = Late("dtctl.render.machine.document"), Late("dtctl.render.machine.results")
    console = Late("dtctl.render.terminal.console")

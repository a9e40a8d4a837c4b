"""dtctl version"""

from __future__ import annotations

import platform

import typer

from dtctl import __version__


def version() -> None:
    """Print the version of dtctl and of its Python."""
    typer.echo(f"dtctl {__version__} (Python {platform.python_version()})")

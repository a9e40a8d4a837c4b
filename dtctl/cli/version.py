"""dtctl version"""

from __future__ import annotations

import platform

from dtctl import __version__
from dtctl.render.console import say


def version() -> None:
    """Print the version of dtctl and of its Python."""
    say(f"dtctl {__version__} (Python {platform.python_version()})")

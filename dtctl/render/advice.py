"""What a failed trainer's log suggests to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LACKS = re.compile(r"^(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?", re.MULTILINE)


def advice(tail: str, host: str, packages: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence and commands to type, or nothing. `packages` of modules, where they have another name."""
    found = _LACKS.findall(tail)
    if not found:
        return ()
    module = found[-1].partition(".")[0]
    return (
        f"the Python that trains on {host} lacks {module}: install it there, or name another one (trainer.python)",
        f"dtctl exec @{host} -- PYTHON -m pip install {packages.get(module, module)}    "
        "with the PYTHON that dtctl plan shows",
    )

"""Lists for mypy all modules of the packages behind dtctl/cli/late.py, though no import names them."""

from __future__ import annotations

from pathlib import Path

from mypy.nodes import MypyFile
from mypy.plugin import Plugin

ROOT = Path(__file__).parents[1]


class LateModules(Plugin):
    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        if file.fullname != "dtctl.cli.late":
            return []
        paths = [path for layer in ("operations", "render", "rooms") for path in (ROOT / "dtctl" / layer).rglob("*.py")]
        names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
        return [(10, name.removesuffix(".__init__"), -1) for name in names]


def plugin(version: str) -> type[Plugin]:
    return LateModules

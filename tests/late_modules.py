"""Lists for mypy all modules of the packages behind dtctl/cli/late.py, though no import names them."""

from __future__ import annotations

from pathlib import Path

from mypy.nodes import MypyFile
from mypy.plugin import Plugin, ReportConfigContext

ROOT = Path(__file__).parents[1]


LATE = "dtctl.cli.late"


class LateModules(Plugin):
    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        return [(10, name, -1) for name in _names()] if file.fullname == LATE else []

    def report_config_data(self, ctx: ReportConfigContext) -> list[str] | None:
        """What mypy's cache depends on: a new module is seen without a fresh cache."""
        return _names() if ctx.id == LATE else None


def _names() -> list[str]:
    paths = [path for layer in ("operations", "render", "rooms") for path in (ROOT / "dtctl" / layer).rglob("*.py")]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return sorted(name.removesuffix(".__init__") for name in names)


def plugin(version: str) -> type[Plugin]:
    return LateModules

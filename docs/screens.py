"""Types README and the quick start on two hosts over SSH, writes what the commands print into them, and the picture.

python docs/screens.py            all of it; needs root and TensorFlow
python docs/screens.py --picture  docs/images/demo.svg alone
python docs/screens.py --top      docs/images/top.svg alone
python docs/screens.py --pages    docs/images/status.svg, report.png and dashboard*.png alone
python docs/screens.py --states   dashboard and report in every state, into build/screens, to be looked at
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import recorded
from page_pictures import draw as draw_pages
from page_states import draw_states
from top_picture import draw as draw_top

from tests.documents.blocks import ROOT, shortened
from tests.documents.reader import Output, Reader
from tests.documents.typing_rules import HOSTS, ON_A_SLOW_MACHINE
from tests.hosts.fleet import Fleet

PAGES = ("README.md", "docs/quickstart.md")
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS = 110
_SHARE = 60
"""The per cent that are done in the picture."""


def write_screens(page: str) -> None:
    """In the order of the page, whose lines move with each screen that is written."""
    with tempfile.TemporaryDirectory() as directory, Fleet(2) as fleet:
        reader = Reader(Path(directory, "home"), fleet, python=sys.executable)
        seen = []
        for one in reader.reads(page):
            print(f"{one.typed}: {one.code}", flush=True)
            seen.append(one)
        shown = {str(reader.shell.home): "~", **{fleet[name].address: address for address, name in HOSTS.items()}}
    lines = (ROOT / page).read_text("utf-8").splitlines()
    for one in reversed(seen):
        _write_screen(lines, one, shown)
    (ROOT / page).write_text("\n".join(lines) + "\n", "utf-8")


def _write_screen(lines: list[str], seen: Output, shown: Mapping[str, str]) -> None:
    """Writes one screen; what the reader of the page has in place of the test's own home and addresses is `shown`."""
    screen = seen.typed.screen
    if screen is None:
        return
    usual = [line for line in seen.printed if not any(re.fullmatch(slow, line.strip()) for slow in ON_A_SLOW_MACHINE)]
    printed = [_as_shown(line, shown).rstrip() for line in usual]
    first = seen.typed.line
    lines[first : first + len(screen)] = shortened(screen, printed)


def _as_shown(line: str, shown: Mapping[str, str]) -> str:
    for found, instead in shown.items():
        line = line.replace(found, instead)
    return line


def write_picture() -> None:
    """What a person sees in the middle of `dtctl up --local -f` with the first template."""
    with tempfile.TemporaryDirectory() as directory:
        dtctl = [sys.executable, "-m", "dtctl"]
        environment = {"HOME": directory, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        subprocess.run(
            [*dtctl, "init", "digits"], cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL
        )
        project = f"{directory}/digits"
        try:
            lines = recorded.seen([*dtctl, "up", "--local", "-f"], project, environment, (COLUMNS, 40), _is_worth_it)
        finally:
            subprocess.run([*dtctl, "down", "--yes"], cwd=project, env=environment, check=True)
    shown = ["$ dtctl init digits && cd digits", "$ dtctl up --local -f", *lines]
    recorded.write(PICTURE, recorded.draw([line.replace(directory, "~") for line in shown], COLUMNS, "dtctl", "demo"))


def _is_worth_it(lines: list[str]) -> bool:
    """Both workers train, and most of it is done."""
    share = re.search(r" (\d+)%", lines[-1]) if lines else None
    both = all(any(name in line and "  loss " in line for line in lines) for name in ("worker:0", "worker:1"))
    return both and share is not None and int(share[1]) >= _SHARE


if __name__ == "__main__":
    drawn = {"--picture": write_picture, "--top": draw_top, "--pages": draw_pages, "--states": draw_states}
    alone = drawn.keys() & {*sys.argv}
    if not alone:
        for name in PAGES:
            write_screens(name)
    for option, draw in drawn.items():
        if not alone or option in alone:
            draw()

"""Types README and the quick start on two hosts over SSH, writes what the commands print into them, and the picture.

python docs/screens.py            all of it; needs root and TensorFlow
python docs/screens.py --picture  docs/images/demo.svg alone
python docs/screens.py --top      docs/images/top.svg alone
python docs/screens.py --pages    docs/images/status.svg, report.png and dashboard*.png alone
python docs/screens.py --states   dashboard and report in every state, into build/screens, to be looked at
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

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
_TRIES = 3


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
    """`dtctl up --local -f` of the first template, in colours."""
    from rich.console import Console
    from rich.text import Text

    for _ in range(_TRIES):
        lines = _seen()
        if any("worker:1" in line and "  loss " in line for line in lines):
            break  # on a busy machine the second worker comes too late to be worth a picture
    console = Console(record=True, width=COLUMNS, force_terminal=True, file=io.StringIO())
    for line in lines:
        console.print(Text.from_ansi(line[: 4 * COLUMNS]), overflow="ellipsis", no_wrap=True)
    svg = console.export_svg(title="dtctl", unique_id="demo", font_aspect_ratio=0.61)
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", "utf-8")


def _seen() -> list[str]:
    """The lines of the picture, from a home of their own."""
    with tempfile.TemporaryDirectory() as directory:
        dtctl = [sys.executable, "-m", "dtctl", "--color", "always"]
        environment = {"HOME": directory, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": str(COLUMNS)}
        _printed([*dtctl, "init", "digits"], directory, environment)
        printed = _printed([*dtctl, "up", "--local", "-f"], f"{directory}/digits", environment)
        status = _printed([*dtctl, "status"], f"{directory}/digits", environment)
        _printed([*dtctl, "down", "--yes"], f"{directory}/digits", environment)
        lines = ["$ dtctl init digits && cd digits", "$ dtctl up --local -f", *_worth_seeing(printed)]
        return [line.replace(directory, "~") for line in [*lines, "$ dtctl status", *status]]


def _worth_seeing(lines: Sequence[str]) -> list[str]:
    """Without what TensorFlow says of this machine's processor, and with every second step."""
    noise = ("WARNING:", "I0000", "E0000", "W0000", "cuda", "oneDNN")
    kept = [line for line in lines if not any(word in line for word in noise)]
    return [line for number, line in enumerate(kept) if not ("  loss " in line and number % 2)]


def _printed(words: Sequence[str], directory: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        words, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    drawn = {"--picture": write_picture, "--top": draw_top, "--pages": draw_pages, "--states": draw_states}
    alone = drawn.keys() & {*sys.argv}
    if not alone:
        for name in PAGES:
            write_screens(name)
    for option, draw in drawn.items():
        if not alone or option in alone:
            draw()

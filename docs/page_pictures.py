"""Draws docs/images/{status.svg,report.png,dashboard*.png}: one moment of a run, as three commands show it.

python docs/screens.py --pages    draws them; needs Chromium and Playwright, and neither root nor TensorFlow
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import recorded
from played import WITHIN_S, dtctl, played

from tests.documents.blocks import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = ROOT / "docs" / "images"
COLUMNS = 130
SIZES = {
    "report": (1280, 1000),
    "dashboard": (1280, 1580),
    "dashboard-dark": (1280, 960),
    "dashboard-narrow": (390, 844),
}
MOST_BYTES = 150_000
_COLORS = 256
_LOSSES = 2
"""A run that has lost a worker so often has something to show."""


def draw() -> None:
    from playwright.sync_api import sync_playwright

    with played() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        _wait()
        _draw_status()
        file = home / "report.html"
        dtctl("report", "-O", str(file))
        _shoot(browser, file.as_uri(), "report")
        with served_dashboard() as addresses:
            for name in ("dashboard", "dashboard-dark", "dashboard-narrow"):
                _shoot(browser, next(addresses), name)
        browser.close()


def _wait() -> None:
    """Until a worker waits to be started again, and not for the first time."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        tasks: list[dict[str, Any]] = json.loads(dtctl("status", "-o", "json"))["tasks"]
        if any(task["state"] == "backoff" and task["attempt"] >= _LOSSES for task in tasks):
            return
        assert time.monotonic() < deadline, "the run is not worth a picture"
        time.sleep(2.0)


def _draw_status() -> None:
    argv = [sys.executable, "-m", "dtctl", "--color", "always", "status"]
    printed = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=_wide_terminal()).stdout
    svg = recorded.draw(["$ dtctl status", *printed.splitlines()], COLUMNS, "dtctl status", "status")
    _write("status.svg", svg.encode())


def _wide_terminal() -> dict[str, str]:
    return {**os.environ, "COLUMNS": str(COLUMNS)}


@contextmanager
def served_dashboard() -> Iterator[Iterator[str]]:
    """Its addresses, each for one browser."""
    argv = [sys.executable, "-m", "dtctl", "dashboard", "-o", "json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield (json.loads(line)["url"] for line in process.stdout)
        finally:
            process.terminate()


def _shoot(browser: Browser, address: str, name: str) -> None:
    width, height = SIZES[name]
    scheme: Literal["dark", "light"] = "dark" if name.endswith("-dark") else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address)
    if "token=" in address:
        page.wait_for_selector("#link[data-state=live]")
    _write(f"{name}.png", _with_few_colors(page.screenshot()))
    page.close()


def _with_few_colors(png: bytes) -> bytes:
    """A third of the bytes; the colours that count stay as they are."""
    from PIL import Image

    made = io.BytesIO()
    whole = Image.open(io.BytesIO(png)).convert("RGB")
    whole.quantize(_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(made, "PNG", optimize=True)
    return made.getvalue()


def _write(name: str, data: bytes) -> None:
    assert len(data) < MOST_BYTES, f"{name} has {len(data)} bytes"
    (IMAGES / name).write_bytes(data)
    print(f"{name}: {len(data)} bytes")


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "apt-get install chromium"
    return found

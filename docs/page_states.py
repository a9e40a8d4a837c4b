"""Photographs dashboard and report in every state, on a light, a dark and a narrow screen, to be looked at.

python docs/screens.py --states    writes them into build/screens; needs Chromium and Playwright, no root, no TensorFlow
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from page_pictures import chromium, served_dashboard
from played import WITHIN_S, dtctl

from tests import event_files, many_tasks
from tests.documents.blocks import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PICTURES = ROOT / "build" / "screens"

TRAINER = """\
import os, pathlib, random, sys, time
import event_files

job, _, index = os.environ["DTCTL_TASK"].partition(":")
kind, last, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
writes = kind not in ("logs", "starts") and (job, index) == ("worker", "0")
place = pathlib.Path("out", "train")
place.mkdir(parents=True, exist_ok=True)
events = open(place / f"events.out.tfevents.{time.time():.0f}.host", "ab", buffering=0) if writes else None
print("loads the data", flush=True)
time.sleep(120 if kind == "starts" else 0.2)


def check(batch, wanted):
    if kind == "fails" and batch == 40:
        raise ValueError(f"shape {(batch,)} does not match {wanted}")


for step in range(1, last + 1):
    time.sleep(random.uniform(0.08, 0.12) if job != "ps" else 3600)
    loss = 2.3 / (1 + rate * step / 8) + random.uniform(0, 0.02)
    if kind == "logs":
        loss = 40.0 * 10 ** (-step / 60) + random.uniform(0, 0.0005)
    print(f"step {step} loss {loss:.4g}", flush=True)
    if events and step % 3 == 0:
        events.write(event_files.scalar(step, "loss", loss))
        events.write(event_files.scalar(step, "accuracy", 1 - loss / 3))
        events.write(event_files.scalar(step, "learning_rate", 0.1 * 0.98**step))
    if kind == "logs" and index == "1" and step % 70 == 60:
        raise OSError(28, "No space left on device", "out/worker-1.npz")
    check(step, (41,))
"""

CLUSTER = """\
name: {kind}
hosts:
  gpu-[1-3]:
jobs:
  ps: {{hosts: gpu-1}}
  worker: {{hosts: [gpu-1, gpu-2, gpu-3]}}
trainer:
  command: [python, train.py, {kind}, "{last}", "{rate}"]
  dialect: none
  args: {{train_steps: {last}}}
dirs: {{output: out}}
recovery: {{max_restarts: {restarts}, backoff: 1s..8s}}
"""


def draw_states() -> None:
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    before, here = os.environ.get("HOME", ""), Path.cwd()
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        os.environ["HOME"] = home
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        try:
            for state in STATES:
                state(Path(home), Photographer(browser))
        finally:
            os.environ["HOME"] = before
            os.chdir(here)
            browser.close()


class Photographer:
    """Pictures of whole pages on three screens. What a browser complains of is an error."""

    SCREENS = {"": (1280, 900, "light"), "-dark": (1280, 900, "dark"), "-narrow": (390, 844, "light")}  # noqa: RUF012

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @contextmanager
    def page(self, address: str, screen: str = "") -> Iterator[Page]:
        width, height, scheme = self.SCREENS[screen]
        page = self._browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.on("pageerror", lambda error: print(f"{address}: {error}", file=sys.stderr))
        page.goto(address)
        yield page
        page.close()

    def dashboard(self, name: str, screens: tuple[str, ...] = ("", "-dark", "-narrow"), state: str = "live") -> None:
        with served_dashboard() as addresses:
            for screen in screens:
                with self.page(next(addresses), screen) as page:
                    page.wait_for_selector(f"#link[data-state={state}]")
                    page.wait_for_selector("#log div")
                    self.shoot(page, f"dashboard-{name}{screen}")

    def report(self, name: str, *words: str, screens: tuple[str, ...] = ("", "-dark", "-narrow")) -> None:
        file = Path(os.environ["HOME"]) / f"{name}.html"
        dtctl("report", "-O", str(file), *words)
        for screen in screens:
            with self.page(file.as_uri(), screen) as page:
                self.shoot(page, f"report-{name}{screen}")

    def shoot_curve(self, page: Page) -> None:
        """A value that was chosen by keys, and a search in the log."""
        slider = page.locator(".value").first
        slider.focus()
        for _ in range(9):
            slider.press("ArrowLeft")
        page.fill("#log-search", "0 loss")
        page.wait_for_selector("#log mark")
        self.shoot(page, "dashboard-read")

    def shoot(self, page: Page, name: str) -> None:
        (PICTURES / f"{name}.png").write_bytes(page.screenshot(full_page=True))
        print(f"{name}.png", flush=True)


@contextmanager
def run(home: Path, kind: str, *, last: int = 100_000, rate: float = 1.0, restarts: int = 5) -> Iterator[None]:
    """A run of trainers of this kind, whose project is the working directory; removed at the end."""
    project = home / kind
    project.mkdir(exist_ok=True)
    text = CLUSTER.format(kind=kind, last=last, rate=rate, restarts=restarts)
    (project / "cluster.yaml").write_text(text)
    (project / "train.py").write_text(TRAINER)
    (project / "event_files.py").write_text(Path(event_files.__file__).read_text())
    os.chdir(project)
    dtctl("up", "--local")
    try:
        yield
    finally:
        dtctl("down", "--yes")


def wait(enough: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not enough(json.loads(status())):
        assert time.monotonic() < deadline, "the run is not worth a picture"
        time.sleep(1.0)


def status() -> str:
    argv = [sys.executable, "-m", "dtctl", "status", "-o", "json"]
    return subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True).stdout


def step_of(found: dict[str, Any]) -> int:
    return found["progress"]["step"] or 0


def has_ended(found: dict[str, Any], condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in found["conditions"])


def starting(home: Path, camera: Photographer) -> None:
    with run(home, "starts"):
        camera.dashboard("starting", ("",))
        camera.report("starting", screens=("",))


def live(home: Path, camera: Photographer) -> None:
    with run(home, "trains", last=2000):
        wait(lambda found: step_of(found) > 100)
        camera.dashboard("live")
        camera.report("live", screens=("", "-narrow"))
        with served_dashboard() as addresses:
            address = next(addresses)
            with camera.page(address) as page:
                page.wait_for_selector("#link[data-state=live]")
                camera.shoot_curve(page)
            shoot_small_pages(camera, address)


def recovered(home: Path, camera: Photographer) -> None:
    with run(home, "logs", last=600):
        wait(lambda found: found["restarts"] > 0 and step_of(found) > 150)
        camera.dashboard("recovered")
        camera.report("recovered", screens=("",))


def failed(home: Path, camera: Photographer) -> None:
    with run(home, "fails", restarts=2):
        wait(lambda found: has_ended(found, "Failed"))
        camera.dashboard("failed", state="ended")
        camera.report("failed")


def stopped(home: Path, camera: Photographer) -> None:
    with run(home, "stops", last=2000):
        wait(lambda found: step_of(found) > 50)
        dtctl("stop")
        camera.dashboard("stopped", ("",), state="ended")
        camera.report("stopped", screens=("",))


def succeeded(home: Path, camera: Photographer) -> None:
    with run(home, "ends", last=100):
        wait(lambda found: has_ended(found, "Succeeded"))
        first = json.loads(status())["run"]
        dtctl("up", "--local", "--set", 'trainer.command=[python, train.py, ends, "120", "3.0"]')
        wait(lambda found: has_ended(found, "Succeeded") and found["run"] != first)
        camera.dashboard("succeeded", state="ended")
        camera.report("succeeded")
        camera.report("compared", "--compare", first)


def of_100_tasks(_: Path, camera: Photographer) -> None:
    with many_tasks.dashboard(100) as address:
        for screen in ("", "-narrow"):
            with camera.page(address(), screen) as page:
                page.wait_for_selector("#link[data-state=live]")
                page.wait_for_selector("#log div")
                camera.shoot(page, f"dashboard-100-tasks{screen}")


def shoot_small_pages(camera: Photographer, address: str) -> None:
    for name, path in (("used", address), ("not-found", address.partition("/?")[0] + "/nosuch")):
        for screen in ("", "-narrow"):
            with camera.page(path, screen) as page:
                camera.shoot(page, f"small-{name}{screen}")


STATES = (starting, live, recovered, failed, stopped, succeeded, of_100_tasks)

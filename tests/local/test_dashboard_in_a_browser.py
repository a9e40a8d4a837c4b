"""The dashboard in Chromium, of a real run: it moves by itself, and keeps what a reader has chosen."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.desk import Desk
from tests.waiting import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


def test_a_reader_sees_the_run_go_on(home: Desk, browser: Any) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: home.task("worker:1")["step"], what="a step")
    with home.start("dashboard", "-o", "json") as process:
        address = json.loads(next(line for line in process.stdout or () if line.startswith("{")))["url"]
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#link[data-state=live]")
        assert "token" not in page.url
        steps = page.locator(".answer")
        before = steps.inner_text()
        page.wait_for_function("before => document.querySelector('.answer').innerText !== before", arg=before)

        details = page.locator("#timeline details")
        details.locator("summary").press("Enter")
        table = page.locator("#timeline [role=region]")
        table.focus()
        before = steps.inner_text()
        page.wait_for_function("before => document.querySelector('.answer').innerText !== before", arg=before)
        assert details.get_attribute("open") is not None, "what was opened stays open"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Attempts of each task"

        hold = page.get_by_role("button", name="Hold")
        hold.press("Enter")
        assert hold.get_attribute("aria-pressed") == "true"
        held = steps.inner_text()
        page.wait_for_timeout(3000)
        assert steps.inner_text() == held
        hold.press("Enter")
        page.wait_for_function("before => document.querySelector('.answer').innerText !== before", arg=held)

        for scheme, color in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 22, 28)")):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == color
        page.set_viewport_size({"width": 360, "height": 740})
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0, "nothing has to be scrolled sideways but tables, in themselves"

        other = browser.new_page()
        assert other.goto(address).status == 403, "the address was used"
        assert other.goto(page.url).status == 403

        os.kill(home.task("worker:1")["pid"], signal.SIGKILL)
        page.wait_for_selector("#timeline svg[aria-label*='attempt 2']")
        home.dtctl("stop")
        page.wait_for_selector("text=The run has ended, and this page stays as it is.")
        assert page.title().startswith("Stopped")
        process.send_signal(signal.SIGINT)
        page.wait_for_selector("#link[data-state=over]")
        assert process.wait(60) == 130
        assert said == []

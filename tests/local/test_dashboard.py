"""`dtctl dashboard` of a real run: its address, its page while the run continues, its end; and in Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page
from tests.desk import Desk
from tests.nights import at_night
from tests.waiting import eventually

STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


class Following(Page):
    def events(self) -> Generator[tuple[str, dict[str, str]], None, None]:
        """The events with their parts, until the end of the dashboard."""
        with self.asked(f"{self.place}news") as answer:
            assert answer.status == 200
            kind = ""
            for line in answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value) if value else {}
                    if kind == "over":
                        return


@contextmanager
def dashboard(desk: Desk, *args: str) -> Iterator[tuple[Any, Following]]:
    with desk.start("dashboard", "-o", "json", *args) as process:
        try:
            line = next(line for line in process.stdout or () if line.startswith("{"))
            yield process, Following(json.loads(line)["url"])
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.fixture
def trains(home: Desk) -> Desk:
    (home.home / "tmp").mkdir()
    home.env["TMPDIR"] = str(home.home / "tmp")
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: home.task("worker:1")["step"], what="a step")
    return home


@pytest.mark.parametrize("stop", at_night(STOPS, but=[signal.SIGINT]), ids=lambda one: one.name)
def test_the_page_follows_the_run_and_ends_with_the_command(trains: Desk, stop: signal.Signals) -> None:
    with dashboard(trains) as (process, page):
        _, _, text = page.get(page.place)
        assert "worker:1" in text
        events = page.events()
        _, parts = next(events)
        assert 'class="outcome Running"' in parts["answer"]
        before = parts["answer"]
        answer = next(parts["answer"] for _, parts in events if parts.get("answer", before) != before)
        assert "step " in answer
        worker = trains.task("worker:1")["pid"]
        os.kill(worker, signal.SIGKILL)
        attempts = next(parts["timeline"] for _, parts in events if "attempt 2" in parts.get("timeline", ""))
        assert "killed by SIGKILL" in attempts
        process.send_signal(stop)
        assert [kind for kind, _ in events][-1] == "over"
        assert process.wait(60) == STOPS[stop]
    assert list(Path(trains.env["TMPDIR"]).iterdir()) == []
    assert trains.states()["worker:1"] == "running"


@pytest.mark.nightly
def test_the_page_shows_the_end_of_the_run_and_stays(trains: Desk) -> None:
    with dashboard(trains) as (process, page):
        events = page.events()
        trains.dtctl("stop")
        answer = next(parts["answer"] for _, parts in events if 'class="outcome Stopped"' in parts.get("answer", ""))
        assert "Stopped</span> by " in answer
        trains.dtctl("down", "--yes")
        time.sleep(3)  # longer than the interval of updates
        assert process.poll() is None
        assert page.get(page.place)[0] == 200
        assert 'data-phase="ended"' in page.get(page.place)[2]


@pytest.mark.nightly
def test_a_browser_gets_the_address_from_a_file_of_mode_0600(trains: Desk) -> None:
    browser = trains.home / "browser"
    seen = trains.home / "seen"
    browser.write_text(f'#!/bin/sh\nls -l "${{1#file://}}" > {seen}\ncat "${{1#file://}}" >> {seen}\n')
    browser.chmod(0o755)
    trains.env["BROWSER"] = str(browser)
    with trains.start("dashboard", "--open") as process:
        eventually(lambda: seen.exists() and "</html>" in seen.read_text(), 60, "the browser")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert seen.read_text().startswith("-rw-------")
    assert "url=http://127.0.0.1:" in seen.read_text()
    assert list(Path(trains.env["TMPDIR"]).iterdir()) == []


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_is_updated_held_and_keeps_focus_in_a_browser(home: Desk, browser: Any) -> None:
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: home.task("worker:1")["step"], what="a step")
    with home.start("dashboard", "-o", "json") as process:
        address = json.loads(next(line for line in process.stdout or () if line.startswith("{")))["url"]
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        states: list[str] = []
        page.on("console", lambda message: states.append(message.text))
        page.on("pageerror", lambda error: states.append(str(error)))
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
        page.wait_for_selector("text=The run has ended: this page does not change any more")
        assert page.title().startswith("Stopped")
        process.send_signal(signal.SIGINT)
        page.wait_for_selector("#link[data-state=over]")
        assert process.wait(60) == 130
        assert states == []

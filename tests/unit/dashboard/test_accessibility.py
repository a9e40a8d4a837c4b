"""axe-core finds nothing on any page: light, dark, and as wide as a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from dtctl.rooms.pages import dashboard_page as live
from dtctl.rooms.pages.comparing import Comparison, compared
from dtctl.rooms.pages.report_page import page
from tests import many_tasks
from tests.unit.report.reports import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCREENS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 1280), ("light", 390))

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


@pytest.fixture
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


def pages() -> dict[str, str]:
    """Each kind of page that does not change."""
    failed, many = report(), many_tasks.Training(100, 1000.0).report(1400.0)
    runs = {name: compared(many.status, many.scalars) for name in ("digits-1", "digits-2")}
    entrance = live.entrance("dtctl dashboard")
    return {
        "report of a failed run": page(failed),
        "report of a comparison": page(many, Comparison(runs, {})),
        "dashboard of a failed run": live.whole({**live.parts(failed), **live.unknown(None)}, 1),
        "leading on": live.entered("/x/").replace('http-equiv="refresh"', 'name="refresh"'),
        **{str(code): entrance.refused(code) for code in (400, 403, 404, 405, 503)},
    }


def test_axe_finds_nothing_on_any_page(browser: Any, tmp_path: Path) -> None:
    axe = Path(pytest.importorskip("axe_playwright_python").__file__).with_name("axe.min.js").read_text("utf-8")
    addresses = []
    for name, text in pages().items():
        (tmp_path / f"{name}.html").write_text(text, "utf-8")
        addresses.append((tmp_path / f"{name}.html").as_uri())
    found = []
    with many_tasks.dashboard(30) as address:
        for scheme, width in SCREENS:
            for each in (*addresses, ""):
                size = {"width": width, "height": 844}
                context = browser.new_context(bypass_csp=True, viewport=size, color_scheme=scheme)
                shown = context.new_page()
                shown.goto(each or address())
                if not each:
                    shown.wait_for_selector("#log div")
                shown.evaluate(axe)
                violations = shown.evaluate("axe.run()")["violations"]
                found += [(scheme, width, each, one["id"], one["nodes"][0]["html"]) for one in violations]
                context.close()
    assert found == []


def test_values_of_a_curve_are_read_by_pointer_and_by_keys_and_a_log_is_searched(browser: Any) -> None:
    with many_tasks.dashboard(4) as address:
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.on("console", lambda message: errors.append(message.text))
        shown.goto(address())
        shown.wait_for_selector("#log div")
        slider = shown.locator(".value").first
        newest = slider.inner_text()
        slider.press("ArrowLeft")
        before = slider.inner_text()
        assert before != newest
        assert slider.get_attribute("aria-valuetext") == before
        slider.press("End")
        assert slider.inner_text() == newest
        shown.locator(".readings rect").first.hover(force=True)
        assert slider.inner_text().startswith("step 10: ")
        shown.locator("h1").hover()
        assert slider.inner_text() == newest

        shown.fill("#log-search", "GRAD_norm 1")
        shown.wait_for_selector("#log mark")
        assert "grad_norm 1" in shown.locator("#log mark").first.inner_text()
        counts = shown.locator("#log-count").inner_text().split()
        assert int(counts[0]) == shown.locator("#log div:not([hidden])").count() < int(counts[2])
        shown.fill("#log-search", "")
        shown.select_option("#log-task", "ps:0")
        shown.wait_for_function("document.getElementById('log').getAttribute('aria-label').endsWith('ps:0')")
        assert errors == []

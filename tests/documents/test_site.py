"""The built site: what it publishes and fetches, and in Chromium the contrast of its texts in both schemes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.documents import site_search

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LARGEST_INDEX = 500_000
LEAST_CONTRAST = 4.5

pytestmark = pytest.mark.xdist_group("site")

TEXTS = """() => {
  const channel = (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255) + 0.0722 * channel(b / 255)
  const parse = (color) => color.match(/[\\d.]+/g).map(Number)
  const over = ([r, g, b, a = 1], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)]
  const ground = (element) => {
    const above = []
    for (let one = element; one; one = one.parentElement) above.push(parse(getComputedStyle(one).backgroundColor))
    return above.reverse().reduce((below, color) => over(color, below), [255, 255, 255])
  }
  const found = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    if (!walker.currentNode.data.trim() || !element.checkVisibility({opacityProperty: true})) continue
    if (element.closest("[hidden], script, style, .md-search__output, .headerlink, .md-top, .md-skip")) continue
    const box = element.getBoundingClientRect()
    if (box.width < 2 || box.height < 2) continue
    let opacity = 1
    for (let one = element; one; one = one.parentElement) opacity *= Number(getComputedStyle(one).opacity)
    const back = ground(element), [r, g, b, a = 1] = parse(getComputedStyle(element).color)
    const [one, other] = [light(over([r, g, b, a * opacity], back)), light(back)]
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)
    found.push([walker.currentNode.data.trim().slice(0, 40), contrast])
  }
  return found
}"""
"""Each visible text, and its contrast with what is behind it, as WCAG 2 computes it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    site_search.build(built)
    return built


def test_nothing_but_pages_and_what_they_show_is_published(site: Path) -> None:
    kinds = {path.suffix for path in site.rglob("*") if path.is_file()}
    assert kinds <= {".html", ".css", ".js", ".json", ".svg", ".png", ".xml", ".gz", ".map"}
    assert not [path for path in site.rglob("*") if path.name in ("__pycache__", "theme")]


def test_no_picture_names_a_font_of_a_foreign_server(site: Path) -> None:
    pictures = list((site / "images").glob("*.svg"))
    assert pictures
    for picture in pictures:
        assert not re.search(r"@font-face|@import|url\(['\"]?http", picture.read_text("utf-8")), picture.name


def test_the_index_of_the_search_is_small_and_fetched_when_somebody_searches(site: Path) -> None:
    assert (site / "search" / "search_index.json").stat().st_size < LARGEST_INDEX
    assert "search_index.json" in (site / "index.html").read_text("utf-8"), "the script that holds its request"


def test_the_first_page_shows_a_run_and_the_dashboard(site: Path) -> None:
    shown = re.findall(r'<img [^>]*src="([^"]+)"', (site / "index.html").read_text("utf-8"))
    assert shown[:2] == ["images/demo.svg", "images/dashboard-dark.png"]


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_that_people_need(site: Path, scheme: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page: Any = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
        for name in ("index", "commands", "troubleshooting", "concepts", "python-api"):
            page.goto((site / f"{name}.html").as_uri())
            texts = page.evaluate(TEXTS)
            assert len(texts) > 20
            assert [(text, round(contrast, 2)) for text, contrast in texts if contrast < LEAST_CONTRAST] == []
        browser.close()

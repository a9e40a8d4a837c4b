"""docs/architecture.md names what is there, and nothing that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_structure import ROOMS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:dtctl|tests)/[\w./]+)`", PAGE)))
TWO_SCREENS = 145
"""Lines. A page that is longer is read by nobody before work."""


@pytest.mark.parametrize("path", NAMED)
def test_a_file_that_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_the_page_leads_to_many_files() -> None:
    assert len(NAMED) > 60


def test_every_room_of_the_agent_has_its_row() -> None:
    rooms = {room for room in ROOMS if (ROOT / "dtctl" / "agent" / room).is_dir()}
    assert set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)) == rooms


def test_every_layer_of_the_controller_has_its_row() -> None:
    layers = {path.parent.name for path in (ROOT / "dtctl").glob("*/__init__.py")} - {"agent"}
    assert set(re.findall(r"^\| `dtctl/(\w+)/`", PAGE, re.MULTILINE)) == layers


def test_the_page_fits_on_two_screens() -> None:
    assert len(PAGE.splitlines()) <= TWO_SCREENS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_who_begins_elsewhere_is_led_to_the_page(page: str) -> None:
    assert "(docs/architecture.md)" in (ROOT / page).read_text()

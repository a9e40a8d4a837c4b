"""The section of report and dashboard that says why the run is not faster."""

from __future__ import annotations

import dataclasses
from html import unescape

import pytest

from dtctl.rooms.pages.dashboard_page import parts
from dtctl.rooms.pages.report import Report
from dtctl.rooms.pages.report_page import markdown, page
from dtctl.rooms.speed.facts import merged
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.screen import lines_of
from dtctl.rooms.speed.telling_screen import told
from dtctl.rooms.speed.verdicts import judged
from tests.unit.report.reports import report
from tests.unit.test_speed_verdicts import HEALTHY, of_two

SLOW = of_two((90.0, 2.0), 0.3, (0.9, 0.1))


def speed_of(minute: object) -> Speed:
    return Speed("digits-1", judged([minute]), 1, merged([minute]), 1.0, 99.0)  # type: ignore[list-item]


def with_speed(found: Speed | None) -> Report:
    return dataclasses.replace(report(), speed=found)


@pytest.mark.parametrize("drawn", [page, markdown, lambda made: parts(made)["speed"]])
def test_each_page_has_the_verdicts_as_dtctl_speed_shows_them(drawn: object) -> None:
    found = speed_of(SLOW)
    assert found.verdicts
    text = unescape(drawn(with_speed(found))).replace("\\", "")  # type: ignore[operator]
    for one in told(found):
        for words in (one.head, *one.evidence, one.remedy, one.expected):
            assert words in text


def test_a_healthy_run_is_said_to_compute() -> None:
    found = speed_of(HEALTHY)
    assert "nothing stands out: the workers compute " in page(with_speed(found))
    assert lines_of(found)[0].startswith("nothing stands out: the workers compute ")


def test_a_run_that_was_not_measured_has_no_such_section() -> None:
    assert parts(with_speed(None))["speed"] == ""
    assert 'id="speed"' not in page(with_speed(None))
    assert "## Speed" not in markdown(with_speed(None))

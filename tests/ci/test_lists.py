"""The lists that `.ci/run` is lenient by."""

from __future__ import annotations

from tests.ci.__main__ import FLAKY, SKIPS
from tests.ci.test_ci import ROOT
from tests.ci.verdict import Skip, read_lines

FLAKY_AT_MOST = 0
"""May only become smaller."""


def test_the_list_of_flaky_tests_does_not_grow() -> None:
    assert len(read_lines(ROOT / FLAKY)) <= FLAKY_AT_MOST


def test_every_expected_skip_gives_its_reason() -> None:
    for line in read_lines(ROOT / SKIPS):
        assert Skip.parse(line).test.startswith("tests/"), line

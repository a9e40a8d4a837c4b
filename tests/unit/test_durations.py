"""One parser of spans, for cluster files and for the command line."""

from __future__ import annotations

import pytest

from dtctl import durations
from dtctl.cli.options import seconds, seconds_ago
from dtctl.config.document import Scalar
from dtctl.config.kinds import Unfit, read_duration
from dtctl.errors import UsageError

SPANS = [("500ms", 0.5), ("30s", 30.0), ("1.5m", 90.0), ("2h", 7200.0), ("7d", 604800.0), ("2 h", 7200.0), ("45", 45.0)]
UNFIT = ["", "s", "-1s", "1w", "1e3s", "1s 2s", "١s", "5m!", "1.s", "inf"]


@pytest.mark.parametrize(("text", "expected"), SPANS)
def test_a_span_is_the_same_in_a_file_and_in_an_option(text: str, expected: float) -> None:
    assert seconds(text) == read_duration(Scalar(text, text)) == expected
    assert seconds_ago(text, 1_000_000.0) == 1_000_000.0 - expected


@pytest.mark.parametrize("text", UNFIT)
def test_what_is_no_span_is_refused_with_the_same_words(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        seconds(text)
    assert refused.value.summary == f"{text!r} is not {durations.WORDS}"
    with pytest.raises(Unfit):
        read_duration(Scalar(text, text))


@pytest.mark.parametrize("text", ["3651d", "9" * 400 + "s"])
def test_a_span_of_more_than_ten_years_was_not_meant(text: str) -> None:
    with pytest.raises(UsageError, match="at most 3650d"):
        seconds(text)
    with pytest.raises(Unfit, match="at most 3650d"):
        read_duration(Scalar(text, text))


def test_a_moment_is_a_span_or_a_time() -> None:
    assert seconds_ago("2026-05-01T12:00:00Z", 0.0) == 1777636800.0
    with pytest.raises(UsageError, match="nor a time such as"):
        seconds_ago("yesterday", 0.0)

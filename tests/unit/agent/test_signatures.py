"""Whose fault an error is, by the lines with which public programs have ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtctl.agent.run.cause import cause_of_end, kind_of_error

LINES = [
    tuple(line.split("\t", 1))
    for line in (Path(__file__).parent / "data" / "last_lines.txt").read_text().splitlines()
    if not line.startswith("#")
]
EXCEPTION = re.compile(r"[\w.]+(?:: .*|)\Z")
FRAMES = 'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    main()\n'


def test_there_are_two_hundred_of_them() -> None:
    assert len(LINES) >= 200


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_an_error_is_classified(kind: str, line: str) -> None:
    has_traceback = EXCEPTION.match(line) and not line.startswith(("error:", "ERROR:", "FATAL:"))
    found = cause_of_end((FRAMES if has_traceback else "step 1\n") + line + "\n", 1)
    assert (kind_of_error(found), bool(found)) == (kind, True), found


@pytest.mark.parametrize(("text", "kind"), [("", "own"), ("MyTypeError: connection", "own"), ("Timeouts", "own")])
def test_what_no_signature_knows_is_the_programs_own(text: str, kind: str) -> None:
    assert kind_of_error(text) == kind

"""What is advised where an installer has failed, by what it has written."""

from __future__ import annotations

import pytest

from dtctl.agent.run.installing import hint, without_retries

NO_INDEX = "after connection broken by 'NewConnectionError(': Failed to establish a new connection: [Errno -2] Name or"
UV = "error: Failed to fetch: `https://pypi.org/simple/numpy/`\n  Caused by: dns error: failed to lookup address"


@pytest.mark.parametrize(
    ("output", "with_wheels", "begins"),
    [
        ("error: externally-managed-environment", False, "this Python is its system's"),
        (
            NO_INDEX,
            False,
            "this host reaches no package index; where one is reached: pip download --only-binary=:all: --dest wheels ",
        ),
        (UV, False, "this host reaches no package index"),
        (NO_INDEX, True, ""),
        ("ERROR: No matching distribution found for tensorflow==2.99", False, ""),
        (
            "ERROR: No matching distribution found for tensorflow==2.99",
            True,
            "packages come from the wheels alone, and these lack one; where a package index is reached: pip download ",
        ),
    ],
)
def test_what_helps_is_named_first(output: str, with_wheels: bool, begins: str) -> None:
    found = hint(f"Collecting numpy\n{output}\n", with_wheels=with_wheels)
    assert found.startswith(begins)
    assert bool(found) is bool(begins)


def test_the_shown_end_has_no_warning_of_each_attempt_of_pip() -> None:
    retry = f"WARNING: Retrying (Retry(total=4, connect=None)) {NO_INDEX} service not known')': /simple/tensorflow/\n"
    ends = "ERROR: Could not find a version\nERROR: No matching distribution found for tensorflow\n"
    assert without_retries(f"Collecting numpy\n{retry * 5}{ends}") == f"Collecting numpy\n{ends}"
    assert without_retries(retry * 5) == retry * 5, "there is nothing else to show"

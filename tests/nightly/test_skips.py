"""Which skips CI accepts, on small made-up tests."""

from __future__ import annotations

import pytest

from tests.nightly.running import ROOT
from tests.skips import expected

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_passes(): pass

@pytest.mark.skipif(True, reason="the moon is full")
@pytest.mark.parametrize("n", [1, 2])
def test_skips(n): pass
"""
WHOLE = "import pytest\npytest.skip('not today', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("listed", "ci", "outcomes"),
    [
        ("", "true", {"passed": 1, "errors": 2}),
        ("", "", {"passed": 1, "skipped": 2}),
        ("# why\ntest_it.py::test_skips  the moon is full\n", "true", {"passed": 1, "skipped": 2}),
        ("test_it.py::test_skips  the sun shines\n", "true", {"passed": 1, "errors": 2}),
    ],
)
@pytest.mark.parametrize("jobs", ["-n0", "-n2"])
def test_a_skip_fails_in_ci_unless_it_is_expected_for_its_reason(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    ci: str,
    outcomes: dict[str, int],
    jobs: str,
) -> None:
    pytester.makepyfile(test_it=TESTS)
    pytester.mkdir("tests").joinpath("skips.txt").write_text(listed)
    run(pytester, monkeypatch, ci, jobs).assert_outcomes(**outcomes)


@pytest.mark.parametrize("jobs", ["-n0", "-n2"])
def test_a_module_that_skips_itself_fails_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    pytester.makepyfile(test_whole=WHOLE)
    assert run(pytester, monkeypatch, "true", jobs).ret != 0


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, jobs: str) -> pytest.RunResult:
    for name, value in {"CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}.items():
        monkeypatch.setenv(name, value)
    return pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", "tests.skips", jobs)


def test_every_expected_skip_is_of_a_test_that_exists() -> None:
    for test, reason in expected(ROOT):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()
        assert reason

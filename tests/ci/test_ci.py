"""What `.ci/run` answers, on small made-up tests that crash, skip, fail and are flaky."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    # The others take longer to import than these tests to run.
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "xdist.plugin",
}

PASSES = "def test_passes(): pass\n"

CRASHES = """
import os, pytest

@pytest.mark.parametrize("n", range(40))
def test_crashes(n): os._exit(9)
"""

SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="the moon is full")
@pytest.mark.parametrize("n", [1, 2])
def test_skips(n): pass
"""

FLAKY = """
from pathlib import Path

def test_flaky():
    seen = Path(__file__).with_name("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


@dataclass(frozen=True)
class Answer:
    code: int
    output: str


class House:
    """A project of a few tests, judged as this one is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "tests").mkdir()
        (root / "pytest.ini").write_text("[pytest]\n")

    def write(self, **modules: str) -> House:
        for name, text in modules.items():
            (self.root / f"test_{name}.py").write_text(text)
        return self

    def list(self, **lists: str) -> House:
        for name, text in lists.items():
            (self.root / "tests" / f"{name}.txt").write_text(text)
        return self

    def judged(self, *words: str, ci: bool = True) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "tests.ci", "-p", "no:cacheprovider", *words],
            cwd=self.root,
            env={**ENVIRONMENT, **({"CI": "true"} if ci else {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return Answer(done.returncode, done.stdout)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_what_passes_is_green_and_has_a_table_of_its_time(house: House) -> None:
    answer = house.write(one=PASSES, two=PASSES).judged("-n2")
    assert answer.code == 0, answer.output
    assert "2 collected: 2 passed, 0 failed, 0 skipped" in answer.output
    assert "where the time went" in answer.output
    assert "test_one.py::test_passes" in answer.output


@pytest.mark.parametrize("words", [["-n2"], ["-n0"], ["-n2", "--dist=loadgroup"]])
def test_a_failure_fails_twice(house: House, words: list[str]) -> None:
    failing = "import pytest\n@pytest.mark.xdist_group('home')\ndef test_fails(): assert 0\n"
    answer = house.write(one=PASSES, two=failing).judged(*words)
    assert answer.code == 1, answer.output
    assert "RED: failed twice: test_two.py::test_fails\n" in answer.output


def test_workers_that_crash_hide_no_test_that_never_ran(house: House) -> None:
    answer = house.write(one=PASSES, crashing=CRASHES).judged("-n2", "--max-worker-restart=1")
    assert answer.code == 1, answer.output
    assert "of 41 collected tests have not run" in answer.output


def test_a_test_that_ends_its_worker_has_failed(house: House) -> None:
    crashing = "import os\ndef test_crashes(): os._exit(0)\n"
    answer = house.write(one=PASSES, crashing=crashing).judged("-n2")
    assert answer.code == 1, answer.output
    assert "2 collected: 1 passed, 1 failed" in answer.output
    assert "RED: failed twice: test_crashing.py::test_crashes" in answer.output


def test_a_run_that_was_cut_short_is_red(house: House) -> None:
    failing = "".join(f"def test_fails_{n}(): assert n\n" for n in range(2)) + "".join(
        f"def test_later_{n}(): pass\n" for n in range(5)
    )
    answer = house.write(one=failing).judged("-n0", "--maxfail=1")
    assert answer.code == 1, answer.output
    assert "RED: 6 of 7 collected tests have not run" in answer.output


def test_four_failures_have_no_second_try(house: House) -> None:
    failing = "".join(f"def test_fails_{n}(): assert 0\n" for n in range(4))
    answer = house.write(one=failing).judged("-n0")
    assert answer.code == 1, answer.output
    assert "RED: 4 tests have failed, too many for a second try" in answer.output
    assert "a second try," not in answer.output


def test_what_passes_at_the_second_try_is_green_and_called_flaky(house: House) -> None:
    answer = house.write(one=PASSES, flaky=FLAKY).judged("-n0")
    assert answer.code == 0, answer.output
    assert "flaky: test_flaky.py::test_flaky (NEW: mend it at its cause" in answer.output


def test_a_flaky_test_that_is_known_is_called_so(house: House) -> None:
    answer = house.write(flaky=FLAKY).list(flaky="test_flaky.py::test_flaky\n").judged("-n0")
    assert answer.code == 0, answer.output
    assert "flaky: test_flaky.py::test_flaky (known)" in answer.output


def test_a_skip_fails_in_ci_and_is_told_elsewhere(house: House) -> None:
    house.write(one=PASSES, skipping=SKIPS)
    answer = house.judged("-n0")
    assert answer.code == 1, answer.output
    assert "RED: skipped: test_skipping.py::test_skips[1]: the moon is full" in answer.output
    answer = house.judged("-n0", ci=False)
    assert answer.code == 0, answer.output
    assert "skipped: 2 x the moon is full" in answer.output


def test_a_skip_is_expected_for_its_reason_only(house: House) -> None:
    house.write(one=PASSES, skipping=SKIPS)
    assert house.list(skips="# why\ntest_skipping.py::test_skips  the moon is full\n").judged("-n0").code == 0
    assert house.list(skips="test_skipping.py::test_skips  the sun shines\n").judged("-n0").code == 1


def test_an_expected_skip_of_no_test_is_red(house: House) -> None:
    answer = house.write(one=PASSES).list(skips="test_gone.py::test_gone  it is gone\n").judged("-n0")
    assert answer.code == 1, answer.output
    assert "RED: no such test: test_gone.py::test_gone" in answer.output


@pytest.mark.parametrize("jobs", ["-n0", "-n2"])
def test_a_module_that_skips_itself_is_a_skip_too(house: House, jobs: str) -> None:
    whole = "import pytest\npytest.skip('not today', allow_module_level=True)\ndef test_it(): pass\n"
    answer = house.write(one=PASSES, whole=whole).judged(jobs)
    assert answer.code == 1, answer.output
    assert "RED: skipped as a whole: test_whole.py: not today" in answer.output


@pytest.mark.parametrize("jobs", ["-n0", "-n2"])
def test_a_module_that_cannot_be_imported_is_red(house: House, jobs: str) -> None:
    answer = house.write(one=PASSES, broken="import nothing_of_that_name\n").judged(jobs)
    assert answer.code == 1, answer.output
    assert "RED: could not be collected: test_broken.py" in answer.output


@pytest.mark.parametrize("words", [["-n0"], ["-n2"], ["-n2", "-k", "nothing"], ["--no-such-option"]])
def test_a_run_of_nothing_is_red(house: House, words: list[str]) -> None:
    answer = house.judged(*words)
    assert answer.code == 1, answer.output
    assert "RED: " in answer.output


def test_only_skips_are_a_run_of_nothing(house: House) -> None:
    answer = house.write(skipping=SKIPS).judged("-n0", ci=False)
    assert answer.code == 1, answer.output
    assert "RED: no test has run" in answer.output


def test_a_teardown_that_fails_is_a_failure(house: House) -> None:
    text = "import pytest\n@pytest.fixture\ndef bad():\n    yield\n    assert 0\ndef test_it(bad): pass\n"
    answer = house.write(one=text).judged("-n0")
    assert answer.code == 1, answer.output
    assert "RED: failed twice: test_one.py::test_it" in answer.output

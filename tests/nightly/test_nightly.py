"""The page of the nightly, what its parts make of pyproject.toml and of a report, and which skips CI accepts."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.faults import report
from tests.nightly import __main__ as nightly
from tests.nightly import history, running, until
from tests.nightly.parts import CONTROLLER, PARTS, dependencies, lower_bounds
from tests.nightly.running import ROOT, Limits, PartResult, Row, judged
from tests.skips import expected
from tests.tables import read_table


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    file = tmp_path / "nightly.md"
    file.write_text(f"# The nightly\n\n{running.BEGIN}\n\n{running.END}\n\nThe end.\n")
    return file


def test_a_part_keeps_its_last_result_while_others_run(empty: Path) -> None:
    first = Row("wheel", "passed", "2026-01-02 03:04", "abc", "1.0 min", "a | b\nc")
    running.write(["wheel", "fuzz"], {"wheel": first}, empty)
    running.write(["wheel", "fuzz"], {"fuzz": Row("fuzz", "**failed**", "now", "def", "2 min", "")}, empty)
    rows = running.rows(empty)
    assert rows["wheel"] == Row("wheel", "passed", "2026-01-02 03:04", "abc", "1.0 min", "a / b c")
    assert rows["fuzz"].result == "**failed**"
    assert empty.read_text().endswith("\n\nThe end.\n")


def test_a_part_that_never_ran_is_not_run(empty: Path) -> None:
    running.write(["wheel", "fuzz"], {}, empty)
    assert running.rows(empty) == {"wheel": Row("wheel"), "fuzz": Row("fuzz")}
    assert Row("wheel").result == "not run"


def test_the_page_describes_and_has_a_row_for_every_part() -> None:
    text = running.PAGE.read_text()
    assert list(running.rows()) == list(PARTS)
    assert [name for name in PARTS if f"| `{name}` | " not in text] == []


def test_a_part_that_breaks_or_fails_stops_no_other(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "first": {"": Mock(side_effect=RuntimeError("no wheel"))},
        "second": {"": lambda _: PartResult(False, "1 failed")},
        "third": {"one": lambda _: PartResult(True, "2 passed"), "other": lambda _: PartResult(True, "3 passed")},
    }
    monkeypatch.setattr(nightly, "PARTS", parts)
    monkeypatch.setattr(running, "PAGE", empty)
    monkeypatch.setattr("sys.argv", ["nightly"])
    assert nightly.main() == 1
    rows = running.rows(empty)
    assert [row.result for row in rows.values()] == ["**failed**", "**failed**", "passed"]
    assert rows["first"].seen == "broke: RuntimeError: no wheel"
    assert rows["third"].seen == "one: 2 passed; other: 3 passed"


def test_nothing_at_all_is_no_success() -> None:
    assert not PartResult.of_all({}).passed
    assert not PartResult.of_all({"3.8": PartResult(True, "ok"), "3.9": PartResult(False, "no")}).passed


@pytest.mark.parametrize(
    ("cases", "code", "seen"),
    [
        ('<testcase name="a"/><testcase name="b"/>', 0, PartResult(True, "2 passed")),
        ('<testcase name="tried again"/><testcase name="tried again"/>', 0, PartResult(True, "1 passed")),
        ('<testcase classname="a" name="b"><failure/></testcase>', 1, PartResult(False, "1 failed; failed: a.b")),
        (
            '<testcase classname="a" name="b"><error/></testcase>',
            2,
            PartResult(False, "1 failed; failed: a.b; pytest ended with 2"),
        ),
        ("<testcase/>", 1, PartResult(False, "1 passed; pytest ended with 1")),
        ("", 0, PartResult(False, "nothing has run; no test has run")),
    ],
)
def test_a_report_is_judged_by_what_failed_and_by_the_exit_code(
    tmp_path: Path, cases: str, code: int, seen: PartResult
) -> None:
    (tmp_path / "report.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert judged(tmp_path / "report.xml", code) == seen


THREE = "import pytest\n\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): assert True\n"


def test_what_a_short_night_has_not_begun_is_no_failure_and_no_success(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(THREE)
    arguments = (sys.executable, "--rootdir", str(tmp_path), "-n", "2", str(tmp_path))
    assert running.pytest(Limits(minutes=5), *arguments) == PartResult(True, "3 passed", whole=True)
    none = running.pytest(Limits(minutes=-1), *arguments)
    assert none == PartResult(False, "3 not begun in -1 min; no test has run", whole=False)


def test_short_night_begins_with_other_tests_each_time_alike_in_every_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def order(seed: str) -> tuple[Any, ...]:
        monkeypatch.setenv(until.SEED, seed)
        items: list[Any] = list(range(100))
        with suppress(StopIteration):
            hook = until.pytest_collection_modifyitems(items)
            next(hook)
            next(hook)
        return tuple(items)

    assert order("1") == order("1")
    assert sorted(order("1")) == list(range(100))
    assert len({order(str(seed)) for seed in range(20)}) > 10


def test_every_folder_with_tests_of_the_night_is_in_a_part() -> None:
    """Those of no part would run never."""
    texts = {file: file.read_text() for file in ROOT.glob("tests/*/**/*.py") if file != Path(__file__)}
    marked = [file for file, text in texts.items() if "mark.nightly" in text or "at_night(" in text]
    parts = (ROOT / "tests/nightly/parts.py").read_text()
    folders = {"/".join(file.relative_to(ROOT).parts[:2]) for file in marked}
    assert [folder for folder in sorted(folders) if f'"{folder}"' not in parts] == []


def test_lower_bounds_become_the_versions_that_pip_is_held_to() -> None:
    requirements = ["typer>=0.19", "PyYAML>=6.0.1; python_version < '3.13'", "PyYAML>=6.0.2; python_version >= '3.13'"]
    requirements += ["mypy; extra == 'dev'"]
    assert list(lower_bounds(requirements, "3.10")) == ["typer==0.19", "PyYAML==6.0.1"]
    assert list(lower_bounds(requirements, "3.13")) == ["typer==0.19", "PyYAML==6.0.2"]
    with pytest.raises(ValueError, match="has no lower bound"):
        list(lower_bounds(["typer"], "3.10"))


def test_dependencies_and_screen_extras_have_a_lower_bound_on_every_python() -> None:
    for version in CONTROLLER:
        held = list(lower_bounds(dependencies(ROOT), version))
        names = [one.partition("==")[0] for one in held]
        assert len(names) == len(set(names)), held
        assert {"typer", "PyYAML", "textual"} <= set(names)


def test_some_faults_alone_leave_the_rows_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "faults.md"
    file.write_text(f"{report.BEGIN}\n\n{report.END}\n")
    frozen, cut = (report.Row(fault, "async-ps", 1.0, None, None, 0, "Succeeded") for fault in ("frozen", "cut"))
    report.write(file, [frozen, cut], keep=False)
    report.write(file, [replace(cut, noticed_s=2.0)], keep=True)
    assert [row[:3] for row in read_table(file, report.BEGIN, report.END)] == [
        ("cut", "async-ps", "2.0 s"),
        ("frozen", "async-ps", "1.0 s"),
    ]
    report.write(file, [cut], keep=False)
    assert len(read_table(file, report.BEGIN, report.END)) == 1


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
def test_a_skip_fails_in_ci_unless_it_is_expected_for_its_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, listed: str, ci: str, outcomes: dict[str, int]
) -> None:
    pytester.makepyfile(test_it=TESTS)
    pytester.mkdir("tests").joinpath("skips.txt").write_text(listed)
    run(pytester, monkeypatch, ci, "-n0").assert_outcomes(**outcomes)


def test_skips_of_tests_and_of_modules_fail_in_ci_on_workers(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_whole=WHOLE, test_it=TESTS)
    done = run(pytester, monkeypatch, "true", "-n2")
    assert done.ret != 0
    assert "not today" in done.stdout.str()
    assert "the moon is full" in done.stdout.str()


def test_a_test_that_a_bounded_run_does_not_begin_is_no_failure_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_it="def test_passes(): pass")
    for name, value in until.settings(minutes=-1).items():
        monkeypatch.setenv(name, value)
    run(pytester, monkeypatch, "true", "-n2", "-p", "tests.nightly.until").assert_outcomes(skipped=1)


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, *options: str) -> pytest.RunResult:
    for name, value in {"CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}.items():
        monkeypatch.setenv(name, value)
    return pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", "tests.skips", *options)


def test_every_expected_skip_is_of_a_test_that_exists() -> None:
    for test, reason in expected(ROOT):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text()
        assert reason


def test_the_change_since_a_landing_is_read_from_a_clone(tmp_path: Path) -> None:
    def commit(hour: int, **files: str) -> None:
        for name, text in files.items():
            (tmp_path / "tests" / f"{name}.py").write_text(text)
        history.git(tmp_path, "add", "--all")
        time = f"2026-01-02T{hour:02}:00:00Z"
        settings = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        command = ["git", *settings, "commit", "-q", "-m", f"at {hour}"]
        subprocess.run(command, cwd=tmp_path, env={**os.environ, "GIT_COMMITTER_DATE": time}, check=True)

    (tmp_path / "tests").mkdir()
    history.git(tmp_path, "init", "-q")
    commit(1, test_old="1", test_changed="1", test_removed="1")
    commit(2, test_old="2")
    (tmp_path / "tests/test_removed.py").unlink()
    commit(3, test_changed="2", test_new="1", helper="1")
    commits = history.history(tmp_path)
    landed = [*history.landings(commits)]
    assert landed == commits[1:]
    assert history.changed_tests(tmp_path, landed[0].name) == ["tests/test_changed.py", "tests/test_new.py"]

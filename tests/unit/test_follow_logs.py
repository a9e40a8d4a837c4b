"""What `dtctl logs -f` asks for in the run that follows on the one that has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import typer

from dtctl.agent.records.reasons import fact
from dtctl.cli import watching
from dtctl.cli.options import Scope
from dtctl.errors import TransportError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Away, Back
from dtctl.operations.history.record import RunRecord
from dtctl.operations.logs import LogRequest
from dtctl.operations.logs import following as onwards
from dtctl.operations.logs.following import Onward
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.render.logs import TOGETHER_S, Narrator
from tests.unit.coordinated import record


class Following:
    """Runs that end one after the other; `asked` are the logs that were asked for of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *then: Onward | None) -> None:
        self.asked: list[tuple[str | None, LogRequest]] = []
        self.printed_for: list[Sequence[TaskId]] = []
        self._then = list(then)
        monkeypatch.setattr(watching, "watch", self._watch)
        monkeypatch.setattr(onwards, "onward", lambda *_: self._then.pop(0))
        monkeypatch.setattr(Scope, "transport", None)
        monkeypatch.setattr(Scope, "started_here", lambda scope, run: None)

    def _watch(self, scope: Scope, of: RunRecord, wanted: LogRequest, printer: object) -> RunStatus:
        self.asked.append((of.run, wanted))
        return RunStatus(of, {}, Verdict(Outcome.STOPPED, (fact("replaced", run="digits-2"),)), (), 1010.0)

    def by(self, scope: Scope, words: list[str] | None, **wanted: Any) -> int:
        def printer_for(tasks: Sequence[TaskId]) -> Any:
            self.printed_for.append(tasks)

        first = LogRequest(tuple(record().roster), **wanted)
        with pytest.raises(typer.Exit) as ended:
            watching.follow_logs(scope, record(), words, first, printer_for)
        return int(ended.value.exit_code)


def test_all_of_the_new_run_is_shown_and_what_is_searched_for_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = dataclasses.replace(record("digits-2"), roster={TaskId("worker", 0): "c", TaskId("worker", 1): "d"})
    followed = Following(monkeypatch, Onward(fewer), None)
    assert followed.by(Scope("logs"), ["worker"], lines=10, since=5.0, grep="loss") == 1
    assert [run for run, _ in followed.asked] == ["digits-1", "digits-2"]
    then = followed.asked[1][1]
    assert (then.lines, then.since, then.grep, then.tasks) == (None, None, "loss", tuple(fewer.roster))
    assert followed.printed_for[1] == tuple(fewer.roster)
    assert "digits-1 was replaced by digits-2: its logs follow\n" in capsys.readouterr().err


def test_a_run_that_was_named_is_followed_to_its_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Following(monkeypatch)
    assert followed.by(Scope("logs", run="digits-1"), None) == 1
    assert len(followed.asked) == 1


def test_where_the_new_run_does_not_begin_the_command_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = Following(monkeypatch, Onward(None))
    assert followed.by(Scope("logs"), None) == 1
    assert (
        "digits-1 was stopped to make room for another run, which has not begun within 120 s" in capsys.readouterr().err
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def away(host: str) -> Away:
    return Away(host, TransportError(f"{host} ({host}:22) does not answer", shared_summary="no answer"))


def test_hosts_that_go_away_together_are_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    narrate = Narrator("gpu-1", None)
    for number in range(2, 12):
        narrate(away(f"gpu-{number}"))
        narrate(away(f"gpu-{number}"))
    assert capsys.readouterr().err == ""
    narrate(None)
    assert capsys.readouterr().err == "error: gpu-[2-11]: no answer\n"
    narrate(None)
    assert capsys.readouterr().err == "", "once"


def test_nobody_waits_long_to_be_shown_where_something_comes_all_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    narrate = Narrator("gpu-1", None, clock)
    narrate(away("gpu-2"))
    clock.now += TOGETHER_S
    narrate(away("gpu-3"))
    assert capsys.readouterr().err == "error: gpu-2 (gpu-2:22) does not answer\n"
    narrate.report_away()
    assert capsys.readouterr().err == "error: gpu-3 (gpu-3:22) does not answer\n"


def test_one_that_is_back_was_away_before(capsys: pytest.CaptureFixture[str]) -> None:
    narrate = Narrator("gpu-1", None)
    narrate(away("gpu-2"))
    narrate(Back("gpu-2"))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-2 (gpu-2:22) does not answer",
        "gpu-2 can be reached again",
    ]


def test_the_coordinators_absence_is_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Narrator("gpu-1", None)(away("gpu-1"))
    assert capsys.readouterr().err.splitlines() == [
        "error: gpu-1 (gpu-1:22) does not answer",
        "the run continues without it; trying again",
    ]

"""A report: who is asked what, what becomes of hosts that do not answer, and the file that is written."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.config.load import load_cluster
from dtctl.errors import DtctlError, TransportError, UsageError
from dtctl.model import TaskId, TaskState
from dtctl.operations.coordinator import coordinator_away
from dtctl.operations.events import read_events
from dtctl.operations.status import status_elsewhere
from dtctl.rooms.pages.report import MARK, gather, write_report
from dtctl.rooms.pages.report.configuration import configuration_of, read_configuration
from dtctl.rooms.pages.report.timeline import by_trouble, timeline
from dtctl.rooms.pages.report_page import markdown, page, show_unasked
from dtctl.rooms.pages.report_page.drawings import described
from tests.unit.coordinated import Agents, record, viewed
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession, FakeTransport
from tests.unit.report.reports import CAUSE, account, events, happening, report, status
from tests.unit.tasks import changed, past_attempt, task_status


class Told(Agents):
    """They also tell the story and scalars."""

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if fields["type"] == "metrics":
            self.asked.append((session.host.name, "metrics", fields))
            steps = {"steps": [1, 2], "times": [1020.0, 1030.0], "values": ["1.0", "0.5"]}
            loss = {"tag": "loss", "count": 2, "least": "0.5", "most": "1.0", **steps}
            folder = {"dir": f"/out/{session.host.name}", "name": ".", "identity": session.host.name, "series": [loss]}
            return [{"type": "result", "run": "digits-1", "time": 1100.0, "dirs": ["/out"], "folders": [folder]}]
        if fields["type"] == "events" and fields["whole"] and self.view is not None:
            moved = {"task": "worker:0", "attempt": 1, "from": "pending", "to": "starting", "host": "c"}
            line = {"type": "event", "n": 0, "time": 1005.0, **moved}
            return [line, {"type": "result", "run": "digits-1", "next": 1}]
        if fields["type"] == "events":
            return [{"type": "result", "run": "digits-1", "next": 0}]
        return super().__call__(session, fields)


def test_each_host_has_one_connection_and_the_coordinators_reports_the_run() -> None:
    transport = FakeTransport(Told(viewed(account=account())))
    found = gather(record(), transport, {})
    assert Counter(transport.opened) == dict.fromkeys("abcd", 1)
    assert all(session.closed for session in transport.sessions.values())
    assert [one.greeting["hostname"] for one in found.hosts] == [one.name for one in found.hosts]
    assert {one.tag for one in found.scalars.series} == {"loss"}
    assert [one.points[0].value for one in found.rates] == [0.1] * 4
    assert found.errors == {}
    assert found.goodput is not None
    begins = {str(line.task): line.attempts[0].begin for line in found.timeline.tasks}
    assert begins["worker:0"] == 1005.0, "as the story tells"
    assert begins["ps:0"] == 1001.0, "as its host tells"


def test_unreachable_host_is_named_and_others_are_reported() -> None:
    away = TransportError("cannot reach b")
    found = gather(record(), FakeTransport(Told(viewed()), {"b": away}), {})
    assert found.errors == {"b": away}
    assert "cannot reach b" in page(found)


class Beating(Told):
    """These hosts only beat, to each request of these kinds."""

    def __init__(self, hosts: str, kinds: tuple[str, ...] = ("status", "events", "metrics")) -> None:
        super().__init__(viewed())
        self._silent = {(host, kind) for host in hosts for kind in kinds}
        self.waits: Counter[str] = Counter()

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if (session.host.name, fields["type"]) in self._silent:
            self.waits[session.host.name] += 1
            return [dict(BEATS_FOR_EVER)]
        return super().__call__(session, fields)


@pytest.mark.parametrize("hosts", ["c", "b", "bc"])
def test_hosts_with_only_heartbeats_cost_one_timeout_and_skipped_requests_are_shown(hosts: str) -> None:
    agents = Beating(hosts)
    found = gather(record(), FakeTransport(agents), {})
    assert agents.waits == Counter(hosts)
    assert set(found.errors) == set(hosts)
    assert all("did not finish its answer" in error.summary for error in found.errors.values())
    assert found.unasked == (dict.fromkeys(hosts, ("events", "metrics")) if "c" in hosts else {})
    if "c" in hosts:
        for written in (page(found), markdown(found)):
            assert "did not finish its answer within 120 s" in written
            assert ": not asked for events and metrics any more" in written


def test_coordinator_without_history_is_not_queried_for_scalars() -> None:
    agents = Beating("c", ("events",))
    found = gather(record(), FakeTransport(agents), {})
    assert agents.waits == {"c": 1}
    assert found.unasked == {"c": ("metrics",)}
    assert found.status.coordination is not None
    assert {one.host for one in found.scalars.series} == set("abd")


def test_invalid_history_costs_no_time_and_scalars_are_still_queried() -> None:
    class Strange(Told):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            answer = super().__call__(session, fields)
            return [{"type": "shutdown"}] if fields["type"] == "events" and fields["whole"] else answer

    found = gather(record(), FakeTransport(Strange(viewed())), {})
    assert list(found.errors) == ["c"]
    assert found.unasked == {}
    assert {one.host for one in found.scalars.series} == set("abcd")


def test_reading_the_history_alone_waits_once_for_each_host() -> None:
    agents = Beating("bc")
    events = read_events(record(), FakeTransport(agents), last=None)
    assert agents.waits == Counter("bc")
    assert set(events.errors) == {"b", "c"}


def test_watching_does_not_wait_again_for_the_coordinator() -> None:
    agents = Beating("c")
    error = coordinator_away("c", TransportError("c did not finish its answer"))
    found = status_elsewhere(error, record(), FakeTransport(agents))
    assert agents.waits == Counter()
    assert found.away is not None
    assert found.away.cause is error.cause
    assert list(found.errors) == ["c"]


def test_hosts_that_were_spared_the_same_are_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_unasked({"gpu-1": ("metrics",), "a": ("events", "metrics"), "gpu-2": ("metrics",)})
    assert capsys.readouterr().err.splitlines() == [
        "gpu-[1-2]: not asked for metrics any more",
        "a: not asked for events and metrics any more",
    ]


def test_without_the_coordinators_host_other_hosts_are_reported() -> None:
    away = TransportError("cannot reach c")
    found = gather(record(), FakeTransport(Told(viewed()), {"c": away}), {})
    assert list(found.errors) == ["c"]
    assert found.goodput is None
    assert len(found.scalars.series) == 3
    assert "Unknown: the coordinator is unreachable." in page(found)


def test_report_without_any_answer_has_no_data() -> None:
    away = {host: TransportError(f"cannot reach {host}") for host in "abcd"}
    found = gather(record(), FakeTransport(Told(viewed()), away), {})
    assert set(found.errors) == set("abcd")
    assert found.status.time == 0


@pytest.mark.parametrize("tag", ["global_step/sec", "steps_per_second"])
def test_rate_logged_by_trainers_is_not_computed_again(tag: str) -> None:
    class Rates(Told):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            answer = super().__call__(session, fields)
            if fields["type"] == "metrics":
                answer[0]["folders"][0]["series"][0]["tag"] = tag  # type: ignore[index]
            return answer

    assert gather(record(), FakeTransport(Rates(viewed())), {}).rates == ()


TEXT = f"<!DOCTYPE html>\n{MARK} -->\n<html>\u00e4\ud800</html>\n"


def test_a_report_is_replaced_and_anything_else_only_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    write_report(path, TEXT, force=False)
    write_report(path, TEXT + "new", force=False)
    assert path.read_text().endswith("new")
    other = tmp_path / "thesis.html"
    other.write_text("a thesis")
    with pytest.raises(UsageError, match="not a report"):
        write_report(other, TEXT, force=False)
    assert other.read_text() == "a thesis"
    write_report(other, TEXT, force=True)
    assert MARK in other.read_text()
    empty = tmp_path / "empty"
    empty.touch()
    write_report(empty, TEXT, force=False)


@pytest.mark.parametrize("force", [True, False])
def test_invalid_output_path_is_refused(tmp_path: Path, force: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none" / "a.html"):
        with pytest.raises(UsageError):
            write_report(path, TEXT, force=force)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        write_report(tmp_path / "file" / "a.html", TEXT, force=force)


def test_refusal_of_the_system_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dtctl.rooms.pages.report.replace_file", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with pytest.raises(DtctlError, match="No space left"):
        write_report(tmp_path / "a.html", TEXT, force=False)


FILE = """\
name: digits   # a comment
hosts: {a: user@10.0.0.1, b: {gpus: 2, env: {}}}
trainer:
  command: [python, train.py, --api_key, sk-12345, --wandb_key=w5ndb, --steps, 10]
  secrets: [WANDB, DB_PASSWORD]
  env_file: secrets.env
  setup: |
    pip install --index-url https://joe:pw@pypi.example/simple x
    export GH_TOKEN=ghp_abc
  args: {auth_token: t0p, data: "s3://key:pass@bucket/x", author: Ann, note: the w1-value-z9 is in here}
  program: {wandb_key: w4ndb, url: "https://x/?sig=s1g&a=b", header: "Cookie: c00kie"}
  env:
    PASSWORDS: [one, two]
    DB_PASS: d8pass
    EMPTY:
"""


def shown(tmp_path: Path, environ: dict[str, str] | None = None) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    (tmp_path / "secrets.env").write_text("DB_PASSWORD=w1-value-z9\n")
    return "\n".join(read_configuration(file, environ or {}).lines)


def test_text_without_secrets_is_reported_unchanged(tmp_path: Path) -> None:
    text = shown(tmp_path)
    for line in ("name: digits", "  a: user@10.0.0.1", "    gpus: 2", "  - DB_PASSWORD", "  author: Ann", "  - 10"):
        assert line in text, line
    assert "comment" not in text


@pytest.mark.parametrize("secret", ["sk-12345", "joe", "pw@", "ghp_abc", "t0p", "key:pass", "w1-value-z9", "- one",
                                    "w4ndb", "w5ndb", "s1g", "c00kie", "d8pass"])  # fmt: skip
def test_secrets_are_masked_wherever_they_stand(tmp_path: Path, secret: str) -> None:
    text = shown(tmp_path)
    assert secret not in text
    assert text.count("***") >= 7


def test_the_value_of_a_secret_in_the_environment_is_masked_too(tmp_path: Path) -> None:
    assert "Ann" in shown(tmp_path, {"DB_PASSWORD": "x", "WANDB": "abc"})
    file = tmp_path / "other.yaml"
    file.write_text("trainer: {secrets: [MINE], env: {A: before-mine-after}}\n")
    assert "A: before-***-after" in "\n".join(read_configuration(file, {"MINE": "mine"}).lines)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    assert "not known" in read_configuration(None, {}).problem
    assert "No such file" in read_configuration(tmp_path / "none.yaml", {}).problem
    (tmp_path / "odd.yaml").write_text("a: [")
    assert read_configuration(tmp_path / "odd.yaml", {}).problem
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in read_configuration(tmp_path / "bytes.yaml", {}).problem
    (tmp_path / "list.yaml").write_text("[a, b]")
    assert read_configuration(tmp_path / "list.yaml", {}).lines == ("- a", "- b")


WORKER = TaskId("worker", 0)


def lines(now: float = 1100.0):  # type: ignore[no-untyped-def]
    return timeline(events().lines, status().tasks.values(), now, cut=False)


def test_an_attempt_has_its_states_in_order_and_how_it_ended() -> None:
    printed = lines()
    (line,) = [one for one in printed.tasks if one.task == WORKER]
    assert [(one.number, one.state) for one in line.attempts] == [(1, TaskState.BACKOFF), (2, TaskState.FAILED)]
    first, second = line.attempts
    assert [(bar.state.value, bar.begin, bar.end) for bar in first.bars] == [
        ("starting", 1010.0, 1011.0), ("running", 1011.0, 1062.0), ("backoff", 1062.0, 1068.0),
    ]  # fmt: skip
    assert first.why == second.why == [CAUSE]
    assert second.bars[-1].begin == second.bars[-1].end == 1100.0
    assert (printed.begin, printed.end) == (1000.0, 1100.0)
    assert described(line) == "attempt 1 ended after 52s, attempt 2 failed after 32s"


def test_an_open_interval_lasts_until_now() -> None:
    moves = [happening(1.0, "worker:0", "pending", "starting"), happening(3.0, "worker:0", "starting", "running")]
    task = task_status(str(WORKER), "c", attempt=1)
    rows = timeline(moves, [task], 50.0, cut=False)
    assert rows.tasks[0].attempts[0].bars[-1].end == rows.end == 50.0
    assert described(rows.tasks[0]) == "attempt 1 running for 49s"


def test_without_events_the_tasks_own_history_is_reported() -> None:
    task = status().tasks[WORKER]
    rows = timeline((), [task], 1200.0, cut=False)
    assert [(one.number, one.state) for one in rows.tasks[0].attempts] == [(1, TaskState.FAILED), (2, TaskState.FAILED)]
    waits = task_status(str(WORKER), "c", "pending", since=5.0)
    assert timeline((), [waits], 9.0, cut=False).tasks[0].attempts == ()
    runs = changed(waits, state=TaskState.RUNNING, attempt=1, history=[past_attempt(0, 1, 2, 0)])
    assert timeline((), [runs], 9.0, cut=False).tasks[0].attempts[-1].end == 9.0


def test_among_many_tasks_those_with_trouble_come_first() -> None:
    printed = lines()
    assert by_trouble(printed.tasks, WORKER)[0].task == WORKER


def test_no_task_and_no_history_are_a_timeline_too() -> None:
    assert timeline((), (), 7.0, cut=True).tasks == ()


def test_the_configuration_is_what_the_run_was_started_with(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("name: digits\ntrainer:\n  args: {train_steps: 3000, rate: 0.2}\n")
    settings = {
        "name": "digits",
        "trainer.args.train_steps": "60000",
        "trainer.args.rate": "0.1",
    }
    known = dataclasses.replace(record(), file=file, settings=settings, overridden=("trainer.args.train_steps",))
    found = configuration_of(known, {})
    assert [(one.value, one.is_set) for one in found.settings] == [
        ("digits", False), ("60000", True), ("0.1", False),
    ]  # fmt: skip
    assert found.differences == ["trainer.args.rate"]
    shown = page(dataclasses.replace(report(), configuration=found))
    assert '60000</td><td class="nowrap">--set</td>' in shown
    assert "differs by now from what the run was started with: trainer.args.rate." in shown
    assert dataclasses.replace(found, settings=()).differences == []


def test_what_the_command_line_sets_is_known_by_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "name: x\nhosts: {a: }\njobs: {worker: {hosts: [a]}}\ntrainer: {command: [y], args: {rate: 0.1, steps: 5}}\n"
    )
    loaded = load_cluster(file, overrides=["trainer.args.steps=7", "recovery={stall: 90}"], needs_files=False)
    assert (loaded.overridden, loaded.settings["trainer.args.steps"]) == (("trainer.args.steps", "recovery.stall"), "7")

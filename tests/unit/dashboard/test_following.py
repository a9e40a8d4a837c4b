"""The dashboard: a report that is made again and again over one connection a host, and its page."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.model import TaskState
from dtctl.operations.snapshot import Outcome, Verdict
from dtctl.rooms.pages import dashboard as server
from dtctl.rooms.pages import report as module
from dtctl.rooms.pages.dashboard import Board, looks, messages
from dtctl.rooms.pages.dashboard_page import STYLE, entered, entrance, parts, policy, script, unknown, whole
from dtctl.rooms.pages.report import Following, Report
from dtctl.rooms.pages.report_page import known_by_hash
from tests.unit.agent.poisons import left_in
from tests.unit.coordinated import entry, record, viewed
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.report.reports import EVIL, account, report
from tests.unit.report.test_gathering import Told
from tests.unit.report.test_page import FETCHES, Read
from tests.unit.tasks import changed


class Growing(Told):
    """Their story has one more line each time."""

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if fields["type"] == "events" and fields["whole"] and self.view is not None:
            self.asked.append((session.host.name, "events", fields))
            number = len(self.asked_of("events")) - 1
            line = {"type": "event", "n": number, "time": 1000.0 + number, "kind": "request", "why": []}
            return [line, {"type": "result", "run": "digits-1", "next": number + 1}]
        if fields["type"] == "events" and fields["whole"]:
            return [AgentError("not_coordinator", "this host does not coordinate the run")]
        return super().__call__(session, fields)


def test_each_host_has_one_connection_for_all_looks() -> None:
    agents = Growing(viewed(account=account()))
    transport = FakeTransport(agents)
    with Following(record(), transport, {}) as following:
        reports = [following.report() for _ in range(3)]
        assert Counter(transport.opened) == dict.fromkeys("abcd", 1)
    assert all(session.closed for session in transport.sessions.values())
    assert [one.greeting["hostname"] for one in reports[-1].hosts] == [one.name for one in reports[-1].hosts]
    assert reports[-1].goodput is not None
    assert reports[-1].errors == {}


def test_only_new_lines_of_the_history_are_requested() -> None:
    agents = Growing(viewed())
    with Following(record(), FakeTransport(agents), {}) as following:
        lengths = [len(following.report().events) for _ in range(3)]
    assert lengths == [1, 2, 3]
    assert [fields["from"] for _, kind, fields in agents.asked if kind == "events"] == [-20_000, 1, 2]


def test_scalars_are_read_now_and_then_and_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    agents = Told(viewed())
    with Following(record(), FakeTransport(agents), {}) as following:
        for at, times in ((100.0, 1), (102.0, 1), (109.0, 1), (110.0, 2), (112.0, 2)):
            now[0] = at
            assert following.report().scalars.series
            assert agents.asked_of("metrics").count("c") == times
        agents.view = viewed("Succeeded", "all is done", tasks={task: entry("succeeded", code=0) for task in TASKS})
        following.report()
        following.report()
        assert agents.asked_of("metrics").count("c") == 3


def test_the_speed_is_judged_each_half_a_minute_and_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    agents = Told(viewed())
    with Following(record(), FakeTransport(agents), {}) as following:
        for at, times in ((100.0, 1), (110.0, 1), (129.0, 1), (130.0, 2), (140.0, 2)):
            now[0] = at
            following.report()
            assert agents.asked_of("speed").count("c") == times
        agents.view = viewed("Succeeded", "all is done", tasks={task: entry("succeeded", code=0) for task in TASKS})
        following.report()
        following.report()
        assert agents.asked_of("speed").count("c") == 3


TASKS = ("ps:0", "ps:1", "worker:0", "worker:1")


def test_scalars_of_a_host_that_has_gone_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCALARS_EVERY_S", 0.0)
    monkeypatch.setattr(module, "SCALARS_SHARE", 1e9)
    transport = FakeTransport(Told(viewed()))
    with Following(record(), transport, {}) as following:
        before = {one.host for one in following.report().scalars.series}
        transport._unreachable = {"b": TransportError("cannot reach b")}
        transport.sessions["b"]._ended = True
        found = following.report()
        assert {one.host for one in found.scalars.series} == before == set("abcd")
        assert "b" in found.errors


def test_other_hosts_are_shown_without_the_coordinator_and_history_is_read_later() -> None:
    agents = Growing(viewed())
    transport = FakeTransport(agents)
    with Following(record(), transport, {}) as following:
        following.report()
        view, agents.view = agents.view, None
        alone = following.report()
        assert alone.status.coordination is None
        agents.view = view
        assert following.report().status.coordination is not None
    assert [fields["from"] for _, kind, fields in agents.asked if kind == "events" and fields["whole"]][-1] == -20_000


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "EVERY_S", 0.0)
    monkeypatch.setattr(server, "_TICK_S", 0.0)


@pytest.mark.usefixtures("quick")
def test_hosts_are_not_queried_without_an_open_browser() -> None:
    agents = Told(viewed())
    board = Board()
    with Following(record(), FakeTransport(agents), {}) as following:
        first = following.report()
        turns = iter([True] * 5 + [False])
        assert list(looks(following, first, board, lambda: next(turns))) == []
        assert agents.asked_of("status") == ["c"]
        turns = iter([True] * 3 + [False])
        with board.reading():
            assert len(list(looks(following, first, board, lambda: next(turns)))) == 3


@pytest.mark.usefixtures("quick")
def test_unreachable_hosts_are_reported_and_polling_continues() -> None:
    agents = Told(viewed())
    transport = FakeTransport(agents)
    board = Board()
    with Following(record(), transport, {}) as following, board.reading():
        seen = looks(following, following.report(), board, lambda: True)
        transport._unreachable = {host: TransportError(f"cannot reach {host}") for host in "abcd"}
        for session in transport.sessions.values():
            session._ended = True
        told_now = next(seen)
        assert isinstance(told_now, TransportError)
        assert "cannot reach" in told_now.summary
        transport._unreachable = {}
        following._kept._refusals.clear()
        assert isinstance(next(seen), Report)


def test_a_reader_gets_what_is_newer_than_what_it_has_seen() -> None:
    board = Board()
    board.put({"a": "1", "b": "1"})
    number, parts = board.since(0)
    assert parts == {"a": "1", "b": "1"}
    board.put({"a": "1", "b": "2"})
    again, parts = board.since(number)
    assert (again, parts) == (number + 1, {"b": "2"})
    assert board.since(again) == (again, {})
    board.put({"a": "1", "b": "2"})
    assert board.since(again) == (again, {}), "nothing has changed"


def test_a_number_that_never_was_gets_everything() -> None:
    board = Board()
    board.put({"a": "1"})
    assert board.since(99)[1] == board.since(-1)[1] == {"a": "1"}


def test_a_slow_reader_goes_without_what_was_between() -> None:
    board = Board()
    for number in range(1000):
        board.put({"a": str(number), "b": "same"})
    assert board.since(1)[1] == {"a": "999"}


def test_the_words_are_those_of_server_sent_events() -> None:
    board = Board()
    board.put({"a": "line\nline", "title": "x"})
    frames = messages(board, 0)
    assert next(frames) == "retry: 2000\n\n"
    first = next(frames)
    assert first.startswith("id: 1\nevent: parts\ndata: ")
    assert first.count("\n") == 4, "a line break of the text is none of the frame"
    assert json.loads(first.split("data: ")[1]) == {"a": "line\nline", "title": "x"}
    assert board.readers == 1
    threading.Timer(0.05, board.put, [{"a": "more"}]).start()
    assert json.loads(next(frames).split("data: ")[1]) == {"a": "more"}
    threading.Timer(0.05, board.close).start()
    assert list(frames) == ["event: over\ndata: \n\n"]
    assert board.readers == 0


def test_a_silence_is_broken_so_that_a_lost_connection_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ALIVE_S", 0.01)
    board = Board()
    board.put({"a": "1"})
    frames = messages(board, 1)
    assert [next(frames), next(frames)][1] == ": alive\n\n"


def test_board_has_readers_only_while_a_page_is_open() -> None:
    board = Board()
    assert not board.wait_for_readers(0)
    with board.reading(), board.reading():
        assert board.wait_for_readers(0)
    assert not board.wait_for_readers(0)


@pytest.fixture(scope="module")
def read() -> Read:
    return Read(whole({**parts(report()), **unknown(TransportError(EVIL))}, 7))


def test_it_is_one_whole_document_that_says_where_it_stands(read: Read) -> None:
    assert read.open == []
    assert read.named("html") == [{"lang": "en", "data-number": "7", "data-phase": ""}]
    assert read.text_in("title")[0] == "Failed: digits-1"
    levels = [int(name[1]) for name, _ in read.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_text_of_hosts_becomes_no_tag_and_no_attribute(read: Read) -> None:
    assert len(read.named("script")) == 1, "the page's own"
    names = {name for name, _ in read.tags}
    assert not names & {"img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    assert not [one for _, attributes in read.tags for one in attributes if one.startswith("on") or one in FETCHES]
    assert sum("<script>" in text for where, text in read.texts if where != "script") >= 8, "it is there, as text"
    texts = [text for where, text in read.texts if where not in ("script", "style")]
    assert [text for text in texts if left_in(text.replace("\n", ""))] == []


def test_the_script_and_the_style_are_the_ones_that_may_be_there(read: Read) -> None:
    assert read.text_in("script") == [script()]
    assert read.text_in("style") == [STYLE]
    assert f"script-src {known_by_hash(script())};" in policy()
    assert "</" not in script(), "nothing in it ends it"


def test_every_part_has_its_place_and_every_link_leads_to_one(read: Read) -> None:
    ids = [str(attributes["id"]) for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    parts_shown = {*parts(report()), *unknown(None)} - {"title", "phase"}
    assert {f"part-{name}" for name in parts_shown} == {one for one in ids if one.startswith("part-")}
    assert {str(one["href"])[1:] for one in read.named("a")} <= set(ids)


def test_a_page_of_parts_is_the_same_as_one_that_received_them_later() -> None:
    held = parts(report())
    text = whole(held, 1)
    for name, part in held.items():
        assert part in text or name == "title"


def test_the_answer_comes_first_and_the_tasks_are_a_table(read: Read) -> None:
    found = parts(report())
    assert found["answer"].startswith("<h1>digits-1</h1>")
    assert '<span class="outcome Failed">Failed</span>' in found["answer"]
    assert '<span class="s-failed">failed</span>' in found["tasks"]
    assert ">worker:0<" in found["tasks"]
    assert ">pid<" not in found["tasks"]


def test_a_screen_reader_says_by_itself_what_seldom_changes() -> None:
    one = report()
    later = dataclasses.replace(one, status=dataclasses.replace(one.status, time=one.status.time + 5))
    assert parts(one)["news"] == parts(later)["news"]
    assert parts(one)["news"].startswith("Failed: 1 task failed")


def test_the_end_is_known_once_nothing_runs() -> None:
    assert not parts(running())["phase"]
    assert not parts(report())["phase"], "three tasks still run"
    assert parts(ended())["phase"] == "ended"
    assert "has ended" not in parts(ended())["answer"], "the script says so, once it has seen it"


def test_problems_are_shown_on_top_with_remedies() -> None:
    found = parts(report())
    assert 'class="failure"' in found["failure"]
    assert "your program ended with exit code 1" in found["failure"]
    assert "dtctl logs worker:0" in found["failure"]
    assert "dtctl logs worker:0" not in found["problems"], "it is told once"
    assert parts(dataclasses.replace(running(), errors={}))["problems"] == ""


def test_hosts_without_an_answer_are_named_by_reason_with_a_link_to_the_rest() -> None:
    away = {f"h{number}": TransportError(f"cannot reach h{number}: {'x' * (number // 2)}") for number in range(10)}
    found = parts(dataclasses.replace(running(), errors=away))
    assert found["problems"].count("no answer: cannot reach h[") == 3
    assert '<a href="#gaps">2 more reasons</a>' in found["problems"]
    assert found["gaps"].count("cannot reach h[") == 5


def test_unreachable_hosts_are_shown_until_one_answers() -> None:
    assert "cannot reach a" in unknown(TransportError("cannot reach a"))["unknown"]
    assert unknown(None) == {"unknown": ""}


def test_the_page_that_leads_on_leads_there_and_nowhere_else() -> None:
    read = Read(entered("/x/"))
    (there,) = [one for one in read.named("meta") if one.get("http-equiv") == "refresh"]
    assert there["content"] == "0;url=/x/"
    assert read.named("script") == []


def running() -> Report:
    verdict = Verdict(Outcome.RUNNING, (fact("tasks_run", count=4, of=4),))
    return all_of_them(TaskState.RUNNING, verdict=verdict)


def ended() -> Report:
    return all_of_them(TaskState.FAILED)


def all_of_them(state: TaskState, **fields: Any) -> Report:
    one = report()
    tasks = {
        name: changed(task, state=state, why=(), tail="", history=(), code=None)
        for name, task in one.status.tasks.items()
    }
    return dataclasses.replace(one, status=dataclasses.replace(one.status, tasks=tasks, **fields))


def test_a_page_that_is_opened_after_a_rest_waits_for_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH_S", 0.05)
    board = Board()
    board.put({"answer": "Running", "phase": ""})
    time.sleep(0.1)
    threading.Timer(0.1, board.put, [{"answer": "Succeeded", "phase": "ended"}]).start()
    board.refresh()
    assert board.since(0)[1]["answer"] == "Succeeded"
    time.sleep(0.1)
    began = time.monotonic()
    board.refresh()
    assert time.monotonic() - began < 1.0, "what has ended changes no more"
    assert board.readers == 0


def test_an_ended_run_is_not_live_and_cannot_be_held() -> None:
    assert 'data-phase="ended"' in whole(parts(ended()), 1)
    assert 'data-phase=""' in whole(parts(running()), 1)


def test_a_screen_reader_hears_why_tasks_restart() -> None:
    verdict = Verdict(Outcome.RESTARTING, (fact("said", text="worker:1 exited 1"),))
    assert parts(all_of_them(TaskState.RUNNING, verdict=verdict))["news"] == "Restarting: worker:1 exited 1"


def test_small_pages_fit_a_phone_and_say_what_to_type() -> None:
    page = entrance("dtctl dashboard")
    for code in (400, 403, 404, 405, 503):
        assert 'name="viewport"' in page.refused(code)
        assert Read(page.refused(code)).text_in("code")[0].startswith("dtctl ")
    assert "<code>dtctl dashboard</code> prints a new address" in page.refused(403)

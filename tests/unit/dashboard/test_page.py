"""The dashboard's page: whole without a script, and each part of it can be told again."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.errors import TransportError
from dtctl.model import TaskState
from dtctl.operations.report.gathering import Report
from dtctl.operations.snapshot import Outcome, Verdict
from dtctl.render.dashboard import STYLE, entered, parts, policy, script, unknown, whole
from dtctl.render.report.page import known_by_hash
from tests.unit.agent.poisons import left_in
from tests.unit.report.reports import EVIL, report
from tests.unit.report.test_page import FETCHES, Read
from tests.unit.tasks import changed


@pytest.fixture(scope="module")
def read() -> Read:
    return Read(whole({**parts(report()), **unknown(TransportError(EVIL))}, 7))


def test_it_is_one_whole_document_that_says_where_it_stands(read: Read) -> None:
    assert read.open == []
    assert read.named("html") == [{"lang": "en", "data-number": "7"}]
    assert read.text_in("title")[0] == "Failed: digits-1"
    levels = [int(name[1]) for name, _ in read.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_what_hosts_say_becomes_no_tag_and_no_attribute(read: Read) -> None:
    assert len(read.named("script")) == 1, "the page's own"
    names = {name for name, _ in read.tags}
    assert not names & {"img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    assert not [one for _, attributes in read.tags for one in attributes if one.startswith("on") or one in FETCHES]
    assert sum("<script>" in text for where, text in read.texts if where != "script") >= 8, "it is there, as text"
    said = [text for where, text in read.texts if where not in ("script", "style")]
    assert [text for text in said if left_in(text.replace("\n", ""))] == []


def test_the_script_and_the_style_are_the_ones_that_may_be_there(read: Read) -> None:
    assert read.text_in("script") == [script()]
    assert read.text_in("style") == [STYLE]
    assert f"script-src {known_by_hash(script())};" in policy()
    assert "</" not in script(), "nothing in it ends it"


def test_every_part_has_its_place_and_every_link_leads_to_one(read: Read) -> None:
    ids = [str(attributes["id"]) for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    told = {*parts(report()), *unknown(None)} - {"title"}
    assert {f"part-{name}" for name in told} == {one for one in ids if one.startswith("part-")}
    assert {str(one["href"])[1:] for one in read.named("a")} <= set(ids)


def test_a_page_of_parts_is_the_same_as_one_that_was_told_them_later() -> None:
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


def test_the_end_is_said_once_nothing_goes_on() -> None:
    told = "The run has ended, and this page stays as it is."
    assert told not in parts(running())["answer"]
    assert told not in parts(report())["answer"], "three tasks still run"
    assert told in parts(ended())["answer"]


def test_what_is_wrong_stands_above_with_what_to_type() -> None:
    found = parts(report())["problems"]
    assert 'class="problem"' in found
    assert "dtctl logs worker:0" in found
    assert parts(dataclasses.replace(running(), errors={}))["problems"] == ""


def test_hosts_that_give_no_answer_are_named_above_by_reasons_and_the_rest_is_a_link_away() -> None:
    away = {f"h{number}": TransportError(f"cannot reach h{number}: {'x' * (number // 2)}") for number in range(10)}
    found = parts(dataclasses.replace(running(), errors=away))
    assert found["problems"].count("no answer: cannot reach h[") == 3
    assert '<a href="#gaps">2 more reasons</a>' in found["problems"]
    assert found["gaps"].count("cannot reach h[") == 5


def test_nobody_answering_is_said_until_somebody_does() -> None:
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

"""What a spec's texts become on a host."""

from __future__ import annotations

import os

import pytest

from dtctl.agent.records.words import can_be_given
from dtctl.agent.run import environment
from tests.unit.agent.supervise import supervised

SPEC = supervised.spec()


def test_marks_are_replaced_and_other_text_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    marks = environment.Marks("/root/bundles/b/tree")
    words = ["\0HOME/data", "--out=\0HOME/x:\0CODE/y", "HOME", "$HOME", "\\0HOME"]
    assert marks.words(words) == [
        "/home/u/data",
        "--out=/home/u/x:/root/bundles/b/tree/y",
        "HOME",
        "$HOME",
        "\\0HOME",
    ]
    assert environment.Marks(None).text("\0CODE") == "/home/u"


def test_the_environment_is_inherited_then_the_tasks_then_secrets_then_ours() -> None:
    task = supervised.task("ps:0", env={"A": "2", "B": "2", "DTCTL_TASK": "mine"}, secrets=["B", "ABSENT"])
    got = environment.of_task({"A": "1", "C": "1"}, SPEC, task, {"B": "3", "OTHER": "x"}, 4, "k")
    assert got == {
        "A": "2",
        "B": "3",
        "C": "1",
        "DTCTL_RUN": "r",
        "DTCTL_CLUSTER": "c",
        "DTCTL_HOST": "h1",
        "DTCTL_TASK": "ps:0",
        "DTCTL_ATTEMPT": "4",
        "DTCTL_KEY": "k",
    }


def test_proxies_of_the_host_are_dropped_and_those_of_the_task_stay() -> None:
    inherited = {"http_proxy": "h", "HTTPS_PROXY": "h", "no_proxy": "h"}
    task = supervised.task("ps:0", env={"no_proxy": "t"})
    assert set(environment.of_task(inherited, SPEC, task, {}, 1, "k")) & {*inherited} == {"no_proxy"}
    kept = environment.of_task(inherited, SPEC, {**task, "keep_proxy": True}, {}, 1, "k")
    assert kept["HTTPS_PROXY"] == "h"


def test_a_bare_path_gets_the_usual_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/x:/usr/bin")
    path = environment.base()["PATH"].split(":")
    assert path[:2] == ["/opt/x", "/usr/bin"]
    assert sorted(path[2:]) == ["/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/sbin"]


def test_bytes_that_are_no_text_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"\xff\xfe")
    assert environment.encoded(environment.base())[b"ODD"] == b"\xff\xfe"


@pytest.mark.parametrize("text", ["a\0b", "\0", "\0HOM", "\ud800", "\0HOME\0"])
def test_text_that_no_program_can_be_given_is_known(text: str) -> None:
    assert not can_be_given(text)


@pytest.mark.parametrize("text", ["", "a b\n", "\0HOME/x:\0CODE", "\udcff", "\u8bad"])
def test_marks_and_bytes_that_are_no_text_can_be_given(text: str) -> None:
    assert can_be_given(text)

"""`dtctl explain` knows every key, every exit code and every answer of a host."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dtctl.config.reference import all_keys
from dtctl.errors import ExitCode, UsageError
from dtctl.render.manual import ANSWERS, EXITS, STATES, WORDS, find, listed, names, show

PACKAGE = Path(__file__).resolve().parents[3] / "dtctl"


def test_every_exit_code_is_explained_in_order() -> None:
    assert [trouble.code for trouble in EXITS] == list(ExitCode)
    assert [trouble.code for trouble in EXITS if not trouble.causes] == [ExitCode.OK]


def refusals() -> set[object]:
    """Codes with which the agent refuses something, wherever in its sources."""
    found: set[object] = set()
    for path in (PACKAGE / "agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            if isinstance(node, ast.Call) and name in ("Refused", "fail") and node.args:
                code = node.args[0]
                found |= {code.value} if isinstance(code, ast.Constant) and " " not in str(code.value) else set()
    return found


def test_every_answer_of_a_host_is_explained() -> None:
    assert len(refusals()) > 15
    assert {trouble.code for trouble in ANSWERS} >= refusals()


@pytest.mark.parametrize("name", sorted(names()))
def test_every_name_leads_to_an_explanation(name: str) -> None:
    assert all(topic.text for topic in find([name]))


def test_all_that_is_listed_can_be_asked_for() -> None:
    for group in listed().values():
        assert group.keys() <= names()


def test_tables_are_in_order() -> None:
    assert list(WORDS) == sorted(WORDS)
    assert [trouble.name for trouble in ANSWERS] == sorted(trouble.name for trouble in ANSWERS)
    assert len(STATES) == 9


def test_a_key_is_found_by_its_path_with_names_of_the_users_own() -> None:
    assert [topic.name for topic in find(["jobs.worker.port"])] == ["jobs.NAME.port"]
    assert [topic.name for topic in find(["hosts.gpu-1.example.com.gpus"])] == ["hosts.NAME.gpus"]
    assert [topic.name for topic in find(["jobs.worker"])] == ["jobs.NAME"]


def test_a_key_alone_is_found_in_every_section_that_has_it() -> None:
    assert {topic.name for topic in find(["port"])} == {"ssh.port", "jobs.NAME.port", "coordinator.port"}


@pytest.mark.parametrize("words", [["5"], ["exit", "5"], ["exit", "code", "5"], ["PREFLIGHT"]])
def test_an_exit_code_may_be_written_in_several_ways(words: list[str]) -> None:
    assert [(topic.kind, topic.name) for topic in find(words)] == [("exit code", "5")]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("tasks would fail as soon as they start, so nothing was started", "5"),
        ("address in use", "port_taken"),
        ("Address already in use", "port_taken"),
        ("hang", "hang"),
        ("125", "125"),
        ("exit code 127", "127"),
        ("port 2222 is in use on this host", "5"),
        ("the host key of gpu-1 (10.0.0.1:22) is not known", "4"),
        ("refuses connections", "4"),
        ("ModuleNotFoundError: No module named numpy", "1"),
    ],
)
def test_the_words_of_an_error_lead_to_its_exit_code(message: str, code: str) -> None:
    assert [topic.name for topic in find([message])] == [code]


@pytest.mark.parametrize(("word", "hint"), [("trainr", "did you mean 'trainer'?"), ("xyzzy", "dtctl explain    ")])
def test_an_unknown_word_is_an_error_with_the_nearest_one(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find([word])
    assert hint in caught.value.hint


def test_a_screen_shows_type_default_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    show(find(["grace"]))
    shown = capsys.readouterr().out
    assert "default: 30s" in shown
    assert "example: grace: 2m" in shown
    assert "](" not in shown


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in all_keys() if not (key.meaning and key.type)] == []

"""What zsh and fish are told of a word that is an option and its value."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from dtctl.cli.completion import begun, for_fish, for_zsh, whole_options

OFFERED = """_arguments '*: :(("json":"the run''s words"\n"text"))'"""


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("dtctl status --run=", "--run="),
        ("dtctl status --run=di", "--run="),
        ("dtctl status --run di", ""),
        ("dtctl status --ru", ""),
        ("dtctl status --", ""),
        ("dtctl up --set a=b", ""),
        ("dtctl status --run=x ", ""),
        ("", ""),
    ],
)
def test_an_option_belongs_to_the_word_that_it_begins(line: str, option: str) -> None:
    assert begun(line) == option


def test_zsh_keeps_apostrophes_and_replaces_the_whole_word() -> None:
    assert for_zsh(OFFERED, "") == """_arguments '*: :(("json":"the run'\\''s words"\n"text"))'"""
    assert for_zsh(OFFERED, "-o=") == """_arguments '*: :(("-o=json":"the run'\\''s words"\n"-o=text"))'"""
    assert for_zsh("_files", "--config=") == "_files"


def test_fish_replaces_the_whole_word() -> None:
    assert for_fish("json\tfor programs\ntext\n", "--output=") == "--output=json\tfor programs\n--output=text\n"
    assert for_fish("worker:0\nworker\n", "") == "worker:0\nworker\n"


def test_only_a_shell_that_completes_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"_TYPER_COMPLETE_ARGS": "dtctl status --run="}
    with whole_options({**line, "_DTCTL_COMPLETE": "complete_fish"}):
        print("digits-1")
    assert capsys.readouterr().out == "--run=digits-1\n"
    said = io.StringIO()
    with redirect_stdout(said), whole_options(line):
        print("digits-1")
    assert said.getvalue() == "digits-1\n"

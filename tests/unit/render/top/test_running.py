"""What `dtctl top` needs, and what it says where that is not there."""

from __future__ import annotations

from importlib import util
from types import SimpleNamespace

import pytest

from dtctl.errors import ExitCode, PreflightError, UsageError
from dtctl.render.terminal import console
from dtctl.render.top import running


class Terminal:
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """In place of `sys`, whose own streams are pytest's."""
    streams = {name: Terminal() for name in ("stdin", "stdout", "stderr")}
    found = SimpleNamespace(**streams)
    monkeypatch.setattr(console, "sys", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


@pytest.mark.usefixtures("terminal")
def test_a_terminal_and_textual_are_all_that_it_needs() -> None:
    running.need_screen()


@pytest.mark.usefixtures("terminal")
def test_without_the_extra_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None if name == "textual" else util.find_spec(name))
    with pytest.raises(PreflightError, match="needs Textual") as raised:
        running.need_screen()
    assert raised.value.exit_code == ExitCode.PREFLIGHT
    assert "pip install 'dtctl[top]'" in raised.value.hint


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_cannot_be_drawn_on_is_none(monkeypatch: pytest.MonkeyPatch, term: str | None) -> None:
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM")
    with pytest.raises(UsageError, match="draws on a terminal"):
        running.need_screen()


def test_a_pipe_is_no_terminal(terminal: SimpleNamespace) -> None:
    terminal.stdin = None
    with pytest.raises(UsageError) as raised:
        running.need_screen()
    assert "dtctl status --watch" in raised.value.hint

"""Ctrl-C while a command that is over restores the handlers of signals."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from dtctl import cli


@pytest.mark.parametrize("code", [0, 7])
def test_an_interrupt_after_the_end_of_a_command_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    over = False
    set_handler = signal.signal

    def ends() -> None:
        nonlocal over
        over = True
        raise SystemExit(code)

    def interrupted(number: Any, handler: Any) -> Any:
        if over and number == signal.SIGHUP:
            signal.raise_signal(signal.SIGINT)
        return set_handler(number, handler)

    monkeypatch.setattr(cli, "_main", ends)
    monkeypatch.setattr(cli, "_spare_imports", lambda: None)
    monkeypatch.setattr(signal, "signal", interrupted)
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == code

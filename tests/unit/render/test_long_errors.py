"""Errors repeat no value whole that a file, a host or a server has made as long as it likes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.agent.records.kinds import InvalidValue
from dtctl.config.load import load_cluster
from dtctl.errors import AgentError, ConfigError, DtctlError, Place, Problem, TransportError, UsageError
from dtctl.render import errors
from dtctl.render.terminal import console
from dtctl.rooms.storage.errors import StorageError
from dtctl.transport.wire import untrue

LONG = "begin" + "x" * 900_000 + "end"
MOST_SHOWN = 10_000

FILE = "name: demo\nhosts: {a: {transport: local}}\njobs: {worker: {hosts: [a]}}\ntrainer: {command: [python, t.py]}\n"
FILES = {
    "a name": FILE.replace("demo", LONG),
    "a host of a job": FILE.replace("[a]", f"[{LONG}]"),
    "a host": FILE.replace("{a:", f"{{{LONG}:"),
    "a key": f"{FILE}{LONG}: 1\n",
    "the same key twice": f"{FILE}{LONG}: 1\n{LONG}: 2\n",
    "a value": f"{FILE}grace: {LONG}\n",
    "a tag": f"{FILE}dirs: {{output: !!{LONG} x}}\n",
    "an anchor": f"{FILE}dirs: *{LONG}\n",
    "a scheme": f"{FILE}dirs: {{output: '{LONG}://x'}}\n",
    "a text without an end": f"{FILE}dirs: '{LONG}\n",
    "a job": FILE.replace("worker", LONG),
    "a task that follows": f"{FILE}start: {{order: [{LONG}]}}\n",
}

ERRORS: dict[str, Callable[[], DtctlError]] = {
    "a summary": lambda: DtctlError(LONG),
    "a hint": lambda: UsageError("no", hint=LONG),
    "a line of the detail": lambda: TransportError("no", detail=f"first\n{LONG}\nlast"),
    "a host's refusal": lambda: AgentError("internal", LONG, detail=LONG, hint=LONG, host="b"),
    "an invalid frame": lambda: untrue("b", f"sent an invalid `result`: {InvalidValue('a number', LONG)}"),
    "a frame of no name": lambda: untrue("b", f"sends a frame `{LONG}`"),
    "a storage server": lambda: StorageError(LONG),
    "problems of a file": lambda: ConfigError([Problem(Place("cluster.yaml", 1, 1), LONG, LONG)]),
}


@pytest.mark.parametrize("what", ERRORS)
@pytest.mark.parametrize("in_json", [False, True])
def test_an_error_repeats_the_two_ends_of_a_long_value(
    what: str, in_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "speaks_json", lambda: in_json)
    errors.show_error(ERRORS[what]())
    shown = capsys.readouterr().err
    assert 0 < len(shown) < MOST_SHOWN
    assert not in_json or json.loads(shown)["kind"] == "Error"


@pytest.mark.parametrize("show", [errors.note, errors.show_warning])
def test_so_does_a_warning(show: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    show(LONG)
    shown = capsys.readouterr().err
    assert "begin" in shown
    assert "end" in shown
    assert len(shown) < MOST_SHOWN


@pytest.mark.parametrize("what", FILES)
def test_a_cluster_file_with_a_long_value_has_short_errors(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILES[what])
    with pytest.raises(DtctlError) as raised:
        load_cluster(file)
    errors.show_error(raised.value)
    assert len(str(raised.value)) + len(capsys.readouterr().err) < 2 * MOST_SHOWN


def test_the_whole_of_a_long_detail_is_shortened_in_its_middle() -> None:
    error = DtctlError("no", detail="\n".join(f"line {number}" for number in range(100_000)))
    assert error.detail.startswith("line 0\n")
    assert error.detail.endswith("line 99999")
    assert len(error.detail) < 70_000

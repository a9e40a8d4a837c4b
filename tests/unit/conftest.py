"""A desk at which commands are typed: a home, and a project with the cluster of `wrong_commands`."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dtctl.cli import main
from dtctl.render.terminal import console
from tests.unit.wrong_commands import CLUSTER

Typed = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    """Types a command: exit code, stdout, stderr. What `main` changes in the process is as before afterwards."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "cluster.yaml").write_text(CLUSTER)
    (project / "train.py").touch()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "SSH_AUTH_SOCK", "DTCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    before = signal.getsignal(signal.SIGTERM)

    def type_command(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["dtctl", *shlex.split(command)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    yield type_command
    signal.signal(signal.SIGTERM, before)
    console.choose_color("auto")
    console.speak_json(None)

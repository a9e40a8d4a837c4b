"""The same conversations without SSH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.errors import ConnectionLost, TransportError
from dtctl.model import Host, Local
from dtctl.transport.connect import Transports
from dtctl.transport.local import LocalTransport
from dtctl.transport.seam import Session, answering
from tests.waiting import PATIENCE_S

HERE = Host("here", Local())


@pytest.fixture
def transport() -> LocalTransport:
    return LocalTransport()


@pytest.fixture
def host() -> Host:
    return Host("gpu-a", Local())


def test_the_real_agent_lives_below_its_root(tmp_path: Path) -> None:
    session = answering(Transports(local_root=tmp_path / "root"), HERE)
    try:
        assert session.facts["root"] == str(tmp_path / "root")
        session.send({"type": "runs", "cluster": None, "host": "here", "run": None})
        assert session.receive(PATIENCE_S)["runs"] == []
    finally:
        session.close()


def test_local_use_never_imports_ssh(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from dtctl.model import Host, Local\n"
        "from dtctl.transport.connect import Transports\n"
        "Transports(local_root=Path(sys.argv[1])).open(Host('here', Local())).close()\n"
        "sys.exit(bool({'fabric', 'paramiko', 'invoke'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_closing_ends_the_agent(session: Session) -> None:
    session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(session.facts["pid"], 0)
    with pytest.raises(ConnectionLost):
        session.send({"type": "digest"})


def test_an_interrupt_of_the_terminal_does_not_reach_the_agent(session: Session) -> None:
    assert os.getsid(session.facts["pid"]) != os.getsid(0)


def test_a_missing_python_is_reported() -> None:
    with pytest.raises(TransportError, match="/no/python"):
        answering(LocalTransport(python="/no/python"), HERE)


def test_a_local_python_that_is_too_old_is_reported(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho I am old >&2\nexit 2\n")
    fake.chmod(0o755)
    with pytest.raises(TransportError) as caught:
        answering(LocalTransport(python=str(fake)), HERE)
    assert "exit code 2" in caught.value.detail
    assert "I am old" in caught.value.detail

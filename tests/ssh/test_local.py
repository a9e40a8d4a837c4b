"""The same conversations without SSH."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.errors import AgentError, ConnectionLost, TransportError
from dtctl.model import Host, Local
from dtctl.transport.connect import Transports
from dtctl.transport.local import LocalTransport
from dtctl.transport.seam import Session, answering
from tests.waiting import PATIENCE_S

HERE = Host("here", Local())


@pytest.fixture
def session(tiny_agent: None) -> Iterator[Session]:
    made = answering(LocalTransport(), HERE)
    yield made
    made.close()


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


def test_bytes_arrive_whole_in_both_directions(session: Session) -> None:
    data = os.urandom(5_000_000)
    session.send({"type": "digest"}, data)
    assert session.receive(PATIENCE_S)["sha256"] == hashlib.sha256(data).hexdigest()
    session.send({"type": "give", "size": 5_000_000})
    assert len(session.receive(PATIENCE_S).payload) == 5_000_000


def test_receive_gives_up_after_its_time_and_errors_are_agent_errors(session: Session) -> None:
    with pytest.raises(TimeoutError):
        session.receive(0.05)
    session.send({"type": "refuse"})
    with pytest.raises(AgentError, match="here: no space"):
        session.receive(PATIENCE_S)


def test_an_agent_that_dies_is_reported_with_its_last_words(session: Session) -> None:
    session.send({"type": "die"})
    with pytest.raises(ConnectionLost) as caught:
        session.receive(PATIENCE_S)
    assert "exit code 3" in caught.value.detail
    assert "out of luck" in caught.value.detail


def test_closing_waits_for_the_child_and_wakes_who_receives(session: Session) -> None:
    lost: list[BaseException] = []

    def receive() -> None:
        try:
            session.receive()
        except ConnectionLost as error:
            lost.append(error)

    receiver = threading.Thread(target=receive)
    receiver.start()
    time.sleep(0.1)
    session.close()
    session.close()
    receiver.join(PATIENCE_S)
    assert lost
    with pytest.raises(ProcessLookupError):
        os.kill(session.facts["pid"], 0)
    with pytest.raises(ConnectionLost):
        session.send({"type": "digest"})


def test_the_terminals_interrupt_is_not_for_the_agent(session: Session) -> None:
    assert os.getsid(session.facts["pid"]) != os.getsid(0)


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(TransportError, match="/no/python"):
        answering(LocalTransport(python="/no/python"), HERE)


def test_a_python_that_is_too_old_to_start_says_so(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho I am old >&2\nexit 2\n")
    fake.chmod(0o755)
    with pytest.raises(TransportError) as caught:
        answering(LocalTransport(python=str(fake)), HERE)
    assert "exit code 2" in caught.value.detail
    assert "I am old" in caught.value.detail

"""Transfers that go wrong say why, and leave nothing half done."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles import store
from dtctl.agent.conversation import Aborted, Gone
from dtctl.agent.host.errors import Refused
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.errors import AgentError, ConnectionLost, PreflightError
from tests.agent.bundles.pushing import ENSURE, left_in, serve
from tests.agent.link.ends import PipeSession, agent_process, conversation


@pytest.mark.parametrize(
    ("frame", "payload", "ends", "code_of_error"),
    [
        ({"encoding": "raw", "last": True}, b"not what was promised", Refused, "bundle_damaged"),
        ({"encoding": "zlib", "last": True}, b"not zlib", Refused, "bundle_damaged"),
        ({"encoding": "raw", "last": False}, bytes(2_000_000), Refused, "bundle_damaged"),
        ({"encoding": "raw", "last": True, "index": 10_000}, b"", Refused, "bad_request"),
        ({"type": "keep"}, b"", Refused, "bad_request"),
        ({"type": "abort"}, b"", Aborted, None),
        ({"encoding": "raw", "last": False}, b"", Gone, None),
    ],
)
def test_mismatch_abort_and_lost_controller_leave_nothing(
    code: Path, root: Path, frame: dict[str, Any], payload: bytes, ends: type[Exception], code_of_error: str | None
) -> None:
    bundle = scan(code)
    with conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, outcome):
        with Sender(bundle) as sender:
            sender.serve(session, session.receive())
        first = session.receive()["files"][0]
        session.send({"type": "file", "index": first, **frame}, payload)
        if ends is not Gone:
            with pytest.raises(ConnectionLost):
                _hear_out(session)
    assert isinstance(outcome[0], ends)
    assert getattr(outcome[0], "code", None) == code_of_error
    assert left_in(root) == set()


def _hear_out(session: PipeSession) -> None:
    """On a busy machine it may still have reported how far it is."""
    while session.receive().type == "progress":
        pass


def test_a_file_that_changes_before_it_is_sent_stops_the_push(code: Path, root: Path) -> None:
    bundle = scan(code)
    (code / "train.py").write_text("print('saved in the editor just now')\n")
    with (
        conversation(lambda wire: store.ensure(str(root), bundle.id, wire)) as (session, _),
        pytest.raises(PreflightError, match=r"train.py changed while it was being sent"),
    ):
        serve(bundle, session)
    assert left_in(root) == set()


def _mounts() -> bool:
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0 or not _mounts(), reason="needs root and mount namespaces to make a small disk")
@pytest.mark.parametrize(("files", "size"), [(1, 2_000_000), (200, 100)], ids=["known before", "noticed while writing"])
def test_a_full_disk_is_reported_with_numbers_and_leaves_nothing(tmp_path: Path, files: int, size: int) -> None:
    code, root = tmp_path / "code", tmp_path / "host"
    code.mkdir()
    root.mkdir()
    for number in range(files):
        (code / str(number)).write_bytes(random.Random(number).randbytes(size))
    bundle = scan(code)
    body = """
import os, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "small", args[0]], check=True)
from dtctl.agent.bundles import store
try:
    store.ensure(args[0], args[1], wire)
except Refused as refused:
    left = [name for name in os.listdir(args[0] + "/bundles") if not name.endswith(".lock")]
    return {"code": refused.code, "detail": refused.detail, "left": left}
"""
    under = ("unshare", "--mount", "--propagation", "private")
    with agent_process(sys.executable, body, str(root), bundle.id, under=under) as (session, _):
        with Sender(bundle) as sender:
            sender.serve(session, session.receive())
            need = session.receive()
            if need.type == "need":
                with suppress(ConnectionLost):  # it answers without having read all, and ends
                    sender.serve(session, need)
                    while session.receive().type != "result":
                        pass
        answer = session.received[-1]["value"]
    assert answer["code"] == "disk_full"
    assert f"{files * size} bytes are needed" in answer["detail"]
    assert answer["detail"].endswith("are free")
    assert answer["left"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody who may not write")
def test_a_home_that_cannot_be_written_is_reported(code: Path, tmp_path: Path) -> None:
    bundle = scan(code)
    body = "import os\nfrom dtctl.agent.bundles import store\nos.setuid(65534)\n" + ENSURE
    with (
        agent_process(sys.executable, body, str(tmp_path / "forbidden"), bundle.id) as (session, _),
        pytest.raises(AgentError) as refused,
    ):
        session.receive()
    assert refused.value.code == "permission_denied"


def test_the_reason_of_an_agent_that_stops_reading_reaches_the_controller(code: Path) -> None:
    (code / "big.bin").write_bytes(random.Random(3).randbytes(4_000_000))
    bundle = scan(code)
    body = """
import os
need = list(range(int(args[0])))
wire.send({"type": "need", "files": need})
wire.receive()
raise Refused("disk_full", "the disk is full")
"""
    with (
        agent_process(sys.executable, body, str(len(bundle.manifest.files))) as (session, _),
        Sender(bundle) as sender,
        pytest.raises(AgentError, match="the disk is full"),
    ):
        sender.serve(session, session.receive())

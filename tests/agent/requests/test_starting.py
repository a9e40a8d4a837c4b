"""The start of a run: its ports, its credentials, and what is reported to the controller while it waits."""

from __future__ import annotations

import dataclasses
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.agent.run.runfiles import CREDENTIAL_FILES
from dtctl.operations.credentials import Authority
from tests.agent.host import AgentHost, AgentRefused, Fields, python_task, task
from tests.hosts.ports import free_port

SLEEP = ("sleep", "1000")


def credentials() -> Fields:
    return dataclasses.asdict(Authority("r1").issue("h1", coordinates=True))


def led(host: AgentHost, port: int, *tasks: Fields, **fields: object) -> Fields:
    """A spec with a coordinator on this host, and another host that it listens for."""
    coordinator = {"host": host.name, "address": f"127.0.0.1:{port}", "port": port}
    roster = [{"task": each["id"], "host": host.name} for each in tasks]
    roster.append({"task": "worker:9", "host": "h9"})
    return host.spec(*tasks, **{"coordinator": coordinator, "roster": roster, **fields})


def test_a_coordinators_port_that_is_taken_is_refused_with_its_holder_and_a_way_out(host: AgentHost) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(AgentRefused) as refused:
            host.up(led(host, port, task("worker:0", *SLEEP)), credentials=credentials())
    frame = refused.value.frame
    assert (frame["code"], frame["summary"]) == ("port_taken", f"the coordinator's port {port} is in use on this host")
    assert f"port {port} of the coordinator is held by pid " in frame["detail"]
    assert "coordinator.port" in frame["hint"]


def test_a_port_that_a_trainer_of_another_run_has_is_reported_with_the_run(host: AgentHost) -> None:
    script = "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "DTCTL_RUN": "digits-1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with pytest.raises(AgentRefused) as refused:
            host.up(led(host, port, task("worker:0", *SLEEP)), credentials=credentials())
        other.stdin.close()
    assert f"is held by pid {other.pid} of the run digits-1 (" in refused.value.frame["detail"]


def test_the_port_of_a_coordinator_elsewhere_does_not_matter_here(host: AgentHost) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        spec = led(host, listener.getsockname()[1], task("worker:0", *SLEEP))
        spec["coordinator"]["host"] = "h2"
        with host.open() as talk:
            host.prepare(talk, spec, credentials=credentials())
            talk.send("start")
            assert talk.await_type("started")["tasks"].keys() == {"worker:0"}


def test_the_credentials_are_kept_in_private_files(host: AgentHost) -> None:
    spec, made = host.spec(task("worker:0", *SLEEP)), credentials()
    host.up(spec, credentials=made)
    for field, name in CREDENTIAL_FILES.items():
        path = host.run_directory(spec) / name
        assert path.read_text() == made[field]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_run_on_several_hosts_is_refused_without_credentials(host: AgentHost) -> None:
    with pytest.raises(AgentRefused, match="bad_request: up: credentials: expected those that a run on several hosts"):
        host.up(led(host, 2221, task("worker:0", *SLEEP)))
    for name in CREDENTIAL_FILES:
        with pytest.raises(AgentRefused, match=f"bad_request: up: credentials.{name}: expected [^,]*$"):
            host.up(led(host, 2221, task("worker:0", *SLEEP)), credentials={**credentials(), name: 7})


LISTENER = """
import os, socket, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
with socket.socket() as server:
    server.bind(("0.0.0.0", int(sys.argv[2])))
    server.listen()
    time.sleep(1000)
"""


def test_a_task_that_waits_for_others_starts_when_they_listen(host: AgentHost, tmp_path: Path) -> None:
    spec, word = ps_and_worker(host, tmp_path, task("worker:0", *SLEEP, own=False), held=True)
    with host.open() as talk:
        host.prepare(talk, spec)
        talk.start()
    host.wait_state(spec, "ps:0", "running")
    assert host.state(spec)["tasks"]["worker:0"]["state"] == "pending"
    word.touch()
    states = {name: entry["state"] for name, entry in host.begun(spec)["tasks"].items()}
    assert states == {"ps:0": "running", "worker:0": "running"}


NEEDS_PS = """
import os, socket, time
socket.create_connection(("127.0.0.1", int(os.environ["PS"]))).close()
time.sleep(1000)
"""


def test_worker_without_its_ps_restarts_when_the_ps_listens_without_using_its_budget(
    host: AgentHost, tmp_path: Path
) -> None:
    spec, word = ps_and_worker(host, tmp_path, python_task("worker:0", NEEDS_PS), held=False)
    with host.open() as talk:
        host.prepare(talk, spec)
        talk.start()
    host.wait_state(spec, "worker:0", "backoff")
    word.touch()
    entry = host.begun(spec)["tasks"]["worker:0"]
    assert (entry["state"], entry["attempt"], entry["restarts"]) == ("running", 2, 0)
    assert [(past["early"], "ConnectionRefusedError" in past["cause"]) for past in entry["history"]] == [(True, True)]


def ps_and_worker(host: AgentHost, tmp_path: Path, worker: Fields, *, held: bool) -> tuple[Fields, Path]:
    """A run of a ps, which listens when the file is there, and of a worker that needs it."""
    word, port = tmp_path / "listen", free_port()
    ps = python_task("ps:0", LISTENER, port=port, ready="listening", own=False)
    ps["argv"] += [str(word), str(port)]
    worker["env"] = {**worker["env"], "PS": str(port)}
    roster = [
        {"task": name, "host": host.name, "address": f"127.0.0.1:{port}", "role": role, "scope": "task",
         "vital": True, "decides": role == "lead"}
        for name, role in (("ps:0", "ps"), ("worker:0", "lead"))
    ]  # fmt: skip
    stages = [
        {"name": "ps", "tasks": ["ps:0"], "after": []},
        {"name": "worker:0", "tasks": ["worker:0"], "after": [0], "held": held},
    ]
    return host.spec(ps, worker, lead="worker:0", roster=roster, stages=stages), word

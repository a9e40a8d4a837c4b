"""What an agent measures of its tasks: their traffic by connection, their threads, and how long it is kept."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import sock_diag
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.run_state import Entry, State
from dtctl.agent.records.spec import Member
from dtctl.agent.rooms.speed import measuring
from dtctl.agent.rooms.speed.processes import Uses, processes_of
from dtctl.agent.rooms.speed.records import Sample
from dtctl.agent.rooms.speed.traffic import Traffic
from tests.agent.host import AgentHost, Fields, task
from tests.hosts.ports import free_port
from tests.waiting import eventually

LISTENS = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=getattr(socket, sys.argv[3]))
print("listens", flush=True)
while not (other := server.accept()[0]).recv(1, socket.MSG_PEEK):
    pass
while data := other.recv(1 << 16):
    other.sendall(b"x" * (len(data) // 10))
    print("received", flush=True)
import time; time.sleep(1000)
"""
WAITS = """
import socket, sys, time
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1).getpeername()
    except ConnectionRefusedError:
        time.sleep(0.1)
    else:
        break
"""
SENDS = """
import socket, sys, time, threading
other = socket.create_connection((sys.argv[1], int(sys.argv[2])))
threading.Thread(target=lambda: [other.recv(1 << 16) for _ in iter(int, 1)], daemon=True).start()
for line in sys.stdin:
    other.sendall(b"x" * int(line))
    print("sent", flush=True)
time.sleep(1000)
"""
BUSY = """
import threading, time
def work():
    until = time.time() + 1000
    while time.time() < until: pass
thread = threading.Thread(target=work, daemon=True); thread.start()
print("at work", flush=True)
time.sleep(1000)
"""


@contextmanager
def running(script: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, as trainers are."""
    words = [sys.executable, "-c", script, *argv]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def types(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin
    process.stdin.write(line + "\n")
    process.stdin.flush()


def roster(**addresses: str) -> list[Member]:
    """Tasks such as ps_0, all on one host."""
    return [made(Member, task=name.replace("_", ":"), host="h1", address=own) for name, own in addresses.items()]


@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_traffic_between_tasks_of_a_host_is_counted_at_both_ends(family: str, address: str) -> None:
    port = free_port()
    with running(LISTENS, address, str(port), family) as ps:
        assert says(ps) == "listens"
        with running(SENDS, address, str(port)) as worker:
            pids = {"ps:0": [ps.pid], "worker:0": [worker.pid]}
            traffic = Traffic("h1", roster(ps_0=f"{address}:{port}", worker_0=f"{address}:1"))
            traffic.sample(pids)
            types(worker, "1000000")
            assert says(worker) == "sent"
            flows: dict[tuple[str, str | None], dict[str, float]] = {}

            def look() -> bool:
                for flow in traffic.sample(pids):
                    sums = flows.setdefault((flow["task"], flow["peer"]), {"sent": 0, "received": 0})
                    sums["sent"] += flow["sent_bytes"]
                    sums["received"] += flow["received_bytes"]
                return flows[("ps:0", "worker:0")]["received"] >= 1e6

            eventually(look, 10, "all of it")
            assert traffic.problem == ""
            assert flows.keys() == {("ps:0", "worker:0"), ("worker:0", "ps:0")}
            assert 1e6 <= flows[("worker:0", "ps:0")]["sent"] <= 1e6 + 10
            assert 1e6 <= flows[("ps:0", "worker:0")]["received"] <= 1e6 + 10


def test_only_connections_that_began_after_the_first_sample_are_counted_whole() -> None:
    first, second = free_port(), free_port()
    with running(LISTENS, "127.0.0.1", str(first), "AF_INET") as ps:
        says(ps)
        with running(SENDS, "127.0.0.1", str(first)) as worker:
            types(worker, "500000")
            says(worker)
            time.sleep(0.3)
            traffic = Traffic("h1", roster(ps_0=f"127.0.0.1:{first}", ps_1=f"127.0.0.1:{second}"))
            assert traffic.sample({"worker:0": [worker.pid]}) == []
        with running(LISTENS, "127.0.0.1", str(second), "AF_INET") as ps, socket.socket() as client:
            says(ps)
            client.connect(("127.0.0.1", second))
            client.sendall(b"x" * 1000)
            eventually(lambda: client.recv(200), 10, "the answer")
            (flow,) = traffic.sample({"worker:0": [os.getpid()]})
            assert (flow["task"], flow["peer"], flow["host"]) == ("worker:0", "ps:1", "h1")
            assert 1000 <= flow["sent_bytes"] <= 1010


def test_a_connection_to_elsewhere_has_no_host_and_one_of_no_task_is_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        members = [*roster(ps_0="192.0.2.7:1"), made(Member, task="ps:1", host="h2", address="nowhere.invalid:2")]
        traffic = Traffic("h1", members)
        traffic.sample({})
        client.connect(server.getsockname())
        client.sendall(b"x")
        assert traffic.sample({}) == []
        assert traffic._other_end(None, (b"\xc0\0\2\7", 1)) == ("ps:0", "h1")
        assert traffic._other_end(None, (b"\xc0\0\2\7", 9)) == (None, "h1")
        assert traffic._other_end(None, (b"\xc0\0\2\x63", 9)) == (None, None)


def test_an_address_of_ipv4_within_ipv6_is_the_same_address() -> None:
    assert sock_diag.packed("::ffff:10.0.0.1") == sock_diag.packed("10.0.0.1") == b"\n\0\0\1"
    assert sock_diag.packed("gpu-1") is None


def state_of(**pids: int) -> State:
    entries: dict[str, Any] = {}
    for name, pid in pids.items():
        start_time = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        entries[name.replace("_", ":")] = made(Entry, pid=pid, start_time=start_time, step=7, rate=2.0)
    return made(State, run="r", host="h1", tasks=entries)


def test_the_busiest_thread_of_a_task_is_measured() -> None:
    with running(BUSY) as worker:
        assert says(worker) == "at work"
        state = state_of(worker_0=worker.pid)
        uses = Uses()
        pids = processes_of({worker.pid: "worker:0"})
        assert pids == {"worker:0": [worker.pid]}
        uses.sample(100.0, state, pids)
        began = time.monotonic()
        time.sleep(1.0)
        use = uses.sample(100.0 + time.monotonic() - began, state, pids)["worker:0"]
        assert use["threads"] == 2
        assert use["thread_s"] is not None
        assert use["waits_s"] is not None
        assert 0.8 <= (use["thread_s"] + use["waits_s"]) / use["seconds"] <= 1.2
        assert abs(use["cpu_s"] - use["thread_s"]) < 0.1
        assert (use["step"], use["rate"]) == (7, 2.0)


def test_an_agent_measures_and_a_controller_is_given_it_even_after_the_end(host: AgentHost) -> None:
    """The first 10 s of a run are not measured: the counters of its tasks are read for the first time then."""
    port = free_port()
    serves = task("ps:0", sys.executable, "-c", LISTENS, "127.0.0.1", str(port), "AF_INET", port=port)
    steady = WAITS + SENDS.replace("sys.stdin", "iter(lambda: time.sleep(0.5) or '100000', None)")
    spec = host.started(serves, task("worker:0", sys.executable, "-c", steady, "127.0.0.1", str(port)))

    def flows(answer: Fields) -> dict[tuple[str, str], Fields]:
        return {(flow["task"], flow["peer"]): flow for flow in answer["whole"]["flows"]} if answer["whole"] else {}

    with host.open() as talk:
        eventually(lambda: flows(talk.ask("speed", **host.about({}))), 90, "traffic")
        live = talk.ask("speed", **host.about({}))
        talk.ask("stop", **host.about({"tasks": None, "by": "me@there"}))
        ended = talk.ask("speed", **host.about({"minutes": 1}))
    assert flows(live).keys() == flows(ended).keys() == {("ps:0", "worker:0"), ("worker:0", "ps:0")}
    assert flows(ended)[("worker:0", "ps:0")]["sent_bytes"] > 0
    assert set(ended["minutes"][0]["tasks"]) == {"ps:0", "worker:0"}
    assert stat.S_IMODE((host.run_directory(spec) / "speed.ring").stat().st_mode) == 0o600


def test_a_sample_is_a_valid_record_and_few_are_taken_where_one_is_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Files:
        directory = "/nowhere"

    spent = iter([0.0, 0.2])
    monkeypatch.setattr(time, "thread_time", lambda: next(spent))
    spec: Any = {"host": "h1", "tasks": [{"id": "worker:0"}], "roster": roster(worker_0="127.0.0.1:1")}
    observer = measuring.Observer(Files(), spec)  # type: ignore[arg-type]
    state = state_of(worker_0=os.getpid())
    observer.step(50.0, 1e9, state)
    assert observer._next == 50.0 + 40.0
    assert checked(Sample, observer.sample(60.0, 1e9, state))["seconds"] == 10.0

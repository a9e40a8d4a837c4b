"""The request `profile`: what live trainers do for some seconds, while they go on."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from dtctl.agent.host import ports, processes
from dtctl.agent.rooms.profile import tracing
from tests.agent.host import AgentHost, AgentRefused, Fields, shell, task
from tests.waiting import eventually

READS = """
import time
def read_batch():
    time.sleep(0.4)
def step():
    time.sleep(0.05)
number = 0
while True:
    read_batch()
    step()
    number += 1
    print("step", number, flush=True)
"""
SESSION = "2026_11_30_13_49_09"
ON = {"PYTHONFAULTHANDLER": "1"}


def python(id_: str, script: str, *options: str, **fields: object) -> Fields:
    return task(id_, sys.executable, *options, "-c", script, **{"env": ON, **fields})


def profiled(host: AgentHost, *tasks: str, seconds: int = 3, session: str = SESSION) -> dict[str, Fields]:
    """The frames, by their tasks."""
    with host.open() as talk:
        talk.send("profile", **host.about({"tasks": list(tasks) or None, "seconds": seconds, "session": session}))
        found = {}
        while (frame := talk.receive())["type"] != "result":
            if frame["type"] == "profile":
                found[frame["task"]] = frame
    return found


def up(host: AgentHost, *tasks: Fields, **fields: object) -> Fields:
    """With all of them at work for longer than those that may be about to run another program."""
    spec = host.started(*tasks, **fields)
    for one in tasks:
        eventually(lambda one=one: host.log(spec, one["id"]), 60, f"{one['id']} to say something")  # type: ignore[misc]
    eventually(lambda: all(each["missing"] != "young" for each in profiled(host, seconds=1).values()), 60, "their age")
    return spec


def test_where_a_trainer_spends_its_time_is_the_most_frequent_and_it_continues(host: AgentHost) -> None:
    spec = up(host, python("worker:0", READS))
    (one,) = profiled(host, "worker:0").values()
    assert (one["way"], one["missing"], one["no_file"]) == ("faulthandler", None, "no_tensorflow")
    assert one["pid"] == host.state(spec)["tasks"]["worker:0"]["pid"]
    assert 5 <= one["samples"] <= 15, "at most five in a second"
    assert 2.5 < one["sampled_s"] < 6
    most, *others = one["stacks"]
    assert [frame["function"] for frame in most["frames"]] == ["read_batch", "<module>"]
    assert most["samples"] > one["samples"] / 2
    assert sum(each["samples"] for each in (most, *others)) == one["samples"]
    before = host.log(spec, "worker:0")
    eventually(lambda: len(host.log(spec, "worker:0")) > len(before) + 5, 60, "further steps")
    assert host.state(spec)["tasks"]["worker:0"]["attempt"] == 1
    assert (host.attempt(spec, "worker:0") / "stacks").stat().st_size == 0


def test_all_tasks_of_a_host_are_profiled_at_the_same_time(host: AgentHost) -> None:
    up(host, *(python(f"worker:{number}", READS) for number in range(4)))
    began = time.monotonic()
    found = profiled(host, seconds=3)
    assert time.monotonic() - began < 10
    assert {task: one["way"] for task, one in found.items()} == {f"worker:{n}": "faulthandler" for n in range(4)}


def test_what_has_no_stacks_says_why(host: AgentHost) -> None:
    up(
        host,
        python("worker:0", READS, env={}),
        shell("worker:1", "echo here; exec sleep 1000"),
    )
    found = profiled(host, seconds=1)
    assert {task: (one["missing"], one["stacks"]) for task, one in found.items()} == {
        "worker:0": ("off", []),
        "worker:1": ("not_python", []),
    }
    host.ask("stop", tasks=None, grace_s=0, reason="", by="")
    for one in profiled(host, seconds=1).values():
        assert (one["pid"], one["stacks"], one["state"]) == (None, [], "stopped")


def test_the_child_of_a_launcher_is_sampled_in_its_place(host: AgentHost) -> None:
    launcher = (
        "import os, time\n"
        "def trains():\n"
        "    print('here', flush=True)\n"
        "    while True: sum(range(10000))\n"
        "def launches():\n"
        "    os.wait()\n"
        "trains() if os.fork() == 0 else launches()\n"
    )
    up(host, python("worker:0", launcher))

    def functions() -> list[str]:
        (one,) = profiled(host, seconds=1).values()
        return [frame["function"] for stack in one["stacks"] for frame in stack["frames"]]

    eventually(lambda: "trains" in functions(), 60, "the child")


def test_secrets_are_masked(host: AgentHost) -> None:
    script = "import time\ndef hunter2(): print('here', flush=True); time.sleep(1000)\nhunter2()"
    host.up(host.spec(python("worker:0", script, secrets=["TOKEN"])), secrets={"TOKEN": "hunter2"})
    one = eventually(lambda: (each := profiled(host, seconds=1)["worker:0"])["stacks"] and each, 60, "a stack")
    assert "hunter2" not in json.dumps(one, default=str)
    assert "***" in json.dumps(one, default=str)


@pytest.mark.parametrize(
    "fields",
    [
        {"session": "../../etc"},
        {"session": "2026_11_30_13_49_09/x"},
        {"seconds": 0},
        {"seconds": 61},
    ],
)
def test_what_is_no_session_and_no_length_is_refused(host: AgentHost, fields: dict[str, object]) -> None:
    up(host, shell("worker:0", "echo here; exec sleep 1000"))
    with pytest.raises(AgentRefused, match="bad_request"):
        profiled(host, **fields)  # type: ignore[arg-type]


def test_a_controller_that_leaves_ends_the_profile(host: AgentHost) -> None:
    up(host, python("worker:0", READS))
    with host.open() as talk:
        talk.send("profile", **host.about({"tasks": None, "seconds": 60, "session": SESSION}))
        session = talk.process
        talk.hang_up()
        session.wait(30)


def test_all_files_that_a_process_has_mapped_are_seen() -> None:
    maps = processes.proc_text(os.getpid(), "maps")
    assert len(maps) > 8192, "the kernel returns a page at a time"
    assert maps.splitlines()[-1].endswith("[vsyscall]") or maps.endswith("\n")


@contextmanager
def greets(words: bytes) -> Iterator[int]:
    """A server on a port that sends this to whoever connects, and keeps what it hears."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            try:
                while True:
                    connection = server.accept()[0]
                    with connection:
                        connection.sendall(words)
                        connection.settimeout(5)
                        assert connection.recv(1) == b"", "nothing is sent to a server that may be of another kind"
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "speaks"),
    [
        (b"\0\0\x18\x04\0\0\0\0\0" + b"\0" * 24, True),
        (b"\0\0\0\x04\0\0\0\0\0", True),
        (b"\0\0\x18\x04\x01\0\0\0\0", False),
        (b"\0\0\x18\x04\0\0\0\0\x01", False),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False),
        (b"", False),
    ],
)
def test_a_server_of_grpc_is_recognized_by_what_it_sends_first(words: bytes, speaks: bool) -> None:
    with greets(words) as port:
        assert tracing.is_grpc(port) is speaks
    assert not tracing.is_grpc(port)


def test_the_ports_of_a_process_are_those_on_which_it_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as one, closing(socket.create_connection(one.getsockname())):
        port = one.getsockname()[1]
        assert port in ports.listened_on([os.getpid()])
    assert port not in ports.listened_on([os.getpid()])

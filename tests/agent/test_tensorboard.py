"""TensorBoard on a host, as a session serves it: a server that stands in for it, and frames in place of a browser."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from dtctl.agent.rooms.tensorboard.records import WINDOW_BYTES
from tests.agent.host import AgentHost, AgentRefused, Conversation, Fields, task
from tests.event_files import scalar
from tests.hosts.processes import alive, command
from tests.waiting import eventually

NAME = "events.out.tfevents.1.host"
STAND_IN = """\
import http.server, os, sys
print("it begins with", sys.argv[1:], flush=True)
if os.environ.get("FAILS"):
    sys.exit("no such plugin")

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        logdir = sys.argv[sys.argv.index("--logdir") + 1]
        body = b"x" * int(self.path[1:]) if self.path[1:].isdigit() else repr(sorted(os.listdir(logdir))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page).serve_forever()
"""


def up(host: AgentHost, *places: str, installed: bool = True, env: Fields | None = None) -> Fields:
    """A run whose Python has something of the name; with an event file in each of these places of its home."""
    package = host.home / "packages" / "tensorboard"
    if installed:
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "main.py").write_text(STAND_IN)
    for place in places:
        (host.home / place).mkdir(parents=True)
        (host.home / place / NAME).write_bytes(scalar(1, "loss", 0.5))
    variables = {"PYTHONPATH": str(host.home / "packages"), **(env or {})}
    waits = task("worker:0", sys.executable, "-c", "import time; time.sleep(1000)", env=variables)
    return host.started(waits, checkpoint_dirs=[f"\0HOME/{place.split('/')[0]}" for place in places or ["out"]])


def begun(host: AgentHost, talk: Conversation) -> Fields:
    talk.send("tensorboard", **host.about({}))
    return talk.await_type("tensorboard_ready")


def boards(host: AgentHost) -> list[int]:
    return [pid for pid in host.processes() if "--logdir" in command(pid)]


def got(talk: Conversation, channel: int, path: str, *, taken: bool = True) -> bytes:
    """The bytes that come for a path, until the connection is closed or no more may come."""
    talk.send("open", channel=channel)
    talk.send("piece", f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), channel=channel)
    data = b""
    while taken or len(data) < WINDOW_BYTES:
        frame = talk.receive()
        if frame["type"] == "closed":
            break
        if frame["type"] == "piece":
            data += frame["payload"]
            if taken:
                talk.send("taken", channel=channel, size=len(frame["payload"]))
    return data


def test_where_event_files_are_and_which_python_has_tensorboard_is_reported(host: AgentHost) -> None:
    up(host, "out/train", "logs/eval")
    answer = host.ask("event_dirs")
    assert answer["dirs"] == [str(host.home / "out"), str(host.home / "logs")]
    found = {(folder["dir"], folder["name"]) for folder in answer["folders"]}
    assert found == {(str(host.home / "out"), "train"), (str(host.home / "logs"), "eval")}
    assert answer["sizes"] == {"files": 2, "bytes": 2 * len(scalar(1, "loss", 0.5))}
    assert (answer["tensorboard"], answer["tried"]) == (sys.executable, [])


def test_a_browsers_connections_reach_it_and_an_abort_ends_it(host: AgentHost) -> None:
    up(host, "out/train")
    with host.open() as talk:
        board = begun(host, talk)
        assert (board["dirs"], board["python"]) == ([str(host.home / "out")], sys.executable)
        assert b"['train']" in got(talk, 0, "/")
        assert got(talk, 1, "/3000000").endswith(b"x" * 3_000_000), "more than is on its way at once"
        assert len(boards(host)) == 1
        talk.send("abort")
        assert talk.await_type("result")["end"] == "asked"
        assert boards(host) == []
        assert talk.ask("runs", cluster=None)["runs"], "the conversation goes on"


def test_it_listens_nowhere_so_that_no_other_user_of_the_host_can_open_it(host: AgentHost) -> None:
    up(host, "out/train")
    with host.open() as talk:
        begun(host, talk)
        (pid,) = boards(host)
        sockets = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()}
        listening = {f"socket:[{row.split()[9]}]" for row in listeners()}
        assert not sockets & listening
        assert b"['train']" in got(talk, 0, "/")


def listeners() -> list[str]:
    tables = (Path(f"/proc/net/{name}") for name in ("tcp", "tcp6"))
    rows = [row for table in tables if table.exists() for row in table.read_text().splitlines()[1:]]
    return [row for row in rows if row.split()[3] == "0A"]


def test_no_more_is_sent_than_there_is_room_for(host: AgentHost) -> None:
    up(host, "out/train")
    with host.open() as talk:
        begun(host, talk)
        assert len(got(talk, 0, "/3000000", taken=False)) == WINDOW_BYTES
        assert b"['train']" in got(talk, 1, "/"), "one that is full is in no other's way"
        talk.send("piece", b"x" * (WINDOW_BYTES + 1), channel=2)
        talk.send("open", channel=3)
        talk.send("piece", b"x" * (WINDOW_BYTES + 1), channel=3)
        assert talk.await_type("closed")["channel"] == 3


def test_several_directories_are_shown_side_by_side_and_the_links_are_removed(host: AgentHost) -> None:
    spec = up(host, "out/train", "logs/eval", "more/out/x")
    with host.open() as talk:
        begun(host, talk)
        assert b"['logs', 'more', 'out']" in got(talk, 0, "/")
        assert len(list(host.run_directory(spec).glob("tensorboard-*"))) == 1
        talk.send("abort")
        talk.await_type("result")
    assert list(host.run_directory(spec).glob("tensorboard-*")) == []


@pytest.mark.parametrize("way", ["hang up", "SIGKILL"])
def test_tensorboard_ends_with_its_session(host: AgentHost, way: str) -> None:
    spec = up(host, "out/train", "logs/eval")
    talk = host.open()
    begun(host, talk)
    (pid,) = boards(host)
    if way == "SIGKILL":
        os.kill(talk.greeting["pid"], signal.SIGKILL)
    talk.close()
    eventually(lambda: not alive(pid), 60, "its end")
    eventually(lambda: not list(host.run_directory(spec).glob("tensorboard-*")), 60, "the end of the links")


def test_tensorboard_that_cannot_start_reports_why(host: AgentHost) -> None:
    up(host, "out/train", env={"FAILS": "1"})
    with host.open() as talk, pytest.raises(AgentRefused) as refused:
        begun(host, talk)
    assert refused.value.code == "tensorboard_failed"
    assert "no such plugin" in refused.value.frame["detail"]


def test_without_tensorboard_the_pythons_that_were_tried_are_named(
    host: AgentHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Path("/usr/bin/python3")
    if not bare.exists():
        pytest.skip("no other Python on this machine")
    python = host.directory / "bin" / "python3"
    python.write_text('#!/bin/sh\ncase "$*" in *find_spec*) exit 3;; esac\nexec /usr/bin/python3 "$@"\n')
    host.started(task("worker:0", str(python), "-c", "import time; time.sleep(1000)"))
    answer = host.ask("event_dirs")
    assert answer["tensorboard"] is None or answer["tensorboard"] != str(python)
    assert str(python) in answer["tried"]


def test_event_files_are_sent_once_and_then_as_they_grow(host: AgentHost) -> None:
    up(host, "out/train", "logs/eval")
    one, two = (host.home / "out" / "train" / NAME).read_bytes(), scalar(2, "loss", 0.25)
    with host.open() as talk:
        answer = talk.ask("event_dirs", **host.about({}))
        without = [folder for folder in answer["folders"] if folder["name"] == "eval"]
        talk.send("event_files", **host.about({"without": without}))
        first = talk.receive()
        assert (first["name"], first["file"], first["offset"], first["payload"]) == ("train", NAME, 0, one)
        assert talk.await_type("caught_up")["files"] == 1
        with (host.home / "out" / "train" / NAME).open("ab") as file:
            file.write(two)
        grown = talk.await_type("event_file")
        assert (grown["offset"], grown["payload"], grown["inode"]) == (len(one), two, first["inode"])
        (host.home / "out" / "train" / "new").write_bytes(two)
        (host.home / "out" / "train" / "new").replace(host.home / "out" / "train" / NAME)
        anew = talk.await_type("event_file")
        assert (anew["offset"], anew["payload"]) == (0, two)
    had = {name: first[name] for name in ("dir", "name", "file")}
    with host.open() as talk:
        have = [{**had, "inode": anew["inode"], "size": 10}]
        talk.send("event_files", **host.about({"without": without, "have": have}))
        assert talk.receive()["payload"] == two[10:]

"""The user's setup command: once per place, text and environment, before anything is started."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, AgentRefused, Fields, shell
from tests.hosts.processes import command, every
from tests.waiting import eventually


def spec_with(host: AgentHost, text: str, **env: str) -> Fields:
    return host.spec(shell("worker:0", "true"), setup={"text": text, "env": env})


def test_setup_runs_once_for_a_text_and_an_environment(host: AgentHost) -> None:
    text = "echo $WHO >> $HOME/ran; echo 'it''s \"done\"'"
    for who in ("a", "a", "b", "b"):
        spec = spec_with(host, text, WHO=who)
        host.up(spec)
        eventually(lambda spec=spec: host.state(spec)["finished"])  # type: ignore[misc]
    assert (host.home / "ran").read_text() == "a\nb\n"


def test_the_output_of_setup_is_sent_while_it_runs_and_kept(host: AgentHost) -> None:
    spec = spec_with(host, "echo one; until [ -e $HOME/go ]; do sleep 0.05; done; echo two >&2")
    with host.open() as talk:
        talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))
        first = talk.receive()
        assert (first["type"], first["phase"], first["payload"]) == ("progress", "setup", b"one\n")
        (host.home / "go").touch()
        rest = b""
        while (frame := talk.receive())["type"] == "progress":
            rest += frame["payload"]
        assert rest == b"two\n"
        assert frame["type"] == "prepared"
    log = host.root / "clusters" / "c" / "h1" / "setup.log"
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_setup_that_fails_is_reported_with_the_end_of_its_output_and_tried_again(host: AgentHost) -> None:
    spec = spec_with(host, "seq 1 5000; echo 'no such package'; [ -e $HOME/fixed ]")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec)
    assert refused.value.code == "setup_failed"
    assert refused.value.frame["summary"] == "the setup command ended with exit code 1"
    assert refused.value.frame["detail"].endswith("4999\n5000\nno such package\n")
    assert len(refused.value.frame["detail"]) < 3000
    assert not host.run_directory(spec).exists()
    (host.home / "fixed").touch()
    host.up(spec)


def test_secrets_are_masked_in_the_output_of_setup(host: AgentHost) -> None:
    spec = spec_with(host, "echo Cookie: sid=s3cret; echo postgres://me:s3cret@db/x; exit 1")
    with host.open() as talk:
        talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))
        shown: list[bytes] = []
        with pytest.raises(AgentRefused) as refused:
            shown.extend(iter(lambda: talk.receive()["payload"], None))
    assert b"".join(shown).decode() == refused.value.frame["detail"] == "Cookie: ***\npostgres://***@db/x\n"


def test_the_end_of_the_controller_ends_setup_and_its_children(host: AgentHost) -> None:
    spec = spec_with(host, "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.1; done")
    talk = host.open()
    talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))
    assert talk.receive()["payload"] == b"up\n"
    talk.close()
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    assert list(host.root.glob("clusters/c/h1/*.done")) == []


def test_the_text_of_setup_stands_on_no_command_line_and_is_gone_afterwards(host: AgentHost) -> None:
    text = "PASSWORD=hunter2-sesame; touch $HOME/up; until [ -e $HOME/go ]; do sleep 0.05; done"
    with host.open() as talk:
        talk.send("up", **host.about({"spec": spec_with(host, text), "bundle": None, "secrets": {}, "replace": False}))
        eventually((host.home / "up").exists)
        lines = [command(pid) for pid in host.processes()]
        assert any(line.startswith("/bin/sh -c") for line in lines), lines
        assert not [line for line in map(command, every()) if "sesame" in line]
        [script] = (host.root / "clusters" / "c" / "h1").glob("setup-*.sh")
        assert script.stat().st_mode & 0o777 == 0o600
        (host.home / "go").touch()
        talk.await_type("prepared")
    assert not script.exists()


@pytest.mark.parametrize(
    ("text", "output", "code"),
    [
        ('echo "$0 $#"', "/bin/sh 0\n", 0),
        ("set -e\nfalse\necho no", "", 1),
        ("echo one\nexit 7\necho no", "one\n", 7),
        ("cat; echo end of input", "end of input\n", 0),
        ("pwd -P", "{home}\n", 0),
        ('x=\' "$HOME" \'\necho "$x" `echo back`', ' "$HOME"  back\n', 0),
        ("echo no newline at the end #", "no newline at the end\n", 0),
        ("f() { return 3; }; f", "", 3),
        ("trap 'echo bye' EXIT", "bye\n", 0),
    ],
)
def test_setup_is_read_as_a_shell_reads_its_command_line(
    make_host: MakeHost, text: str, output: str, code: int
) -> None:
    host = make_host()
    if code:
        with pytest.raises(AgentRefused, match=f"exit code {code}"):
            host.up(spec_with(host, text))
    else:
        host.up(spec_with(host, text))
    log = host.root / "clusters" / "c" / "h1" / "setup.log"
    assert log.read_text() == output.format(home=host.home.resolve())


def test_the_log_of_setup_is_not_written_through_a_link(host: AgentHost) -> None:
    place = host.root / "clusters" / "c" / "h1"
    place.mkdir(parents=True, mode=0o700)
    (host.home / "victim").write_text("mine\n")
    (place / "setup.log").symlink_to(host.home / "victim")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, "echo hello"))
    assert refused.value.frame["detail"] == f"{place}/setup.log: is a link"
    assert (host.home / "victim").read_text() == "mine\n"


class _Private(SimpleHTTPRequestHandler):
    """A server of a private repository: who does not send the token gets nothing."""

    token: ClassVar[str]

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == f"Basic {self.token}":
            return super().do_GET()
        self.send_error(401)
        return None

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def private_repository(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address of a repository over HTTP, and the token that opens it."""
    repository, token = tmp_path / "served" / "dep.git", base64.b64encode(b"x-access-token:s3cret-t0ken").decode()
    git("init", "-q", "--bare", str(repository))
    work = tmp_path / "work"
    git("clone", "-q", str(repository), str(work))
    (work / "dep.py").write_text("VALUE = 7\n")
    git("-C", str(work), "add", "dep.py")
    git("-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    git("-C", str(work), "push", "-q", "origin", "HEAD")
    git("-C", str(repository), "update-server-info")
    handler = type("Private", (_Private,), {"token": token})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(repository.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", token
        server.shutdown()


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})


def token_of(address: str, token: str) -> dict[str, str]:
    """The secrets by which git sends a token to a server (docs/python-environments.md)."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{address}/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {token}",
    }


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_setup_fetches_a_private_repository_by_a_token_that_no_log_contains(
    host: AgentHost, private_repository: tuple[str, str]
) -> None:
    address, token = private_repository
    text = f"git clone -q {address}/dep.git dep && cat dep/dep.py && env | grep GIT_CONFIG_VALUE"
    with pytest.raises(AgentRefused):
        host.up(spec_with(host, text))
    spec = spec_with(host, text)
    host.up(spec, secrets=token_of(address, token))
    log = (host.root / "clusters" / "c" / "h1" / "setup.log").read_text()
    assert "VALUE = 7" in log
    assert "GIT_CONFIG_VALUE_0=" in log
    for path in host.root.rglob("*"):
        if path.is_file() and path.name != "secrets.json":
            assert token.encode() not in path.read_bytes(), path

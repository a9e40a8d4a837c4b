"""The user's setup command: once per place, text and environment, before anything is started."""

from __future__ import annotations

import pytest

from tests.agent.host import AgentHost, AgentRefused, Fields, shell
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


def test_a_setup_that_fails_is_told_with_the_end_of_its_output_and_tried_again(host: AgentHost) -> None:
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


def test_the_end_of_the_controller_ends_setup_and_its_children(host: AgentHost) -> None:
    spec = spec_with(host, "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.1; done")
    talk = host.open()
    talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))
    assert talk.receive()["payload"] == b"up\n"
    talk.close()
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    assert list(host.root.glob("clusters/c/h1/*.done")) == []

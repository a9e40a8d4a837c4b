"""A trainer that puts other things into the place of its run's files: its supervisor and the sessions go on."""

from __future__ import annotations

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import shell
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("make", ["mkfifo {}", "ln -s /dev/zero {}", "ln -s {home}/victim {}", "mkdir {}"])
@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_a_run_ends_as_it_should_whatever_its_trainer_makes_of_its_files(make_host: MakeHost, make: str) -> None:
    host = make_host()
    (host.home / "victim").write_text("mine\n")
    sleeps = shell("worker:1", "echo fine; sleep 1000")
    spec = host.spec(shell("worker:0", "true"), sleeps, run="r-hostile")
    files = [host.attempt(spec, "worker:0") / name for name in ("log", "times", "stack")]
    files.append(host.run_directory(spec) / "events.jsonl")
    lines = [f"rm -rf {path}; {make.format(path, home=host.home)}" for path in files]
    script = "\n".join([*lines, f"touch {host.home}/made; until [ -e {host.home}/go ]; do sleep 0.05; done"])
    spec["tasks"] = [shell("worker:0", script), sleeps]
    host.up(spec)
    eventually((host.home / "made").exists)
    with host.open() as talk:
        talk.send("logs", **host.about({"tasks": ["worker:0", "worker:1"], "lines": 5}))
        printed = {frame["task"]: frame["payload"] for frame in (talk.receive(), talk.receive())}
        assert b"cannot be read: it is a " in printed["worker:0"]
        assert printed["worker:1"] == b"fine\n"
        talk.await_type("result")
    (host.home / "go").touch()
    host.wait_state(spec, "worker:0", "succeeded")
    assert host.ask("status")["state"]["tasks"]["worker:1"]["state"] == "running"
    host.ask("stop", tasks=None, grace_s=1, reason="", by="")
    eventually(lambda: host.state(spec)["finished"])
    assert (host.home / "victim").read_text() == "mine\n"

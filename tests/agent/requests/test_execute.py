"""exec: one command on a host."""

from __future__ import annotations

import signal

import pytest

from tests.agent.host import AgentHost, AgentRefused, Fields, shell, task
from tests.waiting import eventually


def execute(host: AgentHost, *argv: str, **fields: object) -> tuple[bytes, bytes, Fields]:
    output = {1: b"", 2: b""}
    with host.open() as talk:
        talk.send("exec", **host.about({"argv": list(argv), "task": None, "cwd": "home", "tty": False, **fields}))
        while (frame := talk.receive())["type"] in ("output", "beat"):
            if frame["type"] == "output":
                output[frame["stream"]] += frame["payload"]
    return output[1], output[2], frame


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


@pytest.mark.parametrize(
    ("argv", "out", "err", "code"),
    [
        (sh("pwd; echo oops >&2; exit 5"), "{home}\n", b"oops\n", 5),
        (sh("kill -KILL $$"), "", b"", -signal.SIGKILL),
        (("head", "-c", "5000000", "/dev/zero"), "\0" * 5_000_000, b"", 0),
        (sh("sleep 1000 & echo done"), "done\n", b"", 0),
    ],
    ids=["output and exit code", "signal", "much output", "left in the background"],
)
def test_output_and_ending_come_back(host: AgentHost, argv: tuple[str, ...], out: str, err: bytes, code: int) -> None:
    *outputs, result = execute(host, *argv)
    assert outputs == [out.replace("{home}", str(host.home)).encode(), err]
    assert (result["exit_code"], result["signal"]) == ((code, None) if code >= 0 else (None, -code))


def test_a_command_that_is_not_there_is_reported(host: AgentHost) -> None:
    with pytest.raises(AgentRefused, match="command_not_found: "):
        execute(host, "no-such-program")


def test_with_a_task_it_has_the_environment_of_the_task(host: AgentHost) -> None:
    own = task("worker:0", "sleep", "1000", env={"A": "1 2", "AT": "\0ADDRESS(worker:0)"}, secrets=["TOKEN"])
    spec = host.spec(own)
    spec["roster"][0]["address"] = "gpu-7:2222"
    host.up(spec, secrets={"TOKEN": "s3cret"})
    out = execute(host, "/bin/sh", "-c", "echo $A,$AT,${#TOKEN},$DTCTL_TASK,$DTCTL_ATTEMPT", task="worker:0")[0]
    assert out == b"1 2,gpu-7:2222,6,worker:0,1\n"
    with pytest.raises(AgentRefused):
        execute(host, "true", task="worker:9")
    with pytest.raises(AgentRefused) as refused:
        execute(host, "python-that-is-not-there", task="worker:0")
    assert "its trainer runs sleep: write that, or set trainer.python" in refused.value.frame["hint"]


def test_the_values_of_secrets_are_hidden_wherever_the_output_is_cut(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000", secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "s3cret-value"})
    script = "printf 'a s3cret'; sleep 0.3; printf -- '-value b s3cret'"
    assert execute(host, "/bin/sh", "-c", script, task="worker:0")[0] == b"a *** b s3cret"


def test_the_end_of_the_controller_ends_the_command_and_its_children(host: AgentHost) -> None:
    talk = host.open()
    script = "trap '' TERM HUP; setsid sleep 1000 & echo up; while :; do sleep 0.1; done"
    talk.send("exec", **host.about({"argv": ["/bin/sh", "-c", script], "task": None, "cwd": "home", "tty": False}))
    assert talk.receive()["payload"] == b"up\n"
    talk.close()
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


def test_a_stop_does_not_end_what_was_executed_beside_the_task(host: AgentHost) -> None:
    host.started(shell("worker:0", "sleep 1000"))
    with host.open() as talk:
        script = "echo up; until [ -e $HOME/go ]; do sleep 0.05; done; echo through"
        argv = ["/bin/sh", "-c", script]
        talk.send("exec", **host.about({"argv": argv, "task": "worker:0", "cwd": "home", "tty": False}))
        assert talk.receive()["payload"] == b"up\n"
        host.ask("stop", tasks=None, grace_s=None, by="")
        (host.home / "go").touch()
        assert talk.receive()["payload"] == b"through\n"

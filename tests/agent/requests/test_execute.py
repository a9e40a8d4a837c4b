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
        while (frame := talk.receive())["type"] == "output":
            output[frame["stream"]] += frame["payload"]
    return output[1], output[2], frame


def test_output_and_exit_code_come_back(host: AgentHost) -> None:
    out, err, result = execute(host, "/bin/sh", "-c", "pwd; echo oops >&2; exit 5")
    assert out.decode() == f"{host.home}\n"
    assert err == b"oops\n"
    assert (result["exit_code"], result["signal"]) == (5, None)


def test_a_signal_comes_back(host: AgentHost) -> None:
    result = execute(host, "/bin/sh", "-c", "kill -KILL $$")[2]
    assert (result["exit_code"], result["signal"]) == (None, signal.SIGKILL)


def test_much_output_is_complete(host: AgentHost) -> None:
    out, _, result = execute(host, "head", "-c", "5000000", "/dev/zero")
    assert len(out) == 5_000_000
    assert result["exit_code"] == 0


def test_what_a_command_leaves_in_the_background_does_not_hold_up_the_answer(host: AgentHost) -> None:
    out, _, result = execute(host, "/bin/sh", "-c", "sleep 1000 & echo done")
    assert out == b"done\n"
    assert result["exit_code"] == 0


def test_a_command_that_is_not_there_is_told(host: AgentHost) -> None:
    with pytest.raises(AgentRefused) as refused:
        execute(host, "no-such-program")
    assert refused.value.code == "command_not_found"


def test_with_a_task_it_has_the_environment_of_the_task(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000", env={"A": "1 2"}, secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "s3cret"})
    out = execute(host, "/bin/sh", "-c", "echo $A,${#TOKEN},$DTCTL_TASK,$DTCTL_ATTEMPT", task="worker:0")[0]
    assert out == b"1 2,6,worker:0,1\n"
    with pytest.raises(AgentRefused):
        execute(host, "true", task="worker:9")


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
    spec = host.spec(shell("worker:0", "sleep 1000"))
    host.up(spec)
    with host.open() as talk:
        script = "echo up; until [ -e $HOME/go ]; do sleep 0.05; done; echo through"
        argv = ["/bin/sh", "-c", script]
        talk.send("exec", **host.about({"argv": argv, "task": "worker:0", "cwd": "home", "tty": False}))
        assert talk.receive()["payload"] == b"up\n"
        host.ask("stop", tasks=None, grace_s=None, reason="", by="")
        (host.home / "go").touch()
        assert talk.receive()["payload"] == b"through\n"

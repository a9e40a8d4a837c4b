"""The request `dump`: live trainers tell their stacks, and go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.agent.host import processes
from tests.agent.host import AgentHost, Fields, shell, task
from tests.hosts.processes import alive
from tests.waiting import eventually

STEPS = """
import threading, time
def load():
    threading.Event().wait()
threading.Thread(target=load, daemon=True).start()
def train():
    step = 0
    while True:
        step += 1
        print("step", step, flush=True)
        time.sleep(0.05)
"""
TRAINS = STEPS + "train()"
HANGS_IN_C = """
import ctypes
def wait_in_c():
    word = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)  # which keeps the interpreter's lock
    library.sem_init(word, 0, 0)
    print("hangs", flush=True)
    library.sem_wait(word)
wait_in_c()
"""
REPLACES = "import signal, time; signal.signal(57, signal.SIG_IGN); print('here', flush=True); time.sleep(1000)"
TAKES_AWAY = "import signal, time; signal.signal(57, signal.SIG_DFL); print('here', flush=True); time.sleep(1000)"
BLOCKS = (
    "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, {57}); print('here', flush=True); time.sleep(1000)"
)
CLOSES = "import os, time; os.closerange(3, 1000); print('here', flush=True); time.sleep(1000)"
WAITS = "import time; print('here', flush=True); time.sleep(1000)"
ON = {"PYTHONFAULTHANDLER": "1"}


def python(id_: str, script: str, *options: str, **fields: object) -> Fields:
    return task(id_, sys.executable, *options, "-c", script, **{"env": ON, **fields})


def dumped(host: AgentHost, *tasks: str) -> list[Fields]:
    """The frames, each of one task."""
    with host.open() as talk:
        talk.send("dump", **host.about({"tasks": list(tasks) or None}))
        found = []
        while (frame := talk.receive())["type"] != "result":
            if frame["type"] == "dump":
                found.append(frame)
    return found


def up(host: AgentHost, *tasks: Fields, **fields: object) -> Fields:
    """With all of them at work for longer than those that may be about to run another program."""
    spec = host.started(*tasks, **fields)
    for one in tasks:
        eventually(lambda one=one: host.log(spec, one["id"]), 60, f"{one['id']} to say something")  # type: ignore[misc]
    eventually(lambda: all(one["processes"][0]["missing"] != "young" for one in dumped(host)), 60, "their age")
    return spec


def calls(process: Fields) -> list[str]:
    """Of the main thread, outermost first."""
    (main,) = [stack for stack in process["stacks"] if stack["main"]]
    return [frame["function"] for frame in reversed(main["frames"])]


def test_threads_are_distinguished_and_the_trainer_continues(host: AgentHost) -> None:
    spec = up(host, python("worker:0", TRAINS))
    (one,) = dumped(host, "worker:0")
    (process,) = one["processes"]
    assert (process["way"], process["missing"]) == ("faulthandler", None)
    assert process["stacks"][0]["main"]
    assert calls(process) == ["<module>", "train"]
    (loader,) = [stack for stack in process["stacks"] if not stack["main"]]
    assert "load" in [frame["function"] for frame in loader["frames"]]
    assert {thread["tid"] for thread in process["threads"]} > {process["pid"]}
    before = host.log(spec, "worker:0")
    eventually(lambda: len(host.log(spec, "worker:0")) > len(before) + 20, 60, "further steps")
    assert "most recent call" not in host.log(spec, "worker:0")
    assert host.state(spec)["tasks"]["worker:0"]["attempt"] == 1
    assert (host.attempt(spec, "worker:0") / "stacks").stat().st_size == 0


def test_a_trainer_that_hangs_in_c_with_the_gil_shows_its_frame(host: AgentHost) -> None:
    up(host, python("worker:0", HANGS_IN_C))
    ((process,),) = [one["processes"] for one in dumped(host)]
    assert calls(process) == ["<module>", "wait_in_c"]
    again = dumped(host)[0]["processes"][0]
    assert (again["pid"], calls(again)) == (process["pid"], ["<module>", "wait_in_c"]), "it hangs as before"


def test_processes_without_a_handler_are_sent_no_signal(host: AgentHost) -> None:
    reasons = {
        "worker:0": (python("worker:0", REPLACES), "replaced"),
        "worker:1": (python("worker:1", TAKES_AWAY), "replaced"),
        "worker:2": (python("worker:2", BLOCKS), "blocked"),
        "worker:3": (python("worker:3", CLOSES), "closed"),
        "worker:4": (python("worker:4", WAITS, "-I"), "no_handler"),
        "worker:5": (python("worker:5", WAITS, env={}), "off"),
        "worker:6": (shell("worker:6", "echo here; exec sleep 1000"), "not_python"),
    }
    spec = up(host, *(one for one, _ in reasons.values()))
    pids = {one: host.state(spec)["tasks"][one]["pid"] for one in reasons}
    found = {one["task"]: one["processes"][0] for one in dumped(host)}
    assert {one: found[one]["missing"] for one in reasons} == {one: why for one, (_, why) in reasons.items()}
    assert all(found[one]["pid"] == pid and alive(pid) for one, pid in pids.items())
    assert all(process["threads"][0]["state"] for process in found.values())
    assert found["worker:0"]["stacks"] == []


def test_a_stopped_trainer_is_reported_as_such(host: AgentHost) -> None:
    spec = up(host, python("worker:0", WAITS))
    pid = host.state(spec)["tasks"]["worker:0"]["pid"]
    os.kill(pid, 19)
    eventually(lambda: dumped(host)[0]["processes"][0]["missing"] == "stopped")
    assert dumped(host)[0]["processes"][0]["threads"][0]["state"] == "T (stopped)"
    os.kill(pid, 18)
    eventually(lambda: dumped(host)[0]["processes"][0]["way"] == "faulthandler")


def test_each_child_of_a_trainer_shows_its_own_stacks(host: AgentHost) -> None:
    script = "import os, time\ndef child(): time.sleep(1000)\ndef parent():\n print('here', flush=True); os.wait()\n"
    up(host, python("worker:0", script + "child() if os.fork() == 0 else parent()"))
    first, second = eventually(lambda: (both := dumped(host)[0]["processes"])[1]["stacks"] and both, 60, "the child")
    assert (calls(first)[-1], calls(second)[-1]) == ("parent", "child")


def test_secrets_are_masked_and_what_has_not_begun_has_no_stacks(host: AgentHost) -> None:
    script = "import time\ndef hunter2(): print('here', flush=True); time.sleep(1000)\nhunter2()"
    spec = host.spec(python("worker:0", script, secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "hunter2"})
    process = eventually(lambda: (one := dumped(host)[0]["processes"]) and one[0]["stacks"] and one[0], 60, "a stack")
    assert "hunter2" not in json.dumps(process)
    assert "***" in json.dumps(process)
    host.ask("stop", tasks=None, grace_s=0, reason="", by="")
    (ended,) = dumped(host)
    assert (ended["state"], ended["processes"]) == ("stopped", [])


def test_the_machines_own_sitecustomize_is_run_too_and_children_see_no_trace(host: AgentHost) -> None:
    own = host.home / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.of_the_user = __name__\n")
    script = "import sys; print(sys.of_the_user, [p for p in sys.path if 'stacks' in p], sys.modules['sitecustomize'])"
    spec = host.started(python("worker:0", script, env={**ON, "PYTHONPATH": str(own)}))
    host.wait_state(spec, "worker:0", "succeeded")
    assert host.log(spec, "worker:0").startswith("sitecustomize [] <module 'sitecustomize' from '" + str(own))


def spy(host: AgentHost, script: str) -> Path:
    program = host.directory / "bin" / "py-spy"
    program.write_text(f"#!{sys.executable} -IS\nimport json, sys\npid = int(sys.argv[-1])\n{script}")
    program.chmod(0o755)
    return program


def test_py_spy_is_asked_first_where_it_is(host: AgentHost) -> None:
    frames = "[{'name': 'train', 'filename': '/x/train.py', 'line': 7}]"
    stack = f"{{'pid': pid, 'thread_id': 255, 'thread_name': 'MainThread', 'os_thread_id': pid, 'frames': {frames}"
    spy(host, f"assert '--nonblocking' in sys.argv\nprint(json.dumps([{stack}, 'active': True, 'owns_gil': True}}]))")
    up(host, shell("worker:0", f"echo here; exec {sys.executable} -Ic 'import time; time.sleep(1000)'"))
    ((process,),) = [one["processes"] for one in dumped(host)]
    assert process["way"] == "py-spy"
    (found,) = process["stacks"]
    assert (found["thread"], found["tid"], found["main"], found["gil"]) == ("0xff", process["pid"], True, True)
    assert found["frames"] == [{"function": "train", "file": "/x/train.py", "line": 7}]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("sys.exit('Permission Denied: Try running again with elevated permissions')", "Permission Denied"),
        ("print('{}')", "no list of stacks"),
        ('print(\'[{"frames": 7, "thread_id": 1}]\')', "no list of stacks"),
    ],
    ids=["permission", "object", "frames"],
)
def test_handler_is_used_where_py_spy_fails(host: AgentHost, script: str, text: str) -> None:
    spy(host, script)
    up(host, python("worker:0", TRAINS), python("worker:1", WAITS, "-I"))
    found = {one["task"]: one["processes"][0] for one in dumped(host)}
    assert (found["worker:0"]["way"], found["worker:0"]["said"]) == ("faulthandler", text and found["worker:0"]["said"])
    assert (found["worker:1"]["missing"], text in found["worker:1"]["said"]) == ("no_handler", True)


def test_secrets_are_masked_in_command_lines() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1000)", "--wandb_key", "s3cret", "--lr=0.1"]
    with subprocess.Popen(command) as process:
        try:
            eventually(lambda: "s3cret" in " ".join(processes.argv(process.pid)))
            assert processes.command(process.pid).endswith("--wandb_key *** --lr=0.1")
        finally:
            process.kill()

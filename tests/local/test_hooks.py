"""Hooks of a real run: a receiver that accepts posts, one that does not, and a command of the user's own."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dtctl.agent.records.reasons import Fact, sentence
from dtctl.config.cluster import Hook
from dtctl.operations.hooks import run_command
from tests.desk import CLUSTER, Desk
from tests.receiver import Server, receiver
from tests.waiting import PATIENCE_S, eventually, read_until

SECRET = "T0ps3cretT0ken"

HOOKS = """\
settle: 100ms
hooks:
  web: {{post: "${{HOOK_URL}}", headers: {{X-Token: "${{HOOK_TOKEN}}"}}, on: [succeeded, restarting, recovered]}}
  gone: {{post: "${{GONE_URL}}", on: [restarting, succeeded]}}
  here: {{run: [sh, -c, 'echo "$DTCTL_EVENT $DTCTL_TASK" >> received'], on: [succeeded, restarting]}}
"""


def test_hooks_receive_events_and_delay_no_run(home: Desk) -> None:
    with receiver() as server:
        prepare(home, server, seconds=1e6, until_file=str(home.project / "go"), fail_attempts=0)
        with home.start("up", "--local", "-f") as following:
            read_until(following.stdout, "worker:0 step 3")
            os.kill(home.task("worker:0")["pid"], signal.SIGKILL)
            eventually(lambda: "recovered" in events(server), what="the recovery")
            (home.project / "go").touch()
            shown, _ = following.communicate(timeout=PATIENCE_S)
        assert following.returncode == 0, shown
        assert (home.project / "received").read_text().splitlines() == ["restarting worker:0", "succeeded "]
        eventually(lambda: "succeeded" in events(server), 60, "the end to be reported")
        eventually(lambda: not home.processes(), 60, "every process to end")
    assert list(dict.fromkeys(events(server))) == ["restarting", "recovered", "succeeded"]
    assert {headers.get("x-token") for headers in server.headers} == {SECRET, None}
    story = home.dtctl("events")
    assert story.count("hook gone did not receive the message: ") == 1
    assert SECRET not in story + shown
    assert files_with(SECRET, home.home) == ["hooks.json"]  # not in the environment of the trainers, nor in any log


def test_events_that_a_killed_coordinator_had_not_sent_are_sent_by_the_next(home: Desk) -> None:
    with receiver() as server:
        prepare(home, server, seconds=1e6, until_file=str(home.project / "go"), fail_attempts=0)
        home.dtctl("up", "--local")
        (pid,) = (pid for pid, argv in home.processes().items() if "supervise" in argv and is_supervisor(pid, home))
        os.kill(pid, signal.SIGSTOP)
        (home.project / "go").touch()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "succeeded" in events(server), 60, "the end to be reported")
        eventually(lambda: not home.processes(), 60, "every process to end")
    assert events(server) == ["succeeded"]


def prepare(home: Desk, server: Server, **args: Any) -> None:
    home.env.update(HOOK_URL=server.url(SECRET), GONE_URL=server.url("gone"), HOOK_TOKEN=SECRET)
    home.write_cluster(CLUSTER + HOOKS, **{"seconds": 1, "only": "worker:0", "fail_attempts": 1, **args})


def events(server: Server) -> list[str]:
    """The events at the receiver that accepts posts."""
    posts = zip(server.headers, server.bodies, strict=True)
    return [body["event"] for headers, body in posts if headers.get("x-token") == SECRET]


def is_supervisor(pid: int, home: Desk) -> bool:
    """Whether it is the supervisor of the lead's host, not its guard."""
    at_work = Path(f"/proc/{pid}/comm").read_text().strip() == "dtctl-agent"
    return at_work and b"node-1" in Path(f"/proc/{pid}/cmdline").read_bytes()


def files_with(secret: str, place: Path) -> list[str]:
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted({path.name for path in files if secret.encode() in path.read_bytes()})


def test_a_command_gets_the_event_and_no_shell(tmp_path: Path) -> None:
    assert failure_of(["sh", "-c", 'cat > "$0"; echo "$DTCTL_TEXT" >> "$0"', "out"], tmp_path) == ()
    body, text = (tmp_path / "out").read_text().splitlines()
    assert json.loads(body) == BODY
    assert text == BODY["text"]
    assert failure_of(["sh", "-c", "exit 0", "; touch pwned"], tmp_path) == ()
    assert not (tmp_path / "pwned").exists()


def test_a_failing_command_is_reported_and_a_hanging_one_is_killed_with_its_children(tmp_path: Path) -> None:
    why = failure_of(["sh", "-c", "echo no display >&2; exit 3"], tmp_path)
    assert sentence(why) == "exit code 3 (no display)"
    assert sentence(failure_of(["./nosuch"], tmp_path)) == "cannot run ./nosuch: No such file or directory"
    why = failure_of(["sh", "-c", "echo $$ > pid; sleep 1000 & wait"], tmp_path, timeout_s=1.0)
    assert sentence(why) == "sh took longer than 1 s, and was ended"
    group = int((tmp_path / "pid").read_text())
    eventually(lambda: not is_there(group), what="its children to end")


BODY: dict[str, Any] = {"id": "r/1", "event": "failed", "text": "demo has failed: <!x> $(y)", "task": None, "why": []}


def failure_of(argv: Sequence[str], directory: Path, timeout_s: float = 30.0) -> Sequence[Fact]:
    hook = Hook(name="here", on=("failed",), run=tuple(argv), timeout_s=timeout_s)
    return run_command(hook, BODY, directory)


def is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

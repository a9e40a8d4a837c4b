"""Hooks of a real run: a receiver that takes posts, one that does not, and a command of the user's own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.desk import CLUSTER, Desk
from tests.receiver import Server, receiver
from tests.waiting import eventually

SECRET = "T0ps3cretT0ken"

HOOKS = """\
settle: 100ms
hooks:
  web: {{post: "${{HOOK_URL}}", headers: {{X-Token: "${{HOOK_TOKEN}}"}}, on: [succeeded, restarting, recovered]}}
  gone: {{post: "${{GONE_URL}}", on: [restarting, succeeded]}}
  here: {{run: [sh, -c, 'echo "$DTCTL_EVENT $DTCTL_TASK" >> told'], on: [succeeded, restarting]}}
"""


def test_a_run_tells_its_hooks_and_is_held_up_by_none_of_them(home: Desk) -> None:
    with receiver() as server:
        prepare(home, server)
        done = home.run("up", "--local", "-f")
        assert done.returncode == 0, done.stderr
        assert (home.project / "told").read_text().splitlines() == ["restarting worker:0", "succeeded "]
        eventually(lambda: "succeeded" in told(server), 60, "the end to be told")
        eventually(lambda: not home.processes(), 60, "every process to end")
    assert list(dict.fromkeys(told(server))) == ["restarting", "recovered", "succeeded"]
    assert {headers.get("x-token") for headers in server.headers} == {SECRET, None}
    story = home.dtctl("events")
    assert story.count("hook gone was not told: ") == 1
    assert SECRET not in story + done.stdout + done.stderr
    assert files_with(SECRET, home.home) == ["hooks.json"]  # not what the trainers inherit, nor any log


def test_what_a_killed_coordinator_had_not_told_is_told_by_the_next_one(home: Desk) -> None:
    with receiver() as server:
        prepare(home, server, seconds=1e6, until_file=str(home.project / "go"), fail_attempts=0)
        home.dtctl("up", "--local")
        (pid,) = (pid for pid, words in home.processes().items() if "supervise" in words and is_supervisor(pid, home))
        os.kill(pid, signal.SIGSTOP)
        (home.project / "go").touch()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "succeeded" in told(server), 60, "the end to be told")
        eventually(lambda: not home.processes(), 60, "every process to end")
    assert told(server) == ["succeeded"]


def prepare(home: Desk, server: Server, **args: Any) -> None:
    home.env.update(HOOK_URL=server.url(SECRET), GONE_URL=server.url("gone"), HOOK_TOKEN=SECRET)
    home.write_cluster(CLUSTER + HOOKS, **{"seconds": 1, "only": "worker:0", "fail_attempts": 1, **args})


def told(server: Server) -> list[str]:
    """To the one that takes posts."""
    posts = zip(server.headers, server.bodies, strict=True)
    return [body["event"] for headers, body in posts if headers.get("x-token") == SECRET]


def is_supervisor(pid: int, home: Desk) -> bool:
    """Of the host of the lead, not its guard."""
    at_work = Path(f"/proc/{pid}/comm").read_text().strip() == "dtctl-agent"
    return at_work and b"node-1" in Path(f"/proc/{pid}/cmdline").read_bytes()


def files_with(secret: str, place: Path) -> list[str]:
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return sorted({path.name for path in files if secret.encode() in path.read_bytes()})

"""Every command of dtctl, as it is tried on lying hosts, and its output about the host that does not lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtctl.errors import ExitCode
from tests.hostile.host_answers import MARK

SILENT = {
    "init": "writes a template and speaks to no host",
    "import": "reads the source alone, and speaks to no host",
    "export": "reads the cluster file and the code alone",
    "validate": "reads the cluster file alone",
    "plan": "reads the cluster file alone",
    "allow": "reads the cluster file alone",
    "explain": "prints what is known without any host",
    "schema": "prints what is known without any host",
    "top": "needs a terminal; tests/unit/render/top feeds its screen with poison",
    "ssh": "becomes OpenSSH's own client; dtctl hears nothing of what the host says",
}
"""Commands that receive nothing from a host, and why."""

OVER_SSH_ALONE = {"trust": "looks at keys, which are shown before any agent speaks"}
"""Commands that need a real server."""

OWN = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain/model.ckpt-100"
"""A checkpoint of this machine."""

_DATA = "--set data.from=. --set dirs.data=/data"
_MADE_READY = "status result, need, progress, prepared, looked, started, up result"
HEARD = {
    "status": "status result",
    "check": "check result",
    "diagnose": "status result, diagnose result",
    "logs": "log, logs result, status result, states, watch result, setup_logs result",
    "events": "event, events result, status result",
    "metrics": "points, metrics result, status result",
    "dump": "dump, dump result",
    "tensorboard": "event_dirs result, tensorboard_ready, tensorboard result, event_file, caught_up",
    "report": "status result, event, events result, metrics result",
    "dashboard": "status result, event, events result, metrics result",
    "checkpoints": "status result, verify result, part, fetch result, prune result, landing, stored, store result",
    "data": "need, data_push result, data_status result, progress, data_verify result, data_drop result",
    "wait": "status result, states, watch result",
    "compare": "status result, metrics result, speed result",
    "code": "code_part, code result, status result",
    "exec": "output, exec result",
    "stop": "stop result, status result",
    "restart": "restart result, status result",
    "scale": "status result",
    "drain": "drain result, status result",
    "undrain": "undrain result, status result",
    "down": "stop result, status result, down result, gc result",
    "push": "need, push result",
    "up": _MADE_READY,
    "replace": _MADE_READY,
}
"""Command -> the answers of hosts to it; of other commands, the result of the request of the same name."""


@dataclass(frozen=True)
class Spoken:
    """`endless`: it runs until Ctrl-C if the host lets it.

    `shows`: it shows the answers of the other host whatever the liar sends (both by host_answers.MARK), and `partly`:
    unless the liar is accepted.
    """

    words: tuple[str, ...]
    endless: bool = False
    shows: bool = False
    partly: bool = False

    @property
    def name(self) -> str:
        return self.words[0]

    def hears(self) -> set[str]:
        """The names of the frames that answer it (host_lies.py)."""
        return {"greeting", *HEARD.get(self.name, f"{self.name} result").split(", ")}

    def codes(self, interrupted: bool) -> set[int]:
        if self.name == "exec":
            return set(range(256))
        never = {ExitCode.TERMINATED, ExitCode.CONFIG, ExitCode.USAGE}
        return set(map(int, ExitCode)) - never - (set() if interrupted else {ExitCode.INTERRUPTED})

    @property
    def passes_bytes_on(self) -> bool:
        """Whether it passes bytes on if stdout is no terminal, as here; test_safe_output.py has one."""
        return self.name == "exec"


def _spoken(text: str, *, endless: bool = False, shows: bool = False, partly: bool = False) -> Spoken:
    return Spoken(tuple(text.split()), endless, shows, partly)


COMMANDS = {
    " ".join(one.words): one
    for one in (
        _spoken("status", partly=True),
        _spoken("status -o json", partly=True),
        _spoken("status --run demo-1", partly=True),
        _spoken("status --watch", endless=True),
        _spoken("check", shows=True),
        _spoken("check -o json"),
        _spoken("diagnose"),
        _spoken("diagnose -o json", partly=True),
        _spoken("logs", shows=True),
        _spoken("logs -n 5 -t", shows=True),
        _spoken("logs -n all", endless=True),
        _spoken("logs -f", endless=True),
        _spoken("logs --save saved"),
        _spoken("logs --setup", shows=True),
        _spoken("events", partly=True),
        _spoken("events -o json"),
        _spoken("events -f", endless=True),
        _spoken("metrics", partly=True),
        _spoken("metrics --plot"),
        _spoken("metrics -o json"),
        _spoken("metrics --csv -f", endless=True),
        _spoken("dump", endless=True, shows=True),
        _spoken("dump -o json", endless=True, shows=True),
        _spoken("speed"),
        _spoken("speed -o json"),
        _spoken("tensorboard", endless=True),
        _spoken("tensorboard --copy", endless=True),
        _spoken("report --force"),
        _spoken("report -O -", partly=True),
        _spoken("report -O report.html"),
        _spoken("report -O - --format md", partly=True),
        _spoken("dashboard", endless=True),
        _spoken("checkpoints", partly=True),
        _spoken("checkpoints verify --all", endless=True),
        _spoken("checkpoints pull 1000 pulled", endless=True),
        _spoken(f"checkpoints push {OWN} --into /out", endless=True),
        _spoken("checkpoints prune --keep 1 -y", endless=True),
        _spoken(f"data {_DATA}"),
        _spoken(f"data push {_DATA}", endless=True),
        _spoken(f"data verify {_DATA}", endless=True),
        _spoken(f"data drop -y {_DATA}", endless=True),
        _spoken("wait --timeout 2s", endless=True),
        _spoken("wait", endless=True),
        _spoken("runs"),
        _spoken("runs --all -o json"),
        _spoken("compare demo-1 demo-0"),
        _spoken("code demo-1 code", endless=True),
        _spoken("exec -- true", endless=True),
        _spoken("exec worker:0 worker:1 -- true", endless=True),
        _spoken("stop"),
        _spoken("stop worker:1 --grace 1s"),
        _spoken("restart worker:0"),
        _spoken("restart worker:1"),
        _spoken("drain a"),
        _spoken("undrain a"),
        _spoken("scale worker=2"),
        _spoken("down -y"),
        _spoken("gc -y", endless=True, shows=True),
        _spoken("gc --dry-run -o json", endless=True, shows=True),
        _spoken("push", endless=True),
        _spoken("up", endless=True),
        _spoken("up --replace -q", endless=True),
        _spoken("replace a c -y", endless=True),
        _spoken("replace b c -y", endless=True),
    )
}


def mark(host: str) -> str:
    return f"{MARK} {host}"

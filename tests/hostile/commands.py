"""Every command of dtctl, as it is tried on lying hosts, and its output about the host that does not lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtctl.errors import ExitCode
from tests import of_rooms
from tests.hostile.host_answers import MARK

SILENT = {
    **of_rooms.table("SILENT"),
    "validate": "reads the cluster file alone",
    "plan": "reads the cluster file alone",
    "allow": "reads the cluster file alone",
    "explain": "prints what is known without any host",
    "schema": "prints what is known without any host",
}
"""Commands that receive nothing from a host, and why."""

OVER_SSH_ALONE = {"trust": "looks at keys, which are shown before any agent speaks"}
"""Commands that need a real server."""

OWN = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain/model.ckpt-100"
"""A checkpoint of this machine."""

_DATA = "--set data.from=. --set dirs.data=/data"
_MADE_READY = "status result, need, progress, prepared, looked, started, up result"
HEARD = {
    **of_rooms.table("HEARD"),
    "status": "status result",
    "logs": "log, logs result, status result, states, watch result, setup_logs result",
    "events": "event, events result, status result",
    "checkpoints": "status result, verify result, part, fetch result, prune result, landing, stored, store result",
    "data": "need, data_push result, data_status result, progress, data_verify result, data_drop result",
    "wait": "status result, states, watch result",
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
        _spoken("logs", shows=True),
        _spoken("logs -n 5 -t", shows=True),
        _spoken("logs -n all", endless=True),
        _spoken("logs -f", endless=True),
        _spoken("logs --save saved"),
        _spoken("logs --setup", shows=True),
        _spoken("events", partly=True),
        _spoken("events -o json"),
        _spoken("events -f", endless=True),
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
        *(_spoken(words, **how) for words, how in of_rooms.rows("SPOKEN")),
        _spoken("runs"),
        _spoken("runs --all -o json"),
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

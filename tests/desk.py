"""A user's desk: a home of its own, a project with a cluster.yaml, and `dtctl` typed in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dtctl.config.load import load_cluster
from dtctl.operations.consent import Consents, programs_here
from dtctl.operations.sending import allowable
from tests import warm
from tests.hosts.processes import command, marked
from tests.waiting import PATIENCE_S, eventually

STAND_IN = Path(__file__).with_name("stand_in.py")

TREE = {name: str(Path(path).resolve()) for name, path in os.environ.items() if name == "PYTHONPATH"}
"""The worktree, which may be tested with the installation of another one: a command is of the tree of its test, too."""

LOCAL_HOSTS = "hosts:\n  node-[1-2]:\n"

USUAL = {
    "jobs": '{ps: {hosts: [node-1]}, worker: {hosts: "node-[1-2]"}}',
    "trainer": "command: [python, stand_in.py], dialect: flags",
    "recovery": "{max_restarts: 2, backoff: 100ms..200ms}",
    "grace": "2s",
}


def cluster_text(**sections: str) -> str:
    """A text for `Desk.write_cluster`, with these sections beside or instead of USUAL; `trainer` without its braces."""
    written = {**USUAL, **sections}
    written["trainer"] = f"{{{written['trainer']}, args: ARGS}}"
    text = "".join(f"{name}: {section}\n" for name, section in written.items())
    return "name: {name}\n{hosts}\n" + text.replace("{", "{{").replace("}", "}}").replace("ARGS", "{args}")


CLUSTER = cluster_text()


class Desk:
    """Everything that `dtctl` writes lies below `home`; its local agents are there too.

    `client`: what speaks SSH, for those who write its cluster.yaml.
    """

    def __init__(self, home: Path, *, name: str = "demo", client: str = "fabric") -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        self.name = name
        self.client = client
        shutil.copy(STAND_IN, self.project / "stand_in.py")
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
            "PYTHONWARNINGS": "error",
        }

    def write_cluster(self, text: str = CLUSTER, /, *, hosts: str = LOCAL_HOSTS, **args: Any) -> Path:
        """Writes cluster.yaml; `args` become arguments of the stand-in, `hosts` the sections `ssh` and `hosts`."""
        file = self.project / "cluster.yaml"
        file.write_text(text.format(name=self.name, hosts=hosts, args=json.dumps(args)))
        if "run:" in text or "transport: local" in text + hosts:
            self.allow()
        return file

    def write_ssh_config(self, text: str) -> None:
        directory = self.home / ".ssh"
        directory.mkdir(mode=0o700, exist_ok=True)
        (directory / "config").write_text(text)

    def allow(self, file: Path | None = None) -> None:
        """What the cluster file would start on this machine and send from it, as `dtctl allow` does."""
        cluster = load_cluster(file or self.project / "cluster.yaml", needs_files=False)
        consents = Consents(self.home / ".local/state/dtctl")
        consents.allow(programs_here(cluster))
        consents.allow(allowable(cluster))

    def dtctl(self, *words: str, code: int | None = 0, timeout_s: float = PATIENCE_S, cwd: Path | None = None) -> str:
        """What the command prints on stdout; fails the test unless it exits with `code` (None: whatever)."""
        done = self.run(*words, timeout_s=timeout_s, cwd=cwd)
        assert code is None or done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(
        self, *words: str, timeout_s: float = PATIENCE_S, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        if type(self).argv is Desk.argv and warm.fits(self.env):
            return warm.run(words, cwd or self.project, self.env, timeout_s)
        return subprocess.run(
            self.argv(*words),
            cwd=cwd or self.project,
            env={**TREE, **self.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """The command in the background, both its streams in one pipe."""
        return subprocess.Popen(
            self.argv(*words),
            cwd=cwd or self.project,
            env={**TREE, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A parent in the background of a shell leaves Ctrl-C ignored; here somebody types it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    @staticmethod
    def argv(*words: str) -> list[str]:
        return [sys.executable, "-m", "dtctl", *words]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.dtctl("status", "-o", "json", code=None))
        return found

    def states(self) -> dict[str, str]:
        return {task["task"]: task["state"] for task in self.status()["tasks"]}

    def task(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(task for task in self.status()["tasks"] if task["task"] == name)
        return found

    def outcome(self) -> str:
        return str(self.status()["conditions"][0]["type"])

    def processes(self) -> dict[int, str]:
        """Live processes that live off this home: agents, keepers, trainers and their children."""
        return {pid: command(pid) for pid in marked(f"HOME={self.home}") if pid != os.getpid()}

    def hang_up(self) -> None:
        """Ends the connections that `ssh` keeps."""
        for pid, words in self.processes().items():
            if words.startswith("ssh ") and " -fN " in words:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def remove(self) -> None:
        eventually(self._kill_all, what="the desk's processes to end")

    def _kill_all(self) -> bool:
        """True when there was nothing to kill: an agent's processes replace each other until none is left."""
        left = self.processes()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left


@contextmanager
def desk(
    home: Path,
    *,
    name: str = "demo",
    client: str = "fabric",
    kind: type[Desk] = Desk,
    elsewhere: Callable[[], object] = lambda: True,
) -> Iterator[Desk]:
    """A desk whose processes must all have ended when the test is over.

    It takes down what still runs first; `elsewhere` tells whether something does on other machines.
    """
    made = kind(home, name=name, client=client)
    try:
        yield made
        if made.processes() or elsewhere():
            made.dtctl("down", "--yes", "--grace", "1s", code=None)
        made.hang_up()
        eventually(lambda: not made.processes(), what="no process to be left")
    finally:
        made.remove()

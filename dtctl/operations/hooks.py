"""Hooks that run a command on this machine, while the run is followed here."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.run.run_events import RunEvent, payload
from dtctl.errors import DtctlError

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster, Hook

MOST_WAITING = 100
"""The most events that wait for one hook; further ones are dropped."""

_SLACK_S = 1.0
_SHOWN = 200
"""The most characters that are shown of the last line of a failed command."""

Report = Callable[[str, Sequence[Fact]], None]
"""Called with the name of a hook and why it failed; once, until it works again. Several threads call it."""


def hooks_here(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    return tuple(hook for hook in hooks if hook.run)


def cluster_with_hooks(file: Path | None, name: str) -> Cluster | None:
    """The cluster of a file that mentions hooks; None if it cannot be read, or is another cluster's."""
    from dtctl.config.load import load_cluster

    try:
        if file is None or b"hooks" not in file.read_bytes():  # this saves most commands from reading the file
            return None
        found = load_cluster(file, needs_files=False)
    except (OSError, DtctlError):
        return None
    return found if found.name == name else None


class CommandHooks:
    """Each hook has a thread of its own. Only `finish` waits for commands, and not for long.

    `fresh`: the run has only just begun, so that nothing of it was reported before. Otherwise what had happened when it
    was seen first is passed over, but for its end. `allowed` is asked each time: a script may change meanwhile.
    """

    def __init__(
        self,
        hooks: Iterable[Hook],
        cluster: str,
        directory: Path,
        report: Report,
        *,
        fresh: bool,
        allowed: Callable[[Hook], bool] = lambda hook: True,
    ) -> None:
        self._known: set[str] | None = set() if fresh else None
        self._runners = [_Runner(hook, cluster, directory, report, allowed) for hook in hooks]

    def see(self, happened: Sequence[RunEvent]) -> None:
        if self._known is None:
            self._known = {one.id for one in happened if not one.is_end}
        for one in happened:
            if one.id not in self._known:
                self._known.add(one.id)
                for runner in self._runners:
                    runner.put(one)

    def finish(self) -> None:
        """Waits for the commands that still run, as long as they may take."""
        for runner in self._runners:
            runner.end()
        for runner in self._runners:
            runner.join()


class _Runner:
    def __init__(
        self, hook: Hook, cluster: str, directory: Path, report: Report, allowed: Callable[[Hook], bool]
    ) -> None:
        self._hook = hook
        self._allowed = allowed
        self._cluster = cluster
        self._directory = directory
        self._report = report
        self._waiting: queue.Queue[RunEvent | None] = queue.Queue(MOST_WAITING)
        self._broken = False
        self._thread = threading.Thread(target=self._work, name=f"hook {hook.name}", daemon=True)
        self._thread.start()

    def put(self, one: RunEvent) -> None:
        if any(kind in self._hook.on for kind in one.kinds):
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(one)

    def end(self) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def join(self) -> None:
        self._thread.join(self._hook.timeout_s + _SLACK_S)

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            why = self._run(one)
            if why and not self._broken:
                self._report(self._hook.name, why)
            self._broken = bool(why)

    def _run(self, one: RunEvent) -> tuple[Fact, ...]:
        if not self._allowed(self._hook):
            return (fact("cannot_run", what=self._hook.run[0], text="it has changed since you allowed it"),)
        return run_command(self._hook, payload(one, self._cluster, _rfc3339(one.time)), self._directory)


def run_command(hook: Hook, body: Mapping[str, Any], directory: Path) -> tuple[Fact, ...]:
    """Runs the command of a hook, and kills it with all its children after the time limit; returns why it failed, if it
    did.
    """
    with _file_of(json.dumps(body).encode() + b"\n") as given, _file_of(b"") as said:
        try:
            process = subprocess.Popen(
                hook.run,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd=directory,
                env={**os.environ, **_variables(body)},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            text = (error.strerror if isinstance(error, OSError) else None) or str(error)
            return (fact("cannot_run", what=hook.run[0], text=text),)
        try:
            code = process.wait(hook.timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the group is still its own
            process.wait()
            return (fact("hook_late", what=hook.run[0], seconds=hook.timeout_s),)
        if code == 0:
            return ()
        how = fact("killed", signal=-code) if code < 0 else fact("exited", code=code)
        last = _last_line(said)
        return (how, *([fact("cause", text=last)] if last else []))


def _variables(body: Mapping[str, Any]) -> dict[str, str]:
    """The variables for scripts that do not parse JSON: DTCTL_TEXT, DTCTL_EVENT, DTCTL_RUN, ..."""
    plain = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "why")}
    return {f"DTCTL_{name.upper()}": "" if value is None else str(value) for name, value in plain.items()}


@contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes]]:
    """The event as a file, not a pipe, so that a command that does not read it cannot block."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def _last_line(said: IO[bytes]) -> str:
    said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
    lines = said.read().decode("utf-8", "replace").split("\n")
    return next((line.strip()[:_SHOWN] for line in reversed(lines) if line.strip()), "")


def _rfc3339(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

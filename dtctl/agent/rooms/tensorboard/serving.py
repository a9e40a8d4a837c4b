"""TensorBoard on this host, for the browser of the controller's user; or its event files, for one elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time

from ...conversation import Aborted
from ...host.errors import Refused
from ...requests import runs
from ...run import environment
from ..metrics.event_files import find, outermost, text
from .copying import Copying
from .records import LIFELINE, MOST_FOLDERS, PROBE
from .relay import TensorboardRelay

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Dict, Iterator, List, Optional, Tuple

    from ...conversation import Conversation
    from ...records.answers import RunResult
    from ...records.requests import Request
    from .records import CaughtUp, EventDirsResult, EventFile, EventFilesRequest, TensorboardReady, TensorboardResult


BEGIN_LIMIT_S = 120.0
"""The time limit for the start of TensorBoard, which imports TensorFlow if there is one."""
OUTPUT_BYTES = 4096


def tensorboard(talk: Conversation, request: Request) -> TensorboardResult:
    run = runs.need(talk, request)
    with talk.at("tensorboard"):
        python, tried = find_tensorboard(run)
        if python is None:
            raise Refused("no_tensorboard", "no Python here has TensorBoard", "tried: %s" % ", ".join(tried))
        key = os.urandom(16).hex()
        place = os.path.join(run.files.directory, "tensorboard-%s" % key)
        os.mkdir(place, 0o700)
        try:
            shown, logdir = _logdir(run, place)
            output = _Output()
            line, far = socket.socketpair()
            with line:
                with far:
                    child = _start(python, logdir, place, dict(environment_of(run), DTCTL_KEY=key), (far, output.file))
                try:
                    _await_ready(talk, child, line, output)
                    dirs = [text(one) for one in shown][:100]
                    ready: TensorboardReady = {"dirs": dirs, "python": text(python)}
                    talk.send("tensorboard_ready", ready)
                    end = TensorboardRelay(talk, line, child, output.trim).serve()
                finally:
                    environment.end_tree(child, key)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return {"run": run.id, "end": end, "said": output.end() if end == "ended" else ""}  # type: ignore[typeddict-item]


def _logdir(run: runs.Run, place: str) -> Tuple[List[str], str]:
    """The directories to show, and the one for TensorBoard: with links in `place` if several are shown."""
    roots = list(dict.fromkeys(folder.root for folder in find(runs.output_directories(run))))
    roots = roots or outermost(runs.output_directories(run))[:1]
    if len(roots) == 1:
        return roots, roots[0]
    links = os.path.join(place, "shown")
    os.mkdir(links, 0o700)
    for number, root in enumerate(roots):
        name = os.path.basename(root) or "root"
        if os.path.lexists(os.path.join(links, name)):
            name = "%s-%d" % (name, number)
        os.symlink(root, os.path.join(links, name))
    return roots, links


class _Output:
    """The output of TensorBoard: a file without a name, kept small."""

    def __init__(self) -> None:
        import tempfile

        self.file: IO[bytes] = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 (it ends with the session)

    def end(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), OUTPUT_BYTES, max(0, size - OUTPUT_BYTES)).decode("utf-8", "replace")

    def trim(self) -> None:
        if os.fstat(self.file.fileno()).st_size > 1 << 20:
            os.ftruncate(self.file.fileno(), 0)


def _start(
    python: str, logdir: str, place: str, variables: Dict[str, str], ends: Tuple[socket.socket, IO[bytes]]
) -> subprocess.Popen[bytes]:
    """Starts TensorBoard. `ends`: its standard input, and the file for its output.

    The input closes when this process ends, for any reason; then TensorBoard ends, too.
    """
    line, output = ends
    argv = [python, "-c", LIFELINE, place, "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
    return environment.spawn(argv, variables, "/", stdin=line.fileno(), stdout=output, stderr=output)


def _await_ready(talk: Conversation, child: subprocess.Popen[bytes], line: socket.socket, output: _Output) -> None:
    """Waits until it accepts connections. Raises Refused, and Aborted if the controller cancels it."""
    until = time.monotonic() + BEGIN_LIMIT_S
    talk.wire.start_listening()
    line.setblocking(False)
    while True:
        try:
            ready = line.recv(1)
        except BlockingIOError:
            ready = b""
        if ready:
            return
        if child.poll() is not None:
            raise Refused("tensorboard_failed", "TensorBoard exited at its start", output.end())
        if time.monotonic() > until:
            raise Refused("tensorboard_failed", "TensorBoard did not start within %g s" % BEGIN_LIMIT_S, output.end())
        frame = talk.wire.poll(0.1)
        if frame is not None and frame[0]["type"] != "alive":
            raise Aborted()


LOOK_EVERY_S = 2.0


def event_files(talk: Conversation, request: EventFilesRequest) -> RunResult:
    """Sends event files until the controller ends the conversation."""
    run = runs.need(talk, request)
    copying = Copying(runs.output_directories(run), request["without"], request["have"])

    def send(part: EventFile, data: bytes) -> None:
        talk.wire.send(dict(part, type="event_file"), data)
        talk.pause(0)

    talk.wire.start_listening()
    with talk.at("event files"):
        caught_up: CaughtUp = {"files": copying.refresh(send)}
        talk.send("caught_up", caught_up)
        while True:
            until = time.monotonic() + LOOK_EVERY_S
            while time.monotonic() < until:
                talk.pause(max(0.0, until - time.monotonic()))
            copying.refresh(send)


PROBE_LIMIT_S = 60.0
"""The time limit for probing an environment, which may be on a slow file server."""

_PYTHON = re.compile(r"python[0-9.]*\Z")
_LONGEST = 4096


def event_dirs(talk: Conversation, request: Request) -> EventDirsResult:
    run = runs.need(talk, request)
    roots = runs.output_directories(run)
    with talk.at("event files"):
        found = list(find(roots))
    with talk.at("tensorboard"):
        python, tried = find_tensorboard(run)
    return {
        "run": run.id,
        "dirs": [text(root)[:_LONGEST] for root in roots][:100],
        "folders": [folder.record for folder in found][:MOST_FOLDERS],
        "sizes": {
            "files": sum(len(folder.names) for folder in found),
            "bytes": sum(folder.size_bytes() for folder in found),
        },
        "tensorboard": None if python is None else text(python)[:_LONGEST],
        "tried": [text(one)[:_LONGEST] for one in tried[:20]],
    }


def find_tensorboard(run: runs.Run) -> Tuple[Optional[str], List[str]]:
    """The first Python of the run's tasks that has it; and those that were tried in vain."""
    tried: List[str] = []
    variables = environment_of(run)
    for python in _pythons(run, variables):
        if python in tried:
            continue
        if environment.output_of([python, "-c", PROBE], variables, PROBE_LIMIT_S) is not None:
            return python, tried
        tried.append(python)
    return None, tried


def environment_of(run: runs.Run) -> Dict[str, str]:
    """The environment of the first task here, without secrets and variables that would make it part of the training."""
    task = run.spec["tasks"][0]
    variables = environment.of_task(run.files.inherited(), run.spec, task, {}, 0, key="")
    mine = {name: value for name, value in variables.items() if name not in ("TF_CONFIG", "DTCTL_TASK")}
    mine.update(DTCTL_RUN_DIR=run.files.directory, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    marks = environment.Marks(environment.code_directory(run.files.root, run.spec), run.files.inherited())
    return marks.of_task(run.spec, task["id"], ()).values(mine)


def _pythons(run: runs.Run, variables: Dict[str, str]) -> Iterator[str]:
    """Interpreters of tasks, or those in the directories of their programs; then those in the PATH."""
    marks = environment.Marks(environment.code_directory(run.files.root, run.spec), run.files.inherited())
    path = variables.get("PATH")
    for task in run.spec["tasks"]:
        program = shutil.which(marks.text(task["argv"][0]), path=path) if task["argv"] else None
        if program is None or not os.path.isabs(program):
            continue
        if _PYTHON.match(os.path.basename(program)):
            yield program
            continue
        for name in ("python3", "python"):
            beside = os.path.join(os.path.dirname(program), name)
            if os.access(beside, os.X_OK):
                yield beside
    for name in ("python3", "python"):
        found = shutil.which(name, path=path)
        if found is not None:
            yield found

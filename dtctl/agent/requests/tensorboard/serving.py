"""tensorboard: runs it on this host, for the browser of the controller's user. It ends with the conversation."""

from __future__ import annotations

import os
import shutil
import socket
import time

from ...host.errors import Refused
from ...metrics.event_files import find, outermost, text
from ...protocol.conversation import Aborted
from ...records.tensorboard import LIFELINE
from ...run import environment
from .. import runs
from ..metrics import directories
from ..setup import end_tree
from .finding import environment_of, find_tensorboard
from .relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Dict, List, Tuple

    from ...protocol.conversation import Conversation
    from ...records.requests import TensorboardRequest
    from ...records.tensorboard import TensorboardReady, TensorboardResult

BEGIN_LIMIT_S = 120.0
"""It imports TensorFlow where there is one."""
SAID_BYTES = 4096


def tensorboard(talk: Conversation, request: TensorboardRequest) -> TensorboardResult:
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
            said = _Said()
            line, far = socket.socketpair()
            with line:
                with far:
                    child = _start(python, logdir, place, dict(environment_of(run), DTCTL_KEY=key), (far, said.file))
                try:
                    _await_ready(talk, child, line, said)
                    dirs = [text(one) for one in shown][:100]
                    ready: TensorboardReady = {"dirs": dirs, "python": text(python)}
                    talk.send("tensorboard_ready", ready)
                    end = Relay(talk, line, child, said.trim).serve()
                finally:
                    end_tree(child, key)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return {"run": run.id, "end": end, "said": said.end() if end == "ended" else ""}  # type: ignore[typeddict-item]


def _logdir(run: runs.Run, place: str) -> Tuple[List[str], str]:
    """What is shown, and the directory for TensorBoard: one of links in `place` where several are shown."""
    roots = list(dict.fromkeys(folder.root for folder in find(directories(run))))
    roots = roots or outermost(directories(run))[:1]
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


class _Said:
    """What TensorBoard prints: a file without a name, kept small."""

    def __init__(self) -> None:
        import tempfile

        self.file: IO[bytes] = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 (it ends with the session)

    def end(self) -> str:
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), SAID_BYTES, max(0, size - SAID_BYTES)).decode("utf-8", "replace")

    def trim(self) -> None:
        if os.fstat(self.file.fileno()).st_size > 1 << 20:
            os.ftruncate(self.file.fileno(), 0)


def _start(
    python: str, logdir: str, place: str, variables: Dict[str, str], ends: Tuple[socket.socket, IO[bytes]]
) -> subprocess.Popen[bytes]:
    """`ends`: its standard input, and where its output goes.

    The input ends with this process, whatever becomes of it, and so does TensorBoard.
    """
    import subprocess

    line, said = ends
    words = [python, "-c", LIFELINE, place, "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
    return subprocess.Popen(
        [environment.encode(word) for word in words],
        stdin=line.fileno(),
        stdout=said,
        stderr=said,
        cwd="/",
        env=environment.encoded(variables),
        start_new_session=True,
    )


def _await_ready(talk: Conversation, child: subprocess.Popen[bytes], line: socket.socket, said: _Said) -> None:
    """Until it takes connections. Raises Refused, and Aborted when the controller wants nothing of it any more."""
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
            raise Refused("tensorboard_failed", "TensorBoard ended as it began", said.end())
        if time.monotonic() > until:
            raise Refused("tensorboard_failed", "TensorBoard does not begin within %g s" % BEGIN_LIMIT_S, said.end())
        frame = talk.wire.poll(0.1)
        if frame is not None and frame[0]["type"] != "alive":
            raise Aborted()

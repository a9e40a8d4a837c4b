"""tensorboard: runs it on this host, for the browser of the controller's user. It ends with the conversation."""

from __future__ import annotations

import os
import shutil
import time

from ...host import ports
from ...host.errors import Refused
from ...metrics import copying
from ...metrics.finding import outermost
from ...protocol.conversation import Aborted
from ...records.board import LIFELINE
from ...run import environment
from .. import runs
from ..metrics import directories
from ..setup import end_tree
from .looking import environment_of, find_tensorboard
from .relay import Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import IO, Dict, List, Tuple

    from ...protocol.conversation import Conversation
    from ...records.board import Board, BoardResult
    from ...records.requests import TensorboardRequest

BEGIN_LIMIT_S = 120.0
"""It imports TensorFlow where there is one."""
SAID_BYTES = 4096


def tensorboard(talk: Conversation, request: TensorboardRequest) -> BoardResult:
    run = runs.need(talk, request)
    with talk.at("tensorboard"):
        python, tried = find_tensorboard(run)
        if python is None:
            raise Refused("no_tensorboard", "no Python here has TensorBoard", "tried: %s" % ", ".join(tried))
        key = os.urandom(16).hex()
        place = os.path.join(run.files.directory, "board-%s" % key)
        os.mkdir(place, 0o700)
        try:
            shown, logdir = _logdir(run, place)
            said = _Said()
            child = _start(python, logdir, place, dict(environment_of(run), DTCTL_KEY=key), said.file)
            try:
                port = _port(talk, child, said)
                board: Board = {"dirs": [copying.shown(one) for one in shown][:100], "python": copying.shown(python)}
                talk.send("board", board)
                end = Relay(talk, port, child, said.trim).serve()
            finally:
                end_tree(child, key)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return {"run": run.id, "end": end, "said": said.end() if end == "ended" else ""}  # type: ignore[typeddict-item]


def _logdir(run: runs.Run, place: str) -> Tuple[List[str], str]:
    """What is shown, and the directory for TensorBoard: one of links in `place` where several are shown."""
    roots = list(dict.fromkeys(folder.root for folder in copying.find(directories(run))))
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


def _start(python: str, logdir: str, place: str, variables: Dict[str, str], said: IO[bytes]) -> subprocess.Popen[bytes]:
    """Its standard input ends with this process, whatever becomes of it, and so does TensorBoard."""
    import subprocess

    words = [python, "-c", LIFELINE, place, "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"]
    return subprocess.Popen(
        [environment.encode(word) for word in words],
        stdin=subprocess.PIPE,
        stdout=said,
        stderr=said,
        cwd="/",
        env=environment.encoded(variables),
        start_new_session=True,
    )


def _port(talk: Conversation, child: subprocess.Popen[bytes], said: _Said) -> int:
    """The one that this very process listens on."""
    until = time.monotonic() + BEGIN_LIMIT_S
    talk.wire.start_listening()
    while True:
        if child.poll() is not None:
            raise Refused("tensorboard_failed", "TensorBoard ended as it began", said.end())
        found = ports.listened_on(child.pid)
        if found:
            return found[0]
        if time.monotonic() > until:
            raise Refused("tensorboard_failed", "TensorBoard does not begin within %g s" % BEGIN_LIMIT_S, said.end())
        frame = talk.wire.poll(0.1)
        if frame is not None and frame[0]["type"] != "alive":
            raise Aborted()

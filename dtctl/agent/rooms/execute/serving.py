"""exec: one command on this host, in the place and with the environment of a task if it is given one."""

from __future__ import annotations

import os
import select
import time

from ...host.errors import Refused, from_os_error
from ...host.secrets import Masks
from ...requests import runs
from ...run import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import List, Mapping, Optional

    from ...conversation import Conversation
    from ...records.answers import Output
    from ...run.containers import Box
    from .records import ExecRequest, ExecResult

DRAIN_S = 0.5
"""How long output is read after the command has ended, while a remaining child process holds the pipes."""
_LOOK_S = 0.1
_LONGEST_WAITING = 8192


def execute(talk: Conversation, request: ExecRequest) -> ExecResult:
    key = os.urandom(16).hex()
    place = _context(talk, request, key)
    argv, env, name = place.marks.expand(request["argv"]), place.env, "dtctl-" + key
    if place.box is not None:
        argv, env = place.box.words(name, argv, env, environment.base(), place.cwd, place.secrets)
    child = _spawn(argv, env, place)
    try:
        code = relay(talk, child, place.masks)
    except BaseException:
        environment.end_tree(child, key)
        if place.box is not None:
            environment.output_of(place.box.removal(name))
        raise
    return {"exit_code": code, "signal": None} if code >= 0 else {"exit_code": None, "signal": -code}


class Context:
    """The directory and the environment of a command, and the secrets in its output."""

    def __init__(
        self,
        env: Mapping[str, str],
        code: bool,
        marks: environment.Marks,
        secrets: Mapping[str, str],
        box: Optional[Box] = None,
        program: str = "",
    ) -> None:
        """`program`: of the task's trainer."""
        self.box = box
        self.program = program
        self.secrets = list(secrets)
        self.env = marks.values(env)
        self.cwd = marks.code if code else marks.home
        self.marks = marks
        self.masks = Masks(secrets.values(), forms=False)  # what a command writes may be no text


def _context(talk: Conversation, request: ExecRequest, key: str) -> Context:
    wanted = request["task"]
    run: Optional[runs.Run] = None
    if wanted is not None:
        run = runs.need(talk, request)
    elif request["run"] or runs.current(talk.root, request["cluster"], request["host"])[0]:  # else `find` scans /proc
        run = runs.find(talk, request["cluster"], request["host"], request["run"])
    inherited = run.files.inherited() if run is not None and wanted is not None else None
    marks = environment.Marks(environment.code_directory(talk.root, run.spec) if run else None, inherited)
    code = request["cwd"] == "code"
    if run is None or wanted is None:
        return Context(dict(environment.base(), DTCTL_KEY=key), code, marks, {})
    run.tasks([wanted])
    task = next(task for task in run.spec["tasks"] if task["id"] == wanted)
    attempt = run.state()["tasks"][wanted]["attempt"]
    marks = marks.of_task(run.spec, wanted, run.intent()["tasks"][wanted]["without"])
    secrets = run.files.secrets()
    from ...run import containers

    box = containers.of_spec(talk.root, run.spec["environment"], marks)
    variables = run.files.inherited() if box is None else box.inherited(run.files.inherited())
    variables = environment.of_task(variables, run.spec, task, secrets, attempt, key)
    return Context(variables, code, marks, secrets, box, marks.expand(task["argv"])[0])


def _spawn(argv: List[str], variables: Mapping[str, str], place: Context) -> subprocess.Popen[bytes]:
    import subprocess

    if not os.path.isdir(place.cwd):
        raise Refused("not_a_directory", "there is no directory %s" % place.cwd)
    try:
        return environment.spawn(argv, variables, place.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        hint = "its trainer runs %s: write that, or set trainer.python in cluster.yaml" % place.program
        raise Refused(
            "command_not_found",
            "%s: command not found" % argv[0],
            "PATH is %s" % variables["PATH"],
            hint if place.program and argv[0].startswith("python") else "",
        ) from None
    except ValueError as unfit:
        raise Refused("bad_request", "exec: %s" % unfit) from None
    except OSError as error:
        raise from_os_error(error, "run %s" % argv[0]) from error


class Pipe:
    """One of the command's two outputs."""

    def __init__(self, number: int, masks: Masks) -> None:
        self._number = number
        self._masks = masks
        self._kept = b""

    def send(self, talk: Conversation, chunk: bytes) -> None:
        """Passes a chunk on; an empty one is the end. A line that has not ended waits: it may show half a secret."""
        data = self._kept + chunk
        self._pass(talk, data, self._whole(data) if chunk else len(data))

    def rest(self, talk: Conversation) -> None:
        """Passes on what waits, but the beginning of a secret: nothing more has come for some time."""
        self._pass(talk, self._kept, self._masks.cut(self._kept, 0))

    def _whole(self, data: bytes) -> int:
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - whole > _LONGEST_WAITING:
            whole = data.rfind(b" ", len(data) - _LONGEST_WAITING) + 1 or len(data)
        return self._masks.cut(data[:whole], 0)

    def _pass(self, talk: Conversation, data: bytes, cut: int) -> None:
        self._kept = data[cut:]
        if cut:
            output: Output = {"stream": self._number}
            talk.wire.send(dict(output, type="output"), self._masks.hide(data[:cut]))


def relay(talk: Conversation, child: subprocess.Popen[bytes], masks: Masks) -> int:
    """Sends the output until the command has ended and all of it is sent. Raises what Conversation.pause raises."""
    assert child.stdout is not None
    assert child.stderr is not None
    talk.wire.start_listening()
    streams = {child.stdout.fileno(): Pipe(1, masks), child.stderr.fileno(): Pipe(2, masks)}
    last = time.monotonic()
    while streams and (child.poll() is None or time.monotonic() - last < DRAIN_S):
        ready = select.select([*streams, talk.wire.fileno()], [], [], _LOOK_S)[0]
        if not ready:
            for stream in streams.values():
                stream.rest(talk)
        for descriptor in ready:
            if descriptor not in streams:
                talk.pause(0)
                continue
            last = time.monotonic()
            chunk = os.read(descriptor, 65536)
            streams[descriptor].send(talk, chunk)
            if not chunk:
                del streams[descriptor]
    for stream in streams.values():
        stream.send(talk, b"")
    while child.poll() is None:
        talk.pause(0.05)
    assert child.returncode is not None
    return child.returncode

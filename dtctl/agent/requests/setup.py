"""What a run needs on its host before its tasks: directories, and the user's setup command."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files, locks, paths, processes
from ..host.errors import Refused, from_os_error
from ..host.secrets import Masks, hide_text
from ..run import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Dict, Iterable, Mapping, Optional

    from ..protocol.conversation import Conversation
    from ..records.answers import Progress
    from ..records.spec import Spec

TAIL_BYTES = 2000

_CHUNK = 65536
_READ_IT = '. "$DTCTL_SETUP"'
"""The command line of sh, which everybody on the machine can read. The text itself may hold secrets: it is
in a file that only its user can read, and sees `$0`, `$#` and its standard input as if it stood here."""


def make_directories(spec: Spec, marks: environment.Marks) -> None:
    """The user's own directories, with the user's own umask."""
    for directory in marks.words(spec["dirs"]):
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise from_os_error(error, "make the directory %s" % directory) from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise Refused("permission_denied", "cannot write in the directory %s" % directory)


def look_for(directories: Iterable[str]) -> None:
    """Refuses a host on which one of the user's directories cannot be read."""
    for directory in directories:
        if not os.path.isdir(directory):
            hint = "put the data there, or name its place on this host: hosts.NAME.dirs"
            raise Refused("not_a_directory", "there is no directory %s" % directory, "", hint)
        if not os.access(directory, os.R_OK | os.X_OK):
            raise Refused("permission_denied", "cannot read the directory %s" % directory)


def run_setup(talk: Conversation, spec: Spec, code: Optional[str], marks: environment.Marks) -> None:
    """Runs `setup` unless it has succeeded here before with the same bundle, text and environment.

    Its output goes to setup.log beside the mark of success, and to the controller. Raises as Conversation.pause; the
    command and all that it has started are ended then.
    """
    setup = spec["setup"]
    if setup is None:
        return
    text, own = setup["text"], setup["env"]
    place = os.path.dirname(code) if code else paths.cluster_directory(talk.root, spec["cluster"], spec["host"])
    paths.make_directory(place)
    done = os.path.join(place, "setup-%s.done" % _digest(text, own))
    with talk.at("waiting for another setup"):
        lock = _turn(talk, os.path.join(place, "setup.lock"))
    try:
        if not os.path.exists(done):
            _run(talk, marks.text(text), marks.values(own), marks.code, place)
            paths.write_text(done, text + "\n")
    finally:
        os.close(lock)


def _digest(text: str, own: Mapping[str, str]) -> str:
    import hashlib
    import json

    return hashlib.sha256(json.dumps([text, own], sort_keys=True).encode()).hexdigest()[:16]


def _turn(talk: Conversation, path: str) -> int:
    """The lock of a bundle's setup: another cluster with the same code may be at it."""
    while True:
        descriptor = locks.hold(path, exclusive=True)
        if descriptor is not None:
            return descriptor
        talk.pause(0.2)


def _run(talk: Conversation, text: str, own: Dict[str, str], cwd: str, place: str) -> None:
    import subprocess

    key = os.urandom(16).hex()
    script, log_path = os.path.join(place, "setup-%s.sh" % key), os.path.join(place, "setup.log")
    variables = dict(environment.base(), **own, DTCTL_KEY=key, DTCTL_SETUP=script)
    log = files.descriptor(log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        with open(script, "xb", opener=files.private) as file:
            file.write(environment.encode(text) + b"\n")
        shell = subprocess.Popen(
            ["/bin/sh", "-c", _READ_IT],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=cwd,
            env=environment.encoded(variables),
            start_new_session=True,
        )
        try:
            with talk.at("setup"):
                _follow(talk, shell, log)
        except BaseException:
            end_tree(shell, key)
            raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(script)
        os.close(log)
    if shell.returncode != 0:
        raise Refused(
            "setup_failed",
            "the setup command ended with %s" % _ending(shell.returncode),
            hide_text(paths.tail(log_path, TAIL_BYTES)),
            "the whole output is in %s" % log_path,
        )


def _follow(talk: Conversation, shell: subprocess.Popen[bytes], log: int) -> None:
    offset = 0
    ended = False
    masks = Masks(())
    progress: Progress = {"phase": "setup", "done_bytes": 0, "total_bytes": 0, "text": ""}
    while True:
        chunk = os.pread(log, _CHUNK, offset)
        # A line that has not ended waits: it may show half a secret.
        size = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if len(chunk) == _CHUNK:
            size = size or masks.cut(chunk)
        elif ended:
            size = len(chunk)
        if size:
            offset += size
            talk.wire.send(dict(progress, type="progress"), masks.hide(chunk[:size]))
        elif ended:
            return
        else:
            talk.pause(0.05)
            ended = shell.poll() is not None


def end_tree(child: subprocess.Popen[bytes], key: str) -> None:
    """Ends at once a command that the session has started, with all that it has started."""
    import time

    deadline = time.monotonic() + 5.0
    ladder = processes.Ladder(processes.identify(child.pid), [key], 0.0, time.monotonic())
    while not ladder.step(time.monotonic()) and time.monotonic() < deadline:
        child.poll()
        time.sleep(0.02)
    child.wait()


def _ending(returncode: int) -> str:
    from ..records.reasons import signal_name

    if returncode < 0:
        return signal_name(-returncode)
    return "exit code %d" % returncode

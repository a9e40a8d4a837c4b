"""One conversation with one controller: the greeting, then request by request until it is gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module

from . import machine, paths, programs
from .conversation import Aborted, Conversation
from .errors import Refused, from_os_error
from .runfiles import RunRemoved
from .wire import START, Gone, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

PROTOCOL = 1

REQUESTS = {
    "up": "up.up",
    "push": "up.push",
    "status": "status.status",
    "watch": "status.watch",
    "logs": "status.logs",
    "runs": "status.list_runs",
    "stop": "stop.stop",
    "restart": "stop.restart",
    "down": "stop.down",
    "exec": "execute.execute",
    "events": "story.events",
    "gc": "garbage.collect",
}
"""Module and function of each request. A module is only imported, and so compiled, when it is asked for."""


def main(root: str, program: str) -> None:
    """The whole life of the session process; it never returns."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # the end of the SSH session is the end of input; not SIG_IGN, which programs that are run would inherit
        signal.signal(number, lambda *_: None)
    programs.hold()
    wire = Wire(sys.stdin.buffer, sys.stdout.buffer)
    try:
        sys.stdout.buffer.write(START)
        converse(Conversation(root, program, wire))
    except Gone:
        pass
    os._exit(0)  # a thread may still be reading


def converse(talk: Conversation) -> None:
    """Answers requests until the first error. Raises Gone."""
    try:
        talk.wire.send(greeting(talk.root))
        while True:
            request = talk.wire.receive()[0]
            if request.get("type") == "abort":
                continue  # it crossed the answer to what it was to end
            answer = _function(request)(talk, request)
            talk.wire.send(dict(answer, type="result"))
    except Refused as refused:
        _refuse(talk, refused)
    except Aborted:
        _refuse(talk, Refused("rolled_back", "given up at the controller's word"))
    except RunRemoved:
        _refuse(talk, Refused("no_run", "the run has been removed"))
    except OSError as error:
        _refuse(talk, from_os_error(error, "do what was asked"))
    except Gone:
        raise
    except Exception:
        import traceback

        _refuse(talk, Refused("internal", "the agent has a bug", traceback.format_exc()))


def _function(request: Mapping[str, Any]) -> Any:
    place = REQUESTS.get(str(request.get("type")))
    if place is None:
        raise Refused("bad_request", "this agent knows no request %r" % request.get("type"))
    module, _, name = place.partition(".")
    return getattr(import_module("." + module, __package__), name)


def _refuse(talk: Conversation, error: Refused) -> None:
    fields = {"type": "error", "code": error.code, "summary": error.summary}
    talk.wire.send(dict(fields, detail=error.detail, hint=error.hint))


def greeting(root: str) -> Dict[str, Any]:
    paths.make_directory(root)
    disk = os.statvfs(root)
    return {
        "type": "greeting",
        "protocol": PROTOCOL,
        "python": ".".join(str(number) for number in sys.version_info[:3]),
        "hostname": os.uname().nodename,
        "user": machine.user_name(),
        "home": os.path.expanduser("~"),
        "root": root,
        "pid": os.getpid(),
        "time": time.time(),
        "free_bytes": disk.f_bavail * disk.f_frsize,
        "cpus": len(os.sched_getaffinity(0)),
    }

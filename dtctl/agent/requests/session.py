"""One conversation with one controller: the greeting, then one request after another until it disconnects."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from ..conversation import Aborted, Conversation, Gone, Wire, held
from ..host import machine, paths, programs
from ..host.errors import Refused, damaged, from_os_error, other_version
from ..records import PROTOCOL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Mapping, Sequence

    from ..records import answers


def main(root: str, stay: Sequence[str] = ()) -> None:
    """The whole life of the session process; it never returns. `stay`: the name and time of a fork server."""
    for number in (signal.SIGHUP, signal.SIGINT):
        # the end of the SSH session is the end of input; not SIG_IGN, which programs that are run would inherit
        signal.signal(number, lambda *_: None)
    programs.hold()
    if stay:
        from . import forkserver  # imported late: rarely requested

        path, report = forkserver.start(root, stay[0], float(stay[1]), lambda *streams: _live(root, *streams))
        _live(root, sys.stdin.buffer, sys.stdout.buffer, path)
        report()
    else:
        _live(root, sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # a thread may still be reading


def _live(root: str, reader: BinaryIO, writer: BinaryIO, fork_server: str = "") -> None:
    talk = Conversation(root, Wire(reader, writer))
    with suppress(Gone):
        try:
            converse(talk, fork_server)
        finally:
            talk.leave()
    programs.save_compiled()


def converse(talk: Conversation, fork_server: str = "") -> None:
    """Answers requests until the first error. Raises Gone."""
    try:
        talk.send("greeting", greeting(talk.root, fork_server))
        while True:
            request = talk.wire.receive()[0]
            if request["type"] != "abort":  # sent before the answer to the request that it aborts had arrived
                _answer(talk, request)
    except Refused as refused:
        talk.send("error", refused.fields())
    except Aborted:
        talk.send("error", Refused("rolled_back", "cancelled by the controller").fields())
    except paths.RunRemoved:
        talk.send("error", Refused("no_run", "the run has been removed").fields())
    except paths.OtherVersion as error:
        talk.send("error", other_version(str(error)).fields())
    except paths.Damaged as error:
        talk.send("error", damaged(str(error)).fields())
    except OSError as error:
        talk.send("error", from_os_error(error, "handle the request").fields())
    except Gone:
        raise
    except Exception:  # a bug: the controller shows its traceback
        import traceback

        talk.send("error", Refused("internal", "the agent has a bug", traceback.format_exc()).fields())


def _answer(talk: Conversation, raw: Mapping[str, Any]) -> None:
    """Answers one request. Only here a request is validated: its function receives a valid one."""
    from ..rooms import EXCHANGES, load  # imported late: a session that requests nothing needs no table

    name = raw["type"]
    exchange = EXCHANGES.get(name)
    if exchange is None:
        raise Refused("bad_request", "this agent knows no request %s" % ascii(name)[:60])
    request = held(exchange.request, raw, name)
    with talk.at(name):
        answer = load(exchange.handler)(talk, request)
    talk.send("result", answer)


def greeting(root: str, fork_server: str) -> answers.Greeting:
    paths.make_directory(root)
    disk = os.statvfs(root)
    return {
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
        "system": machine.system(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * max(0, os.sysconf("SC_PHYS_PAGES")),
        "fork_server": fork_server,
    }

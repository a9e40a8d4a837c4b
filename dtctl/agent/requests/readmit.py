"""readmit: lets a host take part in the next run that the last one had left out for the failures on it."""

from __future__ import annotations

from contextlib import suppress

from ..host import paths
from ..host.errors import Refused
from ..records.whole_run import RunView
from ..run import drains
from . import left_out, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..conversation import Conversation
    from ..records.answers import ReadmitResult
    from ..records.requests import ReadmitRequest


def refuse(talk: Conversation, cluster: str, host: str, last: Optional[runs.Run]) -> None:
    """Refuses a start on a host that the last run has left out. `last`: that run, if its files are here."""
    run = last.id if last is not None and last.left_out() else left_out.remembered(talk.root, cluster, host)
    if run is not None:
        raise Refused(
            "bad_host",
            "%s was left out of run %s, whose last failures were all on it" % (host, run),
            hint="dtctl undrain %s    lets it take part again" % host,
        )


def readmit(talk: Conversation, request: ReadmitRequest) -> ReadmitResult:
    """Lets a host take part in the next run; the last one has ended, or its files have been removed.

    That is up to the host itself. The others only show it.
    """
    cluster, host, readmitted = request["cluster"], request["host"], False
    last = runs.find(talk, cluster, host, None)
    if last is not None and not last.live():
        readmitted = end(last, request["readmitted"])
        _show(last, request["readmitted"])
    forgotten = host == request["readmitted"] and left_out.forget(talk.root, cluster, host)
    return {"readmitted": readmitted or forgotten}


def end(run: runs.Run, host: str) -> bool:
    """Whether this is the host, and the run had left it out and has ended: only the next `up` needs to know of it."""
    if run.live() or host != run.spec["host"] or not run.left_out():
        return False
    run.note(lambda intent: drains.excuse(intent["tasks"], host))
    _trust(run, host)
    return True


def _trust(run: runs.Run, host: str) -> None:
    moved = run.spec["moved"]
    if host in moved["bad"]:
        run.files.write_moved({**moved, "bad": [other for other in moved["bad"] if other != host]})


def _show(run: runs.Run, host: str) -> None:
    """Takes it out of what this host reports of the run, unless an agent may still write that."""
    if run.supervised():
        return
    with suppress(OSError, paths.Damaged):
        _trust(run, host)
        path = run.files.path("cluster.json")
        view = paths.read_record(path, RunView)
        if view is not None:
            drains.excuse(view["intents"], host)
            bad = [other for other in view["moved"]["bad"] if other != host]
            view["moved"] = {**view["moved"], "bad": bad}
            view["alerts"] = [one for one in view["alerts"] if (one["topic"], one["host"]) != ("bad_host", host)]
            paths.write_json(path, view)

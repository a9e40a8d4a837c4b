"""join: makes hosts that are new in the cluster file spares of a live run.

The coordinator decides it, and a majority of the voters knows it before any agent accepts such a host.
"""

from __future__ import annotations

import os

from ..bundles.tree import Manifest
from ..host.errors import Refused
from ..records.spec import inventory_of
from . import run_handles, runs
from .run_handles import WholeRun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..conversation import Conversation
    from ..records.answers import CodeFile, JoinResult
    from ..records.requests import JoinRequest

_LIMIT_S = 30.0
"""How long the voters, and this host's agent, may take to follow the change."""


def join(talk: Conversation, request: JoinRequest) -> JoinResult:
    run = runs.need(talk, request)
    handle = run_handles.reached(talk, run)
    if not isinstance(handle, WholeRun):
        raise handle.away or Refused("not_coordinator", "the coordinator of run %s is on another host" % run.id)
    handle.refuse_ended()
    if request["joins"]:
        _add(run, handle, request)
    handle.refresh()
    assert handle.view is not None
    spec = run.files.original()
    now = run.files.spec()
    joined = now["moved"]["joined"]
    return {
        "run": run.id,
        "digest": spec["digest"],
        "bundle": spec["bundle"],
        "file": _code_file(talk.root, spec["bundle"], request["file"]),
        "movable": spec["movable"],
        "inventory": inventory_of(now),
        "coordinator": spec["coordinator"],
        "voters": spec["voters"],
        "replace_s": now["recovery"]["replace_s"],
        "awaited": [host for host in joined if handle.view["hosts"].get(host, {"absent": True})["absent"]],
    }


def _code_file(root: str, bundle: Optional[str], path: Optional[str]) -> Optional[CodeFile]:
    """The file as it is in the bundle of the run."""
    manifest = Manifest.load(os.path.join(root, "bundles", bundle, "manifest.json"), bundle) if bundle else None
    entry = next((one for one in manifest.files if one[0] == path), None) if manifest is not None else None
    return {"mode": entry[1], "size": entry[2], "sha256": entry[3]} if entry is not None else None


def _add(run: runs.Run, handle: WholeRun, request: JoinRequest) -> None:
    """Returns when this host's agent follows a run that has these hosts, as the agents of a majority will."""
    serial = handle.post_join(request)

    def is_decided() -> bool:
        return handle.has_taken(serial) and (_has_joined(run, request) or not _is_to_join(handle, request))

    if not handle.until(is_decided, _LIMIT_S):
        raise Refused("not_answering", "the coordinator has not added %s" % ", ".join(request["joins"]))
    if not _has_joined(run, request):
        hint = "dtctl events    says why"
        raise Refused("not_answering", "the coordinator does not add %s" % ", ".join(request["joins"]), hint=hint)


def _has_joined(run: runs.Run, request: JoinRequest) -> bool:
    return request["joins"].keys() <= run.files.spec()["moved"]["joined"].keys()


def _is_to_join(handle: WholeRun, request: JoinRequest) -> bool:
    assert handle.view is not None
    return request["joins"].keys() <= handle.view["moved"]["joined"].keys()

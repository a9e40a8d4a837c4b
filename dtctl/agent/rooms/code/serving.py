"""code: the pushed code of a run, from its bundle."""

from __future__ import annotations

import os

from ...bundles.tree import MOST_BYTES, Manifest
from ...conversation import Conversation
from ...host import files, paths
from ...host.errors import Refused
from ...requests import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ...records.requests import Request
    from .records import CodeResult

_PART_BYTES = 1 << 20


def code(talk: Conversation, request: Request) -> CodeResult:
    """Sends the manifest, then each file of it. What a setup has made there is in no manifest, and is not sent."""
    run = runs.need(talk, request)
    bundle = run.spec["bundle"]
    if bundle is None:
        raise Refused("no_code", "this host has no code of run %s" % run.id, "it only votes in it")
    base = paths.bundle_directory(talk.root, bundle)
    with talk.at("bundle"):
        try:
            text = files.read(os.path.join(base, "manifest.json"), MOST_BYTES)
            manifest = Manifest.parse(text, bundle)
            _send(talk, None, text)
            for number, (path, _, _, _) in enumerate(manifest.files):
                with files.opened(os.path.join(base, "tree", path)) as opened:
                    while data := os.read(opened, _PART_BYTES):
                        _send(talk, number, data)
        except (OSError, files.Unfit) as error:
            raise Refused(
                "no_code",
                "the code of run %s is not whole on this host" % run.id,
                str(getattr(error, "strerror", error)),
            ) from error
    return {"run": run.id, "bundle": bundle}


def _send(talk: Conversation, number: Optional[int], data: bytes) -> None:
    for start in range(0, len(data), _PART_BYTES):
        talk.wire.send({"type": "code_part", "file": number}, data[start : start + _PART_BYTES])
        talk.pause(0)

"""A transport of the tests' own: agents on hosts of a fleet, entered as root from outside, without SSH."""

from __future__ import annotations

import json
import os

from dtctl.errors import TransportError
from dtctl.model import TRANSPORTS, Host
from dtctl.transport.local import Child, ChildStream
from dtctl.transport.payload import LOADER
from dtctl.transport.seam import Session, TransportOptions
from dtctl.transport.stream import converse

PLACES = "HOSTS_TO_ENTER"
"""A variable: a JSON object of each host's first process, user and home."""
PATH = "/usr/local/bin:/usr/bin:/bin"


class NsenterTransport:
    def __init__(self, means: TransportOptions) -> None:
        self._waiting = means.waiting

    def open(self, host: Host) -> Session:
        pid, uid, home = json.loads(os.environ[PLACES])[host.name]
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        place = ["env", "--ignore-environment", f"--chdir={home}", f"HOME={home}", f"PATH={PATH}"]
        try:
            child = Child(["nsenter", f"--target={pid}", "--all", *become, *place, "sh", "-c", LOADER])
        except OSError as error:
            raise TransportError(f"cannot enter {host.name}: nsenter: {error.strerror}") from error
        return converse(host, ChildStream(child), self._waiting)


TRANSPORTS["nsenter"] = f"{__name__}:NsenterTransport"

"""The end of a run that a host learns of from others: whom it believes, and how it reports that nothing is left there.

`down`, `replace` and `up` end a run on the hosts that they reach. What a host that was away has is ended when it
returns: the voters that wait for it, or the agents of the cluster's newer run on them, send it the end. It believes a
majority of the voters, or its coordinator. When all that it had has ended, it reports that to every host that may wait
for it. Nobody else's word ends a wait: the certificate of the link names the host that has left.
"""

from __future__ import annotations

import random
from contextlib import suppress

from ..host import errors, paths, wake
from ..records.kinds import made
from ..records.spec import CoordinatorAddress, Spec, voters_of
from ..records.whole_run import Awaited
from ..run.runfiles import RunFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from typing import Collection, Dict, List, Optional, Set

    from ..link.dialer import Dialer

LEAVE_S = 20.0
"""How long a host tries to reach those that wait for it. One that it does not reach waits until its time is up."""


class EndClaims:
    """Which voters claim that the run is over, and which of them that its cluster was taken down. A majority counts."""

    def __init__(self, voters: Collection[str]) -> None:
        self._voters = frozenset(voters)
        self.over: Set[str] = set()
        self.removed: Set[str] = set()

    def hear(self, voter: str, *, removed: bool) -> None:
        if voter in self._voters:
            self.over.add(voter)
            if removed:
                self.removed.add(voter)

    @property
    def is_over(self) -> bool:
        return self._is_majority(self.over)

    @property
    def is_removed(self) -> bool:
        return self._is_majority(self.removed)

    def _is_majority(self, voters: Collection[str]) -> bool:
        return 2 * len(voters) > len(self._voters)


def waiting_places(spec: Spec) -> List[CoordinatorAddress]:
    """Where hosts that have missed the end of a run are listened for: the voters, or the coordinator without any."""
    return voters_of(spec) or [spec["coordinator"]]


class Farewell:
    """Reports to those that may wait for this host that nothing of the run is left on it.

    Until all have heard it, or have refused it, or `LEAVE_S` have passed.
    """

    def __init__(self, files: RunFiles, spec: Spec, now: float) -> None:
        self._until = now + LEAVE_S
        self._links: Dict[str, Dialer] = {}
        places = [place for place in waiting_places(spec) if place["host"] != spec["host"]]
        if not places:
            return
        from ..link.dialer import Dialer
        from ..link.tls import Identity

        try:
            own = Identity(files.directory, spec["run"])
            for place in places:
                self._links[place["host"]] = Dialer(place["address"], place["host"], own, now, random.random)
        except (OSError, ValueError) as error:  # without credentials it can prove to nobody who it is
            errors.note("leave: %s" % error)

    def step(self, now: float) -> bool:
        """Whether it is over."""
        for host, link in list(self._links.items()):
            types = [message["type"] for message in link.step(now)]
            if "connected" in types:
                link.send({"type": "leave"})
            if "over" in types or "refused" in types:
                self._links.pop(host).close()
        return not self._links or now >= self._until

    def register(self, waiting: select.poll) -> None:
        for link in self._links.values():
            link.register(waiting)

    def due(self) -> float:
        times = [link.due() for link in self._links.values()]
        return min([self._until, *(time for time in times if time is not None)])

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


def is_awaited_after_removal(root: str, own: str, run: str, host: str) -> bool:
    """Whether this host waits for that one after the run was taken down. `own`: this host's name."""
    known = _awaited(root, own, run)
    return known is not None and known["is_removed"] and host in known["hosts"]


def note_left(root: str, own: str, run: str, host: str) -> None:
    """That host has reported that nothing of the run is left there: nobody on this host waits for it any more.

    An agent that waits reads the file again. Where `up` has ended it, because the newer run needs its port, what is
    left of a run that was taken down is removed here.
    """
    known = _awaited(root, own, run)
    if known is None or host not in known["hosts"]:
        return
    files = RunFiles(paths.run_directory(root, run, own))
    left = [name for name in known["hosts"] if name != host]
    try:
        files.write_awaited(made(Awaited, since=known["since"], hosts=left, is_removed=known["is_removed"]))
    except OSError as error:  # a full disk, or it is being removed
        errors.note("awaited: %s" % error)
    if left or not known["is_removed"] or wake.is_read(files.wake_path):
        wake.ring(files.wake_path)
    else:
        files.remove_aside()


def _awaited(root: str, own: str, run: str) -> Optional[Awaited]:
    with suppress(OSError, ValueError, errors.Refused):  # removed, damaged, or not the name of a run
        return RunFiles(paths.run_directory(root, run, own)).awaited()
    return None

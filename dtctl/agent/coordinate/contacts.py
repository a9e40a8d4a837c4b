"""Which hosts are in touch, since when the others are away, and whether the run is still this coordinator's."""

from __future__ import annotations

import socket

from ..host import errors
from ..records.messages import PROTOCOL, Hello
from ..records.reasons import Fact, fact
from ..records.spec import CoordinatorAddress, Spec, link_port
from ..run import drains, intents
from ..survival import revival
from . import superseded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple

    from ..link.hub import Hub
    from ..link.peer import Message
    from ..link.tls import Identity
    from ..records.values import AlertTopic
    from ..run.runfiles import RunFiles
    from .view import View


MOST_REJECTIONS = 10
"""How many of one host are reported: a lying one may always find something new."""

DIAL_AGAIN_S = 20.0
"""Agents dial at least as often."""


class Contacts:
    """Times are of the monotonic clock. At first no host is in touch."""

    def __init__(self, view: View, record: Callable[..., None]) -> None:
        self.away: Dict[str, float] = {}
        """Host -> since when."""
        self.cut_ended: Optional[float] = None
        """When a host was last in touch again that had been away for a while."""
        self._view = view
        self._record_line = record
        self._reported: Set[str] = set()
        self._rejected: Dict[str, List[str]] = {}
        self._claims: Dict[str, Set[str]] = {}
        for host in view.hosts.values():
            host["connected"] = False

    def expect(self, now: float, *, counts_on: bool) -> None:
        """Expects the hosts that were in touch with an earlier coordinator to come to this one.

        `counts_on`: no other coordinator can have been connected to those that are away.
        """
        for host, known in self._view.hosts.items():
            silent_s, known["silent_s"] = known["silent_s"] or 0.0, None
            if known["heard"] is not None and not known["over"] and host != self._view.own_host:
                self.away[host] = now - silent_s * counts_on
                known["away_since"] = self._view.data["time"]

    def missed(self) -> Dict[str, float]:
        """Hosts with tasks that are away and not drained, and since when."""
        drained = drains.drained_hosts(self._view.intents) if self.away else []
        return {host: at for host, at in self.away.items() if host not in drained and self._view.tasks_on(host)}

    def miss(self, now: float) -> None:
        """Records hosts that ought to have connected by now."""
        for host, since in self.away.items():
            if host not in self._reported and now - since > DIAL_AGAIN_S and self._view.tasks_on(host):
                self._report_away(host, fact("not_back", host=host))

    def count_anew(self, now: float) -> None:
        """Restarts the count of absences: hosts that are away may have reached another coordinator meanwhile."""
        self.away = {host: max(since, now) for host, since in self.away.items()}
        for host in self.away:
            self._view.hosts[host]["away_since"] = self._view.data["time"]

    def note_replaced(self, host: str, tasks: Iterable[str]) -> None:
        """Records that a host is back whose tasks other hosts have taken."""
        now = dict.fromkeys(self._view.roster[task]["host"] for task in tasks)
        self._record(host, fact("back_without", host=host, what=", ".join(now)))

    def greet(self, host: str, now: float) -> None:
        since = self.away.pop(host, now)
        if now - since >= CUT_S:
            self.cut_ended = now
        if host in self._reported:
            self._reported.remove(host)
            self._record(host, fact("back", host=host, seconds=now - since))
        self.note_answer(host, answers=False)
        if self._view.hosts[host]["absent"]:
            self._record(host, fact("joined", host=host))
        self._view.hosts[host].update({"connected": True, "over": False, "absent": False, "away_since": None})
        self._view.hosts[host]["inactive"] = False

    def lose(self, host: str, since: float, reason: str, is_done: bool, heard: Optional[float] = None) -> None:
        """Records that a host is away. `is_done`: it has finished, and no message from it is awaited. `heard`: the time
        of its last message, in epoch seconds.
        """
        known = self._view.hosts[host]
        if known["connected"]:
            known.update({"connected": False, "over": is_done, "away_since": heard})
            if not is_done:
                self.away[host] = since
                self._report_away(host, fact("away", host=host, text=reason))

    def note_answer(self, host: str, *, answers: bool) -> None:
        """Whether the machine of a host that is away answers: then its agent is gone, or cut off."""
        gone = fact("agent_gone", host=host)
        if self._view.replace_alert("agent_gone", gone if answers else None, host) and answers:
            self._record(host, gone)

    def leave(self, host: str) -> None:
        """Removes a host that had joined from the run, as if it had never connected."""
        self.away.pop(host, None)
        self._reported.discard(host)
        self._view.hosts[host].update({"connected": False, "heard": None, "state": None, "absent": True})
        self._record(host, fact("join_undone", host=host))

    def reject_invalid(self, host: str, reason: str) -> None:
        """A host sent something invalid, which was ignored. Recorded once, and again when it is something else."""
        known = self._rejected.setdefault(host, [])
        if known[-1:] != [reason] and len(known) < MOST_REJECTIONS:
            known.append(reason)
            self._record(host, fact("invalid_message", host=host, text=reason))

    def note_claim(self, host: str, what: AlertTopic, term: int) -> None:
        """Warns of a voter's claim that no majority confirms: once for each host and kind."""
        known = self._claims.setdefault(host, set())
        if what not in known:
            known.add(what)
            claim = fact(what, host=host, count=term)
            self._view.replace_alert(what, claim, host)
            self._record(host, claim)

    def note_superseded(self, host: str, run: str) -> None:
        """A host that was away when an earlier run was ended has come back with it."""
        self._record(host, fact("came_back_with", host=host, run=run))

    def note_listening(self, problem: Optional[str]) -> None:
        """`problem`: why no agent can reach this coordinator; None when they can."""
        unreachable = None if problem is None else fact("coordinator_unreachable", text=problem)
        if self._view.replace_alert("coordinator_unreachable", unreachable):
            self._record(self._view.own_host, unreachable or fact("coordinator_heard"))

    def _report_away(self, host: str, why: Fact) -> None:
        self._reported.add(host)
        self._record(host, why)

    def _record(self, host: str, why: Fact) -> None:
        self._record_line("contact", [why], host=host)


class Quorum:
    """Whether the run is still this coordinator's: what others may have taken over is not started again.

    After `dtctl replace` another host leads the cluster's next run, and the hosts that were asked hold to the end of
    this one. A coordinator that was away meanwhile learns so from the first of them. So one whose machine was restarted
    starts nothing before it is in touch with most of the run's hosts, and then gives the others the time in which
    agents dial. One that has lost most of the others continues with the rest only where no host that is waited for is
    away. One that has lost all of them asks first: it may be the one that was cut off.

    Where another may have been elected, it starts nothing without a lease, `has_lease`, that a majority has granted.
    """

    def __init__(self, view: View, has_lease: Optional[Callable[[float], bool]] = None) -> None:
        self.may_start = True
        self._has_lease = has_lease
        self._needs_none = True
        """A controller has just asked, and no lease was granted since."""
        self._view = view
        self._vouched = True
        """A controller has just asked for this run."""
        self._is_new_here = False
        """No host has been asked since the machine was restarted."""
        self._doubts = False
        self._had = False
        self._since: Optional[float] = None

    def resume(self, *, rebooted: bool) -> None:
        self._vouched = self._needs_none = False
        self._is_new_here = self._doubts = rebooted
        self.may_start = False

    def vouch(self) -> None:
        """A person asks for something to be started."""
        self._vouched = self._needs_none = True

    def update(self, now: float) -> None:
        """`now` is the monotonic clock."""
        self._ask_hosts(now)
        if self._has_lease is not None:
            has_lease = self._has_lease(now)
            self._needs_none = self._needs_none and not has_lease
            self._view.data["leased"] = has_lease or self._needs_none
            self.may_start = self.may_start and self._view.data["leased"]

    def _ask_hosts(self, now: float) -> None:
        left_out = [] if self._is_new_here else self._view.drained_hosts()  # they are away for a known reason
        present = [
            known
            for host, known in self._view.hosts.items()
            if not (known["absent"] or host in left_out) or host == self._own
        ]
        missing = sum(not known["connected"] for known in present) - (not self._view.hosts[self._own]["connected"])
        if 2 * missing < len(present):
            self._since = now if self._since is None else self._since
            if not (self._doubts and missing and now - self._since < DIAL_AGAIN_S):
                self._had, self._doubts, self._is_new_here = True, False, False
            self.may_start = self._vouched or not self._doubts
            return
        self._since = None
        if self._had:
            self._had, self._doubts, self._vouched = False, True, False
        is_alone = missing == len(present) - 1
        self.may_start = self._vouched or (not (is_alone or self._is_new_here) and self._view.all_in_touch())

    @property
    def _own(self) -> str:
        return self._view.own_host

    def missing(self) -> int:
        """How many hosts more have to be in touch."""
        present = [known for known in self._view.hosts.values() if not known["absent"]]
        return max(0, len(present) // 2 + 1 - sum(known["connected"] for known in present))


CUT_S = 5.0
"""A host that was away for less may have had another agent."""

AWAY_S = 45.0
"""How long a host is unreachable before its machine is probed: a killed agent is replaced and dials sooner."""

ASK_AGAIN_S = 30.0
LIMIT_S = 5.0


class Answering:
    """Whether the machines of hosts that are away answer: then it is their agent that is gone, or cut off.

    Connects in threads of its own: a name may take minutes to be looked up.
    """

    def __init__(self) -> None:
        self._answers: Dict[str, bool] = {}
        self._asking: Set[str] = set()
        self._next: Dict[str, float] = {}

    def of(self, host: str, address: str, port: int, now: float) -> Optional[bool]:
        """The last answer; None before there is one. A refused connection is an answer, too."""
        if host not in self._asking and now >= self._next.get(host, now):
            import threading  # rarely needed

            self._next[host] = now + ASK_AGAIN_S
            self._asking.add(host)
            try:
                threading.Thread(target=self._ask, args=(host, address, port), daemon=True).start()
            except RuntimeError:  # the user's limit of threads is reached
                self._asking.discard(host)
        return self._answers.get(host)

    def forget(self, back: Set[str]) -> None:
        """These hosts are not away."""
        for host in self._next.keys() & back:
            self._answers.pop(host, None)
            del self._next[host]

    def _ask(self, host: str, address: str, port: int) -> None:
        self._answers[host] = answers(address, port)
        self._asking.discard(host)


def answers(address: str, port: int) -> bool:
    """Whether a machine accepts a connection, or refuses it."""
    try:
        socket.create_connection((address, port), LIMIT_S).close()
    except ConnectionRefusedError:
        return True
    except (OSError, UnicodeError):
        return False
    return True


def listen(
    files: RunFiles,
    spec: Spec,
    place: CoordinatorAddress,
    now: float,
    stance: Optional[Callable[[], Mapping[str, Any]]] = None,
) -> Hub:
    """Listens for the agents of this run and of older ones. Raises OSError, ValueError.

    `stance`: of this host's voter, where it has one.
    """
    from ..link.hub import Hub
    from ..link.tls import Identity

    own = Identity(files.directory, spec["run"])
    others = superseded_identities(files, spec)  # each time: runs are removed meanwhile

    def removed(run: str, host: str) -> bool:
        return superseded.is_awaited_after_removal(files.root, spec["host"], run, host)

    def words(hello: Hello) -> Tuple[List[Message], bool]:
        return last_words(hello, removed=removed(hello["run"], hello["host"]))

    if stance is None:
        return Hub(place["address"], place["port"], own, others, words, now, removed=removed)
    return Hub(place["address"], place["port"], own, others, words, now, removed=removed, stance=stance)


def superseded_identities(files: RunFiles, spec: Spec) -> List[Identity]:
    """Identities of the cluster's older runs in which this host could coordinate, and whose files it still has.

    An agent that was away may have missed the end of its run, and comes with that run's key: the agent that listens for
    the cluster's newest run answers it.
    """
    identities = []
    for other in revival.every(files.root, spec["host"]):
        try:
            held = other.spec()
            if not _is_before(held, spec):
                continue
            from ..link.tls import Identity  # a run that is alone needs no TLS

            identity = Identity(other.directory, held["run"])
            identity.context(server=True)  # now is the time to find out that it is damaged
            identities.append(identity)
        except (OSError, ValueError) as error:  # half made, being removed, or damaged: the others are still served
            errors.note("coordinator: %s: %r" % (other.directory, error))
    return identities


def _is_before(other: Spec, spec: Spec) -> bool:
    places = [(each["cluster"], each["host"]) for each in (other, spec)]
    return places[0] == places[1] and link_port(other) is not None and other["created"] < spec["created"]


_RECOVERING = {"recovering": False, "mending": False}
"""An agent of an older version knows the field by its former name."""


def last_words(hello: Hello, *, removed: bool = False) -> Tuple[List[Message], bool]:
    """Messages that order an agent of such a run to stop all its tasks and end. False if it has done so before.

    `removed`: its cluster was taken down.
    """
    orders = intents.stopped(hello["intents"], by="coordinator", why=fact("ended_meanwhile"))
    words: List[Message] = [
        {"type": "welcome", "v": PROTOCOL, "events_from": hello["events"], "may_start": False},
        {"type": "orders", "intents": orders, **_RECOVERING, "over": True, "removed": removed},
    ]
    return words, bool(orders)

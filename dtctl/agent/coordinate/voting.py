"""The part of a voter's host in the elections: its ballot and the coordinator's memo on the disk, and the links.

A voter that follows keeps what it would begin with as coordinator: the memo, and a copy of history.jsonl. It listens
on the port that its coordinator would have, for candidates, and for agents that look for the coordinator.
"""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import suppress

from ..host import errors, paths
from ..records.kinds import made
from ..records.spec import CoordinatorAddress, Spec, voters_of
from ..records.whole_run import Ballot, HistoryEvent, Memo, RunView
from ..run import ballots
from ..run.runfiles import EventLog, RunFiles
from . import superseded
from .calls import Call
from .claims import stance_of
from .election import Election
from .superseded import EndClaims

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

    from ..link.hub import Hub
    from ..records.messages import Lease
    from ..records.values import AlertTopic
    from .claims import Claim
    from .history import History

    Message = Mapping[str, Any]
    Send = Callable[[str, Message], None]

LINES_AT_ONCE = 50
"""The most lines of history.jsonl in one lease."""

MOST_STATES = 50
"""Tasks whose states are in a memo."""

MOST_MEMO_BYTES = 700_000
"""The largest memo: with its lease it must fit into one line of the link."""

LISTEN_AGAIN_S = 5.0

FIRST_TERM = 1

NO_ROOM_S = 20.0
"""How long a voter that begins on a full disk leaves it to the others to be elected: they can write down what they
decide, and show it to sessions.
"""

_CLAIMS: Mapping[str, AlertTopic] = {
    "term": "claims_term",
    "candidate": "claims_candidate",
    "coordinator": "claims_coordinator",
}
"""Kinds of claims in an election -> the topics of their warnings."""


class Voter:
    """The voter of one host in one run. Its agent calls `step`, and passes it messages from other links."""

    def __init__(self, files: RunFiles, spec: Spec, now: float) -> None:
        self._files = files
        self._own = spec["host"]
        self._places = {voter["host"]: voter for voter in voters_of(spec)}
        self._run = spec["run"]
        memo = _read_memo(files)
        self._written, begun = _ballot(files, spec, memo)
        """The ballot on the disk; None before it has one."""
        self.election = Election(
            self._own,
            list(self._places),
            begun,
            (memo["version"][0], memo["version"][1]) if memo else (0, 0),
            now,
            random.random,
            begins=memo is None and self._written is None,
        )
        self.end = EndClaims(self._places)
        """The claims that the run was ended while this host was away."""
        self._reported: Set[Tuple[str, str]] = set()
        self._open_lease: Optional[Tuple[str, Lease]] = None
        """The newest lease of a host of which this voter does not know whether it coordinates."""
        self.inherited: Optional[RunView] = None
        """The view with which this host coordinates in the place of another, also where no file can hold it."""
        self._followed: Optional[str] = None
        """The host that has coordinated before this one, as far as this one knows."""
        self._calls: Dict[str, Call] = {}
        self._copies: Dict[str, int] = {}
        """How many lines of history.jsonl each of the others holds."""
        self._copy = Copy(files, self.election.ballot["term"])
        if self._written is not None:
            last = self._written["coordinator"] or self._written["last"]
            self._followed = last if last != self._own else None
            if not paths.has_room(files.path("memo.json")):
                self.election.defer(now + NO_ROOM_S)
        self._save()

    @property
    def place(self) -> Tuple[int, Optional[str]]:
        """The newest term, and the host that coordinates in it, or is about to: for it this voter has voted."""
        ballot = self.election.ballot
        return ballot["term"], ballot["coordinator"] or ballot["voted"]

    @property
    def leads(self) -> bool:
        """This host's agent is to coordinate: it was elected, or wants to be elected again."""
        return self.election.leads or self.election.ballot["voted"] == self.election.coordinator == self._own

    @property
    def is_deposed(self) -> bool:
        """Whether it has voted for another coordinator or follows another."""
        ballot = self.election.ballot
        return ballot["voted"] != self._own or ballot["coordinator"] not in (None, self._own)

    @property
    def coordinator(self) -> Optional[str]:
        return self.election.coordinator

    def stance(self) -> Message:
        """What it claims of itself, by the ballot that is on the disk."""
        return stance_of(self._written or self.election.ballot)

    def unconfirmed(self, now: float) -> Dict[Tuple[str, AlertTopic], int]:
        """What other voters claim and no majority confirms: host and kind of claim -> term."""
        claims: Dict[Tuple[str, AlertTopic], int] = {
            (host, _CLAIMS[what]): term for (host, what), term in self.election.unconfirmed(now).items()
        }
        claims.update({(host, "claims_end"): 0 for host in self.end.over if not self.end.is_over})
        return claims

    def step(self, now: float, send: Send, attach: Optional[Callable[[str], Message]] = None) -> None:
        """`send`: to a host over an open link. `attach`: what goes to a host with its lease."""
        for host, call in list(self._calls.items()):
            for message in call.step(now):
                self.receive(host, message, now)
            if now >= call.until or (call.requests_a_vote and not self.election.is_candidate):
                self._calls.pop(host).close()
        if self._open_lease is not None and self.follows(self._open_lease[0], self._open_lease[1]["term"]):
            self.take_lease(*self._open_lease)
        self.election.step(now)
        self._save()  # before any of it is sent
        for host, message in self.election.take():
            if message["type"] in ("canvass", "query"):
                self._call(host, message, now)
            elif message["type"] == "lease":
                if attach is not None:
                    send(host, {**message, **attach(host)})
            elif message["type"] == "granted":
                send(host, {**message, "lines": self._copy.count})
            else:
                send(host, message)
        self._note_claims(now)

    def _note_claims(self, now: float) -> None:
        """Logs each unconfirmed claim once for each host and kind."""
        for (host, what), term in self.unconfirmed(now).items():
            if (host, what) not in self._reported:
                self._reported.add((host, what))
                errors.note("voter: %s: %s, term %d" % (host, what, term))

    def receive(self, host: str, message: Message, now: float) -> None:
        if host not in self._places:
            return
        if message["type"] == "over":
            self.end.hear(host, removed=message["removed"])
            return
        if message["type"] == "granted" and message["term"] == self.election.ballot["term"]:
            if message["lines"] > self._copies.get(host, -1):
                self.election.ask_now(now)  # it may lack more
            self._copies[host] = message["lines"]
        self.election.receive(host, message, now)

    def take_lease(self, host: str, lease: Lease) -> None:
        """Grants a lease to the coordinator, after its attachments are written to the disk.

        It is granted from now on: a clock that was read before the lease came might be older than the lease.
        """
        if host not in self._places:
            return
        self._open_lease = (host, lease)
        if not self.follows(host, lease["term"]):
            self.election.hear_of_coordinator(host, lease["term"], time.monotonic())
        if self.follows(host, lease["term"]):
            self._open_lease = None
            version = (lease["memo"][0], lease["memo"][1])
            try:
                if "view" in lease and self.election.memo < version and version[0] <= lease["term"]:
                    self._keep(version, lease["view"])
                self._copy.add(lease["term"], lease.get("history", []), lease["lines"])
            except OSError as error:  # a full disk: the file keeps its previous content
                errors.note("memo: %s" % error)
        self.election.receive(host, lease, time.monotonic())

    def hear(self, host: str, claim: Claim, now: float) -> None:
        """Another voter claims this of itself, outside of the elections."""
        if host not in self._places:
            return
        if claim[1] == host and claim[2]:
            self.election.hear_of_coordinator(host, claim[0], now)
        else:
            self.election.hear(host, claim, now)

    def follows(self, host: str, term: int) -> bool:
        """Whether a majority of the voters backs the host in this term, as far as this voter knows."""
        return self.election.follows(host, term)

    def publish(self, view: RunView, now: float) -> Tuple[int, int]:
        """Writes the coordinator's view as a memo and returns its version. Raises OSError."""
        self._keep((self.election.ballot["term"], view["serial"]), _as_memo(view))
        self.election.publish(view["serial"], now)
        return self.election.memo

    def attachment(self, host: str, view: RunView, history: History) -> Message:
        """The attachment of a lease to a voter: memo and history that it lacks."""
        lease: Dict[str, Any] = {"lines": history.count}
        held = self._copies.get(host)
        if self.election.wants_news(host):
            lease["view"] = _as_memo(view)
        if held is not None and held < history.count:
            lease["history"] = list(history.lines(held, LINES_AT_ONCE))
        return lease

    def reception(self, now: float) -> Reception:
        """A reception for other hosts while this host's agent follows."""
        return Reception(self, self._files, self._places[self._own], now)

    def due(self) -> float:
        return min([self.election.due(), *(call.due() for call in self._calls.values())])

    def register(self, waiting: select.poll) -> None:
        for call in self._calls.values():
            call.register(waiting)

    def close(self) -> None:
        for call in self._calls.values():
            call.close()
        self._calls.clear()

    def take_over(self) -> Optional[str]:
        """This host's agent coordinates: unless it did before, the memo and the copy become the coordinator's files.

        Returns the host that coordinated before, where this one has followed it. Raises OSError.
        """
        path, memo = self._files.path("cluster.json"), _read_memo(self._files)
        if memo is not None and not os.path.exists(path):
            self._copy.become(self._files.path("history.jsonl"))
            self.inherited = memo["view"]
            try:
                paths.write_text(path, json.dumps(memo["view"]))
            except OSError as error:
                if not errors.is_full(error):
                    raise
                errors.note("cluster: %s" % error)
        before, self._followed = self._followed, None
        return before

    def hand_over(self) -> None:
        """Removes the files of this host's own time as coordinator, because it follows another one now."""
        with suppress(FileNotFoundError):
            os.unlink(self._files.path("cluster.json"))

    def _keep(self, version: Tuple[int, int], view: RunView) -> None:
        text = json.dumps({"version": list(version), "view": view})
        if len(text) > MOST_MEMO_BYTES:
            raise OSError("a memo of %d bytes" % len(text))
        path = self._files.path("memo.json")
        paths.write_text(path, text)
        paths.sync(path)
        self.election.memo = version

    def _save(self) -> None:
        if self._written != self.election.ballot:
            before = self._written or self.election.ballot
            last = self.election.coordinator or before["last"]
            ballot: Ballot = {**self.election.ballot, "last": last}
            self._files.write_ballot(ballot)
            self.election.ballot = self._written = ballot
            if last not in (None, self._own):
                self._followed = last
            self._copies.clear()

    def _call(self, host: str, message: Message, now: float) -> None:
        if host not in self._calls:
            self._calls[host] = Call(self._files.directory, self._run, self._places[host], now)
        self._calls[host].say(message, now)


class Copy:
    """The copy of history.jsonl. Each term's coordinator has its own, and sends it from the first line."""

    def __init__(self, files: RunFiles, term: int) -> None:
        self._files = files
        self._open(term)

    @property
    def count(self) -> int:
        """Lines of the present term's coordinator."""
        return self._log.count

    def add(self, term: int, lines: List[HistoryEvent], whole: int) -> None:
        """`whole`: how many the coordinator has. An older copy is kept until this one is as long."""
        if term != self._term:
            self._open(term)
        for line in lines:
            if line["n"] == self._log.count:
                self._log.add(line)
        if self._log.count >= whole:
            for path in self._all():
                if path != self._path(self._term):
                    os.unlink(path)

    def become(self, path: str) -> None:
        """The longest takes this name, unless what has it is longer."""
        found = max(((EventLog(copy).count, copy) for copy in self._all()), default=(0, path))
        if found[0] > EventLog(path).count:
            os.replace(found[1], path)
        for copy in self._all():
            os.unlink(copy)
        self._open(self._term)

    def _open(self, term: int) -> None:
        self._term = term
        self._log = EventLog(self._path(term))

    def _path(self, term: int) -> str:
        return self._files.path("copy-%012d.jsonl" % term)

    def _all(self) -> List[str]:
        names = [name for name in os.listdir(self._files.directory) if name.startswith("copy-")]
        return [self._files.path(name) for name in sorted(names)]


def _read_memo(files: RunFiles) -> Optional[Memo]:
    """A damaged one is put aside: then this voter knows nothing."""
    path = files.path("memo.json")
    try:
        return paths.read_record(path, Memo)
    except paths.Damaged as damage:
        errors.note("%s; it was put aside as %s" % (damage, paths.put_aside(path)))
        return None


def _ballot(files: RunFiles, spec: Spec, memo: Optional[Memo]) -> Tuple[Optional[Ballot], Ballot]:
    """The ballot on the disk, and the one to begin with.

    The first one elects the coordinator of the beginning. In the term after a damaged one this voter has no vote.
    """
    path = files.path(ballots.NAME)
    try:
        found = files.ballot()
    except paths.Damaged as damage:
        errors.note("%s; it was put aside as %s" % (damage, paths.put_aside(path)))
        terms = [ballot["term"] for ballot in ballots.in_slots(files.directory) if ballot is not None]
        term = max([memo["version"][0] if memo is not None else FIRST_TERM, *terms])
        return None, made(Ballot, term=term + 1, voted=spec["host"], coordinator=None)
    first = spec["voters"][0]["host"]
    return found, found or made(Ballot, term=FIRST_TERM, voted=first, coordinator=first)


def _as_memo(view: RunView) -> RunView:
    """The view as a memo. A large run's memo leaves out the hosts' states, which their agents report again."""
    if sum(len(known["state"]["tasks"]) for known in view["hosts"].values() if known["state"]) <= MOST_STATES:
        return view
    hosts: Any = {host: {**known, "state": None} for host, known in view["hosts"].items()}
    return {**view, "hosts": hosts}


class Reception:
    """The port on which a following voter listens for candidates, and for agents that look for the coordinator."""

    def __init__(self, voter: Voter, files: RunFiles, place: CoordinatorAddress, now: float) -> None:
        self._voter = voter
        self._files = files
        self._place = place
        self._hub: Optional[Hub] = None
        self._listen_at = now

    def step(self, now: float) -> None:
        if self._hub is None and now >= self._listen_at:
            self._listen(now)
        for host, message in self._hub.step(now) if self._hub is not None else ():
            if message["type"] == "canvass":
                self._voter.receive(host, message, now)
            elif message["type"] == "hello" and self._hub is not None:
                self._hub.redirect(host)
            elif message["type"] == "left":
                superseded.note_left(self._files.root, self._place["host"], message["run"], host)

    def send(self, host: str, message: Message) -> None:
        if self._hub is not None:
            self._hub.send(host, message)

    def register(self, waiting: select.poll) -> None:
        if self._hub is not None:
            self._hub.register(waiting)

    def due(self) -> Optional[float]:
        return self._hub.due() if self._hub is not None else self._listen_at

    def close(self) -> None:
        if self._hub is not None:
            self._hub.close()

    def _listen(self, now: float) -> None:
        """The port may be taken: then this host votes, where it is reached by the coordinator, and is not elected."""
        from .contacts import listen

        try:
            self._hub = listen(self._files, self._files.spec(), self._place, now, self._voter.stance)
        except (OSError, ValueError) as error:
            self._listen_at = now + LISTEN_AGAIN_S
            errors.note("voter: %s" % error)

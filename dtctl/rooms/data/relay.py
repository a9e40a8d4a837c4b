"""Lets hosts of one push feed each other, so that the files leave this machine once."""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from dtctl.dataclass import dataclass
from dtctl.operations.credentials import Authority
from dtctl.rooms.data.uplink import Uplink
from dtctl.transport.fanout import idle

FAN_OUT = 3
"""The number of hosts that one host feeds at a time."""
SPARED_BYTES = 128 << 20
"""The controller sends everything itself if hosts in all lack no more than this beyond what a single host lacks."""
_LEAST_BYTES = 4 << 20
"""A host that lacks fewer bytes than this is sent them at once."""
MOST_FAILED = 2
"""A host that this many others could not feed is sent everything from here."""
MOST_COMPLAINTS = 2
"""A host that this many others complain about feeds nobody any more; a single one may be lying."""
PATIENCE_S = 60.0
"""A host leaves a feeder that has been too slow for this long."""
_SAMPLED_S = 1.0
_LEAST_SHARE = 0.25
"""A feeder is too slow if it sends less than this share of what the host would get from here."""
_PROBED_BYTES_PER_S = 1 << 20
"""The rate below which this machine probes: while its own rate is unknown, it takes over one slowly fed host at a time,
and one in PATIENCE_S if that takes longer.
"""
_SETTLED_S = 3.0
"""How long the first hosts wait for the reports of others: a host that has everything should feed them."""
_MOST_STANDING = 24


def is_worthwhile(total_bytes: int, hosts: int) -> bool:
    return total_bytes * (hosts - 1) >= SPARED_BYTES


@dataclass
class _Member:
    address: str
    ports: Sequence[int]
    port: int | None = None
    """The port where it serves, once its own source is known."""
    feeder: str | None = None
    """The host that feeds it."""
    failed: int = 0
    speaks: bool = False
    received: deque[tuple[float, int]] = field(default_factory=deque)
    """Pairs of a time and the bytes received from its feeder: those of the last PATIENCE_S, and one before."""
    slow_since: float | None = None

    def is_fed_by(self, feeder: str | None, now: float) -> None:
        self.feeder, self.slow_since = feeder, None
        self.received = deque([(now, 0)])

    def is_judged_from(self, now: float) -> None:
        """The time from which its rate is judged: an earlier delay was caused by another host."""
        self.slow_since = None
        self.received = deque([(now, self.received[-1][1])])


class FeederAssignment:
    """Assigns feeders to the hosts that get the same files. Safe for many threads.

    A host that asks for files is fed by one that has them or gets them, and may feed others from then on. None is
    fed by one that it feeds itself. One that asks again has not got all: it is fed by another, or from here. So is one
    whose feeder is slow, by what the host has received and by what it would receive from here.
    """

    def __init__(
        self, hosts: Mapping[str, tuple[str, Sequence[int]]], now: Callable[[], float] = time.monotonic
    ) -> None:
        """`hosts`: their addresses as other hosts reach them, and the ports that these can connect to. Any other host
        is sent everything."""
        self._members = {name: _Member(*where) for name, where in hosts.items()}
        self._credentials: dict[str, str] = {}
        if hosts:
            issued = Authority(secrets.token_hex(8)).issue("push", coordinates=True)
            self._credentials = dataclasses.asdict(issued)
        self._complaints: dict[str, set[str]] = {name: set() for name in hosts}
        """Host -> the hosts that it could not feed."""
        self._uplink = Uplink(now)
        self._now = now
        self._next_probe = 0.0
        self._probed: _Member | None = None
        self._changed = threading.Condition()
        self._settled = 0.0

    most_failed = MOST_FAILED

    def __contains__(self, host: str) -> bool:
        return host in self._members

    def fields(self, host: str) -> dict[str, Any]:
        """The fields of the request to a host."""
        if host not in self:
            return {}
        return {"credentials": self._credentials, "ports": list(self._members[host].ports)}

    def feeder(self, host: str, port: int | None, needed_bytes: int) -> tuple[str, int] | None:
        """The address and port of the host's feeder; None: it is sent the files from here."""
        me = self._members[host]
        with self._changed:
            if me.feeder is not None:
                self._complaints[me.feeder].add(host)
                me.failed += 1
                me.feeder = None
                for name, one in self._members.items():
                    if host in self._above(name):
                        one.is_judged_from(self._now())
            self._hear(me)
            found = None
            if needed_bytes >= _LEAST_BYTES and me.failed < MOST_FAILED:
                self._changed.wait_for(self._all_connected, self._settled - time.monotonic())
                found = min(self._feeders(host), key=self._rank, default=None)
            me.port = port
            me.is_fed_by(found, self._now())
            if found is None:
                return None
            feeder = self._members[found]
            assert feeder.port is not None
            return feeder.address, feeder.port

    @contextmanager
    def sending(self) -> Iterator[Callable[[int], None]]:
        """A transfer from here; the function receives the number of bytes sent so far."""
        with self._uplink.sending() as sent:
            yield sent

    def stays(self, host: str, received_bytes: int) -> bool:
        """Whether the host stays with its feeder, from which it reports to have received this many bytes."""
        with self._changed:
            me, now = self._members[host], self._now()
            if me.feeder is None:
                return True
            if now - me.received[-1][0] >= _SAMPLED_S:
                me.received.append((now, received_bytes))
            while len(me.received) > 2 and me.received[1][0] <= now - PATIENCE_S:
                me.received.popleft()
            began, before = me.received[0]
            if now - began < PATIENCE_S:
                return True
            share = self._uplink.share_bytes_per_s
            least = _PROBED_BYTES_PER_S if share is None else share * _LEAST_SHARE
            if (received_bytes - before) / (now - began) >= least:
                me.slow_since = None
                return True
            me.slow_since = now if me.slow_since is None else me.slow_since
            if now < me.slow_since + PATIENCE_S * self._slow_above(host):
                return True  # its feeder itself waits, and leaves its own feeder first
            if share is None:
                return not self._probes(me, now)
            return False

    def _slow_above(self, host: str) -> int:
        """The number of successive feeders above it that are fed too slowly themselves."""
        slow = 0
        for feeder in self._above(host):
            if self._members[feeder].slow_since is None:
                break
            slow += 1
        return slow

    def _probes(self, me: _Member, now: float) -> bool:
        """Whether this machine sends the host the rest, to measure its own rate; the feeder may be blameless."""
        if now < self._next_probe:
            return False
        self._next_probe, self._probed = now + PATIENCE_S, me
        me.feeder, me.failed = None, MOST_FAILED
        return True

    def done(self, host: str, port: int | None) -> None:
        """Records that the host has everything."""
        with self._changed:
            self._set(host, port)

    def stay(self, host: str) -> None:
        """Waits until no host needs this one, which has everything; only a few wait for late hosts."""
        if host in self:
            with idle(), self._changed:
                self._changed.wait_for(
                    lambda: not self._fed_by(host) and (self._all_connected() or self._standing() > _MOST_STANDING)
                )
                self._set(host, None)

    def leave(self, host: str) -> None:
        """Removes the host as a feeder."""
        with self._changed:
            self._set(host, None)

    def _set(self, host: str, port: int | None) -> None:
        """Sets the port of a host, which is not fed any more."""
        if (me := self._members.get(host)) is not None:
            me.port = port
            me.is_fed_by(None, self._now())
            if me is self._probed:
                self._next_probe, self._probed = self._now(), None
            self._hear(me)

    def _hear(self, me: _Member) -> None:
        me.speaks = True
        self._settled = self._settled or time.monotonic() + _SETTLED_S
        self._changed.notify_all()

    def _all_connected(self) -> bool:
        return all(one.speaks for one in self._members.values())

    def _standing(self) -> int:
        return sum(one.port is not None and one.feeder is None for one in self._members.values())

    def _fed_by(self, host: str) -> int:
        return sum(one.feeder == host for one in self._members.values())

    def _rank(self, host: str) -> tuple[int, int]:
        """The sort key of a feeder: a smaller depth is better, so that feeders form a tree and not a chain."""
        return len(self._above(host)), self._fed_by(host)

    def _feeders(self, host: str) -> list[str]:
        return [
            name
            for name, one in self._members.items()
            if one.port is not None
            and host not in self._complaints[name]
            and len(self._complaints[name]) < MOST_COMPLAINTS
            and host not in (name, *self._above(name))
            and self._fed_by(name) < FAN_OUT
        ]

    def _above(self, host: str) -> list[str]:
        """Its feeder, the feeder's feeder, and so on."""
        feeder = self._members[host].feeder
        return [] if feeder is None else [feeder, *self._above(feeder)]

"""Hosts of one push that hand the files to each other: who is given them by whom, so that they leave here once."""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dtctl.dataclass import dataclass
from dtctl.operations.credentials import Authority
from dtctl.transport.fanout import idle

FAN_OUT = 3
"""Hosts that one feeds at a time."""
SPARED_BYTES = 128 << 20
"""Where all hosts together lack no more beyond what one lacks, the controller sends all."""
_LEAST_BYTES = 4 << 20
"""A host that lacks no more gets it at once."""
MOST_FAILED = 2
"""A host that so many others could not feed is sent everything."""
_SETTLED_S = 3.0
"""So long the first hosts wait for the others' words: one that has everything is to feed them."""
_MOST_STANDING = 24


def is_worthwhile(total_bytes: int, hosts: int) -> bool:
    return total_bytes * (hosts - 1) >= SPARED_BYTES


@dataclass
class _Member:
    address: str
    ports: Sequence[int]
    port: int | None = None
    """Where it serves, once it is known from where it gets what it lacks."""
    feeder: str | None = None
    """From which it is receiving."""
    failed: int = 0
    speaks: bool = False


class Relay:
    """Of the hosts that get the same files. Safe for many threads.

    A host that asks for files is fed by one that has them or gets them, and may feed others from then on. None is
    fed by one that it feeds itself. One that asks again has not got all: it is fed by another, or from here.
    """

    def __init__(self, hosts: Mapping[str, tuple[str, Sequence[int]]]) -> None:
        """`hosts`: their addresses as other hosts reach them, and the ports that these can connect to. Any other host
        is sent everything."""
        self._members = {name: _Member(*where) for name, where in hosts.items()}
        self._credentials: dict[str, str] = {}
        if hosts:
            issued = Authority(secrets.token_hex(8)).issue("push", coordinates=True)
            self._credentials = dataclasses.asdict(issued)
        self._useless: set[str] = set()
        """Those that could not feed another."""
        self._changed = threading.Condition()
        self._settled = 0.0

    def __contains__(self, host: str) -> bool:
        return host in self._members

    def fields(self, host: str) -> dict[str, Any]:
        """Of the request."""
        if host not in self:
            return {}
        return {"credentials": self._credentials, "ports": list(self._members[host].ports)}

    def feeder(self, host: str, port: int | None, needed_bytes: int) -> tuple[str, int] | None:
        """The address and port of who feeds a host; None: it is sent what it needs."""
        me = self._members[host]
        with self._changed:
            if me.feeder is not None:
                self._useless.add(me.feeder)
                me.failed += 1
                me.feeder = None
            self._hear(me)
            found = None
            if needed_bytes >= _LEAST_BYTES and me.failed < MOST_FAILED:
                self._changed.wait_for(self._all_connected, self._settled - time.monotonic())
                found = min(self._feeders(host), key=self._rank, default=None)
            me.port, me.feeder = port, found
            if found is None:
                return None
            feeder = self._members[found]
            assert feeder.port is not None
            return feeder.address, feeder.port

    def done(self, host: str, port: int | None) -> None:
        """It has everything."""
        with self._changed:
            self._set(host, port)

    def stay(self, host: str) -> None:
        """Until no host needs this one, which has everything; only some of them wait for late hosts."""
        if host in self:
            with idle(), self._changed:
                self._changed.wait_for(
                    lambda: not self._fed_by(host) and (self._all_connected() or self._standing() > _MOST_STANDING)
                )
                self._set(host, None)

    def leave(self, host: str) -> None:
        """It serves no more."""
        with self._changed:
            self._set(host, None)

    def _set(self, host: str, port: int | None) -> None:
        """Of a host that is not fed any more."""
        if (me := self._members.get(host)) is not None:
            me.port, me.feeder = port, None
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
        """The nearer to the source the better, and so a tree and no chain."""
        return len(self._above(host)), self._fed_by(host)

    def _feeders(self, host: str) -> list[str]:
        return [
            name
            for name, one in self._members.items()
            if one.port is not None
            and name not in self._useless
            and host not in (name, *self._above(name))
            and self._fed_by(name) < FAN_OUT
        ]

    def _above(self, host: str) -> list[str]:
        """Its feeder, whose feeder, and so on."""
        feeder = self._members[host].feeder
        return [] if feeder is None else [feeder, *self._above(feeder)]

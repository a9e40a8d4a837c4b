"""A real agent that trains beside a host that lies: its run goes on, and can be read whatever the other says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import ExitCode
from tests.desk import Desk, desk
from tests.hostile.test_hosts import NUMBERS
from tests.hostile.test_lying_sshd import Bait, address, make_liar
from tests.hosts.ports import free_port
from tests.hosts.sshd import SSHD, Sshd
from tests.nights import at_night
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

CLUSTER = """\
name: {name}
{hosts}
trainer:
  command: [python, stand_in.py]
  dialect: none
  args: {args}
recovery: {{max_restarts: 0}}
grace: 2s
"""
FIRST = [
    "an inventory that says how hosts are reached",
    "a roster with a host of its own",
    "another run, told of through and through",
    "escapes in every text",
    "a line of a million empty objects",
]
"""Lies about the run; the commands are typed, and wait as long as for any host, so that no silence is among them."""


class Neighbour:
    """`owner` has started a run on b. `guest` has a cluster file in which a host that lies, a, has the lead."""

    def __init__(self, owner: Desk, guest: Desk, honest: Sshd, liar: Sshd) -> None:
        self.owner, self.guest = owner, guest
        self._known = guest.home / "known_hosts"
        self._known.write_text("".join(liar.known_hosts_text(f"[{one}]:{liar.port}") for one in map(place, FIRST)))
        self._honest, self._liar = honest, liar
        self._rest = f"coordinator: {{port: {free_port(honest.address)}}}\n"
        self._worker = f"worker: {{hosts: [b], port: {free_port(honest.address)}}}"
        hosts = f"hosts: {{b: {way(honest.address, honest, honest.known_hosts)}}}\njobs: {{{self._worker}}}\n"
        owner.write_cluster(CLUSTER, hosts=hosts + self._rest, tick=0.1)
        owner.dtctl("up")
        eventually(lambda: self.task()["step"], what="its first step")
        self.run = owner.status()["run"]

    def listen_to(self, what: str) -> None:
        there = (
            way(place(what), self._liar, self._known),
            way(self._honest.address, self._honest, self._honest.known_hosts),
        )
        hosts = "hosts: {{a: {}, b: {}}}\n".format(*there)
        self.guest.write_cluster(CLUSTER, hosts=f"{hosts}jobs: {{chief: {{hosts: [a]}}, {self._worker}}}\n{self._rest}")

    def task(self) -> dict[str, Any]:
        return self.owner.task("worker:0")


def place(what: str) -> str:
    return address("a", NUMBERS[what])


def way(target: str, sshd: Sshd, known: Path) -> str:
    """As a cluster file says it."""
    login = f"target: {target}, port: {sshd.port}, user: {sshd.user}, identity_file: {sshd.key}"
    return f"{{ssh: {{{login}, known_hosts: {known}}}}}"


@pytest.fixture(scope="module")
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbour]:
    homes = tmp_path_factory.mktemp("desks")
    bait, liar = Bait(), Sshd(address=None)
    make_liar(liar, bait)
    with liar, Sshd(address="127.0.81.1") as honest, desk(homes / "owner") as owner, desk(homes / "guest") as guest:
        for each in (owner, guest):
            each.env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        yield Neighbour(owner, guest, honest, liar)
        (guest.project / "cluster.yaml").unlink()  # its hosts are not its own to clear
    bait.listener.close()


@pytest.mark.parametrize("what", at_night(FIRST, but=FIRST[:1]))
def test_a_run_beside_a_liar_goes_on_and_can_be_read(neighbour: Neighbour, what: str) -> None:
    before = neighbour.task()
    neighbour.listen_to(what)
    for words, shown in (
        (("status", "--run", neighbour.run), "running"),
        (("logs", "-n", "3", "worker:0"), "worker:0 step"),
        (("runs",), neighbour.run),
    ):
        done = neighbour.guest.run(*words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (ExitCode.OK, ExitCode.PARTIAL), (
            f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        assert shown in done.stdout, f"{words}\n{done.stdout}{done.stderr}"
    after = neighbour.task()
    assert [after[name] for name in ("state", "attempt", "pid")] == [
        before[name] for name in ("state", "attempt", "pid")
    ]
    assert after["step"] > before["step"]

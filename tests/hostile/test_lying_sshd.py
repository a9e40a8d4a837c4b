"""A real SSH server whose hosts lie, each lie to one of the commands."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pytest

from tests.hostile.bench import ROOT, Bench
from tests.hostile.commands import Spoken
from tests.hostile.host_lies import LIES
from tests.hostile.test_hosts import NOBODY, NUMBERS, OTHER, chosen, complaints_of, liar_of, lies, reached
from tests.hosts.sshd import SSHD, Sshd

pytestmark = [
    pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)"),
    pytest.mark.xdist_group("hosts that lie over SSH"),
]

OF_ROOMS = sorted((ROOT / "tests/of_rooms").glob("*.py"))
PROGRAM = ("__init__.py", "hostile/__init__.py", "hostile/host_answers.py", "hostile/host_lies.py",
           "hostile/lying_host.py", "hostile/saying.py", *(f"of_rooms/{path.name}" for path in OF_ROOMS))  # fmt: skip
TRUST = Spoken(("trust", "--yes"))


@dataclass
class Bait:
    """A port that nothing has a reason to dial."""

    dialled: int = 0
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def watch(self) -> None:
        with suppress(OSError):
            while True:
                self.listener.accept()[0].close()
                self.dialled += 1


def address(host: str, lie: int) -> str:
    """All hosts are behind one server, which distinguishes them by their addresses."""
    return f"127.0.{77 + ord(host) - ord('a')}.{lie + 1}"


def make_liar(sshd: Sshd, bait: Bait) -> None:
    """Makes every login run the liar, whatever the client requests."""
    program = sshd.directory / "liar"
    for name in PROGRAM:
        copy = program / "tests" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / "tests" / name).read_text().replace("BAIT = 2\n", f"BAIT = {bait.port}\n"))
    names = "".join(f"{address(name, 0)[:-1]}*) name={name};;\n" for name in NOBODY)
    start = program / "start"
    start.write_text(
        f"set -- $SSH_CONNECTION\ncase $3 in\n{names}esac\ncd {program}\n"
        f"exec {sys.executable} -B -m tests.hostile.lying_host $name $((${{3##*.}} - 1))\n"
    )
    for path in (program, *program.rglob("*")):
        path.chmod(0o755)
    sshd.options["ForceCommand"] = f"/bin/sh {start}"


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    made = Bait()
    threading.Thread(target=made.watch, daemon=True).start()
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()


@pytest.fixture(scope="module")
def sshd(bait: Bait) -> Iterator[Sshd]:
    server = Sshd(address=None, options={"MaxStartups": "200", "LoginGraceTime": "120"})
    make_liar(server, bait)
    with server:
        yield server


@pytest.fixture(scope="module")
def bench(
    sshd: Sshd, client: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Bench]:
    """The bench with all selected commands started."""
    known = tmp_path_factory.mktemp("known") / "known_hosts"
    every = [address(host, lie) for host in NOBODY for lie in range(len(LIES) + 1)]
    known.write_text("".join(sshd.known_hosts_text(f"[{one}]:{sshd.port}") for one in every))
    ssh = f"client: {client}, keep: 10s, user: {sshd.user}, port: {sshd.port}"
    ssh += f", identity_file: {sshd.key}, known_hosts: {known}"
    hosts = ", ".join(f"{host}: {address(host, 0)}" for host in NOBODY)
    with closing(Bench(tmp_path_factory.mktemp("bench"), ssh, hosts, address=address, factor=1 / 10, width=8)) as made:
        for liar, what in chosen(request, "test_a_lie_over_ssh_harms_no_command", client=client):
            made.begin((one, lies(liar, what)) for one in one_of(what))
        yield made


def one_of(what: str) -> list[Spoken]:
    """The diagonal of the table."""
    every = reached(what)
    return [every[NUMBERS[what] % len(every)]]


DAILY = "an inventory that says how hosts are reached"
SOME = [
    pytest.param(what, marks=[pytest.mark.nightly] * (NUMBERS[what] % 12 > 0) + [pytest.mark.daily] * (what == DAILY))
    for what in LIES
]
"""Each is two logins and three programs. test_hosts.py always tries all lies."""


@pytest.mark.parametrize("what", SOME)
def test_a_lie_over_ssh_harms_no_command(bench: Bench, bait: Bait, what: str) -> None:
    liar = liar_of(what)
    wrong = complaints_of(bench, lies(liar, what), OTHER[liar])
    assert not wrong, "\n".join(wrong)
    assert bait.dialled == 0


@pytest.mark.daily
def test_trust_reads_keys_without_the_agent(bench: Bench) -> None:
    reported = lies("c", "silence in place of the greeting")
    bench.begin([(TRUST, reported)])
    (done,) = bench.ended(reported)
    assert not done.wrongs(), f"{done.wrongs()}: {done}"
    assert done.code == 0, done

"""Every command of dtctl on lying hosts, while another host of the run tells the truth.

The lies come over a socket in place of SSH, and the rest of dtctl is genuine; test_lying_sshd.py has a real SSH server.
Each lie is tried on some of the commands that it reaches, in turn; the nightly tests try all of them, from either of
the hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
import typer.main

from dtctl.agent.rooms import EXCHANGES, FRAMES
from dtctl.cli.app import app
from dtctl.errors import ExitCode
from tests.hostile.bench import ADDRESSES, Bench, Done, liars
from tests.hostile.commands import COMMANDS, OVER_SSH_ALONE, SILENT, Spoken, mark
from tests.hostile.host_lies import LIES

pytestmark = pytest.mark.xdist_group("hosts that lie")
"""One process tries all of them in parallel, while others wait for silent hosts."""

NUMBERS = {name: number for number, name in enumerate(LIES, 1)}
OTHER = {"a": "b", "b": "a"}
NOBODY = {"a": 0, "b": 0, "c": 0}
IN_TURN = 24
"""One of this many commands that a lie reaches is tried in `make test`."""

EVERYTHING = [(liar, what) for liar in OTHER for what in LIES]


def lies(liar: str, what: str) -> Mapping[str, int]:
    return {**NOBODY, liar: NUMBERS[what]}


def reached(what: str) -> list[Spoken]:
    """The commands that request what the lie is about."""
    return [one for one in COMMANDS.values() if any(LIES[what].is_about(name) for name in one.hears())]


def some(what: str) -> list[Spoken]:
    every = reached(what)
    return every[NUMBERS[what] % min(IN_TURN, len(every)) :: IN_TURN]


def liar_of(what: str) -> str:
    """The coordinator's host, two times of three."""
    return "b" if NUMBERS[what] % 3 == 0 else "a"


def chosen(request: pytest.FixtureRequest, test: str, **own: str) -> list[tuple[str, str]]:
    """The parameters of the tests of this name that are selected, with those of `own`."""
    items = [item for item in request.session.items if getattr(item, "originalname", "") == test]
    parameters = [item.callspec.params for item in items if isinstance(item, pytest.Function)]
    parameters = [one for one in parameters if {**one, **own} == one]
    named = [(one.get("liar"), str(one["what"])) for one in parameters]
    return [(str(liar) if liar else liar_of(what), what) for liar, what in named]


HOSTS = ", ".join(f"{name}: {address}" for name, address in ADDRESSES.items())


@pytest.fixture(scope="module")
def sockets() -> Iterator[Path]:
    with liars() as directory:
        yield directory


@pytest.fixture(scope="module")
def bench(sockets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with closing(Bench(tmp_path_factory.mktemp("bench"), "user: train", HOSTS, sockets=sockets)) as made:
        yield made


@pytest.fixture(scope="module")
def in_turn(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """The bench with all selected commands started."""
    for liar, what in chosen(request, "test_a_lie_harms_no_command"):
        bench.begin((one, lies(liar, what)) for one in some(what))
    return bench


@pytest.fixture(scope="module")
def everything(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    for liar, what in chosen(request, "test_a_lie_from_anywhere_harms_none_of_all_commands"):
        bench.begin((one, lies(liar, what)) for one in reached(what))
    return bench


def complaints_of(bench: Bench, lies: Mapping[str, int], other: str) -> list[str]:
    """The failures.

    Commands that timed out have a second try: hundreds run in parallel, with a fraction of the usual limits.
    """
    ended = bench.ended(lies)
    late = [done for done in ended if done.ran_out_of_time(other) and complaints([done], other)]
    again = [bench.ended_again(done, lies) for done in late]
    return complaints([*(done for done in ended if done not in late), *again], other)


def complaints(ended: list[Done], other: str) -> list[str]:
    found = []
    for done in ended:
        found += [f"{wrong}: {done}" for wrong in done.wrongs()]
        if done.has_to_show() and mark(other) not in done.output:
            found.append(f"nothing of {other} is shown: {done}")
    return found


def test_every_command_is_tried() -> None:
    named = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    tried = {one.name for one in COMMANDS.values()} | SILENT.keys() | OVER_SSH_ALONE.keys()
    assert tried == named, f"tests/hostile/commands.py: COMMANDS lacks, or has too many: {sorted(tried ^ named)}"


def test_every_lie_reaches_a_command_and_every_command_is_lied_to() -> None:
    assert all(some(what) for what in LIES)
    tried = {one.words for what in LIES for one in some(what)}
    assert tried == {one.words for one in COMMANDS.values()}
    frames = {*FRAMES, *(f"{request} result" for request in EXCHANGES)}
    unknown = {one.name: one.hears() - frames for one in COMMANDS.values() if one.hears() - frames}
    assert not unknown, f"tests/hostile/commands.py: HEARD lacks the frames that these commands hear: {unknown}"


def test_answers_of_genuine_hosts_are_shown(sockets: Path, tmp_path: Path) -> None:
    """Otherwise the lies would have no effect. With the usual time limits, because all answers are needed."""
    with closing(Bench(tmp_path, "user: train", HOSTS, sockets=sockets, factor=1, endless_s=20)) as patient:
        patient.begin((one, NOBODY) for one in COMMANDS.values())
        for done in patient.ended(NOBODY):
            assert not done.wrongs(), f"{done.wrongs()}: {done}\n{done.output}"
            assert done.interrupted or done.code == ExitCode.OK, f"{done}\n{done.output}"
            marked = mark("a") in done.output and mark("b") in done.output
            assert marked or not done.spoken.shows, f"no MARK of host_answers.py is shown: leave out shows=True: {done}"


@pytest.mark.parametrize("what", LIES)
def test_a_lie_harms_no_command(in_turn: Bench, what: str) -> None:
    liar = liar_of(what)
    wrong = complaints_of(in_turn, lies(liar, what), OTHER[liar])
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize(("liar", "what"), EVERYTHING)
def test_a_lie_from_anywhere_harms_none_of_all_commands(everything: Bench, liar: str, what: str) -> None:
    wrong = complaints_of(everything, lies(liar, what), OTHER[liar])
    assert not wrong, "\n".join(wrong)

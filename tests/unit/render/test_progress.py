"""Bars of many hosts: who is done makes room for the next, and who has failed is not shown as if it went on."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from dtctl.errors import DtctlError, TransportError
from dtctl.model import Host, Local
from dtctl.operations.client.conversation import Progress, telling
from dtctl.render import progress
from dtctl.render.progress import UpProgress
from dtctl.render.terminal import console

HOSTS = [f"gpu-{number}" for number in range(1, 31)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal of 100 columns gets."""
    made = io.StringIO()
    terminal = Console(file=made, force_terminal=True, width=100)
    monkeypatch.setattr(console, "err", lambda: terminal)
    monkeypatch.setattr(console, "interactive", lambda: True)
    monkeypatch.setattr(console, "columns", lambda: 100)
    return made


def drawn(shown: UpProgress, written: io.StringIO) -> str:
    assert shown._bars is not None
    written.truncate(0)
    shown._bars.refresh()
    return written.getvalue()


def tell(shown: UpProgress, phase: str, hosts: list[str]) -> None:
    for host in hosts:
        shown(Progress(host, phase))


def test_a_host_that_is_done_gives_its_row_to_the_next(written: io.StringIO) -> None:
    with UpProgress(HOSTS) as shown:
        tell(shown, "send", HOSTS)
        assert list(shown._rows) == HOSTS[: progress._SHOWN_HOSTS]
        tell(shown, "prepared", HOSTS[:25])
        assert list(shown._rows) == HOSTS[25:]
        assert "25 of 30 hosts ready" in drawn(shown, written)


def test_who_has_failed_has_no_row_and_is_counted(written: io.StringIO) -> None:
    with UpProgress(HOSTS) as shown:
        tell(shown, "connect", HOSTS)
        tell(shown, "failed", HOSTS[:3])
        tell(shown, "send", HOSTS[3:5])
        assert list(shown._rows) == HOSTS[3:5]
        assert "0 of 30 hosts ready, 3 failed" in drawn(shown, written)


def test_hosts_that_nobody_reaches_are_one_line(written: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    with UpProgress(HOSTS) as shown:
        tell(shown, "connect", HOSTS)
        tell(shown, "prepared", HOSTS[4:])
        assert "to connect" not in drawn(shown, written), "they have only been called"
        now += 9
        assert "waiting for gpu-[1-4] to connect, 9 s" in drawn(shown, written)
        tell(shown, "failed", HOSTS[:4])
        assert "to connect" not in drawn(shown, written)


def test_the_error_that_ends_the_work_for_a_host_is_told() -> None:
    told: list[Progress] = []

    def work(host: Host) -> str:
        if host.name == "gpu-2":
            raise TransportError("no answer")
        return host.name

    watched = telling(work, told.append)
    assert watched(Host("gpu-1", Local())) == "gpu-1"
    with pytest.raises(DtctlError):
        watched(Host("gpu-2", Local()))
    assert told == [Progress("gpu-2", "failed")]

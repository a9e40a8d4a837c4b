"""Scalars from all hosts: a directory that they share is told once, and of one run alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.errors import DtctlError, TransportError
from dtctl.operations.metrics import Series, follow_metrics, read_metrics
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport


def folder(directory: str, identity: str, *steps: int) -> dict[str, Any]:
    values = [str(1.0 / (step + 1)) for step in steps]
    told = {"tag": "loss", "count": len(steps), "least": "0.5", "most": "1.0", "steps": list(steps)}
    times = [1000.0 + step for step in steps]
    return {
        "dir": directory, "name": "train", "identity": identity, "series": [{**told, "times": times, "values": values}],
    }  # fmt: skip


def result(*folders: dict[str, Any], run: str = "digits-1") -> dict[str, Any]:
    return {"type": "result", "run": run, "time": 2000.0, "dirs": ["/shared"], "folders": list(folders)}


def test_a_directory_that_hosts_share_is_told_once_and_one_of_the_same_name_twice() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        own = folder("/own", f"{session.host.name}-events", 1)
        return [result(folder("/shared", "7-events", 0, 1), own)]

    transport = FakeTransport(answer)
    found = read_metrics(record(), transport, ["loss"], points=5)
    hosts = sorted(transport.opened)
    assert sorted(one.directory for one in found.series) == [*["/own"] * len(hosts), "/shared"]
    assert [one.host for one in found.series if one.directory == "/shared"] == [record().coordinator]
    assert len(set(hosts)) == len(hosts), "one connection a host"


def test_a_host_with_another_run_is_an_error_and_not_a_curve() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        own = session.host.name == record().coordinator
        return [result(folder("/own", session.host.name, 1), run="digits-1" if own else "digits-0")]

    asked = record().__class__(**{**vars(record()), "run": None})
    found = read_metrics(asked, FakeTransport(answer), [], points=5)
    assert (found.run, [one.host for one in found.series]) == ("digits-1", [asked.coordinator])
    assert all("has another run than digits-1" in error.summary for error in found.errors.values())
    assert len(found.errors) == len(asked.hosts) - 1


def test_what_is_followed_comes_once_whichever_host_tells_it_and_a_host_that_is_away_is_named() -> None:
    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        shared = [
            {"type": "points", "run": "digits-1", "folders": [folder("/s", "7", *steps)]} for steps in ((0, 1), (2,))
        ]
        return [*shared, result()]

    some = record()
    told = list(follow_metrics(some, FakeTransport(answer), [], points=5))
    points = [point.step for one in told if isinstance(one, Series) for point in one.points]
    assert points == [0, 1, 2]
    off = next(iter(some.hosts))
    found = read_metrics(some, FakeTransport(answer, {off: TransportError("off")}), [], points=5)
    assert off in found.errors

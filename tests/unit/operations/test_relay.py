"""Which host of a push feeds which."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Data
from dtctl.errors import DtctlError
from dtctl.operations import relay
from dtctl.operations.client.conversation import silent
from dtctl.operations.data import data_set
from dtctl.operations.push import push_data
from dtctl.operations.relay import FAN_OUT, Relay, is_worthwhile
from tests.unit.clusters import cluster
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

MUCH = 1 << 30
HOSTS = [f"h{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_SETTLED_S", 0.0)


@pytest.fixture
def hosts() -> Relay:
    """Each at an address of its own name."""
    return Relay({name: (name, ()) for name in HOSTS})


def fed(hosts: Relay, host: str, needed_bytes: int = MUCH) -> str | None:
    found = hosts.feeder(host, 7000, needed_bytes)
    return None if found is None else found[0]


def test_the_first_host_is_fed_from_here_and_feeds_a_tree_of_the_others(hosts: Relay) -> None:
    feeders = [fed(hosts, host) for host in HOSTS]
    assert feeders[0] is None
    assert None not in feeders[1:]
    assert max(feeders.count(host) for host in HOSTS) == FAN_OUT
    assert feeders[1:8] == ["h0"] * 3 + ["h1", "h2", "h3", "h1"]


def test_a_host_that_has_everything_feeds_the_first(hosts: Relay) -> None:
    hosts.done("h5", 7000)
    assert fed(hosts, "h0") == "h5"


def test_the_first_waits_a_while_for_one_that_has_everything(hosts: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_SETTLED_S", 60.0)
    found: list[str | None] = []
    asking = threading.Thread(target=lambda: found.append(fed(hosts, "h0")))
    asking.start()
    hosts.done("h1", 7000)
    for host in HOSTS[2:]:
        hosts.leave(host)
    asking.join(30)
    assert found == ["h1"]


def test_small_needs_are_met_from_here(hosts: Relay) -> None:
    fed(hosts, "h0")
    assert fed(hosts, "h1", 1 << 20) is None


def test_who_asks_again_gets_another_feeder_that_it_does_not_feed_itself(hosts: Relay) -> None:
    """h0 dies: of those that it fed one is fed from here, and the others by hosts that are not below them."""
    tree = {host: fed(hosts, host) for host in HOSTS}
    orphans = [host for host, feeder in tree.items() if feeder == "h0"]
    hosts.leave("h0")
    for host in orphans:
        tree[host] = fed(hosts, host)
    for host in HOSTS[1:]:
        above = [host]
        while (feeder := tree[above[-1]]) is not None:
            assert feeder not in (*above, "h0"), "nobody waits for itself, or for the dead"
            above.append(feeder)
    assert [tree[host] for host in orphans].count(None) == 1


def test_who_could_not_be_fed_twice_is_sent_everything(hosts: Relay) -> None:
    fed(hosts, "h0")
    fed(hosts, "h1")
    assert [fed(hosts, "h2") for _ in range(3)] == ["h0", "h1", None]
    assert fed(hosts, "h3") == "h2", "those that failed feed nobody any more"


def test_a_host_stays_while_it_feeds_or_others_have_not_been_heard(hosts: Relay) -> None:
    fed(hosts, "h0")
    fed(hosts, "h1")
    hosts.done("h0", 7000)
    stays = threading.Thread(target=hosts.stay, args=("h0",))
    stays.start()
    for host in HOSTS[2:]:
        hosts.leave(host)
    stays.join(0.2)
    assert stays.is_alive(), "h1 is still being fed"
    hosts.done("h1", 7000)
    stays.join(30)
    assert not stays.is_alive()


@pytest.mark.parametrize(
    ("total_bytes", "count", "is_used"),
    [(MUCH, 1, False), (MUCH, 2, True), (64 << 20, 3, True), (63 << 20, 3, False), (4 << 20, 33, True)],
)
def test_only_large_pushes_to_several_hosts_are_handed_on(total_bytes: int, count: int, is_used: bool) -> None:
    assert is_worthwhile(total_bytes, count) == is_used


@pytest.mark.parametrize(
    ("setting", "spared", "is_used"), [("auto", 1, True), ("never", 1, False), ("auto", 99, False)]
)
def test_hosts_get_credentials_only_where_they_hand_files_on(
    setting: Any, spared: int, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(relay, "SPARED_BYTES", spared)
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "1").write_text("1")
    asked: dict[str, Any] = {}

    def answer(session: FakeSession, fields: Any) -> list[dict[str, Any] | DtctlError]:
        asked[session.host.name] = fields
        return [{"type": "result", "bundle": fields["bundle"], "sent_files": 0, "port": None}]

    known = record()
    value = cluster(dirs={"data": "/data"}, data=Data(source=tmp_path / "digits", relay=setting, jobs=("ps", "worker")))
    outcome = push_data(known, data_set(value), FakeTransport(answer), silent, overwrite=False)
    assert not outcome.errors
    assert {name: bool(fields.get("credentials")) for name, fields in asked.items()} == dict.fromkeys(asked, is_used)
    assert len(asked) > 2
    assert not is_used or all(fields["ports"] for fields in asked.values())

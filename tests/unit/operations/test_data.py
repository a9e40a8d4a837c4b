"""What belongs on which host, what is said of what is there, what a source may hold, and which host feeds which."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import InvalidValue, made
from dtctl.agent.rooms.data.records import DataHeld
from dtctl.config.cluster import Data
from dtctl.errors import AgentError, ConnectionLost, DtctlError, PreflightError, TransportError
from dtctl.operations.client import silent
from dtctl.operations.sending import scan_code
from dtctl.plan.hosts import DataPlace
from dtctl.rooms.data import pushing, relay
from dtctl.rooms.data.operation import DataSet, DataState, check_held, data_set, state_of
from dtctl.rooms.data.pushing import push_data
from dtctl.rooms.data.relay import FAN_OUT, FeederAssignment, is_worthwhile
from dtctl.rooms.data.uplink import BUFFERED_BYTES
from tests.unit.clusters import cluster
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

ID, OTHER = "a" * 64, "b" * 64


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "digits"
    for name in ("a/1", "a/2", "a/3", "b/1", "b/2"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / ".gitignore").write_text("*\n")
    return source


def found(source: Path, *, read: bool = True, **data: Any) -> DataSet:
    value = cluster(file=source.parent / "cluster.yaml", dirs={"data": "/data"}, data=Data(source=source, **data))
    return data_set(value, read=read)


def paths(data: DataSet, place: DataPlace) -> list[str]:
    return [file.path for file in data.part(place).manifest.files]


def test_each_worker_gets_every_nth_file_and_all_directories(source: Path) -> None:
    data = found(source, shard="worker")
    first, second = data.places
    assert paths(data, first) == [".gitignore", "a/2", "b/1"]
    assert paths(data, second) == ["a/1", "a/3", "b/2"]
    assert [path for path, _ in data.part(second).manifest.dirs] == ["a", "b"]
    again = found(source, shard="worker")
    assert list(map(again.wanted, data.places)) == list(map(data.wanted, data.places))


def test_a_file_added_at_the_end_moves_no_other(source: Path) -> None:
    before = found(source, shard="worker")
    (source / "z").write_text("z")
    after = found(source, shard="worker")
    first, second = after.places
    assert paths(after, first) == [*paths(before, first), "z"]
    assert paths(after, second) == paths(before, second)


def test_links_cannot_be_dealt_out(source: Path) -> None:
    (source / "latest").symlink_to("a")
    assert found(source).bundle is not None
    with pytest.raises(PreflightError, match="latest is a link, and links cannot be dealt out"):
        found(source, shard="worker")


def test_without_reading_what_has_changed_since_makes_the_whole_unknown(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: really() + 10**10)  # the files are old enough to be remembered
    assert found(source, read=False).bundle is None
    known = found(source).bundle
    assert known is not None
    assert found(source, read=False).bundle == known
    os.utime(source / "b" / "2", (1, 1))
    unknown = found(source, read=False)
    assert unknown.bundle is None
    assert [unknown.wanted(place) for place in unknown.places] == [None, None]


def test_hashes_from_before_an_interrupt_are_reused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtctl.bundle import scanning

    really, now = scanning._Found._read, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10**10)
    read: list[str] = []

    def reading(self: Any, parent: int, path: str) -> Any:
        if path == "b/1" and path not in read:
            read.append(path)
            raise KeyboardInterrupt
        read.append(path)
        return really(self, parent, path)

    monkeypatch.setattr(scanning._Found, "_read", reading)
    with pytest.raises(KeyboardInterrupt):
        found(source)
    found(source)
    assert sorted(read) == [".gitignore", "a/1", "a/2", "a/3", "b/1", "b/1", "b/2"]


def test_data_within_the_code_does_not_travel_with_it(tmp_path: Path, source: Path) -> None:
    from dtctl.config.cluster import Trainer

    (tmp_path / "train.py").touch()
    value = cluster(trainer=Trainer(code=tmp_path), dirs={"data": "/data"}, data=Data(source=source))
    assert [file.path for file in scan_code(value).manifest.files] == ["train.py"]


@pytest.mark.parametrize(
    ("failures", "tries", "ends"),
    [
        ([], 1, "sent"),
        ([ConnectionLost("cut"), TransportError("no route")], 3, "sent"),
        ([TransportError("no route")], 1, "no route"),
        ([ConnectionLost("cut")] * 9, 5, "cut"),
        ([AgentError("disk_full", "c: full", host="c")], 1, "c: full"),
    ],
)
def test_a_push_that_was_cut_off_goes_on_by_itself(
    source: Path, monkeypatch: pytest.MonkeyPatch, failures: list[DtctlError], tries: int, ends: str
) -> None:
    monkeypatch.setattr(pushing, "RESUMED_AFTER_S", (0.0,) * 4)
    data = found(source).only("c")
    assert data.bundle is not None
    result = {"type": "result", "bundle": data.bundle.id, "sent_files": 5}
    left = list(failures)

    def answer(session: FakeSession, frame: Mapping[str, Any]) -> list[Any]:
        return [left.pop(0)] if left else [dict(result)]

    transport = FakeTransport(answer)
    outcomes = push_data(record(), data, transport, silent, overwrite=False)
    said = [str(error.summary) for error in outcomes.errors.values()] or ["sent"] * len(outcomes.results)
    assert (said, len(transport.opened)) == ([ends], tries)


@pytest.mark.parametrize(
    ("held", "wanted", "state"),
    [
        ({}, ID, "missing"),
        ({}, None, "missing"),
        ({"bundle": ID, "files": 3}, ID, "complete"),
        ({"bundle": ID, "files": 3}, None, "complete"),
        ({"bundle": OTHER, "files": 3}, ID, "differs"),
        ({"bundle": ID, "files": 3, "missing": 1}, ID, "incomplete"),
        ({"bundle": ID, "files": 3, "missing": 1, "changed": 1}, ID, "changed"),
        ({"bundle": OTHER, "files": 3, "missing": 1}, ID, "differs"),
    ],
)
def test_state_of_data_follows_from_what_a_host_holds(
    held: dict[str, Any], wanted: str | None, state: DataState
) -> None:
    assert state_of(made(DataHeld, dir="/data", there=True, **held), wanted) == state


@pytest.mark.parametrize(
    "fields", [{"dir": "/other"}, {"files": 1, "missing": 2}, {"files": 2, "missing": 1, "changed": 2}]
)
def test_an_answer_about_something_else_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        check_held([DataPlace("c", "/data")], [made(DataHeld, **{"dir": "/data", "there": True, **fields})])


MUCH = 1 << 30
HOSTS = [f"h{number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_SETTLED_S", 0.0)


@pytest.fixture
def hosts() -> FeederAssignment:
    """Each at an address of its own name."""
    return FeederAssignment({name: (name, ()) for name in HOSTS})


def fed(hosts: FeederAssignment, host: str, needed_bytes: int = MUCH) -> str | None:
    found = hosts.feeder(host, 7000, needed_bytes)
    return None if found is None else found[0]


def test_the_first_host_is_fed_from_here_and_feeds_a_tree_of_the_others(hosts: FeederAssignment) -> None:
    feeders = [fed(hosts, host) for host in HOSTS]
    assert feeders[0] is None
    assert None not in feeders[1:]
    assert max(feeders.count(host) for host in HOSTS) == FAN_OUT
    assert feeders[1:8] == ["h0"] * 3 + ["h1", "h2", "h3", "h1"]


def test_a_host_that_has_everything_feeds_the_first(hosts: FeederAssignment) -> None:
    hosts.done("h5", 7000)
    assert fed(hosts, "h0") == "h5"


def test_the_first_waits_a_while_for_one_that_has_everything(
    hosts: FeederAssignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "_SETTLED_S", 60.0)
    found: list[str | None] = []
    asking = threading.Thread(target=lambda: found.append(fed(hosts, "h0")))
    asking.start()
    hosts.done("h1", 7000)
    for host in HOSTS[2:]:
        hosts.leave(host)
    asking.join(30)
    assert found == ["h1"]


def test_small_needs_are_met_from_here(hosts: FeederAssignment) -> None:
    fed(hosts, "h0")
    assert fed(hosts, "h1", 1 << 20) is None


def test_second_request_gets_another_feeder_without_a_cycle(hosts: FeederAssignment) -> None:
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


def test_host_is_sent_everything_after_two_failed_feeders(hosts: FeederAssignment) -> None:
    fed(hosts, "h0")
    fed(hosts, "h1")
    assert [fed(hosts, "h2") for _ in range(3)] == ["h0", "h1", None]
    assert [fed(hosts, host) for host in ("h3", "h4")] == ["h2", "h0"], "one host alone may be lying"
    assert [fed(hosts, host) for host in ("h4", "h5")] == ["h2", "h2"], "one of which two complain feeds nobody"


class Turned:
    """A clock that a test turns."""

    time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Turned:
    return Turned()


@pytest.fixture
def timed(clock: Turned) -> FeederAssignment:
    """h0 is fed from here, at 1 MB/s."""
    hosts = FeederAssignment({name: (name, ()) for name in HOSTS}, clock)
    fed(hosts, "h0")
    return hosts


def sends(hosts: FeederAssignment, clock: Turned, bytes_per_s: int) -> Any:
    """This machine has sent for 30 s to one host, and goes on."""
    sending = hosts.sending()
    sent = sending.__enter__()
    for second in range(31):
        clock.time += 1.0
        sent(BUFFERED_BYTES + bytes_per_s * second)
    return sending


def left_after(hosts: FeederAssignment, clock: Turned, rates: Mapping[str, int], most_s: int = 600) -> dict[str, int]:
    """Host -> after how many seconds it is to leave its feeder, from which it receives so many bytes a second."""
    left: dict[str, int] = {}
    for second in range(10, most_s, 10):
        clock.time += 10.0
        for host, rate in rates.items():
            if host not in left and not hosts.stays(host, rate * second):
                left[host] = second
                fed(hosts, host)
    return left


MB = 1 << 20


@pytest.mark.parametrize(
    ("uplink", "rate", "is_left"),
    [
        (MB, 1, True),
        (MB, 100_000, True),
        (MB, 200_000, False),
        (20_000, 4_000, False),
        (20_000, 1, True),
        (100 * MB, 2 * MB, True),
    ],
)
def test_a_feeder_is_left_after_a_minute_far_below_what_the_controller_could_send(
    timed: FeederAssignment, clock: Turned, uplink: int, rate: int, is_left: bool
) -> None:
    _going_on = sends(timed, clock, uplink)
    assert fed(timed, "h1") == "h0"
    assert left_after(timed, clock, {"h1": rate}) == ({"h1": 60} if is_left else {})


def test_a_reader_that_is_slow_itself_does_not_make_the_controller_seem_slow(
    timed: FeederAssignment, clock: Turned
) -> None:
    sends(timed, clock, MB).__exit__(None, None, None)
    _going_on = sends(timed, clock, 1)
    fed(timed, "h1")
    assert left_after(timed, clock, {"h1": 50_000}) == {"h1": 60}


def test_of_a_chain_the_host_next_to_the_slow_feeder_leaves_first(timed: FeederAssignment, clock: Turned) -> None:
    _going_on = sends(timed, clock, MB)
    chain = {host: fed(timed, host) for host in ("h1", "h2", "h3", "h4", "h5", "h6")}
    assert (chain["h1"], chain["h4"]) == ("h0", "h1")
    assert left_after(timed, clock, {"h1": 1, "h4": 1}, most_s=90) == {"h1": 60}
    assert timed._complaints["h1"] == set()


def test_a_feeder_that_claims_to_wait_itself_delays_a_host_by_a_minute(timed: FeederAssignment, clock: Turned) -> None:
    _going_on = sends(timed, clock, MB)
    for host in ("h1", "h2", "h3", "h4"):
        fed(timed, host)
    left: list[int] = []
    for second in range(10, 300, 10):
        clock.time += 10.0
        timed.stays("h1", second)  # and does not leave
        if not timed.stays("h4", second):
            left.append(second)
    assert left[0] == 120


def test_where_the_controller_has_sent_nothing_it_takes_over_one_host_a_minute(clock: Turned) -> None:
    hosts = FeederAssignment({name: (name, ()) for name in HOSTS}, clock)
    hosts.done("h0", 7000)
    assert {fed(hosts, host) for host in ("h1", "h2")} == {"h0"}
    assert left_after(hosts, clock, {"h1": 1000, "h2": 1000}) == {"h1": 60, "h2": 120}
    assert hosts._complaints["h0"] == set(), "it may be as fast as its line"


@pytest.mark.parametrize(
    ("needed", "left"),
    [(BUFFERED_BYTES + 20 * MB, {"h1": 60, "h2": 70, "h3": 70}), (6 * MB, {"h1": 60, "h2": 70, "h3": 80})],
    ids=["measured", "too little to measure"],
)
def test_others_leave_a_slow_feeder_when_the_controller_has_sent_all_to_one_of_them(
    clock: Turned, needed: int, left: dict[str, int]
) -> None:
    """It takes 4 s: those that wait are not served one a minute."""
    hosts = FeederAssignment({name: (name, ()) for name in HOSTS}, clock)
    hosts.done("h0", 7000)
    found: dict[str, int] = {}
    assert {fed(hosts, host) for host in ("h1", "h2", "h3")} == {"h0"}
    began = clock.time
    for second in range(10, 200, 10):
        clock.time = began + second
        leaves = [host for host in ("h1", "h2", "h3") if host not in found and not hosts.stays(host, second)]
        found.update(dict.fromkeys(leaves, second))
        for host in leaves:
            with hosts.sending() as sent:
                clock.time += 4.0
                sent(needed)
            hosts.done(host, 7000)
    assert found == left


def test_host_stays_while_it_feeds_or_hosts_are_not_connected(hosts: FeederAssignment) -> None:
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
    monkeypatch.setattr(relay, "SPARED_BYTES", spared)
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "1").write_text("1")
    asked: dict[str, Any] = {}

    def answer(session: FakeSession, fields: Any) -> list[dict[str, Any] | DtctlError]:
        asked[session.host.name] = fields
        return [{"type": "result", "bundle": fields["bundle"], "sent_files": 0, "port": None}]

    known = record()
    data = Data(source=tmp_path / "digits", relay=setting, jobs=("ps", "worker"))
    value = cluster(file=tmp_path / "cluster.yaml", dirs={"data": "/data"}, data=data)
    outcome = push_data(known, data_set(value), FakeTransport(answer), silent, overwrite=False)
    assert not outcome.errors
    assert {name: bool(fields.get("credentials")) for name, fields in asked.items()} == dict.fromkeys(asked, is_used)
    assert len(asked) > 2
    assert not is_used or all(fields["ports"] for fields in asked.values())


def test_a_host_is_answered_whether_it_stays_with_its_feeder(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "SPARED_BYTES", 1)
    monkeypatch.setattr(FeederAssignment, "feeder", lambda *_: ("10.0.0.9", 7000))
    monkeypatch.setattr(FeederAssignment, "stays", lambda _, host, received_bytes: received_bytes > 5)
    answers: list[Mapping[str, Any]] = []
    file = source.parent / "cluster.yaml"
    value = cluster(file=file, dirs={"data": "/data"}, data=Data(source=source, jobs=("ps", "worker")))
    data = data_set(value)

    def answer(session: FakeSession, frame: Mapping[str, Any]) -> list[Any]:
        if frame["type"] == "data_push":
            return [{"type": "need", "files": [0], "port": 7000}]
        if frame["type"] == "feeder":
            return [{"type": "fed", "received_bytes": 9}]
        answers.append(frame)
        if frame["stays"]:
            return [{"type": "fed", "received_bytes": 5}]
        assert data.bundle is not None
        return [{"type": "result", "bundle": data.bundle.id, "sent_files": 0, "port": None}]

    assert not push_data(record(), data, FakeTransport(answer), silent, overwrite=False).errors
    assert [one["stays"] for one in answers].count(True) == len(answers) / 2 > 1

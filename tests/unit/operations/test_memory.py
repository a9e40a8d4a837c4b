"""The controller's memory: whoever names a run gets no further than its record, and damage is no traceback."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from dtctl.errors import DtctlError, PreflightError, UsageError
from dtctl.folder import make_private
from dtctl.model import Local, OtherTransport, Reach, SshSettings
from dtctl.operations.credentials import Authority
from dtctl.operations.history import Memory
from dtctl.operations.record_files import DamagedRecord, OtherVersion, read_record
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.paths import check_private
from dtctl.plan.run import plan_run
from tests.fuzz import cases
from tests.unit.clusters import cluster


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dtctl"


def record(run: str = "digits-1", created: float = 1.0) -> RunRecord:
    return record_of(plan_run(cluster(), {name: name for name in "abcd"}, local_python="python3"), run, created)


@pytest.fixture
def _umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def memory(state: Path, messages: list[str]) -> Memory:
    """With digits-1, which is the current run; `messages`: what it reports."""
    memory = Memory(messages.append)
    memory.save(record())
    return memory


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_directories_are_private_whatever_the_umask(state: Path, umask: int) -> None:
    os.umask(umask)
    Memory().save(record())
    for directory in (state.parent, state, state / "runs"):
        assert mode(directory) == 0o700
    assert [mode(file) for file in (state / "current", state / "runs" / "digits-1.json")] == [0o600, 0o600]


@pytest.mark.usefixtures("_umask")
def test_the_key_of_a_runs_authority_is_private_and_signs_for_its_hosts_later(memory: Memory, state: Path) -> None:
    authority = Authority("digits-1")
    memory.keep_authority("digits-1", authority)
    assert mode(state / "runs" / "digits-1.key") == 0o600
    kept = Memory().authority_of("digits-1")
    assert kept is not None
    issued, before = kept.issue("e", coordinates=False), authority.issue("e", coordinates=False)
    assert (issued.authority, issued.port_token) == (before.authority, before.port_token)
    signer = x509.load_pem_x509_certificate(issued.authority.encode())
    x509.load_pem_x509_certificate(issued.certificate.encode()).verify_directly_issued_by(signer)
    assert memory.authority_of("digits-2") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"key": "x", "certificate": "y", "port_token": "z"}', '{"key": 1}'])
def test_a_damaged_key_signs_nothing(memory: Memory, state: Path, text: str) -> None:
    (state / "runs" / "digits-1.key").write_text(text)
    assert memory.authority_of("digits-1") is None


@pytest.mark.parametrize(
    "end",
    [
        lambda memory: memory.forget("digits-1"),
        lambda memory: memory.take_back(record()),
        lambda memory: memory.change(record(), outcome="Succeeded"),
    ],
)
def test_the_key_goes_with_the_end_of_the_run(memory: Memory, state: Path, end: Callable[[Memory], None]) -> None:
    memory.keep_authority("digits-1", Authority("digits-1"))
    memory.change(record(), elected="a")
    assert (state / "runs" / "digits-1.key").exists()
    end(memory)
    assert not (state / "runs" / "digits-1.key").exists()


def test_a_directory_that_an_older_dtctl_left_open_to_readers_is_closed(state: Path) -> None:
    state.mkdir(parents=True)
    state.chmod(0o755)
    Memory()
    assert mode(state) == 0o700


@pytest.mark.parametrize("open_mode", [0o777, 0o1777, 0o757, 0o702])
def test_a_directory_that_others_may_write_to_is_refused(state: Path, open_mode: int) -> None:
    Memory().save(record())
    state.chmod(open_mode)
    with pytest.raises(PreflightError, match="can be written to by other users") as refused:
        Memory()
    assert f"chmod 700 {state}" in refused.value.hint
    assert mode(state) == open_mode


def test_group_writable_directory_is_refused_unless_the_group_is_the_users_own(state: Path) -> None:
    state.mkdir(parents=True)
    os.chown(state, -1, os.getegid() if os.geteuid() else 65534)
    state.chmod(0o770)
    if os.geteuid():
        pytest.skip("only root can give a directory to another group")
    with pytest.raises(PreflightError, match="other users"):
        Memory()
    os.chown(state, -1, 0)
    Memory()
    assert mode(state) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make directories of others")
def test_directory_of_another_user_is_refused(state: Path) -> None:
    state.mkdir(parents=True, mode=0o700)
    os.chown(state, 65534, 65534)
    with pytest.raises(PreflightError, match="belongs to nobody, not to you"):
        Memory()


def test_a_missing_directory_is_fine_and_one_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    check_private(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        make_private(tmp_path / "file" / "below")


VICTIMS = ["../../victim", "../victim", "/etc/victim", "..", ".", "", ".hidden", "a/b", "a\n", "a\0b", "-rf", "a" * 201]


@pytest.mark.parametrize("run", VICTIMS)
def test_an_invalid_run_id_touches_no_file(state: Path, memory: Memory, run: str) -> None:
    victims = [state.parent / "victim.json", state / "victim.json"]
    for victim in victims:
        victim.write_text(json.dumps(record().to_json()))
    before = {path: path.read_bytes() for path in state.parent.rglob("*") if path.is_file()}
    for use in (memory.forget, memory.load, memory.make_current):
        with pytest.raises(UsageError, match="not the id of a run"):
            use(run)
    assert {path: path.read_bytes() for path in state.parent.rglob("*") if path.is_file()} == before


def test_false_claim_of_removal_removes_no_record(state: Path) -> None:
    memory = Memory()
    for run in ("digits-1", "digits-2", "digits-3"):
        memory.save(record(run))
    memory.save(replace(record("other-1"), cluster="other"))
    victim = state.parent / "victim.json"
    victim.write_text("the user's")
    lies = ["../../victim", "../current", "other-1", "/nowhere/passwd", "", "digits-9"]
    memory.forget_removed("digits", {"a": ["digits-1", *lies], "stranger": ["digits-2", *lies]})
    assert {one.run for one in memory.runs()} == {"digits-2", "digits-3", "other-1"}
    assert victim.read_text() == "the user's"
    assert memory.current_id() == "other-1"


def test_a_run_that_another_name_of_its_machine_reports_as_removed_is_forgotten() -> None:
    memory, one = Memory(), record()
    again = replace(one.hosts["a"], name="again")
    spare = replace(again, name="spare", reach=SshSettings("spare"))
    memory.save(replace(one, others={"again": again, "spare": spare}))
    memory.forget_removed("digits", {"spare": ["digits-1"]})
    assert len(memory.runs()) == 1
    memory.forget_removed("digits", {"again": ["digits-1"]})
    assert memory.runs() == ()


@cases
@given(st.text(max_size=30))
def test_no_text_makes_a_path_outside_of_the_runs(run: str) -> None:
    try:
        file = Memory()._file(run)
    except UsageError:
        return
    assert file.parent == Memory()._runs
    assert file.name == f"{run}.json"


def test_the_pointer_to_the_current_run_is_no_path_either(state: Path, memory: Memory) -> None:
    for text in (b"../../victim\n", b"\xff", b"x" * 5000, b""):
        (state / "current").write_bytes(text)
        assert memory.current() is None


def test_a_record_that_was_saved_is_read_as_it_was(memory: Memory) -> None:
    memory.save(record("digits-2", created=2.0))
    assert memory.load("digits-1") == record("digits-1")
    assert [one.run for one in memory.runs()] == ["digits-2", "digits-1"]
    assert memory.current() == record("digits-2", created=2.0)
    memory.forget("digits-2")
    assert (memory.current(), [one.run for one in memory.runs()]) == (None, ["digits-1"])


@pytest.mark.parametrize(("saved", "reach"), [(None, Local()), ({"target": "a", "user": "me"}, SshSettings("a", "me"))])
def test_a_record_of_an_earlier_version_is_read(state: Path, saved: object, reach: Reach) -> None:
    Memory().save(record("digits-1"))
    file = state / "runs" / "digits-1.json"
    data = json.loads(file.read_text())
    for host in data["hosts"]:
        del host["reach"]
        host["ssh"] = saved
    for later in ("others", "grace_s", "replaced", "file_sha256", "as_written", "begun", "outcome"):
        del data[later]
    file.write_text(json.dumps(data))
    loaded = Memory().load("digits-1")
    assert loaded is not None
    assert {host.reach for host in loaded.hosts.values()} == {reach}


def test_a_cancelled_run_leaves_the_history_unchanged(memory: Memory) -> None:
    again = Memory()
    again.save(record("digits-2"))
    again.take_back(record("digits-2"))
    assert again.current_id() == "digits-1"
    assert again.load("digits-2") is None


def damaged(**changes: Any) -> str:
    return json.dumps({**record().to_json(), **changes})


HOST = record().to_json()["hosts"][0]


def reached(**settings: object) -> str:
    return damaged(hosts=[{**HOST, "reach": settings}])


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "1", "{", '"x"', "[" * 100_000, "\0", "{}", '{"version": 1}', damaged(created="now"),
        damaged(created=float("nan")), damaged(roster=[["worker:0", "nowhere"]]), damaged(roster=[["nonsense", "a"]]),
        damaged(roster=5), damaged(hosts=[5]), damaged(hosts=[{**HOST, "name": ["a"]}]), damaged(lead="boss:7"),
        reached(transport="ssh", target=5), reached(transport="ssh", target="a", port="x"), reached(transport=5),
        reached(transport="ssh", target="a", host_keys="off"), damaged(version="1"), reached(),
        reached(transport="other", settings={"a": 1}), damaged(success=["x"]),
        damaged(cluster=None), damaged(run=7), damaged(file=5), damaged(replaced=[1]),
        damaged(replaced={"a": 1}), damaged(hosts=[{**HOST, "env": {"A": 1}}]), damaged(hosts=[{**HOST, "gpus": True}]),
    ],
)  # fmt: skip
def test_a_damaged_record_is_put_aside_and_reported_once(
    state: Path, memory: Memory, messages: list[str], text: str
) -> None:
    (state / "runs" / "digits-2.json").write_text(text)
    assert [run.run for run in memory.runs()] == ["digits-1"]
    assert memory.load("digits-2") is None
    [line] = messages
    assert line.startswith(f"{state}/runs/digits-2.json.damaged is passed over: ")
    assert (state / "runs" / "digits-2.json.damaged").read_text() == text


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_a_record_that_cannot_be_read_now_stays_where_it_is(
    state: Path, memory: Memory, messages: list[str], monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:

    def refuse(path: Path, limit_bytes: int) -> bytes:
        raise OSError(reason, os.strerror(reason), path)

    with monkeypatch.context() as patch:
        patch.setattr("dtctl.operations.record_files.read_regular", refuse)
        assert memory.load("digits-1") is None
    assert messages == [f"{state}/runs/digits-1.json cannot be read: {os.strerror(reason)}"]
    assert memory.load("digits-1") == record("digits-1")


def test_a_record_of_another_run_is_not_trusted_by_its_name(state: Path, memory: Memory) -> None:
    (state / "runs" / "digits-1.json").rename(state / "runs" / "digits-2.json")
    assert memory.load("digits-2") is None
    (state / "runs" / ".json").write_text("x")
    assert memory.runs() == ()


def test_a_record_of_a_later_version_is_left_where_it_is(state: Path) -> None:
    messages: list[str] = []
    Memory().save(record())
    (state / "runs" / "digits-1.json").write_text(damaged(version=99))
    assert Memory(messages.append).runs() == ()
    assert (messages, (state / "runs" / "digits-1.json").exists()) == ([], True)
    assert Memory(messages.append).current() is None
    [line] = messages
    assert line.startswith(f"{state}/runs/digits-1.json is passed over: it is of version 99, and this dtctl reads 1; ")
    assert (state / "runs" / "digits-1.json").read_text() == damaged(version=99)


@pytest.mark.parametrize("reach", [Local(), SshSettings("a", "me", 2200, jump="gate"), OtherTransport("tunnel", "b")])
def test_fields_that_later_versions_have_added_to_a_record_are_passed_over(state: Path, reach: Reach) -> None:
    known = record("digits-1")
    known = replace(known, hosts={name: replace(host, reach=reach) for name, host in known.hosts.items()})
    Memory().save(known)
    file = state / "runs" / "digits-1.json"
    data = json.loads(file.read_text())
    data["unheard"] = "of"
    for host in data["hosts"]:
        host["unheard"] = host["reach"]["unheard"] = ["of"]
    file.write_text(json.dumps(data))
    assert Memory().load("digits-1") == known


@pytest.mark.timeout(120)
def test_a_fifo_or_endless_record_is_not_waited_for(state: Path, memory: Memory) -> None:
    (state / "current").unlink()
    os.mkfifo(state / "current")
    os.mkfifo(state / "runs" / "digits-2.json")
    (state / "runs" / "digits-3.json").symlink_to("/dev/zero")
    with (state / "runs" / "digits-4.json").open("wb") as file:
        file.truncate(1 << 40)
    assert [run.run for run in memory.runs()] == ["digits-1"]
    assert memory.current() is None


@cases
@given(data=st.data())
def test_no_change_of_a_record_is_more_than_a_damaged_record(data: st.DataObject, tmp_path_factory: Any) -> None:
    value = record().to_json()
    junk = st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=4,
    )
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(junk)
            break
        place = place[key]
    file = tmp_path_factory.getbasetemp() / "record.json"
    file.write_text(json.dumps(value))
    try:
        found = read_record(file)
    except (DamagedRecord, OtherVersion):
        return
    if found is not None:
        assert all(isinstance(host.name, str) for host in found.hosts.values())
        assert set(found.roster.values()) <= set(found.hosts)
        json.dumps(found.to_json())


def test_a_full_disk_is_reported_and_leaves_the_old_record(
    state: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (state / "runs" / "digits-1.json").read_text()
    newer = record(created=2.0)
    monkeypatch.setattr("dtctl.folder.os.fchmod", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(DtctlError, match="run digits-1 cannot be remembered in") as error:
        memory.save(newer)
    assert error.value.detail == "no space left on device"
    assert (state / "runs" / "digits-1.json").read_text() == old
    assert not list((state / "runs").glob(".*"))


def test_a_file_where_the_directory_should_be_is_reported(tmp_path: Path, state: Path) -> None:
    state.parent.mkdir()
    state.write_text("")
    memory = Memory()
    assert (memory.runs(), memory.current()) == ((), None)
    with pytest.raises(DtctlError, match="cannot be remembered"):
        memory.save(record())


def test_starts_of_a_project_are_those_of_its_cluster_and_of_its_file(memory: Memory) -> None:
    for run, created in (("digits-1", 10.0), ("digits-2", 20.0)):
        memory.save(record(run, created))
    memory.save(replace(record("other-1", 30.0), cluster="other", file=Path("/elsewhere/cluster.yaml")))
    memory.save(replace(record("renamed-1", 40.0), cluster="renamed"))
    first = memory.load("digits-1")
    assert first is not None
    known = replace(first, starts=memory.starts_of(first))
    assert sorted(known.starts) == [10.0, 20.0, 40.0]
    assert known.followed_at == 20.0
    assert replace(known, created=40.0).followed_at is None

"""Which checkpoint of this machine is meant, and in which order hosts are given it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import AgentError, DtctlError, PreflightError, TransportError, UsageError
from dtctl.operations.client import silent
from dtctl.plan.run import plan_run
from dtctl.rooms.checkpoints.delivery import Target
from dtctl.rooms.checkpoints.local import OwnCheckpoint, find, read
from dtctl.rooms.checkpoints.push import Pushed, push, targets
from tests.unit.clusters import cluster
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

DATA = Path(__file__).parents[2] / "agent/data/checkpoints"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """With model.ckpt-100 and the newer model.ckpt-200."""
    return Path(shutil.copytree(DATA / "tf1_plain", tmp_path / "plain"))


def test_a_checkpoint_is_named_as_tensorflow_names_it_or_by_one_of_its_files(plain: Path) -> None:
    prefix = plain / "model.ckpt-100"
    for word in ("", ".index", ".data-00000-of-00001"):
        assert find(Path(f"{prefix}{word}")) == prefix


def test_a_directory_selects_the_checkpoint_that_tensorflow_restores_or_the_newest(plain: Path) -> None:
    assert find(plain) == plain / "model.ckpt-200"
    (plain / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-100"\n')
    assert find(plain) == plain / "model.ckpt-100"


def test_an_incomplete_named_checkpoint_is_refused(plain: Path) -> None:
    (plain / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
    (plain / "model.ckpt-200.data-00000-of-00001").unlink()
    with pytest.raises(PreflightError, match=r"model\.ckpt-200 is not complete: .*is missing"):
        find(plain)


def test_a_missing_checkpoint_is_reported_with_names_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no checkpoint in"):
        find(tmp_path)
    with pytest.raises(UsageError, match=r"there is no checkpoint .*/model") as error:
        find(tmp_path / "model")
    assert "out/model.ckpt-500" in error.value.hint


@pytest.mark.parametrize("place", ["home", "home/.aws", "home/.config/gcloud/x", "copy"])
def test_a_home_or_a_directory_of_keys_is_refused_unless_that_is_overridden(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "copy" / ".ssh").mkdir(parents=True)
    shutil.copytree(DATA / "tf1_plain", tmp_path / place, dirs_exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / place)
    for path in (tmp_path / place, tmp_path / "link"):
        with pytest.raises(PreflightError, match="sends nothing of it") as error:
            find(path)
        assert "send_anywhere: true" in error.value.hint
        assert find(path, anywhere=True).name == "model.ckpt-200"


def test_a_checkpoint_that_is_named_may_lie_in_a_home_but_not_among_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for place in ("home", "home/.aws"):
        shutil.copytree(DATA / "tf1_plain", tmp_path / place, dirs_exist_ok=True)
    assert find(Path("~/model.ckpt-100")) == tmp_path / "home/model.ckpt-100"
    with pytest.raises(PreflightError, match="where secrets usually are"):
        find(Path("~/.aws/model.ckpt-100"))


@pytest.mark.parametrize("name", ["best.keras", "latest.weights.h5"])
def test_single_file_keras_checkpoint_is_refused_with_a_remedy(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(PreflightError, match="is a file of Keras") as error:
            find(path)
        assert "into the code directory" in error.value.hint


@pytest.mark.parametrize("kind", ["tf1_sharded", "tf2_step", "tf2_counter", "tf2_optimizer", "tf1_plain"])
def test_every_byte_is_read_and_the_index_comes_last(kind: str) -> None:
    own = read(find(DATA / kind))
    assert own.files[-1].path.name == f"{own.name}.index"
    assert {one.path.stat().st_size for one in own.files} == {one.size for one in own.files}
    assert own.size_bytes > 0


def test_shards_of_another_save_of_its_name_stay_here(plain: Path) -> None:
    (plain / "model.ckpt-200.data-00000-of-00002").write_bytes(b"")
    (plain / "model.ckpt-200.meta").write_bytes(b"graph")
    names = [one.path.name for one in read(plain / "model.ckpt-200").files]
    assert names == ["model.ckpt-200.data-00000-of-00001", "model.ckpt-200.meta", "model.ckpt-200.index"]


def test_a_damaged_checkpoint_is_refused_before_anything_is_sent(plain: Path) -> None:
    shard = plain / "model.ckpt-200.data-00000-of-00001"
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    with pytest.raises(PreflightError, match=r"model\.ckpt-200 is damaged: .*checksum"):
        read(plain / "model.ckpt-200")


PLACES = {"a": "a", "b": "b", "c": "c", "d": "d"}


def planned(**settings: Any) -> Any:
    return plan_run(cluster(**settings), PLACES, local_python="python3")


def test_a_pushed_checkpoint_goes_to_the_configured_directory_of_each_restoring_host() -> None:
    plan = planned(checkpoint_dir="/shared/ckpt")
    assert targets(plan, None) == tuple(Target(host, "/shared/ckpt", None) for host in "cab")
    assert {one.below for one in targets(plan, "chief")} == {"chief"}
    assert {(one.directory, one.below) for one in targets(plan, "/other")} == {("/other", None)}


def test_a_push_without_a_configured_directory_requires_into() -> None:
    with pytest.raises(PreflightError, match="says where digits looks for checkpoints") as error:
        targets(planned(), None)
    assert "--into DIR" in error.value.hint
    assert {one.directory for one in targets(planned(), "/other")} == {"/other"}


def test_a_storage_url_is_a_place_as_well_or_another_directory() -> None:
    plan = planned(dirs={"output": "gs://b/run"})
    assert {(one.directory, one.below) for one in targets(plan, None)} == {("gs://b/run", None)}
    assert {(one.directory, one.below) for one in targets(plan, "chief")} == {("gs://b/run", "chief")}
    for other in ("/other", "s3://c/x"):
        assert {(one.directory, one.below) for one in targets(plan, other)} == {(other, None)}


@pytest.mark.parametrize("into", ["a/b", "..", ".", ""])
def test_a_directory_in_that_of_the_checkpoints_is_one_name(into: str) -> None:
    with pytest.raises(PreflightError, match="is not the name of a directory"):
        targets(planned(checkpoint_dir="/shared"), into)


class Stores:
    """Agents that take a checkpoint; `tokens`: hosts with the same one share their directory."""

    def __init__(self, tokens: Mapping[str, str] = PLACES, **landing: Any) -> None:
        self.tokens = tokens
        self.landing = landing
        self.heard: list[tuple[str, str]] = []
        self.bytes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[Any]:
        host, kind = session.host.name, fields["type"]
        with self._lock:
            if kind != "part":
                self.heard.append((host, kind))
            return self.answer(host, kind, fields)

    def answer(self, host: str, kind: str, fields: Mapping[str, Any]) -> list[Any]:
        if kind == "store":
            self._left[host] = len(fields["files"])
            token = self.tokens[host].encode().hex().rjust(32, "0")
            usual = {"dir": fields["dir"], "token": token, "there": False, "have": [], "owners": []}
            self._prefix = fields["name"]
            return [{"type": "landing", **usual, **self.landing}]
        if kind == "start":
            return [{"type": "stored"}] if self.landing.get("there") else []
        if kind == "part":
            self._left[host] -= 1  # each file is shorter than a part
            self.bytes[host] = self.bytes.get(host, 0) + 1
            return [] if self._left[host] else [{"type": "stored"}]
        return [{"type": "result", "dir": "/out", "prefix": self._prefix}]


@pytest.fixture(scope="module")
def own() -> OwnCheckpoint:
    return read(DATA / "tf1_sharded/model.ckpt-300")


def pushed(agents: Any, own: OwnCheckpoint, hosts: str = "cab", **more: Any) -> Pushed:
    transport = FakeTransport(agents, **more)
    where = [Target(host, "/out", None) for host in hosts]
    try:
        return push(record(), transport, own, where, "ada@desk", silent)
    finally:
        assert all(session.closed for session in transport.sessions.values())


def test_no_host_is_sent_a_byte_before_all_have_room_and_the_lead_names_it_last(own: OwnCheckpoint) -> None:
    agents = Stores()
    outcome = pushed(agents, own)
    assert [one.host for one in outcome.placed] == ["c", "a", "b"]
    assert {one.sent_bytes for one in outcome.placed} == {own.size_bytes}
    kinds = [kind for _, kind in agents.heard]
    assert kinds == ["store"] * 3 + ["start"] * 3 + ["keep"] * 3
    assert agents.heard[-1] == ("c", "keep")


def test_a_directory_that_hosts_share_is_written_once(own: OwnCheckpoint) -> None:
    agents = Stores({"c": "x", "a": "x", "b": "y"})
    outcome = pushed(agents, own)
    assert [(one.host, one.others) for one in outcome.placed] == [("c", ("a",)), ("b", ())]
    assert set(agents.bytes) == {"c", "b"}


def test_existing_checkpoint_is_reported_and_not_sent(own: OwnCheckpoint) -> None:
    agents = Stores(there=True)
    outcome = pushed(agents, own)
    assert (agents.bytes, {one.sent_bytes for one in outcome.placed}) == ({}, {0})
    assert agents.heard[-1] == ("c", "keep")


def test_only_the_rest_is_sent_of_what_had_begun(own: OwnCheckpoint) -> None:
    had = [{"name": own.files[0].path.name, "size": own.files[0].size - 1}]
    [one] = pushed(Stores(have=had), own, "c").placed
    assert one.sent_bytes == own.size_bytes - own.files[0].size + 1


class Refusing(Stores):
    def __init__(self, host: str, when: str, error: DtctlError) -> None:
        super().__init__()
        self.refusal = host, when, error

    def answer(self, host: str, kind: str, fields: Mapping[str, Any]) -> list[Any]:
        if (host, kind) == self.refusal[:2]:
            return [self.refusal[2]]
        return super().answer(host, kind, fields)


def test_a_live_run_is_named_with_what_to_type_and_nothing_is_sent(own: OwnCheckpoint) -> None:
    live = AgentError("run_live", "run digits-1 of digits is live", host="c")
    agents = Refusing("c", "store", live)
    with pytest.raises(PreflightError, match="run digits-1 of digits is live") as error:
        pushed(agents, own)
    assert "dtctl stop" in error.value.hint
    assert not agents.bytes
    assert {host for host, kind in agents.heard if kind == "abort"} <= {"a", "b"}, "so that nothing is left there"


def test_a_push_that_fails_on_one_host_names_the_checkpoint_on_none(own: OwnCheckpoint) -> None:
    agents = Refusing("b", "start", AgentError("disk_full", "no room", host="b"))
    with pytest.raises(DtctlError):
        pushed(agents, own)
    assert "keep" not in [kind for _, kind in agents.heard]


def test_a_push_with_an_unreachable_host_sends_nothing(own: OwnCheckpoint) -> None:
    agents = Stores()
    with pytest.raises(DtctlError, match="cannot store the checkpoint on 1 of 3 hosts"):
        pushed(agents, own, unreachable={"b": TransportError("no route to b")})
    assert {kind for _, kind in agents.heard} == {"store", "abort"}


def test_a_directory_that_another_cluster_has_written_to_is_left_alone(own: OwnCheckpoint) -> None:
    mark = {"path": "/out", "inode": "7", "cluster": "other", "run": "other-1", "file": "/other/cluster.yaml"}
    agents = Stores(owners=[{**mark, "controller": "bob@elsewhere", "time": 5.0}])
    with pytest.raises(PreflightError, match="last written by a cluster of another directory") as error:
        pushed(agents, own)
    assert "cluster other of /other" in error.value.detail
    assert not agents.bytes


def test_a_host_that_has_more_than_was_ever_sent_is_not_trusted(own: OwnCheckpoint) -> None:
    had = [{"name": own.files[0].path.name, "size": own.files[0].size + 1}]
    with pytest.raises(TransportError, match="sent an invalid `landing`"):
        pushed(Stores(have=had), own, "c")

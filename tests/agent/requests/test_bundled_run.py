"""A run with code: received, its trainers at home in it, gone with the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.model import Host, Local
from dtctl.transport.seam import Message
from tests.agent.host import AgentHost, AgentRefused, Conversation, Fields, shell, task
from tests.reasons import reason_of
from tests.waiting import eventually


class Sending:
    """As much of a transport's session as sending needs."""

    host = Host("h1", Local())
    facts: Mapping[str, Any] = {}

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    def greeted(self) -> float:
        return time.time()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self._talk.send(fields["type"], payload, **{name: value for name, value in fields.items() if name != "type"})

    def receive(self, timeout_s: float | None = None) -> Message:
        raise TimeoutError

    def close(self) -> None:
        pass


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.sh").write_text("#!/bin/sh\npwd; cat data.txt; echo $1 $DATA\n")
    (code / "train.sh").chmod(0o755)
    (code / "data.txt").write_text("digits\n")
    return scan(code)


def start(host: AgentHost, spec: Fields, bundle: Bundle) -> int:
    """up; the number of files that were sent."""
    sent = 0
    with host.open() as talk, Sender(bundle) as sender:
        about = host.about({"spec": spec, "cluster": spec["cluster"], "bundle": bundle.id})
        talk.send("up", **about, secrets={}, replace=False)
        while (frame := talk.receive())["type"] != "prepared":
            if frame["type"] == "need":
                sent += sender.serve(Sending(talk), Message(frame))
        talk.start()
    return sent


def spec_with(host: AgentHost, bundle: Bundle, *more: Fields, **fields: Any) -> Fields:
    tasks = [
        {
            **shell("worker:0", ""),
            "argv": ["./train.sh", "--in=\0CODE/data.txt"],
            "env": {"DATA": "\0CODE"},
            "code": True,
        },
        shell("worker:1", "pwd"),
    ]
    return host.spec(*tasks, *more, bundle=bundle.id, **fields)


def test_trainers_run_in_their_code(host: AgentHost, bundle: Bundle) -> None:
    spec = spec_with(host, bundle, setup={"text": "ls > $HOME/seen; pwd >> $HOME/seen", "env": {}})
    assert start(host, spec, bundle) == 2
    eventually(lambda: host.state(spec)["finished"])
    tree, work = host.root / "bundles" / bundle.id / "tree", host.root / "work" / "c" / "tree"
    assert host.log(spec, "worker:0") == f"{work}\ndigits\n--in={work}/data.txt {work}\n"
    assert host.log(spec, "worker:1") == f"{host.home}\n"
    assert (host.home / "seen").read_text().splitlines() == ["data.txt", "train.sh", str(tree)]
    assert len(list(tree.parent.glob("setup-*.done"))) == 1


def test_a_bundle_goes_with_the_last_run_that_uses_it(host: AgentHost, bundle: Bundle) -> None:
    specs = [spec_with(host, bundle), spec_with(host, bundle, cluster="other")]
    assert start(host, specs[0], bundle) == 2
    with host.open() as talk:
        host.prepare(talk, specs[1])
        talk.start()
    tree = host.root / "bundles" / bundle.id / "tree"
    host.ask("down", grace_s=0, by="")
    assert tree.exists()
    host.ask("down", cluster="other", grace_s=0, by="")
    assert not tree.exists()


TRAINS = """#!/bin/sh
pwd; cat data.txt
mkdir -p model
echo "begins at $(cat model/step 2>/dev/null || echo 0)"
echo 100 > model/step
"""


@pytest.fixture
def trains(bundle: Bundle, tmp_path: Path) -> Callable[[str], Bundle]:
    """The bundle of a program that continues from what it wrote, with this comment in it."""

    def make(comment: str) -> Bundle:
        (tmp_path / "code" / "train.sh").write_text(TRAINS + comment)
        return scan(tmp_path / "code", cluster="c")

    return make


def trained(host: AgentHost, bundle: Bundle, **fields: Any) -> Fields:
    """The spec of a run that has ended well, in the cluster's working directory."""
    job = {**shell("worker:0", ""), "argv": ["./train.sh"], "code": True}
    spec = host.spec(job, bundle=bundle.id, **fields)
    start(host, spec, bundle)
    eventually(lambda: host.state(spec)["finished"])
    assert host.state(spec)["tasks"]["worker:0"]["state"] == "succeeded"
    return spec


def test_down_reports_what_trainers_wrote_and_removes_the_rest(
    host: AgentHost, trains: Callable[[str], Bundle]
) -> None:
    other = trained(host, trains("# other"), cluster="other")
    trained(host, trains("# first"))
    tree = host.root / "work" / "c" / "tree"
    (kept,) = host.ask("down", grace_s=0, by="")["kept"]
    assert (kept["cluster"], kept["path"], kept["files"]) == ("c", str(tree), 1)
    assert [path.name for path in tree.rglob("*")] == ["model", "step"]
    assert (host.root / "work" / "other" / "tree" / "train.sh").exists()
    bundles = [path.name for path in (host.root / "bundles").iterdir() if path.suffix != ".lock"]
    assert bundles == [other["bundle"]]


def test_gc_names_what_trainers_wrote_and_removes_it_when_that_is_asked(
    host: AgentHost, trains: Callable[[str], Bundle]
) -> None:
    trained(host, trains("# first"))
    host.ask("down", grace_s=0, by="")
    trained(host, trains("# other"), cluster="other")
    base = host.root / "work" / "c"
    answer = host.ask("gc", dry_run=False, all=True)
    assert ([one["cluster"] for one in answer["kept"]], answer["written"]) == (["c"], [])
    answer = host.ask("gc", dry_run=True, all=True, written=True)
    assert (answer["kept"], [one["path"] for one in answer["written"]]) == ([], [str(base / "tree")])
    assert base.exists()
    assert host.ask("gc", dry_run=False, all=False, cluster="other", written=True)["written"] == []
    gone = host.ask("gc", dry_run=False, all=False, written=True)
    assert gone["written"] == answer["written"]
    assert gone["freed_bytes"] >= answer["written"][0]["size_bytes"] > 0
    assert not base.exists()
    assert (host.root / "work" / "other" / "tree" / "model" / "step").exists()


def test_a_start_that_is_taken_back_leaves_no_working_directory(
    host: AgentHost, trains: Callable[[str], Bundle]
) -> None:
    code = trains("")
    job = {**shell("worker:0", "sleep 1000"), "code": True}
    spec = host.spec(job, bundle=code.id)
    with host.open() as talk, Sender(code) as sender:
        talk.send("up", **host.about({"spec": spec, "bundle": code.id, "secrets": {}, "replace": False}))
        while (frame := talk.receive())["type"] != "prepared":
            if frame["type"] == "need":
                sender.serve(Sending(talk), Message(frame))
        talk.send("start")
        talk.await_type("started")
        assert (host.root / "work" / "c" / "tree" / "train.sh").exists()
        talk.send("abort")
        with pytest.raises(AgentRefused, match="rolled_back"):
            talk.await_type("result")
    assert not (host.root / "work" / "c").exists()


def test_push_sends_only_what_is_missing(host: AgentHost, bundle: Bundle) -> None:
    for expected in (2, 0):
        with host.open() as talk, Sender(bundle) as sender:
            talk.send("push", **host.about({"bundle": bundle.id}))
            while (frame := talk.receive())["type"] != "result":
                if frame["type"] == "need":
                    sender.serve(Sending(talk), Message(frame))
        assert (frame["bundle"], frame["sent_files"]) == (bundle.id, expected)


def test_a_task_whose_code_was_removed_fails_with_a_reason(host: AgentHost, bundle: Bundle) -> None:
    recovery = {"max_restarts": 9, "backoff_min_s": 0, "backoff_max_s": 0, "reset_after_s": 9}
    spec = spec_with(host, bundle, task("worker:2", "sleep", "1000"), recovery=recovery)
    start(host, spec, bundle)
    host.wait_state(spec, "worker:0", "succeeded")
    tree = host.root / "work" / "c" / "tree"
    tree.rename(tree.with_name("elsewhere"))
    entry = host.ask("restart", tasks=["worker:0"], by="")["tasks"]["worker:0"]
    assert (entry["state"], reason_of(entry)) == ("failed", f"cannot enter {tree}: No such file or directory")


def test_gc_removes_a_bundle_with_the_last_run_that_used_it(host: AgentHost, bundle: Bundle) -> None:
    spec = spec_with(host, bundle, ttl_s=0)
    start(host, spec, bundle)
    eventually(lambda: host.state(spec)["finished"])
    base = host.root / "bundles" / bundle.id
    abandoned = base.with_name(".incoming-0123")
    abandoned.mkdir()
    (abandoned / "lock").touch()
    answer = host.ask("gc", dry_run=True, all=False)
    assert answer["bundles"] == [bundle.id]
    assert str(abandoned) in answer["files"]
    assert base.exists()
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")
    gone = host.ask("gc", dry_run=False, all=False)
    assert gone["bundles"] == [bundle.id]
    assert str(abandoned) in gone["files"]
    assert gone["freed_bytes"] >= answer["freed_bytes"] > 0
    assert not base.exists()
    assert not abandoned.exists()
    assert not host.run_directory(spec).exists()

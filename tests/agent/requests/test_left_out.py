"""A host that a run has left out for the failures on it: it refuses the next `up` until it is readmitted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.agent.host import AgentHost, AgentRefused, Fields, task

SLEEP = ("sleep", "1000")
HOLD = {"kind": "bad_host", "holder": "node-1", "by": "coordinator", "why": {"kind": "bad_host"}}


def left_out(host: AgentHost) -> Fields:
    """A run that has ended, and had left this host out."""
    spec = host.finished(task("worker:0", "true"))
    path = host.run_directory(spec) / "intent.json"
    intent = json.loads(path.read_text())
    intent["tasks"]["worker:0"]["holds"] = [{**HOLD, "holder": spec["host"]}]
    path.write_text(json.dumps(intent))
    return spec


def refused(host: AgentHost) -> str:
    with pytest.raises(AgentRefused) as error:
        host.up(host.spec(task("worker:0", *SLEEP)))
    assert error.value.code == "bad_host"
    return str(error.value.frame["summary"])


def readmit(host: AgentHost, spec: Fields, name: str = "") -> bool:
    return bool(host.ask("readmit", readmitted=name or spec["host"])["readmitted"])


def mark(host: AgentHost, spec: Fields) -> Path:
    clusters: Path = host.root / "clusters"
    return clusters / str(spec["cluster"]) / str(spec["host"]) / "left-out"


@pytest.mark.parametrize("removed", [False, True], ids=["its files are here", "its files were removed"])
def test_it_refuses_the_next_up_until_it_is_readmitted(host: AgentHost, removed: bool) -> None:
    spec = left_out(host)
    if removed:
        host.ask("down", by="anna@desk")
        assert not host.run_directory(spec).exists()
    said = f"{spec['host']} was left out of run {spec['run']}, whose last failures were all on it"
    assert refused(host) == said
    host.ask("gc")
    assert refused(host) == said
    assert not readmit(host, spec, "another")
    assert refused(host) == said
    assert readmit(host, spec)
    assert not readmit(host, spec)
    host.up(host.spec(task("worker:0", *SLEEP)))


def test_a_file_of_others_in_its_place_is_a_persons_to_undrain(host: AgentHost) -> None:
    spec = left_out(host)
    host.ask("down", by="anna@desk")
    for text in ("", "../../x", "x" * 5000):
        mark(host, spec).write_text(text)
        assert "was left out of run (unknown)" in refused(host)
    assert readmit(host, spec)
    mark(host, spec).mkdir()
    assert "was left out of run (unknown)" in refused(host)
    shutil.rmtree(mark(host, spec))
    host.up(host.spec(task("worker:0", *SLEEP)))


def test_a_live_run_is_not_readmitted_behind_its_coordinator(host: AgentHost) -> None:
    spec, _ = host.running(task("worker:0", *SLEEP))
    assert not readmit(host, spec)

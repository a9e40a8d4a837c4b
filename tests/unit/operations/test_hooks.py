"""Hooks: what the coordinator is given of them, and commands on this machine, which nobody waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.run.run_events import RunEvent
from dtctl.config.cluster import Hook
from dtctl.errors import PreflightError
from dtctl.operations import hooks as module
from dtctl.operations.hooks import MOST_WAITING, CommandHooks, cluster_with_hooks
from dtctl.operations.local import find_hooks
from dtctl.plan.spec import digest
from tests.unit.clusters import cluster


def hook(name: str = "web", **fields: Any) -> Hook:
    return Hook(**{"name": name, "on": ("failed",), **fields})


def happened(name: str, kind: str = "restarting") -> RunEvent:
    return RunEvent("r", name, (kind,), 0.0, "Restarting", [fact("exited", code=1)], "worker:0", "a", 1)


class Runs:
    """In place of commands: keeps their input, and lasts as long as a test wants."""

    def __init__(self, why: Callable[[], Sequence[Fact]] = tuple) -> None:
        self.received: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self._why = why

    def __call__(self, hook: Hook, body: Mapping[str, Any], directory: Path) -> Sequence[Fact]:
        self.go.wait(30)
        self.received.append(body["id"].rpartition("/")[2])
        return self._why()


def commands(monkeypatch: pytest.MonkeyPatch, runs: Runs, *, fresh: bool = True) -> tuple[CommandHooks, list[str]]:
    monkeypatch.setattr(module, "run_command", runs)
    failed: list[str] = []
    hooks = [hook("here", on=("restarting", "failed"), run=("true",), timeout_s=1.0)]
    return CommandHooks(hooks, "demo", Path(), lambda name, why: failed.append(name), fresh=fresh), failed


def test_each_event_runs_the_command_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    made, _ = commands(monkeypatch, runs)
    made.see([happened("1")])
    made.see([happened("1"), happened("2"), happened("3", "recovered")])
    made.finish()
    assert runs.received == ["1", "2"]


def test_a_late_follower_receives_only_the_end_of_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    made, _ = commands(monkeypatch, runs, fresh=False)
    made.see([happened("1"), happened("end", "failed")])
    made.see([happened("1"), happened("2"), happened("end", "failed")])
    made.finish()
    assert runs.received == ["end", "2"]


def test_a_hanging_hook_delays_nothing_and_its_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    runs.go.clear()
    made, _ = commands(monkeypatch, runs)
    for number in range(3 * MOST_WAITING):
        made.see([happened(str(number))])  # returns at once
    assert runs.received == []
    runs.go.set()
    made.finish()
    assert len(runs.received) <= MOST_WAITING + 1


def test_a_command_that_fails_is_reported_once_until_it_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([[fact("exited", code=1)], [fact("exited", code=1)], [], [fact("exited", code=1)]])
    runs = Runs(lambda: next(ends))
    made, failed = commands(monkeypatch, runs)
    made.see([happened(str(number)) for number in range(4)])
    made.finish()
    assert failed == ["here", "here"]


def test_a_command_that_has_changed_since_it_was_allowed_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs()
    monkeypatch.setattr(module, "run_command", runs)
    failed: list[Sequence[Fact]] = []
    allowed = iter([True, False])
    made = CommandHooks(
        [hook("here", on=("restarting",), run=("./notify.sh",))],
        "demo",
        Path(),
        lambda name, why: failed.append(why),
        fresh=True,
        allowed=lambda one: next(allowed),
    )
    made.see([happened("1"), happened("2")])
    made.finish()
    assert runs.received == ["1"]
    assert failed == [(fact("cannot_run", what="./notify.sh", text="it has changed since you allowed it"),)]


def test_the_coordinator_gets_addresses_with_their_secrets() -> None:
    posting = hook(post="https://x/${TOKEN}", headers={"Authorization": "Bearer ${TOKEN}"})
    (post,) = find_hooks(cluster(hooks={"web": posting, "here": hook("here", run=("true",))}), {"TOKEN": "t0k3n"})
    assert post["url"] == "https://x/t0k3n"
    assert post["headers"] == {"Authorization": "Bearer t0k3n"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "no value for URL"),
        ("ftp://x/s3cret", "expected an address that begins with https:// or http://"),
        ("https://me:s3cret@x/", "expected an address without a user or password"),
        ("https:///s3cret", "expected an address with the name of a host"),
        ("https://x/ s3cret", "expected an address of ASCII letters without blanks"),
    ],
)
def test_a_value_that_is_no_address_is_refused_and_not_shown(value: str, expected: str) -> None:
    with pytest.raises(PreflightError) as refused:
        find_hooks(cluster(hooks={"web": hook(post="${URL}")}), {"URL": value})
    text = f"{refused.value.summary} {refused.value.detail} {refused.value.hint}"
    assert expected in text
    assert "s3cret" not in text


def test_a_command_here_makes_no_other_run_and_a_post_does() -> None:
    plain = digest(cluster(), None)
    assert digest(cluster(hooks={"here": hook("here", run=("true",))}), None) == plain
    assert digest(cluster(hooks={"web": hook(post="${URL}")}), None) != plain


def test_file_without_hooks_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("name: demo\n")
    assert cluster_with_hooks(file, "demo") is None
    assert cluster_with_hooks(None, "demo") is cluster_with_hooks(tmp_path / "gone", "demo") is None
    file.write_text("hooks: {x: {run: true}}\n")  # has mistakes, which other commands tell
    assert cluster_with_hooks(file, "demo") is None

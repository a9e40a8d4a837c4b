"""What an agent takes for granted while it cannot be told anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.role import Following
from dtctl.agent.host import processes
from dtctl.agent.link import dialer, tls
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.messages import PROTOCOL, Orders, Welcome
from dtctl.agent.records.run_state import Process
from dtctl.agent.run.intents import IntentFollower
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.world import spec_of

WELCOME = {"type": "welcome", "v": PROTOCOL, "events_from": 0, "progress": False, "may_start": True}


class Link:
    """In place of the Dialer."""

    def __init__(self, *_: Any) -> None:
        self.waiting: list[Any] = []
        self.sent: list[str] = []

    def step(self, now: float) -> list[Any]:
        said, self.waiting = self.waiting, []
        return said

    def send(self, message: Any) -> None:
        self.sent.append(message["type"])


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Hears what it is given, one message after the other. With True its machine was restarted."""
    monkeypatch.setattr(dialer, "Dialer", Link)
    monkeypatch.setattr(tls, "Identity", lambda *_: None)
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / "far"))
    spec = {**spec_of("async-ps", {"chief:0": "lead", "worker:0": "far"}), "host": "far"}
    files.begin(files.stage(spec, {}, {}, made(Process, **processes.myself())), spec)  # type: ignore[arg-type]
    part = Following(files, spec, 100.0, rebooted=getattr(request, "param", False))  # type: ignore[arg-type]
    state = files.state()
    state["agent"] = {**made(Process, **processes.myself()), "since": 0.0}
    intent = IntentFollower(files)

    def hear(message: Any, step: int | None = None) -> Following:
        next(iter(state["tasks"].values()))["step"] = step
        state["serial"] += step is not None
        part._dialer.waiting.append(message)  # type: ignore[attr-defined]
        part.step(101.0, 1000.0, state, intent)
        return part

    return hear


def orders(**fields: Any) -> Any:
    return checked(Orders, {"type": "orders", "intents": {}, "mending": False, "over": False, **fields})


def test_who_is_out_of_touch_takes_silence_for_waiting(followed: Any) -> None:
    assert followed({"type": "connected"}).mending
    assert not followed(WELCOME).mending
    assert followed(orders(mending=True)).mending
    assert not followed(orders()).mending
    assert followed({"type": "gone", "reason": "nothing was heard", "heard": 100.5}).mending


def test_what_peers_took_for_their_first_step_is_told_with_each_order(followed: Any) -> None:
    followed(WELCOME)
    assert followed(orders(first_steps={"worker:0": 4.0})).first_steps == {"worker:0": 4.0}
    assert followed(orders()).first_steps == {}


@pytest.mark.parametrize(
    ("welcome", "told"), [({"progress": True}, "progress"), ({}, "state")], ids=["of this build", "of an older one"]
)
def test_progress_is_told_to_a_coordinator_that_takes_it(followed: Any, welcome: dict[str, Any], told: str) -> None:
    followed({"type": "connected"})
    followed(checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0, **welcome}))
    part = followed(orders(), step=7)
    assert part._dialer.sent == ["hello", "state", told]
    followed({"type": "gone", "reason": "nothing was heard", "heard": 100.5})
    followed({"type": "connected"})
    followed(checked(Welcome, {"type": "welcome", "v": PROTOCOL, "events_from": 0, **welcome}), step=8)
    assert part._dialer.sent[3:] == ["hello", "state"], "what was told before was told to another coordinator"


def test_who_was_not_restarted_with_its_machine_starts_what_it_likes(followed: Any) -> None:
    assert followed({"type": "connected"}).may_start
    assert followed({**WELCOME, "may_start": False}).may_start


@pytest.mark.parametrize("followed", [True], indirect=True)
def test_after_a_restart_of_the_machine_nothing_is_started_before_the_coordinator_says_so(followed: Any) -> None:
    assert not followed({"type": "connected"}).may_start
    assert not followed({**WELCOME, "may_start": False}).may_start
    assert not followed(orders(may_start=False)).may_start
    assert followed(orders()).may_start
    assert followed({"type": "gone", "reason": "nothing was heard", "heard": 100.5}).may_start


@pytest.mark.parametrize("followed", [True], indirect=True)
def test_a_welcome_to_a_run_that_goes_on_is_enough(followed: Any) -> None:
    assert followed(WELCOME).may_start

"""Which of two intents holds, and that an order outlives a full disk and its supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.agent.host import paths, processes
from dtctl.agent.records.run_state import IntentFile
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.supervise.supervised import intent

SESSION = {"pid": 7, "start_time": 1, "boot_id": "of another machine"}


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path))
    tasks = {"worker:0": intent("hold", 1), "worker:1": intent("hold", 1)}
    paths.write_json(files.intent_path, {"serial": 1, "session": None, "tasks": tasks})
    return files


def on_disk(files: RunFiles) -> IntentFile:
    return files.intent()


def test_the_higher_version_holds() -> None:
    mine = {"a": intent("run", 3), "b": intent("run", 3), "c": intent("run", 3)}
    theirs = {"a": intent("stop", 2), "b": intent("stop", 3), "c": intent("stop", 4), "d": intent("stop", 9)}
    assert intents.newer(mine, theirs) == {"c": theirs["c"]}


def test_every_change_counts() -> None:
    changed = intent("run", 3)
    intents.change(changed, want="stop", reason="enough")
    assert (changed["want"], changed["reason"], changed["version"]) == ("stop", "enough", 4)


def test_an_order_is_followed_and_written(files: RunFiles) -> None:
    followed = intents.Followed(files)
    followed.read()
    assert followed.take({"worker:0": intent("run", 2)})
    assert not followed.take({"worker:0": intent("run", 2)})
    assert followed.value["tasks"]["worker:0"]["want"] == "run"
    assert followed.value["tasks"]["worker:1"]["want"] == "hold"
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "run"
    assert on_disk(files)["serial"] == 2
    assert followed.settled()


def test_what_a_session_has_asked_for_in_the_meantime_is_kept(files: RunFiles) -> None:
    followed = intents.Followed(files)
    followed.read()
    asked = on_disk(files)
    asked["tasks"]["worker:0"] = intent("stop", 5)
    paths.write_json(files.intent_path, {**asked, "serial": 2})
    followed.take({"worker:0": intent("run", 2), "worker:1": intent("run", 2)})
    followed.read()
    wants = {task: each["want"] for task, each in followed.value["tasks"].items()}
    assert wants == {"worker:0": "stop", "worker:1": "run"}
    assert on_disk(files)["tasks"] == followed.value["tasks"]


def test_on_a_full_disk_an_order_holds_and_is_written_later(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = intents.Followed(files)
    followed.read()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(paths, "write_json", full)
        followed.take({"worker:0": intent("run", 2)})
        followed.read()
        assert followed.value["tasks"]["worker:0"]["want"] == "run"
        assert not followed.settled()
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "hold"
    followed.read()
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "run"
    assert followed.settled()


def test_an_intent_of_an_earlier_dtctl_has_every_field(files: RunFiles) -> None:
    tasks = {"worker:0": {"want": "run", "generation": 2, "grace_s": None, "reason": "", "by": ""}}
    paths.write_json(files.intent_path, {"serial": 7, "session": None, "tasks": tasks})
    read = files.intent()["tasks"]["worker:0"]
    assert (read["generation"], read["version"], read["restarts"]) == (2, 1, 0)


def test_a_session_that_ended_without_a_word_is_lost(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.write_json(files.intent_path, {**on_disk(files), "session": SESSION})
    living = dict(SESSION)
    monkeypatch.setattr(processes, "find", lambda session: living or None)
    followed = intents.Followed(files)
    followed.read()
    assert followed.lost_session is False
    living.clear()
    followed.read()
    assert followed.lost_session is True


def test_what_a_session_has_written_before_its_end_holds(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says `keep` and ends after its intent has been read, and before it is looked for."""
    paths.write_json(files.intent_path, {**on_disk(files), "session": SESSION})

    def kept_and_gone(session: object) -> None:
        paths.write_json(files.intent_path, {**on_disk(files), "serial": 2, "session": None})

    monkeypatch.setattr(processes, "find", kept_and_gone)
    followed = intents.Followed(files)
    followed.read()
    assert (followed.value["session"], followed.lost_session) == (None, False)

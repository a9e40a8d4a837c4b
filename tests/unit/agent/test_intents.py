"""Which of two intents holds, and that an order outlives a full disk and its supervisor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dtctl.agent.host import paths, processes, wake
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact, said
from dtctl.agent.records.run_state import Entry, IntentFile, Intents, RunEnd
from dtctl.agent.records.spec import Member
from dtctl.agent.records.values import Want
from dtctl.agent.requests import runs
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from tests.reasons import reason_of
from tests.unit.agent.supervise.supervised import intent
from tests.unit.holds import held

SESSION = {"pid": 7, "start_time": 1, "boot_id": "of another machine"}


def write(files: RunFiles, **fields: Any) -> None:
    paths.write_json(files.intent_path, {**on_disk(files), **fields})


def damage(files: RunFiles) -> None:
    Path(files.intent_path).write_text("{")


@pytest.fixture
def living(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The session that has the run in hand, until a test empties it."""
    write(files, session=SESSION)
    living = dict(SESSION)
    monkeypatch.setattr(processes, "find", lambda _: living or None)
    return living


@contextmanager
def full_disk() -> Iterator[None]:
    with patch.object(paths, "write_json", side_effect=OSError(28, "No space left on device")):
        yield


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path))
    tasks = {"worker:0": intent("hold", 1), "worker:1": intent("hold", 1)}
    paths.write_json(files.intent_path, {"serial": 1, "session": None, "tasks": tasks})
    return files


def on_disk(files: RunFiles) -> IntentFile:
    return files.intent()


def reading(files: RunFiles, *more: Any) -> intents.IntentFollower:
    """What an agent follows that has read the file."""
    followed = intents.IntentFollower(files, *more)
    followed.read()
    return followed


def test_the_intent_with_the_higher_version_wins() -> None:
    mine = {"a": intent("run", 3), "b": intent("run", 3), "c": intent("run", 3)}
    theirs = {"a": intent("stop", 2), "b": intent("stop", 3), "c": intent("stop", 4), "d": intent("stop", 9)}
    assert intents.newer(mine, theirs) == {"c": theirs["c"]}


def test_different_intents_of_one_version_are_a_conflict() -> None:
    mine = {"a": intent("run", 3), "b": intent("run", 3), "c": intent("run", 3), "d": intent("run", 3)}
    theirs = {"a": intent("run", 3), "b": intent("hold", 3), "c": intent("hold", 4), "e": intent("stop", 3)}
    assert intents.contradicted(mine, theirs) == ["b"]
    theirs["a"]["generation"] += 1
    assert intents.contradicted(mine, theirs) == ["a", "b"]


def test_every_change_counts() -> None:
    changed = intent("run", 3)
    intents.change(changed, want="stop", why=said("enough"))
    assert (changed["want"], reason_of(changed), changed["version"]) == ("stop", "enough", 4)


def test_an_order_is_followed_and_written(files: RunFiles) -> None:
    followed = reading(files)
    assert followed.take({"worker:0": intent("run", 2)})
    assert not followed.take({"worker:0": intent("run", 2)})
    assert followed.value["tasks"]["worker:0"]["want"] == "run"
    assert followed.value["tasks"]["worker:1"]["want"] == "hold"
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "run"
    assert on_disk(files)["serial"] == 2
    assert followed.settled()


def test_concurrent_intent_of_a_session_is_kept(files: RunFiles) -> None:
    followed = reading(files)
    write(files, tasks={**on_disk(files)["tasks"], "worker:0": intent("stop", 5)}, serial=2)
    followed.take({"worker:0": intent("run", 2), "worker:1": intent("run", 2)})
    followed.read()
    assert tasks_of(followed) == {"worker:0": "stop", "worker:1": "run"}
    assert on_disk(files)["tasks"] == followed.value["tasks"]


def test_on_a_full_disk_an_order_holds_and_is_written_later(files: RunFiles) -> None:
    followed = reading(files)
    with full_disk():
        followed.take({"worker:0": intent("run", 2)})
        followed.read()
        assert tasks_of(followed)["worker:0"] == "run"
        assert not followed.settled()
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "hold"
    followed.read()
    assert on_disk(files)["tasks"]["worker:0"]["want"] == "run"
    assert followed.settled()


def test_a_stop_holds_over_orders_that_a_full_disk_has_kept_from_the_file(files: RunFiles) -> None:
    """The session read the older intent, and wrote into the room of the reserve."""
    followed = reading(files)
    with full_disk():
        followed.take({"worker:0": intent("hold", 2, generation=1), "worker:1": intent("run", 2)})
        followed.take({"worker:0": intent("run", 3, generation=2)})
    write(files, tasks={**on_disk(files)["tasks"], "worker:0": intent("stop", 2)}, serial=2)
    for _ in range(2):
        with full_disk():
            followed.read()
        assert tasks_of(followed) == {"worker:0": "stop", "worker:1": "run"}
        assert followed.value["tasks"]["worker:0"]["version"] == 4, "so that the coordinator takes it"
        assert followed.value["tasks"]["worker:0"]["generation"] == 2
    followed.read()
    assert on_disk(files)["tasks"] == followed.value["tasks"]
    assert tasks_of(followed)["worker:0"] == "stop"
    assert followed.take({"worker:0": intent("run", 5)}), "of a coordinator that knows of the stop"
    assert tasks_of(followed)["worker:0"] == "run"


def test_a_stop_holds_over_orders_that_come_at_the_same_time(files: RunFiles) -> None:
    followed = reading(files)
    write(files, tasks={**on_disk(files)["tasks"], "worker:0": intent("stop", 2)}, serial=2)
    followed.take({"worker:0": intent("run", 3)})
    followed.read()
    assert tasks_of(followed)["worker:0"] == "stop"
    assert on_disk(files)["tasks"]["worker:0"]["version"] == 4


def test_a_restart_holds_over_orders_that_a_full_disk_has_kept_from_the_file(files: RunFiles) -> None:
    followed = reading(files)
    with full_disk():
        followed.take({"worker:0": intent("run", 4, generation=3)})
    write(files, tasks={**on_disk(files)["tasks"], "worker:0": intent("run", 2, generation=2)}, serial=2)
    followed.read()
    assert on_disk(files)["tasks"]["worker:0"]["generation"] == 4


def test_an_intent_of_an_earlier_dtctl_has_every_field(files: RunFiles) -> None:
    tasks = {"worker:0": {"want": "run", "generation": 2, "grace_s": None, "why": said(""), "by": ""}}
    paths.write_json(files.intent_path, {"serial": 7, "session": None, "tasks": tasks})
    read = files.intent()["tasks"]["worker:0"]
    assert (read["generation"], read["version"], read["restarts"]) == (2, 1, 0)


def test_a_session_that_ended_unexpectedly_is_lost_until_another_keeps_the_run(
    files: RunFiles, living: dict[str, Any]
) -> None:
    followed = reading(files)
    assert followed.lost_session is False
    living.clear()
    assert intents.IntentFollower(files).lost_session is False, "it has not looked yet"
    followed.read()
    assert followed.lost_session is True
    write(files, session=None, serial=2)
    followed.read()
    assert followed.lost_session is False


def test_intent_written_before_the_session_ends_is_valid(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says `keep` and ends after its intent has been read, and before it is looked for."""
    write(files, session=SESSION)
    monkeypatch.setattr(processes, "find", lambda _: write(files, serial=2, session=None))
    followed = reading(files)
    assert (followed.value["session"], followed.lost_session) == (None, False)


def test_a_kept_run_needs_no_session_and_later_no_free_disk(files: RunFiles, living: dict[str, Any]) -> None:
    living.clear()
    followed = reading(files)
    assert followed.lost_session is True
    with full_disk():
        assert followed.keep() is True
        followed.read()
        assert (followed.lost_session, followed.settled(), on_disk(files)["session"]) == (False, False, SESSION)
    followed.read()
    assert (on_disk(files)["session"], on_disk(files)["serial"], followed.settled()) == (None, 2, True)
    assert (followed.keep(), on_disk(files)["serial"]) == (False, 2)


@pytest.mark.parametrize(
    ("wants", "ends_as", "cancelled"),
    [
        (("stop", "stop"), intents.CANCELLED, True),
        (("stop", "stop"), intents.ABANDONED, True),
        (("stop", "stop"), None, False),
        (("stop", "run"), intents.CANCELLED, False),
    ],
)
def test_a_start_is_cancelled_when_all_tasks_are_stopped_for_that(
    wants: tuple[Want, Want], ends_as: RunEnd | None, cancelled: bool
) -> None:
    orders = {str(at): intent(want, ends_as=ends_as) for at, want in enumerate(wants)}
    assert intents.is_cancelled(orders) is cancelled


def tasks_of(followed: intents.IntentFollower) -> dict[str, str]:
    return {task: each["want"] for task, each in followed.value["tasks"].items()}


def fallback(**wants: Want) -> IntentFile:
    return made(
        IntentFile, serial=5, session=None, tasks={task.replace("_", ":"): intent(wants[task], 1) for task in wants}
    )


def test_a_file_that_is_damaged_from_the_beginning_gives_way_to_what_is_known(files: RunFiles) -> None:
    damage(files)
    with pytest.raises(paths.Damaged):
        intents.IntentFollower(files)
    reported: list[str] = []
    followed = intents.IntentFollower(files, fallback(worker_0="run"), reported.append)
    assert tasks_of(followed) == {"worker:0": "run"}
    assert on_disk(files) == followed.value
    assert followed.value["serial"] == 6
    assert followed.lost_session is False
    assert followed.settled()
    [text] = reported
    assert "intent.json" in text
    assert Path(text.rpartition(" ")[2]).read_text() == "{"


def test_a_file_that_is_damaged_later_is_written_again_as_it_was_followed(files: RunFiles) -> None:
    reported: list[str] = []
    followed = reading(files, None, reported.append)
    Path(files.intent_path).write_text("{")
    assert not followed.settled()
    followed.read()
    assert tasks_of(followed) == {"worker:0": "hold", "worker:1": "hold"}
    assert (on_disk(files)["serial"], len(reported)) == (2, 1)
    followed.read()
    assert len(reported) == 1


def test_a_kept_run_continues_though_the_word_was_damaged(files: RunFiles, living: dict[str, Any]) -> None:
    followed = reading(files, None, lambda _: None)
    write(files, serial=2, session=None)
    damage(files)
    followed.read()
    living.clear()
    followed.read()
    assert (followed.value["session"], followed.lost_session) == (None, False)
    assert on_disk(files) == followed.value


def test_a_run_that_was_given_up_before_the_damage_stays_so(files: RunFiles, living: dict[str, Any]) -> None:
    living.clear()
    followed = reading(files, None, lambda _: None)
    assert followed.lost_session is True
    damage(files)
    for _ in range(2):
        followed.read()
        assert followed.lost_session is True


def test_a_file_that_lacks_a_task_is_damaged(files: RunFiles) -> None:
    reported: list[str] = []
    followed = intents.IntentFollower(files, fallback(worker_0="run", worker_1="run", worker_2="run"), reported.append)
    assert tasks_of(followed) == {"worker:0": "run", "worker:1": "run", "worker:2": "run"}
    [text] = reported
    assert "is damaged: it has no intent for worker:2" in text


def test_an_unchanged_file_is_not_read_again(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    followed = reading(files)
    monkeypatch.setattr(files, "intent", lambda: pytest.fail("it was read"))
    followed.read()


@pytest.mark.parametrize(
    ("wants", "urgent"), [(("stop", "run"), True), (("run", "run"), False), (("stop", "stop"), True)]
)
def test_only_a_stop_is_written_at_any_price(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch, wants: tuple[Want, Want], urgent: bool
) -> None:
    written: list[bool] = []
    monkeypatch.setattr(files, "write_intent", lambda _, urgent: written.append(urgent))
    followed = intents.IntentFollower(files)
    followed.take({f"worker:{index}": intent(want, 2) for index, want in enumerate(wants)})
    assert written == [urgent]


class Looks:
    """What a file system shows of intent.json that tells times roughly and gives a number that is free at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 1
        monkeypatch.setattr(
            paths, "version", lambda path: (self.number, 1, 1) if path.endswith("intent.json") else None
        )


def test_a_file_that_looks_like_the_one_before_an_order_is_read(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(monkeypatch)
    followed = reading(files)
    followed.take({"worker:0": intent("run", 2)})
    write(files, serial=3)
    followed.read()
    assert followed.value["serial"] == 3


def test_a_file_that_looks_like_the_one_before_the_damage_is_read(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch)
    followed = reading(files, None, lambda _: None)
    Path(files.intent_path).write_text("{")
    looks.number = 2
    followed.read()
    write(files, serial=3)
    looks.number = 1
    followed.read()
    assert followed.value["serial"] == 3


class Session(runs.Run):
    """A session's view of the run; its supervisor is `supervisor` if there is one, and mends when it is rung for."""

    def __init__(self, files: RunFiles, supervisor: intents.IntentFollower | None) -> None:
        self.files = files
        self.spec = {"tasks": [{"id": "worker:0"}, {"id": "worker:1"}]}  # type: ignore[typeddict-item]
        self.supervisor = supervisor

    def supervised(self) -> bool:
        return self.supervisor is not None

    def supervise(self) -> None:
        pass


def test_session_that_finds_a_damaged_file_lets_the_supervisor_repair_it(
    files: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = reading(files, None, lambda _: None)
    Path(files.intent_path).write_text("{")
    monkeypatch.setattr(wake, "ring", lambda _: followed.read())
    serial = Session(files, followed).change(lambda intent: intents.change(intent["tasks"]["worker:0"], want="stop"))
    assert (on_disk(files)["serial"], on_disk(files)["tasks"]["worker:0"]["want"]) == (serial, "stop")


def test_without_a_supervisor_the_file_is_reported_as_damaged(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_MEND_LIMIT_S", 0.1)
    damage(files)
    with pytest.raises(paths.Damaged):
        Session(files, None).change(lambda _: None)


@pytest.mark.parametrize(
    ("state", "after_s"), [("running", 85.0), ("starting", 85.0), ("pending", 2.0), ("backoff", 2.0), ("stopped", 2.0)]
)
def test_an_agent_ends_once_its_report_is_sent_or_the_system_is_about_to_kill_it(state: str, after_s: float) -> None:
    entries = {"worker:0": made(Entry, state=state), "worker:1": made(Entry, state="failed")}
    assert not intents.has_left(entries, 100.0, 99.9 + after_s)
    assert intents.has_left(entries, 100.0, 100.0 + after_s)


def test_shutdown_holds_all_tasks_except_stopped_and_drained_ones() -> None:
    def fields(orders: Intents) -> dict[str, tuple[object, ...]]:
        return {task: (one["want"], reason_of(one), one["by"], one["grace_s"]) for task, one in orders.items()}

    tasks = ("worker:0", "worker:1", "worker:2", "worker:3")
    roster = [made(Member, task=task, host="b") for task in tasks]
    spec: Any = {"roster": roster, "host": "b", "grace_s": 300.0, "strategy": "async-ps"}
    drained = intent(**held(fact("drained", host="b", by="ada@laptop")))
    wanted = dict(zip(tasks, (intent("run"), intent("hold"), intent("stop"), drained), strict=True))
    left = intents.to_leave(spec, wanted, dict.fromkeys(tasks, made(Entry)))
    assert fields(left) == dict.fromkeys(tasks[:2], ("hold", "b is shutting down", "b", 75.0))
    back = intents.to_return(spec, {**wanted, **left})
    assert fields(back) == dict.fromkeys(tasks[:2], ("hold", "b is in service again", "b", None))

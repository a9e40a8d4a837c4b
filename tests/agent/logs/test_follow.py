"""Logs that are read while they are written."""

from __future__ import annotations

import json
import os
import resource
import time
from io import BytesIO
from typing import Any

from dtctl.agent.records.run_state import State
from dtctl.agent.requests import logs
from tests.agent.link.ends import agent_process
from tests.agent.logs.run import Leaving, Run, asked, decoded
from tests.waiting import PATIENCE_S, eventually


def test_a_progress_bar_is_followed_at_most_once_a_second(run: Run) -> None:
    run.log(b" 0%\r")
    begun = time.monotonic()
    with run.follow() as following:
        eventually(lambda: following.text() == b" 0%\r")
        for number in range(1, 10):
            run.log(b" %d%%\r" % number)
            time.sleep(0.05)
        eventually(lambda: following.text().endswith(b" 9%\r"))
        run.log(b"done\n")
        eventually(lambda: following.text().endswith(b"done\n"))
        took = time.monotonic() - begun
    bars = [message for message in following.frames() if message.payload.endswith(b"\r")]
    assert len(bars) <= took + 2
    assert following.text() == b"".join(b" %d%%\r" % number for number in range(10)) + b"done\n"


def test_follow_sends_what_is_written_and_ends_with_the_task(run: Run) -> None:
    run.log(b"one\n")
    with run.follow() as following:
        eventually(lambda: following.text() == b"one\n")
        run.log(b"two\nthr")
        eventually(lambda: following.text() == b"one\ntwo\n")
        run.log(b"ee\nlast words")
        run.exit()
        run.end()
        eventually(following.ended)
    assert following.text() == b"one\ntwo\nthree\nlast words"


def test_follow_begins_before_the_task_does(run: Run) -> None:
    with run.follow(lines=10) as following:
        time.sleep(0.3)
        run.attempt(1)
        time.sleep(0.3)
        run.log(b"hello\n")
        eventually(lambda: following.text() == b"hello\n")


def test_follow_continues_with_the_next_attempts(run: Run) -> None:
    run.log(b"old 1\nold 2\n")
    with run.follow(lines=1) as following:
        eventually(lambda: following.text() == b"old 2\n")
        run.log(b"crash", 1)
        run.exit(1)
        run.log(b"second\n", 2)
        run.exit(2)
        run.log(b"third\n", 3)
        eventually(lambda: following.text().endswith(b"third\n"))
        run.end()
        eventually(following.ended)
    places = [(message["attempt"], message["offset"], message.payload) for message in following.frames()]
    assert places == [(1, 6, b"old 2\n"), (1, 12, b"crash"), (2, 0, b"second\n"), (3, 0, b"third\n")]


def test_follow_ends_when_the_reader_is_gone(run: Run) -> None:
    with run.follow() as following:
        run.gone = True
        eventually(following.ended)


def test_follow_of_several_tasks_ends_with_the_last(run: Run) -> None:
    run.states = {"worker:0": "running", "ps:0": "running"}
    run.log(b"w\n")
    run.log(b"p\n", task="ps:0")
    with run.follow(tasks=["worker:0", "ps:0"], states=True) as following:
        run.end("worker:0")
        eventually(lambda: len(following.text()) == 4)
        run.log(b"p2\n", task="ps:0")
        run.end("ps:0")
        eventually(following.ended)
    states = [message for message in following.frames() if message.type == "states"]
    assert [message["state"]["serial"] for message in states] == sorted({m["state"]["serial"] for m in states})
    assert states[-1]["state"]["tasks"]["ps:0"]["state"] == "succeeded"
    assert [m.payload for m in following.frames() if m.type == "log" and m["task"] == "ps:0"] == [b"p\n", b"p2\n"]


def test_a_log_that_becomes_shorter_is_read_from_its_start(run: Run) -> None:
    log = run.log(b"before 1\nbefore 2\n")
    with run.follow() as following:
        eventually(lambda: following.text() == b"before 1\nbefore 2\n")
        os.truncate(log, 0)
        run.log(b"after\n")
        eventually(lambda: following.text().endswith(b"after\n"))
        run.log(b"more\n")
        eventually(lambda: following.text().endswith(b"more\n"))
    offsets = [(message["offset"], message.fields.get("truncated")) for message in following.frames()]
    assert offsets == [(0, None), (0, True), (6, None)]


def test_a_log_that_was_replaced_is_read_from_its_start(run: Run) -> None:
    log = run.log(b"before\n")
    with run.follow() as following:
        eventually(lambda: following.text() == b"before\n")
        log.rename(log.with_name("log.1"))
        run.log(b"after, and longer\n")
        eventually(lambda: following.text() == b"before\nafter, and longer\n")


def test_waiting_costs_almost_nothing(run: Run) -> None:
    run.states = {f"worker:{number}": "running" for number in range(64)}
    for task in run.states:
        run.log(b"hello\n", task=task)
    with run.follow(tasks=list(run.states)) as following:
        eventually(lambda: len(following.text()) == 64 * 6)
        before = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(2)
        after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.4


def test_an_agent_process_of_its_own_follows(run: Run, agent_python: str) -> None:
    body = """
import json, os
from dtctl.agent.requests import logs
from dtctl.agent.records.kinds import made
from dtctl.agent.records.requests import LogsRequest
def states():
    with open(args[0] + "/state.json") as file:
        return json.load(file)
wanted = {"tasks": ["worker:0"], "follow": True, "lines": 1, "grep": "[0-9]"}
request = made(LogsRequest, type="logs", cluster="c", host="h", **wanted)
logs.serve(args[0], ["worker:0"], request, wire, states)
"""
    run.log(b"x\n1\n2\n")
    (run.attempt(1) / "times").write_text("100.0 2\n101.0 6\n")
    (run.directory / "secrets.json").write_text('{"KEY": "hidden"}')

    def publish() -> None:
        (run.directory / "new").write_text(json.dumps(run.state()))
        (run.directory / "new").rename(run.directory / "state.json")

    publish()
    with agent_process(agent_python, body, str(run.directory)) as (session, _):
        assert session.receive(PATIENCE_S).payload == b"2\n"
        run.log(b"three\n4 hidden\n")
        assert session.receive(PATIENCE_S).payload == b"4 ***\n"
        run.exit()
        run.log(b"5\n", 2)
        run.end()
        publish()
        last = session.receive(PATIENCE_S)
        assert (last["attempt"], last["offset"], last.payload) == (2, 0, b"5\n")
        assert session.receive(PATIENCE_S).type == "result"


def test_a_log_that_grows_is_sent_before_the_state_is_looked_at_again(run: Run, monkeypatch: Any) -> None:
    lines = [b"%d\n" % number for number in range(int(logs.POLL_S / logs.LOOK_S))]
    left = iter(lines)
    looks: list[int] = []

    def states() -> State:
        looks.append(len(sent()))
        run.gone = len(looks) > 1
        return run.state()

    def sent() -> list[bytes]:
        return [message.payload for message in decoded(writer.getvalue()) if message.type == "log"]

    run.log(b"first\n")
    writer = BytesIO()
    monkeypatch.setattr(time, "sleep", lambda _: run.log(next(left)))
    logs.serve(str(run.directory), ["worker:0"], asked(follow=True), Leaving(run, writer), states)
    assert sent() == [b"first\n", *lines]
    assert looks == [0, 1 + len(lines)]

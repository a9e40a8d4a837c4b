"""A post as the agent sees it: a process that it never waits for."""

from __future__ import annotations

import sys
import time

import pytest

from dtctl.agent.hooks.posting import Delivery
from dtctl.agent.host import programs
from dtctl.agent.records.hooks import MOST_BYTES, Post, Sent
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact
from dtctl.agent.run.run_events import ended, payload
from dtctl.transport.payload import agent_program
from tests.agent.host import compiled_program
from tests.receiver import receiver
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _program_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled_program(sys.executable) / agent_program().sha256
    monkeypatch.setattr(programs, "directory", lambda: str(program))


def delivery(url: str, timeout_s: float = 60.0, **inherited: str) -> Delivery:
    post = made(Post, name="slack", on=["failed"], url=url, timeout_s=timeout_s)
    return Delivery(post, {"text": "t", "id": "r/1"}, inherited, time.monotonic())


def answer(at_work: Delivery) -> Sent:
    answers: list[Sent] = []

    def look() -> bool:
        sent = at_work.look(time.monotonic())
        answers.extend([sent] if sent is not None else [])
        return sent is not None

    eventually(look, what="an answer")
    return answers[0]


def test_a_post_is_made_by_a_process_of_its_own() -> None:
    with receiver() as server:
        at_work = delivery(server.url("ok"))
        began = time.monotonic()
        assert at_work.look(began) is None  # at once
        assert answer(at_work)["problem"] is None
        assert server.bodies == [{"text": "t", "id": "r/1"}]


def test_one_that_hangs_is_ended_when_its_time_is_over() -> None:
    with receiver() as server:
        at_work = delivery(server.url("hang"))
        eventually(lambda: bool(server.bodies), what="the post")
        sent = at_work.look(at_work.deadline)  # as the clock of the agent says
        assert sent is not None
        assert sent["text"] == "no answer within 60 s"
        assert at_work._process.returncode is not None


def test_a_proxy_of_the_host_is_used() -> None:
    with receiver() as server:
        at_work = delivery("http://nosuch.invalid/ok", http_proxy=server.url(""), PATH="/usr/bin:/bin")
        assert answer(at_work)["problem"] is None
        assert server.bodies


def test_the_command_line_tells_nothing_of_it() -> None:
    with receiver() as server:
        at_work = delivery(server.url("T0ps3cret"))
        assert "T0ps3cret" not in " ".join(map(str, at_work._process.args))  # type: ignore[arg-type]
        at_work.end()


def test_the_longest_post_fits_into_a_pipe_that_nobody_reads_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/sleep")  # which fails at once, having read nothing
    bad = "\N{SNOWMAN}"
    why = [fact("task_failed", task="worker:0"), *[fact("cause", text=bad * 4096)] * 8]
    body = payload(ended("r", "Failed", why, "worker:0", 1.0), "demo", "")
    headers = dict.fromkeys("ABC", "x" * (MOST_BYTES // 3 - 100))
    post = made(Post, name="slack", on=["failed"], url="http://x/", headers=headers, timeout_s=5.0)
    at_work = Delivery(post, body, {}, time.monotonic())
    assert answer(at_work)["text"] == "its sender has failed"

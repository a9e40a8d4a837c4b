"""`dtctl dashboard` of a real run on this machine: its address, what it tells as the run goes on, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Page
from tests.desk import Desk
from tests.nights import at_night
from tests.waiting import eventually

STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 130}


class Following(Page):
    def told(self) -> Generator[tuple[str, dict[str, str]], None, None]:
        """Events with their parts, until the end of the dashboard."""
        with self.asked(f"{self.place}news") as answer:
            assert answer.status == 200
            kind = ""
            for line in answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value) if value else {}
                    if kind == "over":
                        return


@contextmanager
def dashboard(desk: Desk, *words: str) -> Iterator[tuple[Any, Following]]:
    with desk.start("dashboard", "-o", "json", *words) as process:
        try:
            line = next(line for line in process.stdout or () if line.startswith("{"))
            yield process, Following(json.loads(line)["url"])
        finally:
            with suppress(ProcessLookupError):
                process.kill()


@pytest.fixture
def trains(home: Desk) -> Desk:
    (home.home / "tmp").mkdir()
    home.env["TMPDIR"] = str(home.home / "tmp")
    home.write_cluster()
    home.dtctl("up", "--local")
    eventually(lambda: home.task("worker:1")["step"], what="a step")
    return home


@pytest.mark.parametrize("stop", at_night(STOPS, but=[signal.SIGINT]), ids=lambda one: one.name)
def test_the_page_follows_the_run_and_ends_with_the_command(trains: Desk, stop: signal.Signals) -> None:
    with dashboard(trains) as (process, page):
        _, _, text = page.get(page.place)
        assert "worker:1" in text
        told = page.told()
        _, parts = next(told)
        assert 'class="outcome Running"' in parts["answer"]
        before = parts["answer"]
        answer = next(parts["answer"] for _, parts in told if parts.get("answer", before) != before)
        assert "step " in answer
        worker = trains.task("worker:1")["pid"]
        os.kill(worker, signal.SIGKILL)
        attempts = next(parts["timeline"] for _, parts in told if "attempt 2" in parts.get("timeline", ""))
        assert "killed by SIGKILL" in attempts
        process.send_signal(stop)
        assert [kind for kind, _ in told][-1] == "over"
        assert process.wait(60) == STOPS[stop]
    assert list(Path(trains.env["TMPDIR"]).iterdir()) == []
    assert trains.states()["worker:1"] == "running"


@pytest.mark.nightly
def test_the_end_of_the_run_is_said_and_the_page_stays(trains: Desk) -> None:
    with dashboard(trains) as (process, page):
        told = page.told()
        trains.dtctl("stop")
        answer = next(parts["answer"] for _, parts in told if "has ended" in parts.get("answer", ""))
        assert 'class="outcome Stopped"' in answer
        trains.dtctl("down", "--yes")
        time.sleep(3)  # longer than from one look to the next
        assert process.poll() is None
        assert page.get(page.place)[0] == 200
        assert "has ended" in page.get(page.place)[2]


@pytest.mark.nightly
def test_a_browser_is_told_the_address_by_a_file_for_the_user_alone(trains: Desk) -> None:
    browser = trains.home / "browser"
    seen = trains.home / "seen"
    browser.write_text(f'#!/bin/sh\nls -l "${{1#file://}}" > {seen}\ncat "${{1#file://}}" >> {seen}\n')
    browser.chmod(0o755)
    trains.env["BROWSER"] = str(browser)
    with trains.start("dashboard", "--open") as process:
        eventually(lambda: seen.exists() and "</html>" in seen.read_text(), 60, "the browser")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert seen.read_text().startswith("-rw-------")
    assert "url=http://127.0.0.1:" in seen.read_text()
    assert list(Path(trains.env["TMPDIR"]).iterdir()) == []

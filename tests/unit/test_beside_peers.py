"""The benchmarks: what they write about dtctl and its peers, and their line to far hosts."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from benchmarks.__main__ import BESIDE_PEERS, QUESTIONS, page_of
from benchmarks.delay import relay
from benchmarks.peers import questions, report
from benchmarks.peers.command import not_reached
from benchmarks.peers.contest import Standings
from benchmarks.peers.doing import Contender
from benchmarks.peers.gauge import Taken
from benchmarks.peers.questions import Answer
from benchmarks.peers.report import Goal
from tests.tables import replace_part, replace_table

OURS = Contender("dtctl exec", "as it comes", {}, {}, ours=True)
QUICK = Contender("quick", "4 threads", {}, {})
SMALL = Contender("small", "", {}, {})
EVERYBODY = (OURS, QUICK, SMALL)
TAKEN = {
    "dtctl exec": Taken(wall_s=3.0, client_s=1.0, machine_s=6.0, memory_mb=100.0),
    "quick": Taken(wall_s=2.0, client_s=3.0, machine_s=5.9, memory_mb=200.0),
    "small": Taken(wall_s=4.0, client_s=2.0, machine_s=8.0, memory_mb=50.0),
}


def rows() -> dict[str, list[str]]:
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in report.table(EVERYBODY, TAKEN).split("\n")
    ]
    return {name: cells for name, *cells in table}


def test_the_best_of_each_column_is_one_and_the_others_are_ratios_to_it() -> None:
    assert rows()["quick"] == ["1 (2.00 s)", "3.00", "4.00", "1 (5.9 s)", "4 threads"]
    assert rows()["**dtctl exec**"] == ["1.50", "1 (1.00 s)", "2.00", "1.02", "as it comes"]


def test_a_section_repeats_nothing_of_its_table() -> None:
    standings = Standings({("command", "dtctl exec"): [TAKEN["small"], TAKEN["small"]]})
    standings.taken["command", "quick"] = [TAKEN["quick"], Taken(5.0, 2.0, 8.0)]
    lines = report.section("On 4 hosts", EVERYBODY, standings, "command").split("\n")
    assert [line for line in lines if line and not line.startswith("|")] == ["### On 4 hosts"]


def test_one_disturbed_round_does_not_decide_an_answer() -> None:
    rounds = [Taken(9.0, 0, 0), Taken(8.8, 0, 0), Taken(30.0, 0, 0)]
    assert Standings({("cold", "rsync"): rounds}).shortest_s("cold") == {"rsync": 8.8}


def test_a_question_has_dtctl_and_the_same_by_hand_side_by_side() -> None:
    answer = Answer("How long does `up` take?", "`ssh HOST`", ["1.9 s", "9.3 s"], ["0.5 s", None])
    assert answer.row() == "| How long does `up` take? | 1.9 s | 0.5 s | 9.3 s | - | `ssh HOST` |"
    widths = {line.count("|") for line in questions.table([answer]).split("\n")}
    assert widths == {7}


@pytest.mark.parametrize("name", [*BESIDE_PEERS, QUESTIONS])
def test_every_benchmark_has_its_place_on_a_page(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / page_of(name)).read_text("utf-8")
    begin, end = report.marks(name)
    assert page.count(begin) == page.count(end) == 1
    assert page.index(begin) < page.index(end)


@pytest.mark.parametrize(
    ("goal", "line"),
    [
        (
            Goal("dtctl exec", "quick", time=1.3, machine=1.2),
            "quick: time 1.50 (goal 1.3), CPU of all 1.02 (goal 1.2).",
        ),
        (Goal("dtctl exec", None, time=1.3, client=2), "the best with new connections: time 1.50 (goal 1.3), "),
        (Goal("dtctl exec", None, client=2), "CPU of the client 0.50 (goal 2)."),
        (Goal("dtctl exec", "left out", time=1.3), ""),
    ],
)
def test_a_goal_shows_what_is_taken_and_what_may_be(goal: Goal, line: str) -> None:
    assert line in goal.line(EVERYBODY, TAKEN)
    assert bool(line) == bool(goal.line(EVERYBODY, TAKEN))


def test_excluded_tool_is_reported_with_the_reason() -> None:
    lines = report.left_out([Standings(left_out={"pdsh": "pdsh is not installed"}), Standings()])
    assert lines == "Excluded: pdsh: pdsh is not installed."
    assert report.left_out([Standings()]) == "No tool was excluded."


@pytest.mark.parametrize(
    ("printed", "wrong"),
    [
        ("127.0.1.1: reached 127.0.1.1\nreached 127.0.1.2", ""),
        ("reached 127.0.1.1", "1 hosts were not reached"),
        ("reached 127.0.1.1\nreached 127.0.1.1\nreached 127.0.1.2", "1 answered that should not, or twice"),
        ("reached 127.0.1.1\nreached 127.0.1.2\nreached 127.0.1.3", "1 answered that should not, or twice"),
        ("reached 127.0.1.11\nreached 127.0.1.2", "1 hosts were not reached, 1 answered that should not, or twice"),
    ],
)
def test_each_host_must_report_its_own_address_once(printed: str, wrong: str) -> None:
    assert not_reached(["127.0.1.1", "127.0.1.2"], printed) == wrong


def test_text_around_a_replaced_part_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    file.write_text("# Page\n\nabove\n\n<!-- a -->\nold\n<!-- end -->\n\nbelow\n")
    replace_part(file, "<!-- a -->", "<!-- end -->", "new")
    replace_part(file, "<!-- a -->", "<!-- end -->", "newer")
    assert file.read_text() == "# Page\n\nabove\n\n<!-- a -->\n\nnewer\n\n<!-- end -->\n\nbelow\n"
    replace_table(file, "<!-- a -->", "<!-- end -->", ("a", "b"), [("1", "2")])
    assert "<!-- a -->\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end -->\n" in file.read_text()


def test_delayed_bytes_and_their_end_arrive_complete_in_both_directions() -> None:
    sent = bytes(range(256)) * 4096
    with socket.create_server(("127.0.0.1", 0)) as server:
        echo = threading.Thread(target=_echo, args=(server,))
        echo.start()
        with relay(server.getsockname()[1], 0.05) as line, socket.create_connection(("127.0.0.1", line.port)) as client:
            begin = time.monotonic()
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            with client.makefile("rb") as answer:
                assert answer.read() == sent
            assert time.monotonic() - begin >= 0.1
        echo.join()


def _echo(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as heard:
        connection.sendall(heard.read())

"""The work of the patterns that read steps and positions: the agent has one thread, and a program writes anything."""

from __future__ import annotations

import re
import time

import pytest

from dtctl.agent.supervise import positions, step_reader
from dtctl.agent.supervise.observation import HEAD_BYTES, MOST_BYTES
from dtctl.agent.supervise.step_reader import StepReader

BAR = "━".encode()
WORDS = [
    *(b"", b"epoch", b"epoch (train)", b"[1/1]", b"batch", b"loss", b"train:", b"step", b"50%"),
    *(b"saved checkpoint", b"checkpoint saved to", b"saving"),
]
RUNS = [b" ", b"0", b"1/", b"| ", b"[", b"\n", BAR, b"\xe2" + BAR]
LINES = [(word + run * (MOST_BYTES // len(run)))[:MOST_BYTES] for word in WORDS for run in RUNS]
LINES += [(word + b" " * blanks) * (MOST_BYTES // (len(word) + blanks)) for word in WORDS for blanks in (1, 8, 40)]
LINES += [b"step" + b"\t" * MOST_BYTES + b"1", b"epoch" + b" " * MOST_BYTES + b"x", b"(epoch [1][1/9" * 1000]

PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": re.compile(value)
    for module in (positions, step_reader)
    for name, value in vars(module).items()
    if isinstance(value, (bytes, re.Pattern)) and name[0] == "_"
}
AT_BEGINNINGS = ("positions._EPOCH_FIRST", "positions._KERAS", "positions._SCORE")
"""Patterns that are tried only where a line begins."""

MOST_TIMES = 50
"""How many times the cost of a pattern that fails at each character.

Those without backtracking over runs cost up to 20 times it, others thousands of times. `re` counts no steps, so the
measure is processor time, which other processes change little, and the lesser of two.
"""


def _cost(name: str, data: bytes) -> float:
    pattern = PATTERNS[name]
    began = time.process_time()
    if name in AT_BEGINNINGS:
        pattern.match(data)
    else:
        for _ in pattern.finditer(data):
            pass
    return time.process_time() - began


@pytest.fixture(scope="module")
def simplest() -> float:
    def cost() -> float:
        began = time.process_time()
        re.findall(rb"[a-z][0-9]|[0-9][a-z]", b"x" * MOST_BYTES)
        return time.process_time() - began

    return min(cost() for _ in range(5))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_costs_little_for_each_character_of_any_line(name: str, simplest: float) -> None:
    for line in LINES:
        most = MOST_TIMES * simplest
        assert _cost(name, line) <= most or _cost(name, line) <= most, line[:60]


@pytest.mark.parametrize("size", [MOST_BYTES, HEAD_BYTES])
def test_blanks_between_the_cells_of_a_row_cost_little(size: int, simplest: float) -> None:
    reader = StepReader()
    reader.read(b"| step | loss |\n")
    began = time.process_time()
    reader.read(b"5" + b" " * size + b"x\n")
    assert time.process_time() - began <= 10 * MOST_TIMES * simplest * size / MOST_BYTES


def test_a_loss_in_a_row_ends_with_its_digits() -> None:
    found = step_reader.read(b"step,loss\n5,0.5 \xff\n")
    assert (found.step, found.loss) == (5, "0.5")


@pytest.mark.parametrize("line", LINES[::9], ids=range(len(LINES[::9])))
def test_a_piece_of_a_log_is_read_at_once(line: bytes) -> None:
    began = time.process_time()
    StepReader().read(line)
    assert time.process_time() - began < 1.0

"""What is so takes one line, however many hosts there are."""

from __future__ import annotations

import pytest

from dtctl.operations.checks.topic import Line, Statement
from dtctl.render.checks import shown

EIGHT = [f"gpu-{number}" for number in range(1, 9)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (Line("tensorflow", dict.fromkeys(EIGHT, "2.21.0")), [("tensorflow", "2.21.0")]),
        (
            Line("tensorflow", {**dict.fromkeys(EIGHT, "2.21.0"), "gpu-8": "2.19.0"}),
            [("tensorflow", "gpu-[1-7]: 2.21.0; gpu-8: 2.19.0")],
        ),
        (Line("torch", dict.fromkeys(EIGHT, "")), []),
        (
            Line("torch", {**dict.fromkeys(EIGHT, "2.2"), "gpu-3": ""}),
            [("torch", "gpu-[1-2,4-8]: 2.2; gpu-3: none")],
        ),
        (Line("memory_bytes", dict.fromkeys(EIGHT, 16 * 10**9)), [("memory", "16.0 GB")]),
        (Line("memory_bytes", {"gpu-1": 16 * 10**9}), [("memory", "gpu-1: 16.0 GB")]),
        (
            Line("memory_bytes", {host: number * 10**9 for number, host in enumerate(EIGHT, 1)}),
            [("memory", "1.0 GB (gpu-1) to 8.0 GB (gpu-8)")],
        ),
        (
            Line("multiplies at_flops", {host: 1e9 * number or None for number, host in enumerate(EIGHT)}),
            [("multiplies at", "1 GFLOP/s (gpu-2) to 7 GFLOP/s (gpu-8); gpu-1: none")],
        ),
        (
            Statement("not_shared", {"where": "~/saved", "lead": "gpu-1"}),
            [("", "checkpoints: ~/saved is on gpu-1 alone")],
        ),
    ],
)
def test_a_line(line: Line | Statement, said: list[tuple[str, str]]) -> None:
    assert shown([line], 8) == said

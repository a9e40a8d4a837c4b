"""Ends of logs as programs write them, and what each is known by: read from ended_logs.txt.

There a block has a name, what is expected of its log (`cause`, `finding`, `means`, `remedy`, and with what the `first`
remedy begins, of failures that users cause), and the log, in which
`Traceback ...` stands for FRAMES. The program has exited with 1, or was killed by the signal of the number `signal`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FRAMES = """\
Traceback (most recent call last):
  File "/home/train/x/train.py", line 12, in <module>
    main()
    ^^^^^^
"""


class EndedLog(NamedTuple):
    name: str
    expected: dict[str, str]
    log: str


def _read(block: str) -> EndedLog:
    head, _, log = block.partition("\n\n")
    name, *expected = head.splitlines()
    return EndedLog(
        name, dict(line.split(": ", 1) for line in expected), log.rstrip("\n").replace("Traceback ...\n", FRAMES) + "\n"
    )


ENDED_LOGS = [_read(block) for block in f"\n{Path(__file__).with_suffix('.txt').read_text()}".split("\n## ")[1:]]

LOGS = {one.name: one.log for one in ENDED_LOGS}

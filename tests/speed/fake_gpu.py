"""A GPU of a stand-in trainer: it sleeps, and tests/hosts/nvml.c reports how much of the time it does so."""

from __future__ import annotations

import os
import time
from pathlib import Path

LINE = "gpu A100 0 {} 1 2 60 1410 1410 16 0 0 0 \n"


class Gpu:
    """Reports the share of the last seconds in which it was computing."""

    def __init__(self) -> None:
        self._file = os.environ.get("FAKE_NVML", "")
        self._busy_s = 0.0
        self._since = time.monotonic()

    def compute(self, seconds: float) -> None:
        if seconds <= 0:
            return
        time.sleep(seconds)
        self._busy_s += seconds
        self.report()

    def report(self) -> None:
        passed_s = time.monotonic() - self._since
        if self._file and passed_s >= 2.0:
            busy = min(100, round(100 * self._busy_s / passed_s))
            new = Path(self._file + ".new")
            new.write_text(LINE.format(busy))
            new.replace(self._file)
            self._busy_s, self._since = 0.0, time.monotonic()

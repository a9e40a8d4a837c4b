"""Runs the train.py next to it, each step a tenth of a second long, until the file that ENOUGH names exists.

Next to that file it records that it lives: a line every 20 ms in writers/TASK@HOST-PID, of the clock that all hosts of
a fleet share.
"""

import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any

ENOUGH = Path(os.environ["ENOUGH"])


def own_task() -> str:
    if "TF_CONFIG" in os.environ:
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        return f"{task['type']}:{task['index']}"
    flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
    return f"{flags['job_name']}:{flags['task_index']}"


def trace() -> None:
    folder = ENOUGH.parent / "writers"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{own_task()}@{os.uname().nodename}-{os.getpid()}").open("a") as file:
        while True:
            file.write(f"{time.monotonic():.3f}\n")
            file.flush()
            time.sleep(0.02)


threading.Thread(target=trace, daemon=True).start()

import graceful  # type: ignore[import-not-found]  # noqa: E402
from tensorflow.python.training import monitored_session  # noqa: E402

run = monitored_session._MonitoredSession.run
between = graceful.Stop.between


def pace() -> None:
    if not ENOUGH.exists():
        time.sleep(0.1)


def paced_run(session: Any, *arguments: Any, **options: Any) -> Any:
    pace()
    return run(session, *arguments, **options)


def paced_between(stop: Any, items: Any) -> Any:
    for item in between(stop, items):
        pace()
        yield item


monitored_session._MonitoredSession.run = paced_run
graceful.Stop.between = paced_between
runpy.run_path("train.py", run_name="__main__")

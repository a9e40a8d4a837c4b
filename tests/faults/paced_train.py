"""Runs train.py beside it as it is, each step a tenth of a second long, until the file that ENOUGH names is there."""

import os
import runpy
import time
from pathlib import Path
from typing import Any

from tensorflow.python.training import monitored_session

run = monitored_session._MonitoredSession.run


def paced_run(session: Any, *arguments: Any, **options: Any) -> Any:
    if not Path(os.environ["ENOUGH"]).exists():
        time.sleep(0.1)
    return run(session, *arguments, **options)


monitored_session._MonitoredSession.run = paced_run
runpy.run_path("train.py", run_name="__main__")

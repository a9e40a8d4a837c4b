"""event_dirs: where a run's event files are on this host, and which Python here has TensorBoard."""

from __future__ import annotations

import os
import re
import shutil

from ...metrics.event_files import find, text
from ...records.tensorboard import MOST_FOLDERS, PROBE
from ...run import environment
from .. import runs
from ..metrics import directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

    from ...protocol.conversation import Conversation
    from ...records.requests import EventDirsRequest
    from ...records.tensorboard import EventDirsResult

PROBE_LIMIT_S = 60.0
"""An environment on a file server may take long to look into."""

_PYTHON = re.compile(r"python[0-9.]*\Z")
_LONGEST = 4096


def event_dirs(talk: Conversation, request: EventDirsRequest) -> EventDirsResult:
    run = runs.need(talk, request)
    roots = directories(run)
    with talk.at("event files"):
        found = list(find(roots))
    with talk.at("tensorboard"):
        python, tried = find_tensorboard(run)
    return {
        "run": run.id,
        "dirs": [text(root)[:_LONGEST] for root in roots][:100],
        "folders": [folder.told for folder in found][:MOST_FOLDERS],
        "sizes": {
            "files": sum(len(folder.names) for folder in found),
            "bytes": sum(folder.size_bytes() for folder in found),
        },
        "tensorboard": None if python is None else text(python)[:_LONGEST],
        "tried": [text(one)[:_LONGEST] for one in tried[:20]],
    }


def find_tensorboard(run: runs.Run) -> Tuple[Optional[str], List[str]]:
    """The first Python of the run's tasks that has it; and those that were tried in vain."""
    import subprocess

    tried: List[str] = []
    variables = environment_of(run)
    for python in _pythons(run, variables):
        if python in tried:
            continue
        try:
            done = subprocess.run(
                [python, "-c", PROBE],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment.encoded(variables),
                timeout=PROBE_LIMIT_S,
                check=False,
            )
            if done.returncode == 0:
                return python, tried
        except (OSError, subprocess.TimeoutExpired):
            pass
        tried.append(python)
    return None, tried


def environment_of(run: runs.Run) -> Dict[str, str]:
    """That of the first task here, without secrets and without what would make a part of the training of it."""
    task = run.spec["tasks"][0]
    variables = environment.of_task(run.files.inherited(), run.spec, task, {}, 0, key="")
    mine = {name: value for name, value in variables.items() if name not in ("TF_CONFIG", "DTCTL_TASK")}
    mine.update(DTCTL_RUN_DIR=run.files.directory, CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    return environment.Marks(run.files.code_directory(), run.files.inherited()).values(mine)


def _pythons(run: runs.Run, variables: Dict[str, str]) -> Iterator[str]:
    """Those that tasks are run by, or that stand beside their programs; then those of the PATH."""
    marks = environment.Marks(run.files.code_directory(), run.files.inherited())
    path = variables.get("PATH")
    for task in run.spec["tasks"]:
        program = shutil.which(marks.text(task["argv"][0]), path=path) if task["argv"] else None
        if program is None or not os.path.isabs(program):
            continue
        if _PYTHON.match(os.path.basename(program)):
            yield program
            continue
        for name in ("python3", "python"):
            beside = os.path.join(os.path.dirname(program), name)
            if os.access(beside, os.X_OK):
                yield beside
    for name in ("python3", "python"):
        found = shutil.which(name, path=path)
        if found is not None:
            yield found

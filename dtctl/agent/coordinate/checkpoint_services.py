"""What the coordinator's decisions need of checkpoints, which the lead writes: on this host, or where this one sees it.

Damaged checkpoints are repaired by the lead's own host (repairs.py).
"""

from __future__ import annotations

import random

from ..host import outputs
from ..host.budget import Silent, within
from ..records.spec import Spec, has_lead
from ..run import environment
from .recovery import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.answers import Checkpoint
    from ..run.runfiles import RunFiles

LOOK_S = 2.0


def checkpoint_services(files: RunFiles, spec: Spec) -> Services:
    """The checkpoints of the lead, as the coordinator's host sees them. The lead may be elsewhere: then that none is
    seen here means nothing, unless its agent has marked the directories, as in a run with spares.
    """
    directories = environment.Marks(environment.code_directory(files.root, spec)).expand(spec["checkpoint_dirs"])

    def sees_all() -> bool:
        if has_lead(spec):
            return True
        if not (directories and spec["spares"]):
            return False
        try:
            return not within(LOOK_S, "marks", lambda: outputs.unmarked(directories, spec["run"]))
        except Silent:
            return False

    def newest() -> Optional[Checkpoint]:
        from ..checkpoints import reading

        found = reading.newest(directories)
        return found if found is not None or sees_all() else reading.NOT_KNOWN

    return Services(newest, random.random)

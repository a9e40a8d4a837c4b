"""What the coordinator's decisions need of checkpoints, which the lead writes: on its host, or one that sees them."""

from __future__ import annotations

import random

from ..host import outputs
from ..host.budget import Silent, within
from ..records.spec import Spec, has_lead
from ..run import environment
from .recovery import Services

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..checkpoints.repair import Loss
    from ..records.answers import Checkpoint
    from ..run.runfiles import RunFiles

LOOK_S = 2.0


def checkpoint_services(files: RunFiles, spec: Spec) -> Services:
    """On the coordinator's host. The lead may be elsewhere: then only what it has marked is its own."""
    directories = environment.Marks(environment.code_directory(files.root, spec)).expand(spec["checkpoint_dirs"])

    def has_all() -> bool:
        if has_lead(spec):
            return True
        if not (directories and spec["spares"]):
            return False
        try:
            return not within(LOOK_S, "marks", lambda: outputs.unmarked(directories, spec["run"]))
        except Silent:
            return False

    def newest() -> Optional[Checkpoint]:
        """Where the lead writes elsewhere, that none is seen here means nothing."""
        from ..checkpoints import reading

        found = reading.newest(directories)
        return found if found is not None or has_all() else reading.NOT_KNOWN

    def repair_all(distrust: bool) -> List[str]:
        if not has_all():
            return []
        from ..checkpoints import repair

        scratch = distrust and spec["recovery"]["allow_scratch"]
        return [text for path in directories for text in repair.repair_directory(path, distrust, scratch)]

    def lost() -> Optional[Loss]:
        if not has_all():
            return None
        from ..checkpoints import repair

        others = outputs.of_cluster(files.root, spec["cluster"])
        return repair.loss(directories, [path for path in others if path not in directories])

    return Services(newest, repair_all, random.random, lost)

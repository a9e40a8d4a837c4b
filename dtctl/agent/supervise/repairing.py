"""Repairs the run's checkpoints on the lead's host: in a thread, because a file server may not answer."""

from __future__ import annotations

import threading

from ..host import outputs
from ..records.kinds import made
from ..records.run_state import Repaired
from ..records.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.values import Repair


class CheckpointRepair:
    """`directories`: the checkpoints' directories, as they are here. `root`: the agent's own, with its marks."""

    def __init__(self, root: str, spec: Spec, directories: List[str]) -> None:
        self._root = root
        self._cluster = spec["cluster"]
        self._scratch = spec["recovery"]["allow_scratch"]
        self._directories = directories
        self._thread: Optional[threading.Thread] = None
        self._result: Optional[Repaired] = None

    def step(self, how: Repair, attempt: int) -> Optional[Repaired]:
        """The result of the repair after this attempt; None until it has ended. The first call begins it."""
        if self._thread is None:
            self._result = made(Repaired, attempt=attempt, how=how)  # of a repair that breaks
            thread = threading.Thread(target=self._work, args=(how, attempt), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user's limit of threads is reached: tried again later
                return None
            self._thread = thread
        if self._thread.is_alive():
            return None
        self._thread = None
        return self._result

    def _work(self, how: Repair, attempt: int) -> None:
        from ..checkpoints import repair  # rarely needed

        marked = outputs.of_cluster(self._root, self._cluster) if how == "full" else []
        others = [path for path in marked if path not in self._directories]
        self._result = repair.prepare_restore(self._directories, others, how, attempt, scratch=self._scratch)

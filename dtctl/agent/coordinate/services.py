"""What the coordinator's decisions need of the world; tests give their own."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..checkpoints.repair import Loss
    from ..records.answers import Checkpoint


class Services:
    """`newest_checkpoint`: the newest complete one on the lead's host, as status tells it, None if there is none; one
    without a step when nobody can tell. Neither of the two takes longer than a few seconds.

    `mend_checkpoints`: sets damaged ones aside that are newer, and says in words what it did; only while the lead does
    not run. True: a trainer could not restore one, so those that look complete are read, too. `lost_checkpoint`: the
    newest one on the lead's host when it cannot be restored, and none beside it. `random`: between 0 and 1.
    """

    def __init__(
        self,
        newest_checkpoint: Callable[[], Optional[Checkpoint]],
        mend_checkpoints: Callable[[bool], List[str]],
        random: Callable[[], float],
        lost_checkpoint: Callable[[], Optional[Loss]] = lambda: None,
    ) -> None:
        self.newest_checkpoint = newest_checkpoint
        self.mend_checkpoints = mend_checkpoints
        self.random = random
        self.lost_checkpoint = lost_checkpoint

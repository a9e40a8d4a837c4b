"""One agent's part in its run: it dials the coordinator, or is the coordinator."""

from __future__ import annotations

from ..records.spec import coordinates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping, Optional, Protocol, Tuple

    from ..records.run_state import Intents, State
    from ..records.spec import Spec
    from ..run.intents import Followed
    from ..run.runfiles import RunFiles

    class Role(Protocol):
        connected: bool
        first_steps: Mapping[str, float]
        """Of tasks here that have told no step: how long their peers took for theirs."""

        @property
        def may_start(self) -> bool:
            """False while an agent whose machine was restarted has not heard that the run is still this one."""

        @property
        def over(self) -> bool:
            """The run has ended; the agent may go when all its tasks are final."""

        @property
        def mending(self) -> bool:
            """A task or a host was lost and is not back yet: who waits for it does not hang."""

        def step(self, now: float, wall: float, state: State, intent: Followed) -> Optional[Intents]: ...

        def register(self) -> Tuple[List[int], List[int]]: ...

        def due(self, now: float) -> Optional[float]: ...

        def close(self) -> None: ...


def take_role(files: RunFiles, spec: Spec, now: float, *, rebooted: bool) -> Role:
    """The part that falls to this host. Its `step` never blocks, and gives new intents for this host's tasks."""
    if coordinates(spec):
        from .leading import Leading

        return Leading(files, spec, now, rebooted=rebooted)
    from .following import Following

    return Following(files, spec, now, rebooted=rebooted)

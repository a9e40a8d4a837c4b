"""Which hosts read the files when a run is continued from a checkpoint. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtctl.ways import Way

if TYPE_CHECKING:
    from dtctl.plan.values import Part, Roster


def restoring_hosts(roster: Roster) -> tuple[str, ...]:
    """The lead's host first, as the lead looks for the newest one.

    With parameters on ps tasks each of those restores its own, from the same files (RestoreV2 runs on the device of
    its variable); where all train alike each restores all.
    """
    lead = next(part.host for part in roster.tasks if part.id == roster.lead)
    return tuple(dict.fromkeys([lead, *(part.host for part in roster.tasks if _restores(part, roster.way))]))


def _restores(part: Part, way: Way) -> bool:
    if way.keeps_parameters_on_ps:
        return part.role == "ps"
    return way in (Way.COLLECTIVE, Way.KVSTORE) and part.role == "worker"

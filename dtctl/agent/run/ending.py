"""Who ends before whom: others save what is on the servers, and need them to the last of their steps."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

    from ..records.spec import Member


def first(roster: Iterable[Member], tasks: Iterable[str]) -> List[str]:
    """Those of `tasks` that serve nobody."""
    servers = {member["task"] for member in roster if member["serves"]}
    return [task for task in tasks if task not in servers]

"""A host on which tasks fail again and again while those of the others do not: pure functions of how they have ended.

One failure says nothing of the host, and neither do those of a program that fails everywhere. Several in a row, all on
the same host, do.
"""

from __future__ import annotations

from . import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Mapping, Optional, Sequence, Set, Tuple

    from ..records.run_state import Past
    from ..records.spec import RecoverySpec

    Failure = Tuple[float, str, str]
    """When an attempt has failed, on which host, and of which task."""


FROM_OUTSIDE = (1, 2, 9, 15)
"""SIGHUP, SIGINT, SIGKILL, SIGTERM: somebody else has ended the process."""


def says_of_host(past: Past, recovery: RecoverySpec) -> bool:
    """Whether such an end may be the fault of its host: the task has failed by itself, and soon.

    One that has lost a peer says something of the peer, and one without an exit status something of the machine's
    restart.
    """
    if not policy.is_own(past) or past["code"] == 0 or past["ended"] - past["started"] >= recovery["reset_after_s"]:
        return False
    if past["hung"] or past["short_of_memory"]:
        return True
    if past["signal"] is not None:
        return past["signal"] not in FROM_OUTSIDE
    is_failure = past["code"] is not None and past["code"] not in recovery["retry"]
    return is_failure and not policy.lost_peer(past["cause"])


def failures(
    histories: Mapping[str, Tuple[str, Sequence[Past]]], recovery: RecoverySpec, excused: Mapping[str, float]
) -> List[Failure]:
    """The failures that say something of their hosts, by their times.

    `histories`: task -> its host, and its attempts there. `excused`: hosts whose failures before a time do not count.
    """
    return sorted(
        (past["ended"], host, task)
        for task, (host, history) in histories.items()
        for past in history
        if past["ended"] > excused.get(host, 0.0) and says_of_host(past, recovery)
    )


def bad_host(found: Sequence[Failure], limit: int) -> Optional[Tuple[str, int]]:
    """The host that all of the last failures were on, if those are `limit` or more, and how many they are."""
    if not limit or not found:
        return None
    host = found[-1][1]
    row: List[Failure] = []
    for one in reversed(found):
        if one[1] != host:
            break
        row.insert(0, one)
    count = _occasions((at, task) for at, _, task in row)
    return (host, count) if count >= limit else None


def _occasions(row: Iterable[Tuple[float, str]]) -> int:
    """How often something went wrong: tasks of one host that fail together fail once."""
    count, began = 0, float("-inf")
    failed: Set[str] = set()
    for at, task in row:
        if task in failed or at - began > policy.FOLLOWS_S:
            count, began, failed = count + 1, at, set()
        failed.add(task)
    return count

"""Which tasks of other hosts cannot be connected to from this one, and what is in the way."""

from __future__ import annotations

from ..network import connecting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from ..records.network.peers import Peer
    from ..records.vitals import Unreached


def unreached(peers: List[Peer], limit_s: float) -> List[Unreached]:
    """`peers` are trainers: they are connected to, and hear nothing."""
    addresses = {peer["whose"]: peer["address"] for peer in peers}
    return [
        {
            "task": one["whose"],
            "address": addresses[one["whose"]],
            "problem": one["problem"],  # type: ignore[typeddict-item]
            "text": one["text"],
        }
        for one in connecting.reach(peers, "", limit_s)
        if one["problem"]
    ]

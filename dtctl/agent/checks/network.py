"""The network between the tasks of a plan: their ports are listened on, and the others' connected to.

What listens lives as long as the conversation, as other hosts may come to it until all of them have answered.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import files, paths
from ..network import connecting, listening, measuring, naming
from ..records.spec import ports_of
from ..run.runfiles import RunFiles, RunRemoved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, List

    from ..protocol.conversation import Conversation
    from ..records.network.peers import Bound, NetworkFacts, NetworkQuestion


def look(talk: Conversation, question: NetworkQuestion) -> NetworkFacts:
    first = bool(question["listen"] or question["names"])
    return {
        "bound": _listen(talk, question) if question["listen"] else [],
        "interfaces": naming.interfaces() if first else [],
        "resolved": naming.own_names(question["names"], question["limit_s"]) if question["names"] else [],
        "proxies": naming.proxies() if first else {},
        "reached": connecting.reach(question["reach"], question["nonce"], question["limit_s"]),
        "measured": measuring.measure(question["measure"], question["nonce"], question["measure_s"]),
    }


def _listen(talk: Conversation, question: NetworkQuestion) -> List[Bound]:
    listener = listening.Listener(question["host"], question["nonce"])
    talk.leaving.append(listener.close)
    bound = listening.bind(listener, question["listen"], _live_ports(talk, question))
    listener.start()
    return bound


def _live_ports(talk: Conversation, question: NetworkQuestion) -> FrozenSet[int]:
    """Those of the cluster's current run, if that has not ended for good."""
    if question["cluster"] is None:
        return frozenset()
    directory = paths.cluster_directory(talk.root, question["cluster"], question["host"])
    with suppress(files.Unfit, RunRemoved, paths.Damaged, OSError):
        run = paths.read_text(os.path.join(directory, "current"))
        if run and paths.is_component(run):
            current = RunFiles(paths.run_directory(talk.root, run, question["host"]))
            if not current.state()["finished"]:
                return frozenset(ports_of(current.spec()))
    return frozenset()

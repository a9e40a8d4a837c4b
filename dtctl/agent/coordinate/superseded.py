"""Earlier runs of the cluster, whose last word a host has missed that was away: whoever coordinates the cluster's
newest run says it, to agents that come with an earlier run's key.
"""

from __future__ import annotations

from ..host import log
from ..link.messages import PROTOCOL
from ..link.tls import Identity
from ..records.reasons import because, fact
from ..run import intents
from ..survival import revival

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from ..link.lines import Message
    from ..records.messages import Hello
    from ..records.run_state import Intents
    from ..records.spec import Spec
    from ..run.runfiles import RunFiles


def superseded_identities(files: RunFiles, spec: Spec) -> List[Identity]:
    """Identities of all older runs of the cluster that this host has coordinated and still has the files of."""
    found = []
    for other in revival.every(files.root):
        try:
            found.extend(_identity_before(other, spec))
        except (OSError, ValueError) as error:  # half made, being removed, or damaged: that stops nobody else
            log.note("coordinator: %s: %r" % (other.directory, error))
    return found


def _identity_before(other: RunFiles, spec: Spec) -> List[Identity]:
    held = other.spec()
    if not _is_before(held, spec):
        return []
    identity = Identity(other.directory, held["run"])
    identity.context(server=True)  # now is the time to find out that it is damaged
    return [identity]


def _is_before(other: Spec, spec: Spec) -> bool:
    places = [(each["cluster"], each["host"]) for each in (other, spec)]
    leads = other["coordinator"]["host"] == spec["coordinator"]["host"]
    return places[0] == places[1] and leads and other["created"] < spec["created"]


def last_words(hello: Hello) -> Tuple[List[Message], bool]:
    """Messages that tell an agent of such a run to stop all its tasks and go. False if it has done so before."""
    told: Intents = {}
    for task, intent in hello["intents"].items():
        if intent["want"] != "stop":
            told[task] = intent.copy()
            intents.change(told[task], want="stop", by="coordinator", **because([fact("ended_meanwhile")]))
    words: List[Message] = [
        {"type": "welcome", "v": PROTOCOL, "events_from": hello["events"], "may_start": False},
        {"type": "orders", "intents": told, "mending": False, "over": True},
    ]
    return words, bool(told)

"""Which tasks a host answers for: those of the whole run where its coordinator answers, or else its own."""

from __future__ import annotations

from ..host.errors import Refused
from ..records.spec import coordinates
from ..run import policy
from .coordinated import WholeRun
from .own_part import OwnPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Union

    from ..protocol.conversation import Conversation
    from ..records import answers
    from .runs import Run

    Part = Union[OwnPart, WholeRun]


def reached(talk: Conversation, run: Run) -> Part:
    """The whole run on the coordinator's host, unless that does not answer."""
    if not coordinates(run.spec):
        return OwnPart(run)
    whole = WholeRun(talk, run)
    try:
        whole.look()
    except Refused as away:
        return OwnPart(run, away)
    return whole


def refuse_strangers(part: Part, run: Run, named: Optional[List[str]]) -> None:
    """Tasks that no host of the run has."""
    unknown = [task for task in named or [] if task not in part.hosts]
    if unknown:
        raise Refused("bad_request", "%s: no such task in run %s" % (", ".join(unknown[:10]), run.id))


def has_ended(part: Part, task: str) -> bool:
    entry = part.entry(task)
    return entry is not None and entry["state"] in policy.FINAL


def told(away: Optional[Refused]) -> Optional[answers.Refused]:
    """As a field of an answer."""
    if away is None:
        return None
    return {"code": away.code, "summary": away.summary, "detail": away.detail, "hint": away.hint}

"""Which tasks a host answers for: those of the whole run where its coordinator answers, or else its own."""

from __future__ import annotations

from ..host.errors import Refused
from ..records.spec import coordinates
from ..run import policy
from .coordinated import WholeRun
from .own_part import OwnPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Optional, Protocol

    from ..protocol.conversation import Conversation
    from ..records import answers
    from ..records.answers import Survivor
    from ..records.run_state import Entry, How
    from ..records.whole_run import RunView
    from .runs import Run

    class Part(Protocol):
        hosts: Dict[str, str]
        """Task -> host, of the whole run."""
        view: Optional[RunView]
        """As the coordinator tells the run; None where this host speaks for itself alone."""
        away: Optional[Refused]
        """Why the coordinator of this host does not answer."""
        answer_s: float
        """How long it may take until a request is taken."""

        def look(self) -> object:
            """Reads how the tasks are."""

        def tasks(self, named: Optional[List[str]]) -> List[str]:
            """Those of this part, whose hosts are in the run; None means all."""

        def absent(self, named: Optional[List[str]]) -> List[str]:
            """Hosts of these tasks that the run goes on without."""

        def first_to_end(self, named: Optional[List[str]], others_ended: bool) -> List[str]:
            """Those that end now; servers wait for the others, on whatever host."""

        def waits_for(self, named: Optional[List[str]], tasks: List[str]) -> bool:
            """Whether there is anything to ask for where these are the tasks that have not ended."""

        def entry(self, task: str) -> Optional[Entry]:
            """The task as its agent last told it; None when its host has never been heard."""

        def generation(self, task: str) -> Optional[int]:
            """That is wanted of the task."""

        def unreached(self, tasks: List[str]) -> List[str]:
            """Hosts of these tasks that can be told nothing."""

        def refuse_restart(self) -> None:
            """Raises Refused where the run has ended."""

        def missing(self) -> str:
            """Who a start waits for, and why."""

        def post_stop(self, named: Optional[List[str]], tasks: List[str], how: How) -> int:
            """Asks for the end of `tasks`, which are those of `named` (None: of the whole run) that have not ended."""

        def post_restart(self, tasks: List[str], by: str) -> int: ...

        def has_taken(self, serial: int) -> bool: ...

        def longest_end_s(self, grace_s: float) -> float: ...

        def survivors(self, tasks: List[str]) -> List[Survivor]: ...

        def until(self, done: Callable[[], bool], limit_s: float) -> bool:
            """Looks again and again, with an agent at work; False when the time is over."""


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

"""The part of a run that is on this host: sessions read state.json, ask by intent.json, and wait."""

from __future__ import annotations

from ..records.reasons import because, fact
from ..run import intents, outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..host.errors import Refused
    from ..records.answers import Survivor
    from ..records.run_state import Entry, How, IntentFile, State
    from ..records.whole_run import RunView
    from .runs import Run


class OwnPart:
    """The tasks of this host, as its own agent knows them: a Part where no coordinator answers, or it is elsewhere.

    `away` is why the coordinator that is to be here does not answer. A coordinator that the agent reaches hears what is
    wanted of its tasks, as of whatever is news here.
    """

    view: Optional[RunView] = None
    answer_s = float("inf")

    def __init__(self, run: Run, away: Optional[Refused] = None) -> None:
        self.away = away
        self.hosts = {member["task"]: member["host"] for member in run.spec["roster"]}
        self._run = run
        self._own = [task["id"] for task in run.spec["tasks"]]
        self._state: Optional[State] = None

    def look(self) -> None:
        self._state = self._run.state()

    def tasks(self, named: Optional[List[str]]) -> List[str]:
        return [task for task in self._own if named is None or task in named]

    def absent(self, named: Optional[List[str]]) -> List[str]:
        return []

    def first_to_end(self, named: Optional[List[str]], others_ended: bool) -> List[str]:
        """Nobody here knows when the tasks of other hosts have ended: who asks every host says it."""
        asked = [task for task in self.hosts if named is None or task in named]
        first = outcome.without_servers(self._run.spec["roster"], asked)
        return self.tasks(asked if others_ended or not first else first)

    def waits_for(self, named: Optional[List[str]], tasks: List[str]) -> bool:
        """The end of the run is to be heard of elsewhere, too."""
        return bool(tasks) or (named is None and not self._run.finished())

    def entry(self, task: str) -> Optional[Entry]:
        assert self._state is not None
        return self._state["tasks"][task]

    def generation(self, task: str) -> Optional[int]:
        return self._run.intent()["tasks"][task]["generation"]

    def unreached(self, tasks: List[str]) -> List[str]:
        return []

    def refuse_restart(self) -> None:
        """Whether the run has ended is for the coordinator to say."""

    def missing(self) -> str:
        return ""

    def post_stop(self, named: Optional[List[str]], tasks: List[str], how: How) -> int:
        def ask(intent: IntentFile) -> None:
            for task in tasks:
                intents.change(intent["tasks"][task], want="stop", **how)
            for task in self._own if named is None else ():
                intents.change(intent["tasks"][task], ends_run=how)

        return self._run.change(ask)

    def post_restart(self, tasks: List[str], by: str) -> int:
        def ask(intent: IntentFile) -> None:
            for task in tasks:
                entry = intent["tasks"][task]
                again = {"want": "run", "generation": entry["generation"] + 1, "restarts": 0}
                intents.change(entry, **again, grace_s=None, by=by, **because([fact("restart")]))

        return self._run.change(ask)

    def has_taken(self, serial: int) -> bool:
        return self._state is not None and self._state["intent_serial"] >= serial

    def longest_end_s(self, grace_s: float) -> float:
        return grace_s

    def survivors(self, tasks: List[str]) -> List[Survivor]:
        return self._run.survivors(tasks)

    def until(self, done: Callable[[], bool], limit_s: float) -> bool:
        def look(state: State) -> bool:
            self._state = state
            return done()

        return self._run.until(look, limit_s) is not None

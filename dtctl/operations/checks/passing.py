"""The brief check, which travels with the words of another conversation: it costs no connection, and hardly a wait."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from dtctl.agent.records.answers import Facts
from dtctl.agent.records.checks import CheckFacts, Questions
from dtctl.operations.checks.checking import Checked, Clocks, judged, questions_after
from dtctl.operations.checks.topic import Scene
from dtctl.operations.client.plausible import wrong
from dtctl.transport.seam import Session


class InPassing:
    """Of one `up`. Without a scene nothing is asked."""

    def __init__(self, scene: Scene | None) -> None:
        self._scene = scene
        self._opened: dict[str, float] = {}
        self._clocks: Clocks = {}
        self._rounds: list[Mapping[str, CheckFacts]] = []
        self._seconds = 0.0
        self.questions: Mapping[str, Questions] = questions_after(scene, ()) if scene is not None else {}
        """Of the next round, by host."""

    def question(self, host: str) -> Questions | None:
        return self.questions.get(host)

    def opened(self, host: str, opening: Callable[[], Session]) -> Session:
        self._opened[host] = time.time()
        return opening()

    def met(self, session: Session) -> None:
        """Its greeting tells the host's time, at some moment since the conversation was opened."""
        told = session.facts.get("time")
        if told is not None:
            self._clocks[session.host.name] = (told - session.greeted(), told - self._opened[session.host.name])

    def check(self, host: str, answer: Facts) -> None:
        """Raises Wrong for facts that are not those that the host was asked for."""
        asked = {name for name, question in (self.questions.get(host) or {}).items() if question is not None}
        told = {name for name, facts in (answer["facts"] or {}).items() if facts is not None}
        if asked != told:
            raise wrong("facts", ", ".join(sorted(asked)) or "nothing", sorted(told))

    def hear(self, answers: Mapping[str, Facts]) -> None:
        """The answers to `questions`, which lead to new ones. Of a run that is there already there are none."""
        facts = {host: answer["facts"] for host, answer in answers.items() if answer["facts"] is not None}
        self._seconds += max((answer["facts_s"] for answer in answers.values()), default=0.0)
        self._rounds.append(facts)
        known = self._scene is not None and facts
        self.questions = questions_after(self._scene, self._rounds) if self._scene is not None and known else {}

    def judged(self) -> Checked | None:
        """None where nobody was asked, or nobody answered."""
        if self._scene is None or not any(self._rounds):
            return None
        found = judged(self._scene, self._rounds, self._clocks, self._seconds)
        told = {host for facts in self._rounds for host in facts}
        return dataclasses.replace(found, hosts=tuple(host for host in found.hosts if host in told))

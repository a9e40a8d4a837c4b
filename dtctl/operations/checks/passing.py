"""The brief check, which travels with the words of another conversation: it costs no connection and no wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from dtctl.agent.records.answers import Prepared
from dtctl.agent.records.checks import Questions
from dtctl.operations.checks.checking import Checked, Clocks, first_questions, judged
from dtctl.operations.checks.topic import Scene
from dtctl.transport.seam import Session


class InPassing:
    """Of one `up`. Without a scene nothing is asked."""

    def __init__(self, scene: Scene | None) -> None:
        self._scene = scene
        self._questions = first_questions(scene) if scene is not None else {}
        self._clocks: Clocks = {}

    def question(self, host: str) -> Questions | None:
        return self._questions.get(host)

    def opened(self, host: str, opening: Callable[[], Session]) -> Session:
        """Opens a conversation. Its greeting tells the host's time, at some moment meanwhile."""
        before = time.time()
        session = opening()
        told = session.facts.get("time")
        if told is not None:
            self._clocks[host] = (told - time.time(), told - before)
        return session

    def judged(self, prepared: Mapping[str, Prepared]) -> Checked | None:
        """None where nobody was asked: not at all, or of a run that is there already."""
        facts = {host: answer["facts"] for host, answer in prepared.items() if answer["facts"] is not None}
        if self._scene is None or not facts:
            return None
        seconds = max(answer["facts_s"] for answer in prepared.values())
        return judged(self._scene, facts, self._clocks, seconds)

"""What the trainers' Pythons have, without importing any of it."""

from __future__ import annotations

from ..run import environment
from .pythons import Python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.checks import SoftwareFacts, SoftwareQuestion


def look(talk: Conversation, question: SoftwareQuestion) -> SoftwareFacts:
    marks = environment.Marks(None)
    found = []
    for asked in question["pythons"]:
        python = Python(asked, marks)
        if question["started"]:
            python.start()
        else:
            python.read()
        if question["imported"]:
            python.import_all()
        found.append(python.found)
    return {"pythons": found}

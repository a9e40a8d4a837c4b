"""Answers `check`: each topic that is asked about is a module of its name here, with a function `inspect`."""

from __future__ import annotations

import time
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Optional

    from ..conversation import Conversation
    from ..records.answers import Facts
    from ..records.checks import CheckFacts, CheckResult, Questions
    from ..records.starting import CheckRequest, StartMessage


def check(talk: Conversation, request: CheckRequest) -> CheckResult:
    facts = inspect(talk, request["ask"])
    return {"time": time.time(), "facts": facts}


def by_the_way(talk: Conversation, asked: Optional[Questions]) -> Facts:
    """Facts that travel with the answer to another request."""
    began = time.monotonic()
    facts = inspect(talk, asked) if asked is not None else None
    return {"facts": facts, "facts_s": time.monotonic() - began}


def until_start(talk: Conversation) -> StartMessage:
    """Answers further questions until the controller says `start`. Raises as Conversation.expect.

    What was made to look, such as ports that are listened on, is gone when it returns.
    """
    try:
        while True:
            message = talk.receive("start", "look")
            if message["type"] == "start":
                return message  # type: ignore[return-value]  # by the table of words
            talk.send("looked", by_the_way(talk, message["ask"]))
    finally:
        talk.leave()


def inspect(talk: Conversation, asked: Questions) -> CheckFacts:
    """A topic's facts, or null where it was not asked about."""
    facts: Dict[str, object] = {}
    for topic, question in asked.items():
        facts[topic] = None
        if question is not None:
            with talk.at("check of " + topic):
                facts[topic] = import_module("." + topic, __package__).inspect(talk, question)
    return facts  # type: ignore[return-value]

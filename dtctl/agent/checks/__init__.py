"""Answers `check`: each topic of the questions is a module of its name here, with a function `TOPIC_facts`."""

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
    facts = gather_facts(talk, request["ask"])
    return {"time": time.time(), "facts": facts}


def by_the_way(talk: Conversation, asked: Optional[Questions]) -> Facts:
    """Facts that travel with the answer to another request."""
    began = time.monotonic()
    facts = gather_facts(talk, asked) if asked is not None else None
    return {"facts": facts, "facts_s": time.monotonic() - began}


def until_start(talk: Conversation) -> StartMessage:
    """Answers further questions until the controller sends `start`. Raises as Conversation.expect.

    Resources of the checks, such as ports that are listened on, are released when it returns.
    """
    try:
        while True:
            message = talk.receive("start", "look")
            if message["type"] == "start":
                return message  # type: ignore[return-value]  # by the table of messages
            talk.send("looked", by_the_way(talk, message["ask"]))
    finally:
        talk.leave()


def gather_facts(talk: Conversation, asked: Questions) -> CheckFacts:
    """The facts of each topic, or null without a question."""
    facts: Dict[str, object] = {}
    for topic, question in asked.items():
        facts[topic] = None
        if question is not None:
            with talk.at("check of " + topic):
                facts[topic] = getattr(import_module("." + topic, __package__), topic + "_facts")(talk, question)
    return facts  # type: ignore[return-value]

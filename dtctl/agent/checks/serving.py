"""Answers `check`: each topic that is asked about is a module of its name here, with a function `look`."""

from __future__ import annotations

import time
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

    from ..protocol.conversation import Conversation
    from ..records.checks import CheckFacts, CheckResult, Questions
    from ..records.requests import CheckRequest


def check(talk: Conversation, request: CheckRequest) -> CheckResult:
    began = time.monotonic()
    facts = look(talk, request["ask"])
    return {"time": time.time(), "seconds": time.monotonic() - began, "facts": facts}


def look(talk: Conversation, asked: Questions) -> CheckFacts:
    """A topic's facts, or null where it was not asked about."""
    facts: Dict[str, object] = {}
    for topic, question in asked.items():
        facts[topic] = None
        if question is not None:
            with talk.at("check of " + topic):
                facts[topic] = import_module("." + topic, __package__).look(talk, question)
    return facts  # type: ignore[return-value]

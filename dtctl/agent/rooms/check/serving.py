"""Answers `check`: each topic of the questions has its function in the table of rooms."""

from __future__ import annotations

import time

from ...conversation import held
from ...host.errors import Refused
from .. import TOPICS, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

    from ...conversation import Conversation
    from .records import CheckRequest, CheckResult


def check(talk: Conversation, request: CheckRequest) -> CheckResult:
    facts = gather_facts(talk, request["ask"])
    return {"time": time.time(), "facts": facts}


def gather_facts(talk: Conversation, asked: Mapping[str, Any]) -> Dict[str, object]:
    """The facts of each topic. Raises Refused for a topic, or a question, that this agent does not know."""
    for topic in asked.keys() - TOPICS.keys():
        raise Refused("bad_request", "this agent cannot check %s" % ascii(topic)[:60])
    facts: Dict[str, object] = {}
    for topic, raw in asked.items():
        row = TOPICS[topic]
        question = held(row.request, raw, "check of " + topic)
        with talk.at("check of " + topic):
            facts[topic] = load(row.handler)(talk, question)
    return facts

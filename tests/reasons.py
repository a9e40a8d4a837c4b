"""Reasons of records in tests: the sentence that is shown, and a reason that is only a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtctl.agent.records.reasons import sentence, why_of


def reason_of(record: Mapping[str, Any]) -> str:
    """The reason in a record, as people read it."""
    return sentence(why_of({"why": record["why"]}))


def given_up(incident: Mapping[str, Any]) -> str | None:
    """Why the recovery of an incident is no longer awaited, as people read it; None while it is."""
    return None if incident["given_up"] is None else reason_of(incident["given_up"])


def warnings_of(view: Mapping[str, Any]) -> list[str]:
    """The warnings of a coordinator, as people read them."""
    return [reason_of(alert) for alert in view["alerts"]]

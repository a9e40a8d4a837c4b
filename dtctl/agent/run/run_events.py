"""The events that a run reports to hooks: its end, and each loss with its recovery.

Pure functions of cluster.json: the coordinator posts them, and a controller that follows the run starts commands. An
event has the same id for each reporter, and on each report.
"""

from __future__ import annotations

import json
import re

from ..records.reasons import Fact, fact, sentence, why_of
from ..records.whole_run import BadHost, Condition, Incident, RunView, has_steps
from .hangs import HANGS
from .policy import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

    from ..records.run_state import Entry


ENDED = {"Succeeded": "succeeded", "Failed": "failed", "Stopped": "stopped"}

TEXTS = {
    "succeeded": "%(cluster)s has succeeded: %(reason)s",
    "failed": "%(cluster)s has failed: %(reason)s",
    "stopped": "%(cluster)s was stopped: %(reason)s",
    "restarting": "%(cluster)s: %(task)s is restarted: %(reason)s",
    "recovered": "%(cluster)s: %(task)s has recovered: %(reason)s",
    "stalled": "%(cluster)s: %(task)s %(reason)s",
    "bad_host": "%(cluster)s: %(reason)s",
}
NEXT = {
    "succeeded": "dtctl checkpoints --run %(run)s",
    "failed": "dtctl logs %(task)s --run %(run)s",
    "stopped": "dtctl status --run %(run)s",
    "restarting": "dtctl events --run %(run)s",
    "recovered": "dtctl status --run %(run)s",
    "stalled": "dtctl events --run %(run)s",
    "bad_host": "dtctl diagnose --run %(run)s",
}
"""The command to type next."""

_LONGEST_TEXT = 1000
_LONGEST_REASON = 2000
_LONGEST_WHY = 8000
"""The most characters. In any encoding, all of it as JSON, with an address and its headers, fits into a pipe."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_MARKS = str.maketrans({"<": "\u2039", ">": "\u203a"})
"""Slack reads <!channel> and <URL|text> as commands, and a log may contain them."""
_MENTION = re.compile(r"@(?=here|channel|all|everyone)")


class RunEvent:
    """Something to report. `kinds`: all that it is, the most specific first; `time` in epoch seconds."""

    __slots__ = ("attempt", "cause", "condition", "host", "id", "kinds", "run", "task", "time", "why")

    def __init__(
        self,
        run: str,
        name: str,
        kinds: Tuple[str, ...],
        time: float,
        condition: str,
        why: List[Fact],
        task: Optional[str],
        host: Optional[str],
        attempt: Optional[int],
        cause: str = "",
    ) -> None:
        self.run = run
        self.id = "%s/%s" % (run, name)
        self.kinds = kinds
        self.time = time
        self.condition = condition
        self.why = why
        self.task = task
        self.host = host
        self.attempt = attempt
        self.cause = cause
        """The cause of the task's end, by its log."""

    @property
    def is_end(self) -> bool:
        return self.kinds[0] in ENDED.values()


def events_of(view: RunView) -> List[RunEvent]:
    """All events in cluster.json, by their time."""
    found: List[RunEvent] = []
    for incident in view["incidents"]:
        found.append(_loss(view, incident))
        if incident["recovered"] is not None:
            found.append(_recovery(view, incident, incident["recovered"]))
    found += [_bad_host(view, one) for one in view["bad_hosts"]]
    if view["phase"] in ("finishing", "ended") and view["condition"]["type"] in ENDED:
        found.append(_end(view, view["condition"]))
    found.sort(key=lambda one: one.time)
    return found


def ended(
    run: str, condition: str, why: List[Fact], task: Optional[str], time: float, *, hung: bool = False, cause: str = ""
) -> RunEvent:
    """The end of a run, where no coordinator reports it. `cause`: of the task's end, by its log."""
    kind = ENDED[condition]
    kinds = (kind, "stalled") if kind == "failed" and hung else (kind,)
    return RunEvent(run, kind, kinds, time, condition, why, task, None, None, cause)


def recovery(one: Incident) -> List[Fact]:
    """How a task recovered from a loss."""
    after_s = max(0.0, (one["recovered"] or one["noticed"]) - one["noticed"])
    again = fact("trains_again" if has_steps(one) else "runs_again", seconds=after_s)
    if one["back_to"] is None:
        return [again]
    lost = [] if one["step"] is None else [fact("steps_lost", count=max(0, one["step"] - one["back_to"]))]
    return [fact("back_to_step", step=one["back_to"]), *lost, fact("and"), again]


def payload(one: RunEvent, cluster: str, time: str) -> Dict[str, Any]:
    """The payload that is posted, or sent to a command's stdin; docs/notifications.md. `time` in RFC 3339."""
    kind, reason = one.kinds[0], sentence(one.why)[:_LONGEST_REASON]
    names = {"cluster": cluster, "run": one.run, "task": one.task or "the run", "reason": reason}
    then = (NEXT["stopped"] if kind == "failed" and one.task is None else NEXT[kind]) % names
    return {
        "apiVersion": "dtctl/v1",
        "kind": "RunEvent",
        "id": one.id,
        "event": kind,
        "time": time,
        "cluster": cluster,
        "run": one.run,
        "condition": one.condition,
        "task": one.task,
        "host": one.host,
        "attempt": one.attempt,
        "reason": reason,
        "why": one.why if len(json.dumps(one.why)) <= _LONGEST_WHY else [],
        "cause": one.cause[:_LONGEST_TEXT] or None,
        "next": then,
        "text": "%s\n%s" % (_harmless(TEXTS[kind] % names), then),
    }


def _loss(view: RunView, one: Incident) -> RunEvent:
    kinds = ("stalled", "restarting") if one["loss"] in HANGS else ("restarting",)
    name, why = _name_of(one), why_of(one)
    where = one["task"], one["host"], one["attempt"]
    return RunEvent(view["run"], name, kinds, one["noticed"], "Restarting", why, *where, one["cause"])


def _recovery(view: RunView, one: Incident, at: float) -> RunEvent:
    name, where = _name_of(one) + "/recovered", (one["task"], one["host"], one["attempt"])
    return RunEvent(view["run"], name, ("recovered",), at, "Running", recovery(one), *where)


def _bad_host(view: RunView, one: BadHost) -> RunEvent:
    name, why = "bad_host/%s/%d" % (one["host"], one["since"]), why_of(one)
    return RunEvent(view["run"], name, ("bad_host",), one["since"], "Running", why, None, one["host"], None)


def _name_of(one: Incident) -> str:
    return "%s/%d/%s" % (one["task"], one["attempt"], one["loss"])


def _end(view: RunView, condition: Condition) -> RunEvent:
    why, hung = why_of(condition), condition["hung"]
    run_event = ended(view["run"], condition["type"], why, condition["cause"], condition["since"], hung=hung)
    for host, contact in view["hosts"].items():
        entry = contact["state"]["tasks"].get(run_event.task or "") if contact["state"] else None
        if entry is not None:
            run_event.host, run_event.attempt = host, entry["attempt"]
            run_event.cause = "" if condition["hung"] else cause_of(entry)
    return run_event


def cause_of(entry: Entry) -> str:
    """The cause of the last end that the task came to by itself, by its log."""
    own = [past["cause"] for past in entry["history"] if is_own(past)]
    return own[-1] if own else ""


def _harmless(text: str) -> str:
    """The text as one line without mentions and markup."""
    line = _MENTION.sub("@\u200b", _CONTROL.sub(" ", text).translate(_MARKS))
    return line if len(line) <= _LONGEST_TEXT else line[: _LONGEST_TEXT - 4] + " ..."

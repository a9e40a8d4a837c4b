"""Goodput: the share of a run's time that was spent on steps that were kept, and the use of the rest.

The account starts with the run's coordinator, after the push of the code and the setup, and ends with the outcome.
Each second belongs to one part, so that the parts add up to the elapsed time:

    kept     between two reported steps, unless it is one of the others
    again    the same after an interruption, however short, until the highest step reported before is passed: steps are
             done again after a rollback; also the time between the last reported step and a sudden end
    start    tasks run, and none has reported a step yet: imports, building of the graph, restoring, the first step
    wait     no training task may run: it waits for hosts and servers before the start; after a loss for its delay,
             and for remaining processes
    stall    no step was reported although all tasks ran, for more than 30 s and more than 10 times the usual gap
             between two steps, or the time of the first step; and the time from the last step until a hang was
             detected
    away     no step was reported, and a host was away
    pause    all training tasks are held, because a host is drained; it is not part of the elapsed time
    end      after the last step of a run that has succeeded: the last save, the last evaluation
    unsaved  after the last step of a run that has failed, and its steps past the last checkpoint

A step counts from when its line was written, as the agent of its host found it. Unknown are: how
much a lost task slowed the training of the others; and the time of the steps before the first one that a program
reports, which counts as start. The time without a coordinator is judged by the steps made in it.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.reasons import Fact, fact
from ..records.whole_run import MOST_PACE, MOST_SPANS, Account, Spent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional


PARTS: "List[Spent]" = ["kept", "start", "wait", "again", "stall", "away", "pause", "end", "unsaved"]

STALL_S = 30.0
AWAY_S = 10.0
"""A shorter silence is none."""
STALL_GAPS = 10.0
AWAY_GAPS = 3.0

LATE_S = 10.0
"""How late a move may be known, if its time counted as something else until then."""

NEWS = 0.2
"""The weight of the newest value in a usual value."""


def begun(wall: float) -> Account:
    return made(Account, since=wall, seconds=0.0)


def account_for(
    account: Account,
    passed_s: float,
    situation: str,
    reported: Mapping[str, int],
    last: Mapping[str, int],
    *,
    lost: bool = False,
    hung: bool = False,
) -> None:
    """Accounts for the time since the previous call, by the coordinator's observations.

    `situation`: train, away, start, wait or pause. `reported`: the new steps; `last`: the steps before. `lost`: a task
    has ended unexpectedly; `hung`: because it hung.
    """
    before_s = account["seconds"]
    account["seconds"] += passed_s
    if reported and situation not in ("wait", "pause"):
        _take_steps(account, reported, last)
    elif situation in ("start", "wait", "pause"):
        _interrupt(account, before_s, reported, lost=lost, hung=hung)
        what: Spent = "start" if situation == "start" else "pause" if situation == "pause" else "wait"
        _close(account, what, account["seconds"])
    elif not account["training"]:
        _close(account, "away" if situation == "away" else "start", account["seconds"])
    else:
        account["away"] = account["away"] or situation == "away"


def rewind(account: Account, to_s: float) -> None:
    """Goes back to a move that is known only now, within the time that is not judged yet or the last span."""
    spans = account["spans"]
    before_s = spans[-1]["end_s"] if spans else sum(account["before"].values())
    if account["training"]:
        account["seconds"] = min(account["seconds"], max(to_s, before_s))
    elif spans:
        begin_s = spans[-2]["end_s"] if len(spans) > 1 else sum(account["before"].values())
        account["seconds"] = min(account["seconds"], max(to_s, begin_s, account["seconds"] - LATE_S))
        spans[-1]["end_s"] = min(before_s, account["seconds"])


def missed(account: Account, seconds: float) -> None:
    """Adds time without a coordinator. Steps that are reported after it show whether any were made in it."""
    account["seconds"] += seconds
    if not account["training"]:
        _close(account, account["spans"][-1]["what"] if account["spans"] else "wait", account["seconds"])


def close(account: Account, outcome: str, hung: bool) -> None:
    """Closes the account with the outcome of the run: Succeeded, Failed or Stopped. `hung`: because a task hung."""
    if not account["training"]:
        return
    what = "stall" if hung else _silence(account, account["seconds"])
    if what in ("kept", "again") or outcome == "Succeeded":
        what = "end" if outcome == "Succeeded" else "unsaved" if outcome == "Failed" else what
    _close(account, what, account["seconds"])
    account["training"] = False


def parts(account: Account, saved: Optional[int] = None) -> Dict[Spent, float]:
    """Seconds of each part; time that is not judged yet counts as if no step follows.

    `saved`: the step of the last checkpoint of a run that has not succeeded: later ones are not kept.
    """
    found: Dict[Spent, float] = {what: account["before"].get(what, 0.0) for what in PARTS}
    begin_s, step, unsaved_s = sum(account["before"].values()), None, 0.0
    for span in account["spans"]:
        seconds = max(0.0, span["end_s"] - begin_s)
        found[span["what"]] += seconds
        if span["what"] == "kept":
            unsaved_s = seconds * (1.0 - saved_share(step, span["step"], saved))
        begin_s, step = max(begin_s, span["end_s"]), span["step"] if span["step"] is not None else step
    found[unjudged(account)] += max(0.0, account["seconds"] - begin_s)
    found["kept"] -= unsaved_s
    found["unsaved"] += unsaved_s
    return found


def saved_share(before: Optional[int], reached: Optional[int], saved: Optional[int]) -> float:
    """How much of the last kept span the checkpoint of step `saved` has; the steps in it are taken as evenly made.

    `before`: the step with which the span began, if it is known; `reached`: the one with which it ended.
    """
    if saved is None or reached is None or reached <= saved:
        return 1.0
    first = reached if before is None else before
    return 0.0 if reached <= first else min(1.0, max(0.0, (saved - first) / (reached - first)))


def unjudged(account: Account) -> Spent:
    """The use of the time since the last span, if no step follows."""
    if account["training"]:
        return _silence(account, account["seconds"])
    return account["spans"][-1]["what"] if account["spans"] else "wait"


def summary(seconds: Mapping[Spent, float]) -> List[Fact]:
    """The account as facts: goodput 93 %: startup 4 %, repeated steps 2 %. The largest parts first, without pauses."""
    paused_s = seconds.get("pause", 0.0)
    elapsed_s = sum(seconds.values()) - paused_s or 1.0
    shares = {what: round(100 * seconds.get(what, 0.0) / elapsed_s) for what in PARTS}
    facts = [fact("goodput", count=shares["kept"])]
    for what in sorted(PARTS[1:], key=lambda one: -seconds.get(one, 0.0)):
        if shares[what] and what != "pause":
            facts += [
                *([fact("comma")] if len(facts) > 1 else []),
                fact("spent_" + what, count=shares[what]),
            ]
    return [*facts, fact("and"), fact("spent_pause", seconds=paused_s)] if paused_s else facts


def is_known(account: Optional[Account]) -> bool:
    """Whether any step was reported: without one it is unknown what was kept."""
    return account is not None and account["reached"] is not None


def _take_steps(account: Account, reported: Mapping[str, int], last: Mapping[str, int]) -> None:
    step = max(reported.values())
    if account["training"]:
        _pass_reached(account, step)
    new = account["again_to"] is None or step > account["again_to"]
    if account["training"]:
        advanced = max(0, *(step - last.get(task, step) for task, step in reported.items()))
        _judge(account, "kept" if new else "again", advanced)
    else:
        _close(account, account["spans"][-1]["what"] if account["spans"] else "start", account["seconds"])
    account["spans"][-1]["step"] = step
    account["training"] = True
    account["again_to"] = None if new else account["again_to"]
    account["reached"] = max(step, account["reached"] or 0)


def _pass_reached(account: Account, step: int) -> None:
    """Closes the repeated steps at the time when the highest step before was reached again, taken as evenly made."""
    again_to, last = account["again_to"], account["spans"][-1]
    begin, begin_s = last["step"], last["end_s"]
    if again_to is not None and begin is not None and begin < again_to < step:
        share = (again_to - begin) / (step - begin)
        _close(account, "again", begin_s + share * (account["seconds"] - begin_s))
        account["spans"][-1]["step"], account["again_to"] = again_to, None


def _interrupt(account: Account, until_s: float, reported: Mapping[str, int], *, lost: bool, hung: bool) -> None:
    """Ends the training time, as no task trains. Steps that are still reported were made before, and arrive late."""
    if reported:
        account["reached"] = max(*reported.values(), account["reached"] or 0)
    if account["training"]:
        what = _silence(account, until_s)
        if not reported:
            what = "stall" if hung else "again" if lost and what == "kept" else what
        _close(account, what, until_s)
        account["training"] = False
    account["again_to"] = account["reached"]


def _judge(account: Account, kind: Spent, advanced: int) -> None:
    """Judges the time between two reported steps. `advanced`: the number of steps.

    Steps that keep their pace were made all the time, however long nobody heard of them, as by a program that reports
    only its checkpoints. Several steps at once show that, too, while no pace is known.
    """
    length_s = _unjudged_s(account, account["seconds"])
    known = account["pace"] > 0
    paced = advanced >= account["pace"] * length_s / 2 if known else advanced > 1
    usual = paced or length_s <= _limit_s(account)
    if usual and length_s > 0:
        account["gap_s"] = _mixed(account["gap_s"], length_s)
    if (usual or not known) and advanced and length_s > 0:
        account["pace"] = _mixed(account["pace"], min(advanced / length_s, MOST_PACE))
    _close(account, kind if usual else _silence(account, account["seconds"]), account["seconds"])


def _silence(account: Account, until_s: float) -> Spent:
    """The use of the time since the last step, if no other follows."""
    if _unjudged_s(account, until_s) > _limit_s(account):
        return "away" if account["away"] else "stall"
    return "kept" if account["again_to"] is None else "again"


def _limit_s(account: Account) -> float:
    if account["away"]:
        return max(AWAY_S, AWAY_GAPS * account["gap_s"])
    return max(STALL_S, STALL_GAPS * (account["gap_s"] or _first_step_s(account)))


def _first_step_s(account: Account) -> float:
    """The time of the first step, if no time between two steps is known yet, as that may be as long."""
    spans = account["spans"]
    if not spans or spans[-1]["what"] != "start":
        return 0.0
    return spans[-1]["end_s"] - (spans[-2]["end_s"] if len(spans) > 1 else sum(account["before"].values()))


def _unjudged_s(account: Account, until_s: float) -> float:
    return until_s - (account["spans"][-1]["end_s"] if account["spans"] else 0.0)


def _mixed(usual: float, newest: float) -> float:
    return usual + NEWS * (newest - usual) if usual else newest


def _close(account: Account, what: Spent, end_s: float) -> None:
    """Ends a span, or prolongs the last one."""
    account["away"] = False
    spans = account["spans"]
    if spans and spans[-1]["what"] == what:
        spans[-1]["end_s"] = end_s
    elif not spans or _unjudged_s(account, end_s) > 0:
        spans.append({"what": what, "end_s": end_s, "step": None})
    if len(spans) > MOST_SPANS:
        first = spans.pop(0)
        begin_s = sum(account["before"].values())
        account["before"][first["what"]] = account["before"].get(first["what"], 0.0) + first["end_s"] - begin_s

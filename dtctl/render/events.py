"""The events of a run as text: the lines of `dtctl events`, losses and recoveries."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import HOLDING, Fact, fact, headline, named, read, sentence, why_of
from dtctl.agent.records.whole_run import HistoryEvent, Incident, RunView, has_steps
from dtctl.agent.run.policy import fingerprint
from dtctl.model import grouped
from dtctl.operations.snapshot import Coordination, Outcome, Verdict, recovered_after_s, steps_lost
from dtctl.render.failure import brief, causes_of
from dtctl.render.format import clock, count, duration, local_time
from dtctl.render.terminal import console

if TYPE_CHECKING:
    from dtctl.operations.events import Attempted


def event_line(event: HistoryEvent, told: Told | None = None) -> str:
    """An event as a line: time, subject, change and reason. `told`: causes that the reader knows."""
    return f"{local_time(event['time'])}  {_text(event, told)}"


def event_lines(events: Iterable[HistoryEvent]) -> list[str]:
    """Events as lines, the first of which with a cause has it in full."""
    told = Told()
    return [event_line(one, told) for one in events]


def attempt_line(one: Attempted, told: Told | None = None) -> str:
    """An attempt as a line, from its start to its end. `told`: causes that the reader knows."""
    where = f" on {one.host}" if one.host else ""
    return f"{local_time(one.time)}  {one.task} attempt {one.attempt}{where} {_course(one, told or Told())}"


def history_line(entry: HistoryEvent | Attempted, told: Told | None = None) -> str:
    return event_line(entry, told) if isinstance(entry, dict) else attempt_line(entry, told)


def show_entry(entry: HistoryEvent | Attempted, told: Told) -> None:
    """Prints an event or an attempt; a terminal that is too narrow gets the rest below its first word.

    `told`: causes that lines above have in full. In a pipe each line has its own cause in full, for who searches it.
    """
    line = history_line(entry, told if console.on_terminal() else None)
    if not console.on_terminal() or len(line) < _SHORT or len(line) <= console.out().width:
        return console.say(line)
    time, apart, text = line.partition("  ")
    console.out().prose(text, label=f"{time}{apart}")
    return None


_SHORT = 60
"""Shorter lines fit any terminal: rich, which knows its width, is not imported for them."""


def cause_of(incident: Incident) -> tuple[str, str]:
    """The same for losses of a task that have the same cause."""
    return incident["task"], fingerprint(sentence(why_of(incident)))


def losses_lines(
    incidents: Iterable[Incident],
    now: float,
    most: int,
    reported: Container[tuple[str, str]] = (),
    told: Container[str] = (),
) -> list[str]:
    """The newest `most` causes of losses; of the losses of each, the last one. Those in `reported` are left out.

    `told`: fingerprints of causes that other lines tell in full; of the others the first line does.
    """
    by_cause = grouped((cause_of(incident), incident) for incident in incidents)
    groups = sorted((by_cause[cause] for cause in by_cause if cause not in reported), key=lambda group: group[-1]["id"])
    earlier = sum(len(group) for group in groups[:-most])
    lines = [f"{count(earlier, 'earlier loss')}: dtctl events"] if earlier else []
    known = Told(told)
    for group in groups[-most:]:
        lines += incident_lines(group[-1], now, len(group), group[0]["noticed"], known)
    return lines


class Told:
    """The causes that a reader knows: each is told in full once, and in a few words after that."""

    def __init__(self, known: Container[str] = ()) -> None:
        self._known = known
        self._told: set[str] = set()

    def words(self, why: Sequence[Fact]) -> str:
        """The reason, which is known from now on."""
        causes = causes_of(why)
        new = [cause for cause in causes if cause not in self]
        self._told.update(new)
        return sentence(why) if new or not causes else brief(why, self)

    def __contains__(self, cause: object) -> bool:
        return cause in self._told or cause in self._known


def incident_lines(
    incident: Incident, now: float, times: int = 1, since: float = 0.0, told: Told | None = None
) -> list[str]:
    """A loss and its recovery; failures that only followed from it share one line.

    `times`: losses by the same cause, since then, of which it is the last. `told`: causes that the reader knows.
    """
    told = told or Told()
    again = f", {times} times since {clock(since)}" if times > 1 else ""
    why = tuple(why_of(incident))
    parts = [f"{_ended(incident['task'], why, told.words(why))} at {clock(incident['noticed'])}{again}"]
    along = [task for task in incident["tasks"] if task != incident["task"]]
    if along:
        parts.append(f"restarted with it: {', '.join(along)}")
    if incident["back_to"] is not None:
        lost = "" if (steps := steps_lost(incident)) is None else f", {steps} steps lost"
        parts.append(f"back to step {incident['back_to']}{lost}")
    parts.append(_recovery(incident, now))
    lines = ["; ".join(parts)]
    if incident["collateral"]:
        followers = ", ".join(
            f"{one['task']} ({told.words(reason)})" if (reason := why_of(one)) else one["task"]
            for one in incident["collateral"]
        )
        lines.append(f"  after that: {followers}")
    return lines


def news(before: Coordination | None, now: Coordination, told: Told | None = None, *, waits: bool = True) -> list[str]:
    """The changes that a person who follows the run must know. `told`: causes that the reader knows.

    `waits`: also what a start waits for, unless another line shows it.
    """
    told = told or Told()
    lines = []
    for incident in reported_losses(before, now):
        lines += incident_lines(incident, now.view["time"], told=told)
    waits_for = why_of(now.view["waits_for"])
    is_new = before is None or why_of(before.view["waits_for"]) != waits_for
    if waits and waits_for and is_new and not now.verdict.outcome.decided:
        lines.append(f"waiting: {sentence(waits_for)}")
    if now.verdict.outcome is Outcome.SUSPENDED and not (before and before.verdict.outcome is Outcome.SUSPENDED):
        lines.append(f"the run is paused: {sentence(now.verdict.why)}")
    verdict = now.verdict
    if not verdict.outcome.decided:  # those of a run that has ended are part of its result
        known = warnings(before.view) if before is not None else []
        lines += [f"warning: {text}" for text in warnings(now.view) if text not in known]
    if verdict.outcome.decided and not (before and before.verdict.outcome.decided) and now.view["phase"] != "ended":
        lines.append(f"{_decided(verdict, told)}; the hosts stop the remaining tasks")
    return lines + _contacts(before, now)


def _decided(verdict: Verdict, told: Told) -> str:
    """What has decided the outcome. Why a task has failed is told in full when all have stopped."""
    if verdict.outcome is Outcome.FAILED and verdict.cause is not None:
        return f"{verdict.cause} failed"
    return told.words(verdict.why)


def warnings(view: RunView) -> list[str]:
    """The sentences of the coordinator's warnings."""
    return [sentence(why_of(alert)) for alert in view["alerts"]]


def reported_losses(before: Coordination | None, now: Coordination) -> list[Incident]:
    """Losses to report: of each cause the first one, and each that was overcome since.

    Those of a run that has ended already are part of its result.
    """
    if before is None and now.verdict.outcome.decided:
        return []
    known = {incident["id"]: incident for incident in before.view["incidents"]} if before else {}
    causes: dict[tuple[str, str], Incident] = {}
    for incident in now.view["incidents"]:
        causes.setdefault(cause_of(incident), incident)

    def is_news(incident: Incident) -> bool:
        old = known.get(incident["id"])
        if old is not None:
            return (incident["recovered"], incident["back_to"]) != (old["recovered"], old["back_to"])
        overcome = incident["recovered"] is not None
        return causes[cause_of(incident)] is incident and (before is not None or not overcome)

    return [incident for incident in now.view["incidents"] if is_news(incident)]


def _contacts(before: Coordination | None, now: Coordination) -> list[str]:
    if before is None or now.verdict.outcome is Outcome.CREATED:
        return []
    lost = [f"{host} is unreachable" for host in now.lost_hosts if host not in before.lost_hosts]
    there = [host for host in before.lost_hosts if host in now.contacts]  # a spare may have taken the place of one
    back = [f"{host} is back" for host in there if now.contacts[host]["connected"]]
    drained = [f"{host} is drained" for host in now.drained_hosts if host not in before.drained_hosts]
    again = [f"{host} is no longer drained" for host in before.drained_hosts if host not in now.drained_hosts]
    return lost + back + drained + again


_USUAL_START_S = 5.0
"""A restarted task is not expected to train before."""


def _recovery(incident: Incident, now: float) -> str:
    verb = "training" if has_steps(incident) else "running"
    if (after_s := recovered_after_s(incident)) is not None:
        return f"{verb} again after {_seconds(after_s)}"
    if incident["given_up"] is not None:
        return sentence(why_of(incident["given_up"]))
    if incident["begun"] is not None:
        since = now - incident["noticed"]
        return "started again" if since < _USUAL_START_S else f"started again, not {verb} yet after {duration(since)}"
    return "to be started again"


def _course(attempted: Attempted, told: Told) -> str:
    why, kind = told.words(attempted.why), headline(attempted.why)
    if not attempted.ended:
        verb = {"starting": "starts", "running": "runs"}.get(attempted.state)
        return f"{verb}: {why}" if verb and why else verb or why or attempted.state
    ran = "did not run" if attempted.ran_s is None else f"ran {duration(attempted.ran_s)}"
    if attempted.state == "succeeded":
        return f"{ran}, succeeded" if len(attempted.why) <= 1 else f"{ran}, {why}, succeeded"
    if kind == "run_failed":  # its cause has lines of its own
        return f"{ran}, stopped: {sentence([fact('run_failed')])}"
    if attempted.state == "stopped":
        return f"{ran}, {why or 'stopped'}" if kind in ("stopped", "stopped_by", None) else f"{ran}, stopped: {why}"
    if any(read(each)["kind"] in HOLDING for each in attempted.why):
        return f"{ran}, {why}"
    if kind in ("restart", "restarted_with"):
        return f"{ran}, {'restarted' if kind == 'restart' else why}"
    what = "failed" if attempted.state == "failed" else "restarted" if attempted.again else "to be restarted"
    return ", ".join(filter(None, [ran, why, what]))


_PREDICATES = ("killed", "stalled", "hung", "frozen", "cannot_run", "cannot_enter", "cannot_open_log", "cannot_start")
"""Kinds whose sentences may follow a task's name unchanged."""

_EXITS = ("exited", "ps_ended", "keeper_killed", "host_restarted", "exit_damaged")
"""Kinds that name how a task ended."""


def _ended(who: str, why: Sequence[Fact], words: str) -> str:
    kind = headline(why)
    verb = " " if kind in _PREDICATES else " ended with " if kind in _EXITS else ": "
    return f"{who}{verb}{words}"


def _seconds(span: float) -> str:
    """A duration, with tenths below a minute: 9.4 s."""
    return f"{span:.1f} s" if span < 60 else duration(span)


def _text(event: HistoryEvent, told: Told | None = None) -> str:
    """An entry as a sentence: subject, change, reason, and the user who requested it."""
    who = event["task"] or event["host"] or ""
    why = sentence(why_of(event)) if told is None else told.words(why_of(event))
    if event["kind"] == "task":
        attempt = f" (attempt {event['attempt']})" if event["attempt"] and event["attempt"] > 1 else ""
        what = f"{event['from']} -> {event['to']}" if event["from"] != event["to"] else f"{event['to']}"
        text = f"{who} on {event['host']} {what}{attempt}" if event["host"] else f"{who} {what}{attempt}"
        text += f": {why}" if why else ""
    elif event["kind"] == "condition":
        counts = headline(why_of(event)) == "tasks_run"  # only at that moment: no event follows when the rest start
        text = str(event["to"]) if counts or not why else f"{event['to'] or 'condition'}: {why}"
    elif not who or who in named(why_of(event)) or (event["kind"] == "contact" and headline(why_of(event)) == "said"):
        text = why
    else:
        text = f"{why} ({who})" if event["kind"] == "request" else f"{who}: {why}"
    return f"{event['by']}: {text}" if event["by"] else text

"""Why something is so, for people: as facts in records, and as a sentence where it is shown.

A reason is a chain of facts, each of a kind and with the fields that its kind needs: `run_failed`, `task_failed` of
worker:1, `killed` by signal 9, `port_held` by another process. The first is its headline. Each kind has one sentence,
here: the agent needs them for notifications and refusals, which it sends itself, and `dtctl.render` takes them from
this table, too. No decision reads a reason, neither its sentence nor its facts: what
decides is a field of its own, set by the one who knows it, and other code only passes reasons on.
"""

import re

from .kinds import AtMost, Default, List, NotRequired, Pattern, Record
from .values import By, Count, ExitCode, Line, Name, Port, Reason, Seconds, SignalNumber, TaskName, Tasks, brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Optional

MOST_FACTS = 16


class FactFields(Record):
    """One fact of a reason. Its kind determines its fields; an unknown kind comes from another build."""

    kind: Pattern[str, 40, r"[a-z]+(_[a-z]+)*", "the kind of a reason"]
    task: NotRequired[TaskName]
    tasks: NotRequired[Tasks]
    host: NotRequired[Name]
    run: NotRequired[Name]
    by: NotRequired[By]
    """Who requested it."""
    code: NotRequired[ExitCode]
    signal: NotRequired[SignalNumber]
    port: NotRequired[Port]
    step: NotRequired[Count]
    count: NotRequired[Count]
    of: NotRequired[Count]
    seconds: NotRequired[Seconds]
    what: NotRequired[Line]
    """A path, a command or an address."""
    text: NotRequired[Reason]
    """Text of a system, a library or a log, not of dtctl."""


if TYPE_CHECKING:

    class Fact:
        """Words in the making: mypy lets nobody read a field of it, except through `read`."""
else:
    Fact = FactFields

Why = AtMost[List[Fact], MOST_FACTS]


def read(one: Fact) -> FactFields:
    """The fields of a fact, for what turns it into words. tests/unit/test_structure.py says who may import this."""
    return one  # type: ignore[return-value]


class Because(Record):
    """A record with a reason."""

    why: Default[Why, []]


SENTENCES = {
    # how a process has ended
    "exited": "exit code %(code)d",
    "killed": "killed by %(signal)s",
    "cannot_run": "cannot run %(what)s: %(text)s",
    "cannot_enter": "cannot enter %(what)s: %(text)s",
    "cannot_open_log": "cannot open the log: %(text)s",
    "cannot_start": "cannot be started: %(text)s",
    "cannot_record": "cannot record the start: %(text)s",
    "given_up": "cancelled before it was started",
    "keeper_killed": "exit status unknown (its keeper was killed)",
    "never_started": "its keeper was killed before the start",
    "host_restarted": "exit status unknown (the host was restarted)",
    "exit_damaged": "exit status unknown (%(text)s)",
    "exit_unknown": "its exit is unknown",
    "exit_unwritten": "its process has ended, and its exit cannot be written (is the disk of %(host)s full?)",
    "ps_ended": "exit code 0, but a ps is needed to the end",
    # why it counts as hung
    "stalled": "stalled: no sign of progress for %(span)s",
    "hung": "stalled: no sign of progress",
    "frozen": "stalled: frozen (stopped by a signal) for %(span)s",
    "still_silent": "still no sign of progress after its restart",
    "at_barrier": "no step since %(task)s is back, and all tasks have been idle for %(span)s: they wait for each other"
    " (strategy: sync-ps restarts all of them at once)",
    "never_began": "no task has reported a step since the start, and all have been idle for %(span)s",
    # details
    "hung_in": "; it was in %(text)s",
    "port_held": "; port %(port)d is held by %(text)s",
    "left_behind": "left %(count)d process%(es)s behind (%(text)s), which %(was)s ended",
    "cause": " (%(text)s)",
    "shortage": ", a shortage on its host",
    "limit": "; %(what)s is %(text)s",
    "disk_full": "; %(what)s is full",
    "own_disk_full": "; %(what)s, where the run's files are, is full",
    "cannot_restore": ", a file that cannot be read",
    "out_of_memory": "; the host ran out of memory meanwhile, and its kernel killed %(count)d process%(es)s",
    "lost_in_pipe": "; its shell reported success, as the program's own status was lost in a pipe"
    " (set -o pipefail keeps it)",
    "permanent": ", which is not tried again",
    "early": "; the tasks that it needs were not ready",
    "same_way": "; gave up after %(count)d identical failures",
    "after_restarts": ", after %(count)d restart%(s)s",
    "after_run_restarts": ", after %(count)d restart%(s)s in the run",
    "no_checkpoint": ", and there is no complete checkpoint to go back to (recovery.allow_scratch: true starts over)",
    "damaged_checkpoint": "; %(what)s is damaged (%(text)s), and its directory has no older complete one:"
    " choose another directory (dirs.output, checkpoint.dir), or start over with recovery.allow_scratch: true",
    "complete_elsewhere": "; %(what)s is complete",
    # who requested it
    "stopped": "stopped",
    "stopped_by": "stopped by %(by)s",
    "killed_after": "killed after %(seconds).0f s%(because)s",
    "taken_down": "taken down by %(by)s",
    "restart": "restart",
    "replaced": "replaced by run %(run)s",
    "start_failed": "%(task)s failed to start: %(rest)s",
    "cannot_bind": "%(task)s could not bind its port",
    "makes_room": "stopped to make room for another run",
    "rolled_back": "rolled back",
    "drained": "%(host)s is drained by %(by)s",
    "drained_alone": "%(host)s is drained by %(by)s, and the others train without it",
    "shutting_down": "%(host)s is shutting down",
    "cut_off": "%(host)s was cut off from the coordinator",
    "undrained": "%(host)s is in service again: all tasks that need each other start together",
    "resumed": "%(host)s is in service again",
    "scaled_down": "%(task)s is not needed: %(text)s is scaled to %(count)d by %(by)s",
    "scaled_up": "scaled up by %(by)s",
    "left_out": "%(tasks)s left out: %(host)s has been unreachable for %(span)s; %(count)d of %(of)d workers train",
    "bad_host": "%(tasks)s left out: the last %(count)d failures of the run were all on %(host)s"
    " (dtctl undrain %(host)s lets it take part again)",
    "bad_host_needed": "the last %(count)d failures of the run were all on %(host)s, and it cannot continue without it"
    " (dtctl replace %(host)s moves its tasks)",
    "bad_host_replaced": "%(what)s takes part in no run until dtctl undrain %(what)s: the last failures of the run were"
    " all on it, and %(host)s has its tasks",
    "resized": "all tasks that train restart because their number changes",
    "sized": ": %(count)d of %(of)d workers train",
    "ending": "ending",
    "held_still": "held still: the coordinator has not answered %(host)s for %(seconds).0f s",
    "goes_on": "continues: the coordinator answers %(host)s again",
    "restarted_with": "restarted with %(task)s (%(rest)s)",
    "session_lost": "the controller was lost before the start was complete",
    "isolated": "no message from the coordinator for %(seconds).0f s",
    "moved_away": "another host has the place of %(host)s",
    "ended_meanwhile": "the run was ended while this host was unreachable",
    # the state of the run
    "no_task_runs": "no task runs yet",
    "tasks_run": "%(count)d of %(of)d tasks run",
    "task_lost": "%(task)s: %(rest)s",
    "task_stopped": "%(task)s was stopped",
    "lead_finished": "%(task)s finished",
    "workers_finished": "every worker finished",
    "task_failed": "%(task)s failed: %(rest)s",
    "host_gone": "%(host)s has been unreachable for %(seconds).0f s",
    "deadline": "the deadline of %(seconds).0f s has passed",
    "not_ready": "not ready after %(seconds).0f s: %(rest)s",
    "run_succeeded": "the run has succeeded",
    "run_failed": "the run has failed%(because)s",
    "run_stopped": "the run has stopped%(because)s",
    "hosts_unreachable": "; %(count)d host%(s)s unreachable: %(text)s",
    # what the start waits for
    "hosts_silent": "%(text)s %(is)s still starting",
    "hosts_unconnected": "%(text)s cannot connect to the coordinator on %(what)s",
    "firewall": "; is there a firewall between the hosts? (coordinator.port chooses another)",
    "asks_others": "nothing is started until the coordinator is connected to %(count)d more host%(s)s of the run, "
    "which may have been replaced meanwhile: dtctl restart    starts it anyway",
    "lacks_voters": "most voting hosts are unreachable, so the run starts nothing and ends its tasks; if they are gone "
    "for good: dtctl up --replace    with a file of the hosts that are left",
    "waits_for_host": "%(task)s: its host %(host)s is unreachable",
    "waits_to_listen": "%(task)s is loading",
    "starts_again": "%(task)s will start again%(because)s",
    "waits_in_state": "%(task)s is %(text)s",
    "and": "; ",
    "and_more": " ...",
    # what is decided after a loss, and what comes of it
    "goes_alone": ": it is restarted alone",
    "goes_in": ": it is restarted%(later)s",
    "goes_with": ": restarted with %(task)s%(later)s",
    "all_go": ": all %(count)d tasks are restarted%(later)s",
    "holds": ": %(tasks)s held",
    "takes_place": "%(what)s has been unreachable for %(span)s: %(host)s takes its tasks",
    "takes_bad_place": "the last failures of the run were all on %(what)s: %(host)s takes its tasks (dtctl undrain "
    "%(what)s makes it a spare)",
    "no_spare": "no spare can take the tasks of %(host)s, which is unreachable: %(text)s",
    "none_left": "there is none",
    "spare_away": "%(host)s is unreachable",
    "spare_drained": "%(host)s is drained",
    "spare_unfit": "%(host)s was not prepared for them",
    "spare_blind": "%(host)s does not see %(what)s as the lead's host does",
    "spare_unsure": "it is not known whether %(host)s sees the checkpoints",
    "lost_again": "%(task)s was lost again",
    "lost_too": "%(task)s was lost too",
    "back_to_step": "back to step %(step)d",
    "steps_lost": ", %(count)d steps lost",
    "trains_again": "training again after %(seconds).1f s",
    "runs_again": "running again after %(seconds).1f s",
    "steps_short": "the last step in the logs is %(step)d, short of the %(of)d that were asked for",
    "short_of_target": "the newest complete checkpoint is of step %(step)d, short of the %(of)d that were asked for",
    # how the time of a run was spent
    "goodput": "goodput %(count)d %%%(because)s",
    "spent_start": "startup %(count)d %%",
    "spent_wait": "waiting %(count)d %%",
    "spent_again": "repeated steps %(count)d %%",
    "spent_stall": "stalled %(count)d %%",
    "spent_away": "hosts unreachable %(count)d %%",
    "spent_pause": "%(span)s paused in addition",
    "spent_end": "after the last step %(count)d %%",
    "spent_unsaved": "unsaved steps %(count)d %%",
    "comma": ", ",
    # requests of a person to the run
    "asked_up": "up",
    "asked_stop": "stop",
    "asked_restart": "restart",
    "asked_drain": "drain %(host)s",
    "asked_undrain": "undrain %(host)s",
    "asked_scale": "scale %(text)s to %(count)d",
    "asked_join": "%(text)s to join",
    "asked_of": " %(tasks)s",
    # who is in touch
    "away": "%(host)s is unreachable: %(text)s",
    "not_back": "%(host)s is unreachable: it has not connected since the coordinator restarted",
    "begins_without": "the run begins without %(text)s",
    "joined": "%(host)s has joined the run, which had begun without it",
    "cannot_join": "%(text)s cannot join the run: its coordinator has no majority of the voting hosts",
    "cannot_trust": "%(host)s stays out: the coordinator has no majority of the voting hosts, and dtctl undrain"
    " %(host)s has no effect until it has one",
    "never_joins": "%(text)s cannot join the run: %(what)s",
    "join_undone": "%(host)s is out of the run again: its `up` was cancelled",
    "back": "%(host)s is back after %(seconds).0f s",
    "back_without": "%(host)s is back; its tasks are on %(what)s now",
    "invalid_message": "%(host)s sent an invalid message and was disconnected: %(text)s",
    "came_back_with": "%(host)s reconnected with run %(run)s and was notified that it has ended",
    "events_left_out": "%(host)s sends more events than the event history takes: %(count)d of them are left out",
    "coordinator_unreachable": "agents cannot reach the coordinator: %(text)s",
    "claims_term": "%(host)s claims term %(count)d of the election of a coordinator, which no majority of the voters "
    "confirms; the claim has no effect, and the host may be compromised",
    "claims_candidate": "%(host)s requests votes for term %(count)d, which no majority of the voters is near to; it "
    "gets none, and the host may be compromised",
    "claims_coordinator": "%(host)s claims to coordinate in term %(count)d, which no majority of the voters confirms; "
    "no host follows it, and it may be compromised",
    "claims_end": "%(host)s claims that the run was replaced or has ended, which no majority of the voters confirms; "
    "the claim has no effect, and the host may be compromised",
    "agent_gone": "%(host)s answers, but its agent does not connect: it was killed, or cannot reach the coordinator "
    "(dtctl up    starts it again)",
    "coordinator_heard": "agents can reach the coordinator again",
    "coordinator_elected": "%(host)s coordinates now, in place of %(what)s, which was silent for %(seconds).0f s",
    "coordinator_restarted": "the coordinator restarted after %(seconds).0f s",
    "hook_refused": "hook %(what)s did not receive the message: it answers %(text)s",
    "hook_redirects": "hook %(what)s did not receive the message: it answers %(text)s; redirections are not followed",
    "hook_unreached": "hook %(what)s did not receive the message: %(text)s",
    "hook_late": "%(what)s took longer than %(seconds).0f s, and was ended",
    "hook_tried": " (tried %(count)d times)",
    "hook_behind": "hook %(what)s is behind: it does not receive the oldest %(count)d event%(s)s",
    "hook_works": "hook %(what)s receives messages again",
    "put_aside": "%(text)s; it was put aside as %(what)s",
    "rebuilt": ", and rebuilt from the reports of the agents",
    # observations of the controller
    "no_part": "its host is not part of the run",
    "absent": "the run was started without its host",
    "not_heard": "its host has not reported yet",
    "task_unknown": "its host knows no such task",
    "run_unknown": "its host knows no such run",
    "no_run": "no host has a run",
    "not_started": "nothing was started: %(text)s",
    "other_run": "its host has another run",
    "no_answer": "its host does not answer",
    "way_unknown": "this machine does not know how to reach %(host)s",
    "host_away": "%(host)s is unreachable; it was %(text)s",
    # why an ended run is removed
    "cluster_removed": "its cluster was taken down",
    "past_ttl": "it ended longer ago than its ttl",
    "newer_runs": "newer runs that have ended: %(count)d",
    # text of another program, or of another build
    "said": "%(text)s",
}
"""Kind -> its sentence. One that begins with punctuation continues the one before it; `rest` and `because` are what
follows."""

_MADE_FROM = {
    **dict.fromkeys(("span", "later"), "seconds"),
    **dict.fromkeys(("s", "es", "is", "was"), "count"),
    **dict.fromkeys(("rest", "because")),
}
"""Placeholders of sentences that are not fields, and the fields that they are made from."""


def fields_of(kind: str) -> "List[str]":
    """The fields that facts of this kind have."""
    named = (_MADE_FROM.get(name, name) for name in re.findall(r"%\((\w+)\)", SENTENCES[kind]))
    return sorted({name for name in named if name is not None})


HOLDING = ("drained", "shutting_down", "cut_off", "scaled_down", "left_out", "drained_alone", "bad_host")
"""Kinds for which a task is held until a person, or its host, starts it again."""


def fact(kind: str, **fields: "Any") -> Fact:
    """Raises KeyError for what is no kind, or lacks a field of it."""
    made: "Dict[str, Any]" = {"kind": kind, **{name: fields[name] for name in fields_of(kind)}}
    for name, most in (("text", None), ("what", 4096), ("by", 300)):
        if name in made:
            made[name] = brief(made[name]) if most is None else made[name][:most]
    return made  # type: ignore[return-value]


def said(text: str) -> "List[Fact]":
    """The reason of which nothing but a sentence is known; none of an empty one."""
    return [fact("said", text=text)] if text else []


def because(why: "Iterable[Fact]") -> Because:
    """The reason as records contain it."""
    return {"why": list(why)[:MOST_FACTS]}


def explain(record: Because, why: "Iterable[Fact]") -> None:
    """Gives a record another reason."""
    record.update(because(why))


def why_of(record: Because) -> "List[Fact]":
    """The facts of a record's reason. One of another build, whose sentence is not known here, is named by its kind."""
    return [one if _is_known(read(one)) else _unknown(read(one)) for one in record["why"]]


def headline(why: "Iterable[Fact]") -> "Optional[str]":
    """The kind of the first fact; None of no reason."""
    return next((read(one)["kind"] for one in why), None)


def sentence(why: "Iterable[Fact]") -> str:
    """The sentence of a reason, without a full stop; empty without facts. Raises KeyError for unknown kinds."""
    text = ""
    for one in reversed(list(why)):
        template = SENTENCES[read(one)["kind"]]
        wraps = "%(rest)s" in template or "%(because)s" in template
        shown = template % _texts(read(one), text)
        text = shown if wraps else shown + text
    return brief(text)


def named(why: "Iterable[Fact]") -> "List[str]":
    """The tasks and hosts that a sentence names."""
    found = [(one.get("task"), one.get("host"), *one.get("tasks", [])) for one in map(read, why)]
    return [name for names in found for name in names if name is not None]


def duration(seconds: float) -> str:
    """The duration as text, with useful precision."""
    return "%.0f s" % seconds if seconds < 120 else "%.0f min" % (seconds / 60)


def signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def _is_known(one: FactFields) -> bool:
    return one["kind"] in SENTENCES and all(name in one for name in fields_of(one["kind"]))


def _unknown(one: FactFields) -> Fact:
    name = one["kind"].replace("_", " ")
    return fact("said", text="%s (%s)" % (name, one["text"]) if "text" in one else name)


def _texts(one: FactFields, rest: str) -> "Dict[str, Any]":
    texts: "Dict[str, Any]" = dict(one)
    texts.update(rest=rest, because=": " + rest if rest else "")
    if "seconds" in one:
        texts["span"] = duration(one["seconds"])
        texts["later"] = " in %.1f s" % one["seconds"] if one["seconds"] else ""
    if "count" in one:
        alone = one["count"] == 1
        texts.update(s="" if alone else "s", es="" if alone else "es")
        texts.update({"is": "is" if alone else "are", "was": "was" if alone else "were"})
    if "signal" in one:
        texts["signal"] = signal_name(one["signal"])
    if "by" in one:
        texts["by"] = one["by"] or "somebody"
    if "tasks" in one:
        texts["tasks"] = ", ".join(one["tasks"])
    return texts

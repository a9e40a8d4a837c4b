"""The coordinator's records: cluster.json, requests.json, and the lines of the event history."""

from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within, formerly
from .reasons import Because, Why, because, said
from .run_state import Intents, Past, RunEnd, State, ahead_s
from .spec import MOST_SLOTS, Moved, Spare
from .values import (
    MOST_TASKS,
    AlertTopic,
    By,
    Count,
    Epoch,
    HistoryKind,
    Loss,
    Name,
    Outcome,
    Phase,
    Reason,
    Scope,
    Seconds,
    StartEnd,
    TaskName,
    Tasks,
    TaskState,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_PACE = 1e12
MOST_SPANS = 300
"""The most spans; of older ones only the seconds are kept."""

Spent = OneOf["kept", "again", "start", "wait", "stall", "away", "pause", "end", "unsaved"]
"""The use of a second (run/goodput.py)."""


class Span(Record):
    """A span of time, from the end of the one before it."""

    what: Spent
    end_s: Seconds
    """Seconds since the start of the account."""
    step: Default[Optional[Count], None]
    """The newest step that was reported by then."""


class Account(Record):
    """The use of each second since `since`: in `before`, in a span, or after the last span and not judged yet."""

    since: Epoch
    seconds: Seconds
    spans: Default[AtMost[List[Span], MOST_SPANS + 1], []]
    before: Default[Dict[Spent, Seconds], {}]
    """The seconds of spans for which there is no room."""
    training: Default[bool, False]
    """Whether a step was reported, and the training not interrupted since: the time since the last span is open."""
    again_to: Default[Optional[Count], None]
    """The training had reached this step before: steps until then are done again."""
    away: Default[bool, False]
    """Whether a host was away in the time that is not judged yet."""
    gap_s: Default[Seconds, 0.0]
    """The usual time between two reported steps."""
    pace: Default[Within[float, 0, MOST_PACE], 0.0]
    """The usual steps a second."""
    reached: Default[Optional[Count], None]
    """The highest step that was reported."""


MOST_HOSTS = 4096
MOST_INCIDENTS = 200
"""The most incidents that are over; of more the oldest are forgotten. Those that are open decide, and all are kept."""
MOST_CONDITIONS = 200
MOST_BAD_HOSTS = 200
MOST_WARNINGS = 100
"""The most warnings without a topic; of more the oldest are forgotten."""
MOST_ALERTS = 4 * MOST_HOSTS
"""The most warnings with a topic. Those of each host are compared with its current state, and so never left out."""
MOST_REQUESTS = 1000


class GoneHost(Record):
    """A host that was unreachable for too long."""

    host: Name
    seconds: Seconds


class Condition(Because):
    """The condition of the run since a moment, in the terms of Kubeflow's TFJob."""

    type: Outcome
    cause: Optional[TaskName]
    since: Epoch
    start: Default[Optional[StartEnd], None]
    """How the start ended, if the run ended before it was complete."""
    hung: Default[bool, False]
    """Whether the task that failed hung."""
    replaced: Default[bool, False]
    """Whether another run of the cluster takes the place of this one."""
    gone: Default[Optional[GoneHost], None]
    """The host without which the run cannot continue."""
    unready: Default[Tasks, []]
    """Tasks that ran when the start took too long, and never listened."""
    of: Default[Optional[Count], None]
    """How many tasks take part in a run that continues."""


class Contact(Record):
    """The coordinator's record of a host."""

    connected: Default[bool, False]
    heard: Default[Optional[Epoch], None]
    away_since: Default[Optional[Epoch], None]
    """When it was last heard, at the latest, if it is not connected; null: unknown."""
    inactive: Default[bool, False]
    """Whether none of its tasks ran when it was last heard, nor can start without the coordinator."""
    over: Default[bool, False]
    """Whether the run has ended there."""
    absent: Default[bool, False]
    """Whether the run was started without it and it has not joined since."""
    drained: Default[Optional[By], None]
    """Who drained it while it had no task: it replaces no host. A drain of a host with tasks is in their intents."""
    excused: Default[Optional[Epoch], None]
    """Failures there do not count against it if they were before this time, when a person undrained it."""
    silent_s: Default[Optional[Seconds], None]
    """How long it was away when hosts were replaced: a restarted coordinator continues the count from it once."""
    state: Default[Optional[State], None]
    """The state that was reported last."""


def clock_ahead_s(contact: Contact) -> float:
    """How far the coordinator's clock is ahead of the host's: its agent samples the host every 10 s."""
    machine = contact["state"]["machine"] if contact["state"] is not None else None
    return ahead_s(contact["heard"], machine["time"]) if machine is not None and contact["heard"] is not None else 0.0


class Alert(Because):
    """A warning for a person."""

    topic: Default[AlertTopic, "other"]
    host: Default[Optional[Name], None]
    """The host that it is about."""


class BadHost(Because):
    """A host that the last failures were all on."""

    host: Name
    since: Epoch
    left_out: bool
    """Whether the run continues without it."""


class Collateral(Because):
    """A task whose failure followed from another's."""

    task: TaskName
    damaged_file: Default[bool, False]
    """Whether it could not read a file: the checkpoint that it restored may be damaged."""
    cause: Default[Reason, ""]
    """The cause of its end, by its log."""


class Incident(Because):
    """A loss of a task, and its recovery."""

    id: Count
    task: TaskName
    host: Name
    attempt: Count
    """The attempt that was lost."""
    loss: Default[Loss, "exit"]
    damaged_file: Default[bool, False]
    """The same for a task whose failure followed from this one's."""
    cause: Default[Reason, ""]
    """The cause of the attempt's end, by its log."""
    ended: Epoch
    noticed: Epoch
    scope: Scope
    tasks: Tasks
    """The tasks that are restarted."""
    own: bool
    """Whether its agent restarts it alone."""
    collateral: AtMost[List[Collateral], 10_000]
    step: Optional[Count]
    """The last step before it."""
    steps_at_restart: Dict[TaskName, Optional[Count]]
    """The task with the newest step when its tasks were allowed to start again, and that step; empty without one."""
    advances: Default[Count, 0]
    """How often steps had been reported by then, as `advances` of the run counts."""
    back_to: Optional[Count]
    """The step of the checkpoint from which the training continued."""
    begun: Optional[Epoch]
    """The time since when its tasks may start again."""
    recovered: Optional[Epoch]
    """The time since when it trains again."""
    given_up: Default[Optional[Because], None]
    """Why its recovery is no longer awaited."""


def _as_facts(text: "Any") -> "Any":
    """A reason that was a sentence: of other values the kinds of now say what is wrong."""
    return because(said(text)) if isinstance(text, str) else text


formerly(Incident, steps_at_restart="told", given_up=("closed", _as_facts))


def is_open(incident: Incident) -> bool:
    """Whether its recovery is awaited."""
    return incident["recovered"] is None and incident["given_up"] is None


def is_waiting(incident: Incident) -> bool:
    """Whether its tasks are being cleared away, or wait for the end of a delay."""
    return is_open(incident) and incident["begun"] is None


def has_steps(incident: Incident) -> bool:
    """Whether its run had reported steps. If not, dtctl cannot observe that it trains."""
    return any(step is not None for step in (incident["step"], *incident["steps_at_restart"].values()))


class RunView(Record):
    """cluster.json: the run as its coordinator sees it."""

    version: Default[Within[int, 1, 1], 1]
    serial: Count
    run: Name
    time: Epoch
    elapsed_s: Seconds
    """The active time, for the deadline."""
    phase: Phase
    condition: Condition
    conditions: AtMost[List[Condition], MOST_CONDITIONS]
    """Past conditions, oldest first."""
    alerts: Default[AtMost[List[Alert], MOST_ALERTS], []]
    hosts: AtMost[Dict[Name, Contact], MOST_HOSTS]
    intents: Intents
    incidents: AtMost[List[Incident], MOST_TASKS + MOST_INCIDENTS]
    restarts: Count
    advances: Default[Count, 0]
    """How often the coordinator has found that a task that trains had reported another step."""
    request_serial: Count
    waits_for: Default[Because, {"why": []}]
    """What the start waits for, and why; no facts when it waits for nothing."""
    noted: Default[Dict[TaskName, Count], {}]
    """Task -> its last attempt whose end was judged."""
    account: Default[Optional[Account], None]
    """How its time was spent; null in a run that was started by a build without accounts."""
    bad_hosts: Default[AtMost[List[BadHost], MOST_BAD_HOSTS], []]
    """Those that were found, in the order of time; of more the oldest are forgotten."""
    moved: Default[Moved, {}]
    leased: Default[bool, True]
    """Whether its coordinator had its lease: otherwise another one may have been elected, which knows more."""


formerly(RunView, waits_for=("missing", lambda text: because([]) if text is None else _as_facts(text)))


Version = AtMost[List[Count], 2]
"""The version of a memo: the term of the coordinator that wrote it, and its serial."""


class Ballot(Record):
    """ballot.json: an agent's knowledge of the elections of its run's coordinator, and its vote."""

    term: Count
    """The newest term that it knows."""
    voted: Optional[Name]
    """The host for which it has voted in this term; null: none."""
    coordinator: Optional[Name]
    """The coordinator of this term; null while unknown."""
    last: Default[Optional[Name], None]
    """The newest coordinator that it knows, of any term."""


class Memo(Record):
    """memo.json: the view with which a voter would start as coordinator."""

    version: Version
    view: RunView
    """The view; in a large run without the hosts' states."""


class Awaited(Record):
    """awaited.json: hosts that gave no answer when the run ended: their tasks may still run."""

    since: Epoch
    hosts: AtMost[List[Name], MOST_HOSTS]
    is_removed: Default[bool, False]
    """Whether the run was taken down. Then its other files are gone, and it goes when nothing is awaited any more."""


class PostedRequest(Because):
    """A person's request to the coordinator, as a session has recorded it."""

    serial: Count
    kind: OneOf["stop", "restart", "drain", "undrain", "join"]
    tasks: Default[Optional[Tasks], None]
    """null: all."""
    host: Default[Optional[Name], None]
    """The host to drain or undrain."""
    job: Default[Optional[Name], None]
    """The job to scale, in place of a host: all but its first `count` tasks are drained or undrained."""
    count: Default[Optional[Count], None]
    grace_s: Default[Optional[Seconds], None]
    by: Default[By, ""]
    ends_as: Default[Optional[RunEnd], None]
    """What a stop means for the run."""
    joins: Default[AtMost[Dict[Name, Spare], MOST_SLOTS], {}]
    """The hosts that join the run as spares."""
    replace_s: Default[Optional[Seconds], None]
    """The time after which they replace hosts, if the run began without spares."""


class RequestBook(Record):
    """requests.json."""

    serial: Count
    requests: AtMost[List[PostedRequest], MOST_REQUESTS]


Event = Record(
    "Event",
    {
        "time": Epoch,
        "task": TaskName,
        "attempt": Count,
        "from": TaskState,
        "to": TaskState,
        "why": Default[Why, []],
        "end": Default[Optional[Past], None],
        "asked": Default[bool, False],
    },
)
"""A line of events.jsonl: a transition of a task of this host.

`end`: the attempt that ended with it. `asked`: dtctl requests the end of its process with it.
"""

HistoryEvent = Record(
    "HistoryEvent",
    {
        "n": Default[Count, 0],
        "time": Epoch,
        "kind": Default[HistoryKind, "task"],
        "host": Default[Optional[Name], None],
        "index": Default[Optional[Count], None],
        "task": Default[Optional[TaskName], None],
        "attempt": Default[Optional[Count], None],
        "from": Default[Optional[AtMost[str, 100]], None],
        "to": Default[Optional[AtMost[str, 100]], None],
        "why": Default[Why, []],
        "end": Default[Optional[Past], None],
        "asked": Default[bool, False],
        "by": Default[By, ""],
    },
)
"""A line of history.jsonl; `index` is that of a task's transition in its host's events.jsonl."""

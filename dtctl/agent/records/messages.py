"""Messages between agents and their coordinator."""

from .kinds import AtMost, Default, Dict, List, NotRequired, OneOf, Optional, Record, Within, formerly
from .run_state import Advance, AgentProcess, Intents, State
from .spec import Moved
from .values import Count, Name, Reason, Seconds, TaskName
from .vitals import Machine
from .whole_run import Event, HistoryEvent, RunView, Version

PROTOCOL = 2
EVENTS_AT_ONCE = 100


class HostReport(Record):
    """The state of an agent's host."""

    state: State
    intents: Intents
    kept: bool
    """Whether the run is kept on this host."""
    lost_session: bool
    """Whether the session ended before the run was kept."""


class Hello(HostReport):
    """The first message of a connection."""

    type: OneOf["hello"]
    v: Within[int, PROTOCOL, PROTOCOL]
    run: Name
    host: Name
    agent: AgentProcess
    events: Count
    """The number of lines in its events.jsonl."""
    moved: Default[Count, 0]
    """The number of the moves that it follows."""


class News(HostReport):
    """Sent when any of it has changed."""

    type: OneOf["state"]


class TaskProgress(Record):
    """Sent in place of `state`, to a coordinator that supports it, if only the tasks' progress has changed."""

    type: OneOf["progress"]
    serial: Count
    """The serial of the resulting state."""
    machine: NotRequired[Optional[Machine]]
    """The machine, if it was sampled again."""
    tasks: Dict[TaskName, Advance]
    """Tasks with changes."""


Events = Record(
    "Events",
    {"type": OneOf["events"], "from": Count, "events": AtMost[List[Optional[Event]], EVENTS_AT_ONCE]},
)
"""`from`: the index of the first event. null: a damaged line."""


class Ping(Record):
    """An agent whose tasks may move requests an answer, which a coordinator sends only while it has its lease."""

    type: OneOf["ping"]
    n: Count


class Pong(Record):
    """The answer; there is none without a lease."""

    type: OneOf["pong"]
    n: Count


class Beat(Record):
    """Sent if no other message was sent for a while."""

    type: OneOf["beat"]


class Welcome(Record):
    """The answer to a hello."""

    type: OneOf["welcome"]
    v: Within[int, PROTOCOL, PROTOCOL]
    events_from: Count
    """The index of the first line of events.jsonl that the coordinator lacks."""
    progress: Default[bool, False]
    """Whether the coordinator supports `progress`."""
    may_start: Default[bool, True]
    """Whether an agent whose machine was restarted may start tasks: the run still belongs to this coordinator."""
    term: Default[Count, 0]
    """The term in which it was elected; an agent rejects orders of an older one."""
    moved: Default[Moved, {}]
    """Moves newer than those of the agent: it ends tasks that it has lost, restarts with them, and sends a hello."""


class Orders(Record):
    """The intents of a host's tasks."""

    type: OneOf["orders"]
    intents: Intents
    recovering: bool
    """Whether a task or a host was lost and is not back yet: then lack of progress is not judged."""
    first_steps: Default[Dict[TaskName, Seconds], {}]
    """Task that has reported no step -> how long its peers took for their first step."""
    left_behind: Default[Dict[TaskName, Seconds], {}]
    """Task that has made no step since a cut of the network ended, though peers have -> for how long at least."""
    may_start: Default[bool, True]
    """The same as `may_start` in `welcome`."""
    kept: Default[bool, False]
    """Whether the coordinator's host keeps the run, and so does every host that began it."""
    over: bool
    """Whether the run has ended; the agent may exit when all its tasks are final."""
    awaits: Default[Optional[AtMost[List[Name], 4096]], None]
    """Hosts whose tasks may still run, if the run has ended. null: any other host, as the sender is a newer run's
    agent.
    """
    removed: Default[bool, False]
    """Whether its cluster was taken down meanwhile: the agent removes the run's files when it exits."""


formerly(Orders, recovering="mending")


class Lease(Record):
    """The coordinator requests a voter not to vote for another for a while."""

    type: OneOf["lease"]
    term: Count
    beat: Count
    """Repeated in the answer."""
    memo: Version
    """The version of the newest memo."""
    view: NotRequired[RunView]
    """The memo, for a voter that lacks it: cluster.json, in a large run without the hosts' states."""
    history: NotRequired[AtMost[List[HistoryEvent], EVENTS_AT_ONCE]]
    """Lines of history.jsonl, from the first that the voter lacks."""
    lines: Count
    """The number of lines of history.jsonl."""


class VoterClaim(Record):
    """What a voter claims of itself. It counts with the claims of the other voters, never alone."""

    term: Count
    """The newest term that it knows."""
    backs: Optional[Name]
    """The host that it has voted for or follows in this term."""
    elected: bool
    """Whether it knows that this host was elected."""


class Granted(VoterClaim):
    """A voter's answer to a lease. The lease is granted if the voter follows its sender in its term."""

    type: OneOf["granted"]
    beat: Count
    memo: Version
    """The version of the memo on its disk."""
    lines: Count
    """The number of lines of this term's history.jsonl that it holds."""


class Canvass(Record):
    """A candidate requests a vote."""

    type: OneOf["canvass"]
    term: Count
    """The term in which it wants to coordinate."""
    trial: bool
    """Whether the voter only reports how it would vote."""
    memo: Version
    """The version of the memo that the candidate holds."""


class Query(Record):
    """An agent asks a voter which host it backs. It does not replace the connection of
    that agent to the coordinator.
    """

    type: OneOf["query"]


class Stance(VoterClaim):
    """The answer to a query."""

    type: OneOf["stance"]


class Vote(VoterClaim):
    """The answer to a canvass."""

    type: OneOf["vote"]
    asked: Count
    """The term in the canvass."""
    trial: bool
    granted: bool


class Elsewhere(VoterClaim):
    """The last message to an agent that has connected to a voter which does not coordinate."""

    type: OneOf["elsewhere"]


class Leave(Record):
    """The only message of a host that has ended what it had of a run which others have ended: nobody waits for it."""

    type: OneOf["leave"]


class Over(Record):
    """The last message to a candidate, and the answer to `leave`: the run was ended while that host was away."""

    type: OneOf["over"]
    removed: Default[bool, False]
    """The same as `removed` in `orders`."""


class Refusal(Record):
    """The last message to an agent that is rejected."""

    type: OneOf["refused"]
    text: Reason


formerly(Refusal, text="reason")


FROM_AGENT = {
    "hello": Hello,
    "state": News,
    "progress": TaskProgress,
    "events": Events,
    "granted": Granted,
    "canvass": Canvass,
    "query": Query,
    "leave": Leave,
    "ping": Ping,
    "beat": Beat,
}
FROM_COORDINATOR = {
    "welcome": Welcome,
    "orders": Orders,
    "lease": Lease,
    "vote": Vote,
    "stance": Stance,
    "elsewhere": Elsewhere,
    "over": Over,
    "refused": Refusal,
    "pong": Pong,
    "beat": Beat,
}
"""The messages of a coordinator, and of a voter to a candidate or to an agent that connects to it."""

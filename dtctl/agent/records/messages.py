"""Messages between agents and their coordinator."""

from .kinds import AtMost, Default, Dict, List, NotRequired, OneOf, Optional, Record, Within
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
    """The run is kept on this host."""
    lost_session: bool
    """The session ended before that."""


class Hello(HostReport):
    """The first message of a connection."""

    type: OneOf["hello"]
    v: Within[int, PROTOCOL, PROTOCOL]
    run: Name
    host: Name
    agent: AgentProcess
    events: Count
    """Lines in its events.jsonl."""
    moved: Default[Count, 0]
    """The number of the moves that it follows."""


class News(HostReport):
    """When any of it has changed."""

    type: OneOf["state"]


class Progress(Record):
    """Replaces `state`, for a coordinator that accepts it, if only the progress of tasks has changed."""

    type: OneOf["progress"]
    serial: Count
    """The serial of the resulting state."""
    machine: NotRequired[Optional[Machine]]
    """A new sample of the host, if any."""
    tasks: Dict[TaskName, Advance]
    """Changed fields of the changed tasks."""


Events = Record(
    "Events",
    {"type": OneOf["events"], "from": Count, "events": AtMost[List[Optional[Event]], EVENTS_AT_ONCE]},
)
"""`from`: the index of the first. null: a damaged line."""


class Ping(Record):
    """An agent whose tasks may move asks for an answer from a coordinator that has its lease."""

    type: OneOf["ping"]
    n: Count


class Pong(Record):
    """The answer; there is none without a lease."""

    type: OneOf["pong"]
    n: Count


class Beat(Record):
    """Sent when nothing else was for a while."""

    type: OneOf["beat"]


class Welcome(Record):
    """The answer to a hello."""

    type: OneOf["welcome"]
    v: Within[int, PROTOCOL, PROTOCOL]
    events_from: Count
    """The index of the first line of events.jsonl that is lacking."""
    progress: Default[bool, False]
    """The coordinator takes `progress`."""
    may_start: Default[bool, True]
    """An agent whose machine was restarted may start tasks: the run is still this coordinator's."""
    term: Default[Count, 0]
    """The coordinator's term; an agent obeys no coordinator of an older one."""
    moved: Default[Moved, {}]
    """Moves newer than those of the agent: it ends tasks that it has lost, restarts with them, and sends a hello."""


class Orders(Record):
    """The orders for the tasks of a host."""

    type: OneOf["orders"]
    intents: Intents
    mending: bool
    """A task or a host was lost and is not back yet: no lack of progress is judged."""
    first_steps: Default[Dict[TaskName, Seconds], {}]
    """For tasks that have reported no step: how long the first step of their peers took."""
    may_start: Default[bool, True]
    """As in the welcome."""
    kept: Default[bool, False]
    """The coordinator's host keeps the run, and so does every host that began it."""
    over: bool
    """The run has ended; the agent may go when all its tasks are final."""


class Lease(Record):
    """The coordinator asks a voter not to vote for another, for a while."""

    type: OneOf["lease"]
    term: Count
    beat: Count
    """The answer bears it, too."""
    memo: Version
    """The newest one."""
    view: NotRequired[RunView]
    """The memo, for a voter that lacks it: cluster.json, in a large run without the hosts' states."""
    history: NotRequired[AtMost[List[HistoryEvent], EVENTS_AT_ONCE]]
    """Lines of history.jsonl, from the first that the voter lacks."""
    lines: Count
    """How many history.jsonl has."""


class Granted(Record):
    """A voter's answer to a lease, and to one of an older term: then with the newer one."""

    type: OneOf["granted"]
    term: Count
    beat: Count
    memo: Version
    """The version of the memo on the voter's disk."""
    lines: Count
    """The number of lines of history.jsonl that the voter has from this term's coordinator."""


class Canvass(Record):
    """A candidate asks for a vote."""

    type: OneOf["canvass"]
    term: Count
    """The term for which it is a candidate."""
    trial: bool
    """The voter only says how it would vote."""
    memo: Version
    """The version of the candidate's memo."""


class Vote(Record):
    """The answer."""

    type: OneOf["vote"]
    term: Count
    """The newest that the voter knows."""
    coordinator: Optional[Name]
    """The coordinator of that term, if the voter knows it."""
    asked: Count
    """The term in the canvass."""
    trial: bool
    granted: bool


class Elsewhere(Record):
    """The last word to an agent that has come to a voter which does not coordinate."""

    type: OneOf["elsewhere"]
    coordinator: Optional[Name]
    """The coordinator of the newest term that the voter knows; null during an election."""


class Over(Record):
    """The last word to a candidate: its run was ended, or replaced, while its host was away."""

    type: OneOf["over"]


class Refusal(Record):
    """The last message to an agent that is not wanted."""

    type: OneOf["refused"]
    reason: Reason


FROM_AGENT = {
    "hello": Hello,
    "state": News,
    "progress": Progress,
    "events": Events,
    "granted": Granted,
    "canvass": Canvass,
    "ping": Ping,
    "beat": Beat,
}
FROM_COORDINATOR = {
    "welcome": Welcome,
    "orders": Orders,
    "lease": Lease,
    "vote": Vote,
    "elsewhere": Elsewhere,
    "over": Over,
    "refused": Refusal,
    "pong": Pong,
    "beat": Beat,
}
"""Messages of a coordinator, and of a voter to a candidate or to an agent that connects to it."""

"""What agents say to their coordinator and hear from it."""

from .kinds import AtMost, List, Optional, Record, Usual, Within
from .run_state import AgentProcess, How, Intents, State
from .whole_run import Event
from .words import Count, Name, Reason

PROTOCOL = 2
EVENTS_AT_ONCE = 100


class Told(Record):
    """What an agent tells of its host whenever any of it has changed."""

    state: State
    intents: Intents
    kept: bool
    """The controller has said `keep`."""
    lost_session: bool
    """It never will."""
    stop_run: Usual[Optional[How], None]


class Hello(Told):
    """The first message of a connection."""

    v: Within[int, PROTOCOL, PROTOCOL]
    run: Name
    host: Name
    agent: AgentProcess
    events: Count
    """Lines in its events.jsonl."""


Events = Record("Events", {"from": Count, "events": AtMost[List[Optional[Event]], 1000]})
"""`from`: the index of the first. null stands for a line that something has damaged."""


class Beat(Record):
    """Sent when nothing else was for a while."""


class Welcome(Record):
    """The answer to a hello."""

    v: Within[int, PROTOCOL, PROTOCOL]
    events_from: Count
    """The index of the first line of events.jsonl that is lacking."""


class Orders(Record):
    """What is wanted of the tasks of a host."""

    intents: Intents
    mending: bool
    """A task or a host was lost and is not back yet: no lack of progress is judged."""
    over: bool
    """The run has ended; the agent may go when all its tasks are final."""


class Refusal(Record):
    """The last word to an agent that is not wanted."""

    reason: Reason


FROM_AGENT = {"hello": Hello, "state": Told, "events": Events, "beat": Beat}
FROM_COORDINATOR = {"welcome": Welcome, "orders": Orders, "refused": Refusal, "beat": Beat}

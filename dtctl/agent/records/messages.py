"""Messages between agents and their coordinator."""

from .kinds import AtMost, Default, Dict, List, NotRequired, OneOf, Optional, Record, Within
from .run_state import Advance, AgentProcess, Intents, State
from .values import Count, Name, Reason, Seconds, TaskName
from .vitals import Machine
from .whole_run import Event

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


class News(HostReport):
    """When any of it has changed."""

    type: OneOf["state"]


class Progress(Record):
    """In place of `state`, to a coordinator that takes it, when the tasks have only come further since the last one."""

    type: OneOf["progress"]
    serial: Count
    """Of the state that has come of it."""
    machine: NotRequired[Optional[Machine]]
    """Where it was sampled again."""
    tasks: Dict[TaskName, Advance]
    """Those of which something has changed."""


Events = Record(
    "Events",
    {"type": OneOf["events"], "from": Count, "events": AtMost[List[Optional[Event]], EVENTS_AT_ONCE]},
)
"""`from`: the index of the first. null: a damaged line."""


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


class Orders(Record):
    """What is wanted of the tasks of a host."""

    type: OneOf["orders"]
    intents: Intents
    mending: bool
    """A task or a host was lost and is not back yet: no lack of progress is judged."""
    first_steps: Default[Dict[TaskName, Seconds], {}]
    """Of tasks that have reported no step: how long the first step of their peers took."""
    may_start: Default[bool, True]
    """As in the welcome."""
    kept: Default[bool, False]
    """The coordinator's host keeps the run, and so does every host that began it."""
    over: bool
    """The run has ended; the agent may go when all its tasks are final."""


class Refusal(Record):
    """The last message to an agent that is not wanted."""

    type: OneOf["refused"]
    reason: Reason


FROM_AGENT = {"hello": Hello, "state": News, "progress": Progress, "events": Events, "beat": Beat}
FROM_COORDINATOR = {"welcome": Welcome, "orders": Orders, "refused": Refusal, "beat": Beat}

"""What `check` asks of the network between tasks, and what a host answers."""

from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from .values import Count, Hex32, Line, Name, Port, Seconds

MOST_SLOTS = 1000
MOST_PEERS = 2000
MOST_ADDRESSES = 100

Nonce = Hex32
"""By which the hosts of one check know each other. Who does not show it is not answered."""

Whose = Line
"""A task, or `coordinator`."""

Address = AtMost[str, 300]


Trouble = OneOf[
    "",
    "refused",
    "timeout",
    "no_route",
    "denied",
    "unresolved",
    "silent",
    "stranger",
    "other_host",
    "cut_off",
    "other",
]


class Slot(Record):
    """A port that is going to be listened on; 0: the host chooses one."""

    whose: Whose
    port: Within[int, 0, 65535]


class Peer(Record):
    """Where another host is to be connected to: HOST:PORT, as the tasks are given it."""

    whose: Whose
    host: Name
    address: Line
    live: Default[bool, False]
    """A trainer of the run listens there: who connects says nothing and awaits nothing."""


class NetworkQuestion(Record):
    """One round of several; what listens continues to the end of the conversation."""

    nonce: Nonce
    cluster: Default[Optional[Name], None]
    """Whose live run is left alone."""
    host: Default[Name, "host"]
    """As which this one answers."""
    listen: Default[AtMost[List[Slot], MOST_SLOTS], []]
    names: Default[AtMost[List[Address], MOST_ADDRESSES], []]
    """By which this host is known to the others."""
    reach: Default[AtMost[List[Peer], MOST_PEERS], []]
    limit_s: Default[Seconds, 3.5]
    """For names, for connections and for answers, each."""
    measure: Default[AtMost[List[Peer], 100], []]
    """Whose bandwidth and latency is measured, one after the other."""
    measure_s: Default[Seconds, 0.5]
    """In each direction."""


class Bound(Record):
    """What became of a slot. idle: it is the live run's own, and nothing listens there. tried: another check does."""

    whose: Whose
    port: Default[Optional[Port], None]
    state: OneOf["bound", "taken", "live", "idle", "tried"]
    holder: Default[Line, ""]
    """Who has it, where another process has."""
    sockets: Default[AtMost[List[Count], 100], []]
    """live: the inodes of what listens, by which a listener is known again."""


class Link(Record):
    """What an interface says of itself. null: it does not."""

    mbits: Default[Optional[Count], None]
    """A second, as it was agreed with the other end."""
    half: Default[bool, False]
    """Only one end speaks at a time."""
    mtu: Default[Optional[Count], None]
    queue: Default[AtMost[str, 40], ""]
    """The kind of its queueing discipline, as tc(8) has it."""


class Interface(Record):
    """An address of the host, by which others may reach it."""

    name: AtMost[str, 100]
    address: Address
    link: Default[Optional[Link], None]


class Resolved(Record):
    """A name of this host, as it knows it itself."""

    name: Address
    addresses: AtMost[List[Address], MOST_ADDRESSES]
    own: bool
    """One of them is an address of the host."""


class Reached(Record):
    """What became of a connection to a peer."""

    whose: Whose
    host: Name
    place: Default[Address, ""]
    """What its name resolves to, here."""
    problem: Default[Trouble, ""]
    """silent: it was connected, and no answer came. stranger: another program answered. other_host: `by` did.
    cut_off: the answer began, and large packets did not get here. denied: this host's own rules forbid it."""
    by: Default[Line, ""]
    text: Default[Line, ""]
    """The system's words."""


class Measured(Record):
    """Between this host and a peer; bytes a second as the application sees them."""

    whose: Whose
    host: Name
    latency_s: Default[Optional[Seconds], None]
    """There and back, the middle of several."""
    sent: Default[Optional[Within[float, 0, 1e15]], None]
    received: Default[Optional[Within[float, 0, 1e15]], None]
    again: Default[Optional[Within[float, 0, 1]], None]
    """The share of packets sent that had to be sent again."""
    problem: Default[Line, ""]


class NetworkFacts(Record):
    """What has come of one round."""

    bound: Default[AtMost[List[Bound], MOST_SLOTS], []]
    interfaces: Default[AtMost[List[Interface], MOST_ADDRESSES], []]
    resolved: Default[AtMost[List[Resolved], MOST_ADDRESSES], []]
    proxies: Default[AtMost[Dict[AtMost[str, 100], Line], 20], {}]
    """Variables of a login that programs take proxies from, without user names and passwords."""
    reached: Default[AtMost[List[Reached], MOST_PEERS], []]
    measured: Default[AtMost[List[Measured], 100], []]


class SshQuestion(Record):
    """How this user's logins begin, and what the server lets in."""

    start_up: Default[bool, False]
    """The login shell is started, as sshd starts it for a command."""


class SshFacts(Record):
    """null: it cannot be read."""

    shell: Default[Line, ""]
    start_up_s: Default[Optional[Seconds], None]
    noise: Default[AtMost[str, 1000], ""]
    """What start-up files print although it is not read."""
    noise_bytes: Default[Count, 0]
    problem: Default[Line, ""]
    """Why the shell does not do its work."""
    max_startups: Default[Optional[AtMost[str, 100]], None]
    """As in sshd_config(5): so many logins at once, then by chance, then none."""
    max_sessions: Default[Optional[Count], None]
    told_by: Default[OneOf["", "sshd", "file", "default"], ""]
    """The source of these: `sshd -T`, its file, or its manual."""
    machine: Default[Line, ""]
    """The same for all hosts of the inventory that are one machine with one sshd."""

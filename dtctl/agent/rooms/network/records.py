"""The questions of `check` about the network between tasks, and the answers of a host."""

from ...records.kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from ...records.values import Count, Hex32, Line, Name, Port, Seconds

MOST_LISTENERS = 1000
MOST_PEERS = 2000
MOST_ADDRESSES = 100

Nonce = Hex32
"""Identifies the hosts of one check to each other. Connections without it get no answer."""

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


class ListenRequest(Record):
    """A port to listen on; 0: the host chooses one."""

    whose: Whose
    port: Within[int, 0, 65535]


class Peer(Record):
    """The address of another host to connect to: HOST:PORT, as the tasks are given it."""

    whose: Whose
    host: Name
    address: Line
    live: Default[bool, False]
    """Whether a trainer of the run listens there: then the connection sends nothing and expects nothing."""


class NetworkQuestion(Record):
    """One round of several; listeners stay until the end of the conversation."""

    nonce: Nonce
    cluster: Default[Optional[Name], None]
    """The cluster whose live run is left alone."""
    host: Default[Name, "host"]
    """The name by which this host answers."""
    listen: Default[AtMost[List[ListenRequest], MOST_LISTENERS], []]
    names: Default[AtMost[List[Address], MOST_ADDRESSES], []]
    """The names by which the others know this host."""
    reach: Default[AtMost[List[Peer], MOST_PEERS], []]
    limit_s: Default[Seconds, 3.5]
    """The limit for names, for connections and for answers, each."""
    measure: Default[AtMost[List[Peer], 100], []]
    """Peers to which bandwidth and latency are measured, one after the other."""
    measure_s: Default[Seconds, 0.5]
    """The duration of a measurement in each direction."""


class Bound(Record):
    """The result for a port. idle: it is the live run's, and nothing listens there. tried: another check has it."""

    whose: Whose
    port: Default[Optional[Port], None]
    state: OneOf["bound", "taken", "live", "idle", "tried"]
    holder: Default[Line, ""]
    """The other process that has it, if any."""
    run: Default[Line, ""]
    """taken: the live run of the same user, of another cluster, that has it."""
    cluster: Default[Line, ""]
    """The cluster of that run."""
    sockets: Default[AtMost[List[Count], 100], []]
    """live: the inodes of the listening sockets, which identify a listener."""


class Link(Record):
    """The properties that an interface reports. null: not reported."""

    mbits: Default[Optional[Count], None]
    """Mbit a second, as negotiated with the other end."""
    half: Default[bool, False]
    """Whether it is half duplex."""
    mtu: Default[Optional[Count], None]
    queue: Default[AtMost[str, 40], ""]
    """The kind of its queueing discipline, as in tc(8)."""


class Interface(Record):
    """An address of the host, by which others may reach it."""

    name: AtMost[str, 100]
    address: Address
    link: Default[Optional[Link], None]


class Resolved(Record):
    """The addresses to which this host itself resolves one of its names."""

    name: Address
    addresses: AtMost[List[Address], MOST_ADDRESSES]
    own: bool
    """Whether one of them is an address of the host."""


class Reached(Record):
    """The result of a connection to a peer."""

    whose: Whose
    host: Name
    place: Default[Address, ""]
    """The address to which its name resolves on this host."""
    problem: Default[Trouble, ""]
    """silent: connected, but no answer. stranger: another program answered. other_host: `by` did. cut_off: the answer
    began, and large packets did not arrive. denied: this host's own rules forbid it."""
    by: Default[Line, ""]
    text: Default[Line, ""]
    """The system's error."""


class Measured(Record):
    """The measured connection between this host and a peer; bytes a second as the application sees them."""

    whose: Whose
    host: Name
    latency_s: Default[Optional[Seconds], None]
    """The median time of several round trips."""
    sent: Default[Optional[Within[float, 0, 1e15]], None]
    received: Default[Optional[Within[float, 0, 1e15]], None]
    again: Default[Optional[Within[float, 0, 1]], None]
    """The share of sent packets that were retransmitted."""
    problem: Default[Line, ""]


class NetworkFacts(Record):
    """The results of one round."""

    bound: Default[AtMost[List[Bound], MOST_LISTENERS], []]
    interfaces: Default[AtMost[List[Interface], MOST_ADDRESSES], []]
    resolved: Default[AtMost[List[Resolved], MOST_ADDRESSES], []]
    proxies: Default[AtMost[Dict[AtMost[str, 100], Line], 20], {}]
    """Variables of a login from which programs take proxies, without user names and passwords."""
    reached: Default[AtMost[List[Reached], MOST_PEERS], []]
    measured: Default[AtMost[List[Measured], 100], []]


class SshQuestion(Record):
    """Queries how this user's logins start, and the limits of the server."""

    start_up: Default[bool, False]
    """Whether to start the login shell, as sshd does for a command."""


class SshFacts(Record):
    """null: it cannot be read."""

    shell: Default[Line, ""]
    start_up_s: Default[Optional[Seconds], None]
    noise: Default[AtMost[str, 1000], ""]
    """The output of start-up files, which no program reads."""
    noise_bytes: Default[Count, 0]
    problem: Default[Line, ""]
    """Why the shell does not work."""
    max_startups: Default[Optional[AtMost[str, 100]], None]
    """MaxStartups of sshd_config(5): the numbers of concurrent logins from which some and then all are refused."""
    max_sessions: Default[Optional[Count], None]
    limits_from: Default[OneOf["", "sshd", "file", "default"], ""]
    """The source of the limits:"""
    machine: Default[Line, ""]
    """The same for all hosts of the inventory that are one machine with one sshd."""

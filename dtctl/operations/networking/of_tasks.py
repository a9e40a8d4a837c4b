"""What can be wrong with the network between tasks, and who else gets in: rows of the table of `check`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

_ADDRESS = "hosts.{other}.address: {first} in cluster.yaml    gives the address itself instead of the name"
_RULES = (
    "dtctl check --print-firewall nftables    prints rules that let the cluster's hosts in and nobody else (or "
    "iptables, ufw)"
)
_OPEN = (
    "dtctl check --print-firewall iptables    prints rules that let the cluster's hosts in before any other (or "
    "ufw; what tables of nftables drop has to be allowed in those)"
)
_RULES_IN = "dtctl ssh {host}    and there sudo nft list ruleset (or: sudo iptables -S INPUT) shows its rules"
_MATRIX = "every port of the plan, listened on by its host and connected to by the other hosts"

_NAMES = (
    Signature(
        "port_taken",
        Level.ENDS,
        "a port that a task needs is taken",
        "every port of the plan, bound on its host",
        "port {port} of {whose} on {hosts} is taken: {holder} listens there[, on {on}]",
        (
            "dtctl exec {at} -- ss -ltnp 'sport = :{port}'    shows who it is, if the process is yours",
            "dtctl ssh {host}    and there sudo ss -ltnp 'sport = :{port}' shows whose it is otherwise",
            "dtctl up --ports-from 2300    takes other ports; or write ports: auto in cluster.yaml, and the hosts "
            "choose",
        ),
    ),
    Signature(
        "tried_by_another",
        Level.NOTE,
        "another check, or the start of another run, listens on ports that were to be tried",
        "who has a port that is taken",
        "another `dtctl check` or `dtctl up` of the same user listens on port {ports} of {hosts} at this moment, so "
        "this one could not try them",
        ("dtctl check    once more, when the other one is over",),
    ),
    Signature(
        "unresolved",
        Level.BLOCKS,
        "a host does not know the name of another",
        "the name of each address, looked up on every host that needs it",
        "{hosts} does not know the name {name}, by which the tasks are to reach {others}: {text}",
        ("hosts.{other}.address: IP in cluster.yaml", "or a line `IP {name}` in /etc/hosts of {hosts}"),
    ),
    Signature(
        "loopback_name",
        Level.BLOCKS,
        "on one host the name of another stands for 127.0.1.1",
        "the name of each address, looked up on every host that needs it",
        "on {hosts} the name {name} stands for {address}, which is {hosts} itself: its tasks would look for those of "
        "{others} there, and wait for ever",
        (
            "dtctl exec {at} -- grep -n {name} /etc/hosts    shows the line, as a rule; it belongs to {others} alone",
            _ADDRESS,
        ),
    ),
    Signature(
        "literal_loopback",
        Level.BLOCKS,
        "a host of several is given to the others as 127.0.0.1",
        "the addresses of the plan",
        "{others} is given to the others as {name}, which every host takes for itself",
        ("hosts.{other}.address: {first} in cluster.yaml    the address by which the other hosts reach it",),
    ),
    Signature(
        "own_loopback_told",
        Level.BLOCKS,
        "a host takes its own name for 127.0.1.1, and its framework tells the others what that stands for",
        "each host's name, looked up by itself, and the framework",
        "{hosts} takes its own name[ {name}] for {address}, and the framework (gloo, ps-lite) tells the other tasks "
        "that address: they would connect to themselves",
        ("take the host's own name out of the line of {address} in /etc/hosts of {hosts}",),
    ),
    Signature(
        "own_loopback",
        Level.NOTE,
        "a host takes its own name for 127.0.1.1",
        "each host's name, looked up by itself",
        "{hosts} takes its own name[ {name}] for {address} (a line of /etc/hosts). TensorFlow listens on every address "
        "and works; what tells others its own address (gloo, ps-lite, NCCL) would not",
        ("to be sure: take the host's own name out of the line of {address} in /etc/hosts of {hosts}",),
    ),
    Signature(
        "other_address",
        Level.BLOCKS,
        "hosts do not agree on what a name stands for",
        "the name of each address, looked up on every host that needs it, and the addresses that each host has",
        "{hosts} takes the name {name} for {address}, which {others} does not have; it has {usual}",
        ("dtctl exec {at} -- getent hosts {name}    shows it", _ADDRESS),
    ),
    Signature(
        "wrong_interface",
        Level.BLOCKS,
        "the address of a host is none of its own",
        "the addresses of the plan, and those that each host has",
        "{hosts} is given to the others as {name}[ ({address})], an address that it does not have; it has {has}",
        ("hosts.{host}.address: {first} in cluster.yaml    or another of those, on the network that the hosts share",),
    ),
    Signature(
        "other_host",
        Level.BLOCKS,
        "another host answers at the address of a host",
        _MATRIX,
        "at {address}, where {from_hosts} looks for {hosts}, {by} answers",
        ("hosts.{host}.address in cluster.yaml    an address that no other host has, as docker0 has (172.17.0.1)",),
    ),
    Signature(
        "stranger",
        Level.BLOCKS,
        "another program answers at the address of a task",
        _MATRIX,
        "at {address}, port {ports}, where {from_hosts} looks for {hosts}, another program answers: an address that is "
        "forwarded, or another machine",
        ("hosts.{host}.address in cluster.yaml    the address by which the hosts reach each other directly",),
    ),
)

_MATRICES = (
    Signature(
        "firewall_in",
        Level.BLOCKS,
        "nobody reaches the ports of a host",
        _MATRIX,
        "no host reaches port {ports} of {hosts}, which listens there now and can be logged in to: a firewall on "
        "{hosts} (or of its network: a security group)[ drops what is sent there: no answer within {dropped_s}]"
        "[ refuses them ({rejected})]",
        (_OPEN, _RULES_IN),
    ),
    Signature(
        "firewall_out",
        Level.BLOCKS,
        "a host reaches nobody, and is reached",
        _MATRIX,
        "{hosts} reaches no other host[ on port {ports}], though {others} listen and reach each other: a firewall on "
        "{hosts} for outgoing connections[ drops them: no answer within {dropped_s}][ refuses them ({rejected})]",
        (
            "dtctl ssh {host}    and there sudo nft list ruleset (or: sudo iptables -S OUTPUT) shows its rules",
            "let it connect to the ports of the tasks: dtctl check --print-firewall nftables    names them",
        ),
    ),
    Signature(
        "cut_off",
        Level.BLOCKS,
        "a host and the others do not reach each other",
        _MATRIX,
        "{hosts} and the other hosts do not reach each other, in neither direction, though it can be logged in to: it "
        "is on another network than they are, or a firewall on it closes both",
        (
            "dtctl exec {at} -- ip -brief address    shows its networks; hosts.{host}.address in cluster.yaml chooses",
            _OPEN,
        ),
    ),
    Signature(
        "one_way",
        Level.BLOCKS,
        "one host does not reach another, which reaches it",
        _MATRIX,
        "{from_hosts} does not reach port {ports} of {hosts}, though {hosts} reaches {from_hosts}: a firewall in this "
        "one direction, either on {hosts} (incoming) or on {from_hosts} (outgoing)[; there is no answer within "
        "{dropped_s}][; it is refused ({rejected})]",
        (
            _OPEN,
            _RULES_IN,
            "dtctl ssh {from_host}    the same there, for what goes out (sudo iptables -S OUTPUT)",
        ),
    ),
    Signature(
        "pair",
        Level.BLOCKS,
        "two hosts do not reach each other, and reach others",
        _MATRIX,
        "{from_hosts} and {hosts} do not reach each other (port {ports}), though they reach other hosts: rules or "
        "routes between these alone[; there is no answer within {dropped_s}][; it is refused ({rejected})]",
        ("dtctl exec {from} -- ip route get {address}    shows the way from there", _OPEN),
    ),
    Signature(
        "scattered",
        Level.BLOCKS,
        "connections fail here and there",
        _MATRIX,
        "{failed} of {tried} connections between the hosts fail, and no single host explains it: from {from_hosts} to "
        "{hosts}[; there is no answer within {dropped_s}][; they are refused ({rejected})]. A network that loses "
        "packets, or rules that let only some hosts in",
        ("dtctl check    once more: are they the same ones?", _OPEN),
    ),
    Signature(
        "partition",
        Level.BLOCKS,
        "the hosts are groups that do not reach each other",
        _MATRIX,
        "{hosts} reach each other, but none of {from_hosts}, which do not reach them either: two networks, or a "
        "firewall between them",
        (
            "hosts.NAME.address in cluster.yaml    addresses on a network that all of them share",
            "dtctl exec {at} -- ip -brief address    shows their networks",
        ),
    ),
    Signature(
        "nobody",
        Level.BLOCKS,
        "no host reaches any other",
        _MATRIX,
        "none of {hosts} reaches another, though all can be logged in to: a firewall on every host, or on the network "
        "between them[, drops what is sent: no answer within {dropped_s}][, refuses them ({rejected})]; or their "
        "addresses in cluster.yaml are of a network that they do not share",
        (_OPEN, "dtctl exec {at} -- ip -brief address    shows their networks; hosts.NAME.address chooses one"),
    ),
    Signature(
        "large_packets",
        Level.BLOCKS,
        "connections open, and large packets do not get through",
        f"{_MATRIX}, and an answer of 16 kB",
        "{from_hosts} can connect to {hosts}, and only small packets get back: something between them takes no large "
        "ones (MTU), as with VPNs and jumbo frames",
        (
            "dtctl exec {at} -- ip -brief link    shows the MTU of each interface; the smallest on the way has to be "
            "everybody's: ip link set dev IF mtu 1400",
        ),
    ),
    Signature(
        "silent",
        Level.BLOCKS,
        "connections open, and nobody answers",
        _MATRIX,
        "{from_hosts} can connect to port {ports} of {hosts}, and nothing comes back: something between them answers "
        "in its place, as a proxy or a load balancer does",
        ("hosts.{host}.address in cluster.yaml    the address by which the hosts reach each other directly",),
    ),
)

_MORE = Signature(
    "more_alike",
    Level.BLOCKS,
    "more of a kind that was told some times already",
    "",
    "the same again ({of}) {count} more times, on {hosts}",
    ("mend the first ones, then: dtctl check",),
)

PROXY = Signature(
    "proxy",
    Level.BLOCKS,
    "a proxy variable would send the traffic between tasks through a proxy",
    "the variables that each task is started with, and the addresses of the other tasks",
    "{tasks} on {hosts} would send what is meant for {names} to the proxy {value}, because gRPC heeds {variable}",
    (
        "trainer.env.no_grpc_proxy: {exempt} in cluster.yaml    exempts the hosts of the cluster",
        "or leave {variable} out of trainer.env and hosts.NAME.env",
    ),
)
PROXY_LEFT_OUT = Signature(
    "proxy_left_out",
    Level.NOTE,
    "logins have a proxy variable, which dtctl does not hand on",
    "the variables of a login on each host",
    "logins on {hosts} have {variable}={value}. dtctl does not hand it to the trainers, because gRPC would send "
    "the traffic between tasks through that proxy; a trainer that downloads something does without it, too",
    (
        "trainer.keep_proxy: true in cluster.yaml    hands it on, and exempts the cluster's hosts from it",
        "nothing, if the trainers download nothing",
    ),
)
EXPOSED = Signature(
    "exposed",
    Level.NOTE,
    "a task's port answers from outside of the cluster",
    "every port of the plan, connected to from this machine while its host listens",
    "port {ports} of {hosts} answered this machine ({seen_from}), which is none of the cluster's hosts[, at {public}, "
    "an address of the internet]. Whoever reaches the port of a TensorFlow server can run code there as your user: it "
    "asks for no password",
    (_RULES, "dtctl up --require-private    refuses to start as long as it is so"),
)
PUBLIC = Signature(
    "public_address",
    Level.NOTE,
    "a host has an address of the internet",
    "the addresses of each host",
    "{hosts} has the address {address}, which the internet routes, and servers of TensorFlow listen on every address "
    "of their host: unless a firewall closes port {ports}, whoever reaches it can run code there as your user",
    (_RULES, "dtctl up --require-private    refuses to start as long as it is so"),
)

ROWS = (*_NAMES, *_MATRICES, _MORE, PROXY, PROXY_LEFT_OUT, EXPOSED, PUBLIC)

BY_NAME = {row.name: row for row in ROWS}

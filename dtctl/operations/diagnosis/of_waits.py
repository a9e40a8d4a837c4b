"""Who is waited for, and what is in the way: rows of table.py."""

from __future__ import annotations

from dtctl.operations.diagnosis import waits
from dtctl.operations.diagnosis.signature import Level, Signature

WAITS = (
    Signature(
        "host_away",
        Level.BLOCKS,
        "the coordinator has lost a host",
        "when it was last heard, and its tasks",
        "{hosts} has been away for {away_s}: nobody can tell how {tasks} is",
        ("dtctl ssh {host}    tells whether it can be reached from here", "dtctl replace {host}    moves its tasks"),
        find=waits.away,
    ),
    Signature(
        "coordinator_away",
        Level.BLOCKS,
        "the coordinator's host cannot be asked",
        "every other host is asked for itself",
        "the coordinator's host {hosts} cannot be asked: nobody can tell how {tasks} is[; {why}]",
        ("dtctl ssh {host}    tells whether it can be reached from here", "dtctl replace {host}    moves its tasks"),
        find=waits.coordinator_away,
        after_end=True,
    ),
    Signature(
        "host_silent",
        Level.BLOCKS,
        "an agent has never called the coordinator",
        "for how long the run has been up, and the coordinator's address",
        "{hosts} has not called the coordinator for {age_s}[: {missing}]",
        (
            "open that port between the hosts, or choose another: coordinator.port in cluster.yaml",
            "dtctl exec {at} -- true    tells whether the host itself can be reached",
        ),
        find=waits.silent,
    ),
    Signature(
        "frozen",
        Level.BLOCKS,
        "a trainer is stopped by a signal (state T)",
        "the process, and who waits for it",
        "{tasks} on {hosts} is frozen: a signal has stopped its process[ (pid {pid})]",
        ("dtctl exec {at} -- kill -CONT {pid}    lets it go on", "dtctl restart {task}    starts it again"),
        find=waits.frozen,
    ),
    Signature(
        "stalled",
        Level.BLOCKS,
        "no sign of progress for longer than recovery.stall",
        "the log, the steps and the checkpoints of the task",
        "{tasks} on {hosts} hangs: no sign of progress[ for {silent_s}]; dtctl ends it and starts it again",
        (
            "dtctl dump {task}    shows where it is, dtctl logs {task} -p where the attempt before was",
            "recovery.stall in cluster.yaml if that is usual",
        ),
        find=waits.stalled,
    ),
    Signature(
        "name_unresolved",
        Level.BLOCKS,
        "a host cannot resolve the name in another task's address",
        "the names as every host resolves them, who waits",
        "{from_hosts} cannot resolve {name}, the name in the address of {tasks} on {hosts}: {text}",
        (
            "hosts.{host}.address: an IP address, in cluster.yaml; then: dtctl up --replace",
            "dtctl exec {from} -- getent hosts {name}    tells when it works",
        ),
        find=waits.unreachable("unresolved"),
    ),
    Signature(
        "firewall",
        Level.BLOCKS,
        "a task listens, and another host's attempts to connect time out",
        "who listens, connections as every host tries them, who waits",
        "{tasks} listens on {address}, but {from_hosts} cannot connect to it ({text}): a firewall, or no way between "
        "the hosts",
        (
            "open port {port} of {hosts} for {from_hosts}, or choose another: jobs.NAME.port",
            "dtctl diagnose    tells when it works",
        ),
        find=waits.unreachable("timeout", "no_route", "denied", "other"),
    ),
    Signature(
        "refused",
        Level.BLOCKS,
        "a task listens, and another host's attempts to connect are refused",
        "who listens, connections as every host tries them, who waits",
        "{tasks} listens on {address}, but {from_hosts} is refused there: a firewall rejects it"
        "[, or the name {name} leads to another machine]",
        (
            "dtctl exec {from} -- getent hosts {name}    shows where the name leads",
            "open port {port} of {hosts} for {from_hosts}, or set hosts.{host}.address",
        ),
        find=waits.unreachable("refused"),
    ),
    Signature(
        "never_listened",
        Level.ENDS,
        "not ready after 600 s: worker:0 runs but does not listen on gpu-a:2222 yet",
        "the reason of the run's end, the task's address",
        "{tasks} on {hosts} ran, but did not listen on {address} within start_timeout",
        (
            "dtctl logs {task}    shows what it did instead",
            "trainer.dialect: none in cluster.yaml for a program that serves nobody, then: dtctl up",
        ),
        find=waits.never_ready,
    ),
    Signature(
        "waits_for_one_that_is_over",
        Level.BLOCKS,
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which has ended",
        "what the waiting task's log says, and how the other is",
        "{tasks} on {hosts} has {state}, while others still need it",
        ("dtctl restart {task}", "dtctl events    tells why it ended"),
        find=waits.over,
    ),
    Signature(
        "waits_for_start",
        Level.BLOCKS,
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which does not listen yet",
        "what the waiting task's log says, and how the other is",
        "{tasks} on {hosts} is {state} for {state_s} and does not listen[ on {address}] yet",
        ("dtctl logs {task}    shows what it does",),
        find=waits.deaf,
    ),
    Signature(
        "waits",
        Level.BLOCKS,
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which listens",
        "what the waiting task's log says, and connections as its host tries them",
        "{tasks} on {hosts} listens[ on {address}], and is waited for all the same",
        (
            "dtctl diagnose    tries the network between the hosts",
            "dtctl logs {task}    shows what it does",
        ),
        find=waits.unexplained,
    ),
)

"""What programs say of other tasks, and ends of which no log tells anything: rows of table.py."""

from __future__ import annotations

from dtctl.operations.diagnosis import joins
from dtctl.operations.diagnosis.signature import ENDED_SOMEHOW, WHOLE_LOG, Level, Signature, in_log

PEERS = (
    Signature(
        "no_cpu_device",
        Level.ENDS,
        "NotFoundError: No CPU devices are available in this process",
        "",
        "the program asks TensorFlow for no CPU device at all (device_count of its session's configuration)",
        ("dtctl plan {task}    shows its flags", WHOLE_LOG),
        in_log(r"No CPU devices are available"),
    ),
    Signature(
        "unknown_device",
        Level.ENDS,
        "InvalidArgumentError: /job:ps/replica:0/task:0/device:CPU:0 unknown device.",
        "",
        "another cluster's task answers at an address of this one, or the device filters leave it out: {said}",
        ("dtctl gc    ends what old runs have left", "dtctl runs    shows which are live"),
        in_log(r"(?P<said>\S*/job:\S+ unknown device|Unknown device:? \S+)"),
    ),
    Signature(
        "proxy",
        Level.ENDS,
        "failed to connect to all addresses; HTTP proxy returned response code 403",
        "",
        "a proxy stands between the tasks of {hosts}",
        ("trainer.keep_proxy: false in cluster.yaml, which is the default, then: dtctl up --replace",),
        in_log(r"(?i:http proxy returned|proxy error|via proxy|proxyconnect)"),
    ),
    Signature(
        "peer_restarted",
        Level.ENDS,
        "AbortedError: Graph handle is not found ... worker just restarted",
        "",
        "a task that it worked with was started again meanwhile; this follows from that loss and mends itself",
        ("dtctl events    tells what was lost first",),
        in_log(r"Graph handle is not found|[Ii]ncarnation mismatch|different incarnation|sync_token_q is closed"),
    ),
    Signature(
        "peer_lost",
        Level.ENDS,
        "UnavailableError: failed to connect to all addresses; last error: ... Connection refused",
        "how the other tasks are",
        "it lost its connection to another task, or never had one",
        (
            "dtctl diagnose    tries the network between all tasks",
            "dtctl events    tells what was lost first",
        ),
        in_log(
            r"UNAVAILABLE|Unavailable(?:Error|:)|PSUnavailableError|[Ff]ailed to connect|"
            r"Connection (?:refused|timed out|reset)|Socket closed|No route to host|Network is unreachable|heartbeat|"
            r"(?i:deadline.?exceeded)|"
            r"NCCL.*(?:error|failed)|[Gg]loo.*(?:error|failed|closed)|Broken pipe"
        ),
    ),
)

UNTOLD = (
    Signature(
        "killed_for_memory",
        Level.ENDS,
        "killed by SIGKILL, and the kernel counts a process that it ended for want of memory",
        "how it ended, the kernel's count, the memory of the host",
        "the kernel ended it, because {hosts} ran out of memory[: {available_bytes} of {memory_bytes} are free now]",
        (
            "dtctl exec {at} -- free -h",
            "a smaller batch in trainer.args, or fewer tasks on that host (jobs.NAME.hosts)",
        ),
        join=joins.killed,
    ),
    Signature(
        "killed",
        Level.ENDS,
        "killed by SIGKILL, and dtctl did not do it",
        "how it ended, the memory of the host",
        "somebody killed it, or the kernel for want of memory in its control group"
        "[; {available_bytes} of {memory_bytes} are free on {hosts} now]",
        ("dtctl exec {at} -- free -h", "dtctl exec {at} -- dmesg -T    names the process, where the kernel shows it"),
        join=joins.killed_by(joins.KILL),
    ),
    Signature(
        "illegal_instruction",
        Level.ENDS,
        "killed by SIGILL",
        "how it ended",
        "the program was built for another processor than that of {hosts}",
        ("dtctl exec {at} -- lscpu    shows what it can", "another build, or another host (dtctl replace HOST)"),
        join=joins.killed_by(joins.ILL),
    ),
    Signature(
        "crashed",
        Level.ENDS,
        "killed by SIGSEGV (exit code 139)",
        "how it ended",
        "a library of the program crashed: as a rule two packages that do not fit together",
        (WHOLE_LOG, "dtctl diagnose    compares the versions on all hosts"),
        join=joins.killed_by(joins.SEGV),
    ),
    Signature(
        "ended_itself",
        Level.ENDS,
        "exited 1: TensorFlow finds 0 GPUs here, not 2",
        "how it ended, the last that it said",
        "the program ended itself; what it said last should be its reason",
        (
            "search its source for these words; correct trainer.args, its data or itself; then: dtctl up --replace",
            WHOLE_LOG,
        ),
        join=joins.ended_itself,
    ),
    Signature(
        ENDED_SOMEHOW,
        Level.ENDS,
        "any other end",
        "",
        "no known signature fits: the whole log tells more",
        (WHOLE_LOG,),
        join=lambda facts, task, fields: {},
    ),
)
"""Ends whose logs tell nothing that is known."""

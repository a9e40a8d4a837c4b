"""What figures tell of hosts and of the pace: rows of table.py."""

from __future__ import annotations

from dtctl.operations.diagnosis import beginnings, hosts
from dtctl.operations.diagnosis.signature import Level, Signature

HOSTS = (
    Signature(
        "diverging",
        Level.BLOCKS,
        "loss: nan in a log or an event file, and the training goes on",
        "the newest loss that logs and event files tell",
        "the loss is no number any more ({loss}, step {step}): training has diverged, and goes on",
        (
            "dtctl metrics --plot loss    shows since when",
            "dtctl stop, then a smaller learning rate, and a checkpoint from before",
        ),
        find=hosts.diverged,
    ),
    Signature(
        "disk_is_full",
        Level.BLOCKS,
        "nothing is left on a disk that the run writes to",
        "the file systems of every host",
        "a disk of {hosts} is full: {free_bytes} of {size_bytes} left at {where}",
        ("dtctl gc    removes old runs and old code", "dtctl exec {at} -- df -h    shows the rest"),
        find=hosts.full_disks,
    ),
    Signature(
        "no_steps",
        Level.SLOWS,
        "no task has told a step for half a minute",
        "the steps of all tasks, and who uses no processor",
        "no task has told a step for {silent_s}[; {idle} use no processor: they wait for something]",
        ("dtctl diagnose    looks at every host and the network", "dtctl logs -f    shows what the tasks do"),
        find=hosts.silent,
    ),
    Signature(
        "nobody_begins",
        Level.BLOCKS,
        "no task has told a step since the start, and none does anything",
        "the processors, bytes and output of every task, and who was idle first",
        "no task has told a step in the {age_s} since the start, and none has done anything for {idle_s}"
        "[; {first} stopped first, {first_s} ago: the others may wait for it]",
        (
            "dtctl dump {task}    shows where it is",
            "dtctl restart {task}    starts it again; recovery.first_step in cluster.yaml: dtctl does, after that time",
        ),
        find=beginnings.nobody_begins,
    ),
    Signature(
        "not_begun",
        Level.SLOWS,
        "a task has told no step since its start, and others have",
        "what its peers took for their first step, or the lead; its processors, bytes and output",
        "{tasks} on {hosts} has told no step in the {age_s} since its start, others did within {others_s}"
        "[; it has done nothing at all for {idle_s}]",
        (
            "dtctl dump {task}    shows where it is",
            "dtctl restart {task}    starts it again; recovery.first_step in cluster.yaml: dtctl does, after that time",
        ),
        find=beginnings.not_begun,
    ),
    Signature(
        "throttled",
        Level.SLOWS,
        "a limit of processor time holds back one task and not most others of its job",
        "cpu.stat of the task's control groups",
        "{tasks} on {hosts} may not use more than {used} processors: a limit of its control group holds it back "
        "{throttled_share} of the time",
        (
            "dtctl exec {at} -- cat /proc/{pid}/cgroup    names the group: its limit is cpu.max, or cpu.cfs_quota_us",
            "dtctl replace {host}    moves its tasks",
        ),
        find=hosts.throttled,
    ),
    Signature(
        "straggler",
        Level.SLOWS,
        "a worker is far slower than the others of its job",
        "the rates of its peers; processors, memory, disk and network of its host",
        "{tasks} on {hosts} makes {rate} steps/s, its peers {usual}"
        "[; load {load} on {cpus} CPUs][; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][, for memory {memory_share}][, for the disk {disk_share}]"
        "[; {stolen_share} of the processors go to other guests][; {resent_share} of what it sends is sent again]"
        "[; only {memory_low} of the memory is free]",
        (
            "dtctl diagnose    looks at its host",
            "dtctl exec {at} -- top -b -n 1    shows what runs there",
            "dtctl replace {host}    moves its tasks",
        ),
        find=hosts.stragglers,
    ),
    Signature(
        "behind",
        Level.SLOWS,
        "a task has told no step for long, and its peers go on",
        "when its peers told their last step; its host",
        "{tasks} on {hosts} has told no step for {silent_s}, its peers for {others_s}"
        "[; load {load} on {cpus} CPUs][; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][, for memory {memory_share}][, for the disk {disk_share}]",
        ("dtctl diagnose    looks at its host", "dtctl logs {task}    shows what it does"),
        find=hosts.behind,
    ),
    Signature(
        "host_slow",
        Level.SLOWS,
        "something is short on one host that is not on most others",
        "load, pressure (/proc/pressure), steal and retransmissions of every host; the busiest process of others",
        "{hosts} is short of something that others are not: load {load} on {cpus} CPUs"
        "[; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][; for memory {memory_share}][; for the disk {disk_share}]"
        "[; {stolen_share} of the processors go to other guests][; {resent_share} of what it sends is sent again]"
        "[; only {memory_low} of the memory is free]",
        (
            "dtctl exec {at} -- top -b -n 1    shows what runs there",
            "dtctl replace {host}    moves its tasks",
        ),
        find=hosts.slow,
    ),
    Signature(
        "versions_differ",
        Level.NOTE,
        "hosts have several versions of what trains",
        "the packages of every task's Python",
        "{package} is not the same everywhere: {versions}",
        ("dtctl exec {at} -- PYTHON -m pip install {package}=={version}    with the PYTHON that dtctl plan shows",),
        find=hosts.versions,
    ),
)

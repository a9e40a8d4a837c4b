"""What is said of each verdict: the verdict itself, its evidence, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dtctl.render.format import count, duration, size
from dtctl.rooms.speed.expected import holders
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.figures_screen import bits, named, number, percent, rate_of
from dtctl.rooms.speed.verdict import Kind, Verdict


def sentences(verdict: Verdict, facts: Facts) -> tuple[str, list[str], str]:
    """What is said of a verdict: the verdict itself, its evidence, and what to change."""
    return _SENTENCES[verdict.kind](verdict, verdict.figures, facts)


Figures = Mapping[str, object]
Said = tuple[str, list[str], str]


def _unbalanced(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    others = figures["others"]
    assert isinstance(others, Mapping)
    waits = figures["waits"]
    heavy = f"{task} carries {percent(figures['share'])} of the traffic of the {figures['servers']} ps tasks"
    head = f"the workers wait for {task} {percent(waits)} of the time" if waits else heavy
    rest = ", ".join(f"{other} {rate_of(carried)}" for other, carried in list(others.items())[:4])
    evidence = [f"{heavy}: {rate_of(figures['bytes'])}; {rest}"]
    evidence += [f"its busiest thread runs {percent(figures['thread'])} of the time"]
    evidence += _held(facts, task)
    largest = figures["largest"]
    if not isinstance(largest, Mapping):
        return head, evidence, "spread the variables over the ps tasks by size (GreedyLoadBalancingStrategy)"
    name = str(largest["name"])
    evidence.append(f"{name} has {size(number(largest['bytes']))} of {size(number(largest['whole']))}")
    remedy = f"partition {name} over the ps tasks (tf.fixed_size_partitioner, MinSizePartitioner); as a whole it leaves"
    return head, evidence, f"{remedy} one of them with {percent(figures['by_greedy'])}"


def _held(facts: Facts, task: str) -> list[str]:
    held = holders(facts.parameters, facts.servers)
    if task not in held:
        return []
    whole = sum(one[0] for one in held.values())
    return [f"it holds {size(held[task][0])} of {size(whole)} of the variables in the newest checkpoint"]


def _busy_server(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    name = f" ({figures['name']})" if figures["name"] else ""
    if figures["threads"]:
        busy = f"its {figures['threads']} threads keep one processor busy {percent(figures['busy'])} of the time"
        evidence = [f"{busy} between them, as if they shared a lock, at {rate_of(figures['bytes'])}"]
    else:
        busy = f"its busiest thread{name} runs {percent(figures['thread'])} of the time"
        evidence = [f"{busy}, at {rate_of(figures['bytes'])}"]
    evidence += [
        f"no worker computes more than {percent(figures['most'])} of the time for certain",
    ]
    return f"{task} is busy all the time", evidence, "add ps tasks, or let each send less: larger batches, fewer steps"


def _network(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    pairs = figures["pairs"]
    assert isinstance(pairs, Mapping)
    evidence = []
    if len(verdict.hosts) == 1:
        (host,) = verdict.hosts
        verb = "sends" if figures["sends"] else "receives"
        of = f" of {bits(number(figures['most_bits']))}" if figures["most_bits"] else ""
        evidence.append(f"{host} {verb} {bits(number(figures['bits']))}{of}")
    for pair, share in list(pairs.items())[:4]:
        task, _, peer = str(pair).partition(">")
        evidence.append(f"{task} has data on its way to {peer} {percent(share)} of the time")
    evidence.append(f"while data is on its way, {bits(number(figures['speed']))} arrive")
    if len(verdict.hosts) == 1:
        head = f"the workers wait for the network of {verdict.hosts[0]} {percent(figures['waits'])} of the time"
    else:
        head = f"the workers wait for the network {percent(figures['waits'])} of the time"
        evidence.append("the links of the hosts are equally busy")
    remedy = (
        "a faster network between the hosts, more steps' work in one (larger batches), or fewer bytes (compression)"
    )
    return head, evidence, f"{remedy}; expected is for twice the speed"


def _loss(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    evidence = [
        f"{100 * number(figures['share']):.1f} % of the segments to and from {host} are sent again"
        f" ({number(figures['segments']):.0f}/s); of the other hosts {100 * number(figures['others']):.1f} % at most",
        f"the workers wait for the network up to {percent(figures['waits'])} of the time",
    ]
    remedy = f"look for the cause at {host}: its cable, switch port, driver, a queue that is too short, or a firewall"
    return f"the network of {host} loses packets", evidence, remedy


def _straggler(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    what = "its GPU" if figures["gpu"] else "it"
    evidence = [
        f"{what} computes {percent(figures['computes'])} of the time; the median of the others is"
        f" {percent(figures['others'])}: all train the same number of steps",
        f"with the pace of the median: {number(figures['median']):.2f} times the steps/s; without the slowest worker"
        f" (a backup worker): {number(figures['backup']):.2f} times",
    ]
    remedy = (
        f"find out why {facts.places[task]} is slower (dtctl check --deep, dtctl diagnose), replace it"
        " (dtctl replace), or aggregate one replica fewer (replicas_to_aggregate)"
    )
    return f"the workers wait for {task} {percent(verdict.costs)} of the time", evidence, remedy


def _stale(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    some, several = named(verdict.tasks), len(verdict.tasks) > 1
    evidence = [
        f"about {number(figures['between']):.0f} steps of others lie between {'their' if several else 'its'} read of"
        f" the variables and {'their' if several else 'its'} update; at equal speed it is {figures['usual']}",
        f"{'they make' if several else 'it makes'} {percent(figures['pace'])} of the steps of the others",
    ]
    remedy = (
        f"find out why {'they are' if several else 'it is'} slower, train with equal machines, or synchronously with a"
        " backup worker; what late gradients cost is seen in the loss, not in the steps/s"
    )
    return f"{some} {'train' if several else 'trains'} on stale parameters", evidence, remedy


def _saves(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    evidence = [
        f"{task} makes no step {percent(figures['share'])} of the time, each time while it writes to disk"
        f" ({rate_of(figures['written'])} on average)"
    ]
    if figures["every"] is not None:
        largest = f" of {size(number(figures['bytes']))}" if figures["bytes"] else ""
        evidence.append(
            f"a checkpoint{largest} each {duration(number(figures['every']))}; it takes"
            f" {number(figures['takes']):.1f} s"
        )
    if not figures["together"]:
        evidence.append("the other workers train on meanwhile")
    remedy = "save less often (save_checkpoint_secs, save_freq), in the background, or to a faster disk"
    return f"checkpoints stop {task} {percent(figures['share'])} of the time", evidence, remedy


def _feeder(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    workers = count(int(number(figures["workers"])), "other worker")
    evidence = [
        f"{task} deals out the data of {workers}: {rate_of(figures['bytes'])}",
        f"it sends {percent(figures['sends'])} of the time, and its busiest thread runs {percent(figures['thread'])}",
    ]
    remedy = (
        "let each worker read its own part of the data (between-graph replication, tf.data on the workers,"
        " Dataset.shard)"
    )
    return f"{workers} wait for {task} {percent(figures['idle'])} of the time", evidence, remedy


def _throttled(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    others = figures["others"]
    evidence = [f"its control group has used up its quota {percent(figures['throttled'])} of the time"]
    compared = f"; others of its job's kind use {number(others):.1f}" if others is not None else ""
    evidence.append(f"it uses {number(figures['cpu']):.1f} processors{compared}")
    return f"{task} is throttled by its cgroup", evidence, "raise the quota (CPUQuota, cpu.max, the container's limit)"


def _shared_cpu(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,), several = verdict.hosts, len(verdict.tasks) > 1
    whose = "their" if several else "its"
    evidence = [
        f"{whose} threads have no processor {percent(figures['waits'])} of the time in which they could run",
        f"programs outside the run use {number(figures['others']):.1f} of the {figures['cpus']} processors"
        f" of {host}, its tasks there {number(figures['cpu']):.1f}",
    ]
    remedy = f"end what else runs on {host} (dtctl diagnose names it), or train on another host"
    share = "share their" if several else "shares its"
    return f"{named(verdict.tasks)} {share} processors with other programs", evidence, remedy


def _oversubscribed(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    tasks, cpus = count(int(number(figures["tasks"])), "task"), figures["cpus"]
    evidence = [
        f"their threads have no processor {percent(figures['waits'])} of the time in which they could run",
        f"{tasks} have {figures['threads']} threads for {cpus} processors",
    ]
    each = max(1, int(number(cpus)) // max(1, int(number(figures["tasks"]))))
    remedy = f"fewer tasks on {host}, or TF_NUM_INTRAOP_THREADS={each} in the env of its tasks"
    return f"the tasks on {host} want more processors than it has", evidence, remedy


def _swapping(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,), (host,) = verdict.tasks, verdict.hosts
    evidence = [f"{host} swaps {rate_of(figures['bytes'])}; {task} reads {number(figures['faults']):.0f} pages/s back"]
    return f"{task} has too little memory", evidence, "smaller batches or buffers, or a host with more memory"


def _stolen(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    evidence = [f"other guests of its machine take {percent(figures['stolen'])} of the time of its processors (steal)"]
    return f"{host} does not get its processors", evidence, "another type of instance, or another host"


def _input(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    some = "the workers" if len(verdict.tasks) == int(number(figures["of"])) else ", ".join(verdict.tasks[:6])
    evidence = [
        "in that time they neither compute, nor wait for processors, nor for data of other tasks",
        f"they read {rate_of(figures['read'])} from disks and {rate_of(figures['elsewhere'])} from other machines;"
        f" programs wait for disks {percent(figures['disk'])} of the time",
    ]
    remedy = "read ahead: dataset.prefetch, interleave and map with num_parallel_calls, a local copy of the data"
    return f"{some} wait for their input {percent(figures['idle'])} of the time", evidence, remedy


_SENTENCES: Mapping[Kind, Callable[[Verdict, Figures, Facts], Said]] = {
    "unbalanced": _unbalanced,
    "busy_server": _busy_server,
    "network": _network,
    "loss": _loss,
    "throttled": _throttled,
    "shared_cpu": _shared_cpu,
    "oversubscribed": _oversubscribed,
    "swapping": _swapping,
    "stolen": _stolen,
    "straggler": _straggler,
    "stale": _stale,
    "saves": _saves,
    "feeder": _feeder,
    "input": _input,
}

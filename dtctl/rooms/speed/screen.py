"""Why a run is not faster, as people read it: the verdict with its evidence, what to change, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dtctl.render.format import count, duration, size
from dtctl.render.terminal import console
from dtctl.rooms.speed.expected import holders
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.verdicts import Kind, Verdict

MOST_VERDICTS = 4
MOST_MATRIX = 10
"""The most tasks whose traffic is shown as a matrix; of larger runs the largest flows are listed."""
MOST_FLOWS = 20

NOT_MEASURED = (
    "nothing was measured yet: dtctl measures every 10 s from 10 s after the start on, and judges whole minutes"
)


def show_speed(speed: Speed) -> None:
    if speed.facts is None:
        console.say(NOT_MEASURED)
        return
    for line in lines_of(speed):
        console.say(line)
    _show_table(speed.facts)
    _show_traffic(speed.facts)


def lines_of(speed: Speed) -> list[str]:
    """The verdicts in lines."""
    assert speed.facts is not None
    when = f"{speed.judged} of the last minutes" if speed.judged else "less than a minute"
    ended = speed.age_s is not None and speed.age_s > 120
    age = f", until {duration(speed.age_s or 0)} ago" if ended else ""
    if not speed.judged:
        return [f"no verdict yet: it takes a whole minute in which all tasks train (measured: {when}{age})", ""]
    if not speed.verdicts:
        return [*_nothing(speed.facts), f"  measured: {when}{age}", ""]
    lines: list[str] = []
    for verdict in speed.verdicts[:MOST_VERDICTS]:
        head, evidence, remedy = sentences(verdict, speed.facts)
        lines += [head, *(f"  {line}" for line in evidence)]
        lines += [f"  it was so in {verdict.minutes} of the last {count(speed.judged, 'minute')}{age}"]
        lines += [f"what to change: {remedy}"]
        if verdict.expected is not None:
            lines.append(f"  expected: {_range(*verdict.expected)} times the steps/s{_rate(speed.facts)}")
        lines.append("")
    return lines


def _nothing(facts: Facts) -> list[str]:
    if not facts.workers:
        return ["no verdict: no task that trains was measured"]
    least = min(facts.computes(task)[0] for task in facts.workers)
    most = max(facts.computes(task)[1] for task in facts.workers)
    spread = f"{_percent(least)} to {_percent(most)}" if round(100 * least) != round(100 * most) else _percent(most)
    return [f"nothing stands out: the workers compute {spread} of the time"]


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
    heavy = f"{task} carries {_percent(figures['share'])} of the traffic of the {figures['servers']} ps tasks"
    head = f"the workers wait for {task} {_percent(waits)} of the time" if waits else heavy
    rest = ", ".join(f"{other} {_rate_of(carried)}" for other, carried in list(others.items())[:4])
    evidence = [f"{heavy}: {_rate_of(figures['bytes'])}; {rest}"]
    evidence += [f"its busiest thread runs {_percent(figures['thread'])} of the time"]
    evidence += _held(facts, task)
    largest = figures["largest"]
    if not isinstance(largest, Mapping):
        return head, evidence, "spread the variables over the ps tasks by size (GreedyLoadBalancingStrategy)"
    name = str(largest["name"])
    evidence.append(f"{name} has {size(_number(largest['bytes']))} of {size(_number(largest['whole']))}")
    remedy = f"partition {name} over the ps tasks (tf.fixed_size_partitioner, MinSizePartitioner); as a whole it leaves"
    return head, evidence, f"{remedy} one of them with {_percent(figures['by_greedy'])}"


def _held(facts: Facts, task: str) -> list[str]:
    held = holders(facts.parameters, facts.servers)
    if task not in held:
        return []
    whole = sum(one[0] for one in held.values())
    return [f"it holds {size(held[task][0])} of {size(whole)} of the variables in the newest checkpoint"]


def _busy_server(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    name = f" ({figures['name']})" if figures["name"] else ""
    evidence = [
        f"its busiest thread{name} runs {_percent(figures['thread'])} of the time, at {_rate_of(figures['bytes'])}",
        f"no worker computes more than {_percent(figures['most'])} of the time for certain",
    ]
    return f"{task} is busy all the time", evidence, "add ps tasks, or let each send less: larger batches, fewer steps"


def _network(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    verb = "sends" if figures["sends"] else "receives"
    bits, most = _number(figures["bits"]), figures["most_bits"]
    of = f" of {_bits(_number(most))}" if most else ""
    pairs = figures["pairs"]
    assert isinstance(pairs, Mapping)
    evidence = [f"it {verb} {_bits(bits)}{of}"]
    for pair, share in list(pairs.items())[:4]:
        task, _, peer = str(pair).partition(">")
        evidence.append(f"{task} has data on its way to {peer} {_percent(share)} of the time")
    evidence.append(f"the workers wait for the network up to {_percent(figures['waits'])} of the time")
    remedy = (
        "a faster network between the hosts, more steps' work in one (larger batches), or fewer bytes (compression)"
    )
    return f"the network of {host} is full", evidence, f"{remedy}; expected is for twice the speed"


def _throttled(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,) = verdict.tasks
    others = figures["others"]
    evidence = [f"its control group has used up its quota {_percent(figures['throttled'])} of the time"]
    compared = f"; others of its job's kind use {_number(others):.1f}" if others is not None else ""
    evidence.append(f"it uses {_number(figures['cpu']):.1f} processors{compared}")
    return f"{task} is throttled by its cgroup", evidence, "raise the quota (CPUQuota, cpu.max, the container's limit)"


def _shared_cpu(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,), several = verdict.hosts, len(verdict.tasks) > 1
    whose = "their" if several else "its"
    evidence = [
        f"{whose} threads have no processor {_percent(figures['waits'])} of the time in which they could run",
        f"programs outside the run use {_number(figures['others']):.1f} of the {figures['cpus']} processors"
        f" of {host}, its tasks there {_number(figures['cpu']):.1f}",
    ]
    remedy = f"end what else runs on {host} (dtctl diagnose names it), or train on another host"
    share = "share their" if several else "shares its"
    return f"{_named(verdict.tasks)} {share} processors with other programs", evidence, remedy


def _oversubscribed(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    tasks, cpus = count(int(_number(figures["tasks"])), "task"), figures["cpus"]
    evidence = [
        f"their threads have no processor {_percent(figures['waits'])} of the time in which they could run",
        f"{tasks} have {figures['threads']} threads for {cpus} processors",
    ]
    each = max(1, int(_number(cpus)) // max(1, int(_number(figures["tasks"]))))
    remedy = f"fewer tasks on {host}, or TF_NUM_INTRAOP_THREADS={each} in the env of its tasks"
    return f"the tasks on {host} want more processors than it has", evidence, remedy


def _swapping(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (task,), (host,) = verdict.tasks, verdict.hosts
    evidence = [
        f"{host} swaps {_rate_of(figures['bytes'])}; {task} reads {_number(figures['faults']):.0f} pages/s back"
    ]
    return f"{task} has too little memory", evidence, "smaller batches or buffers, or a host with more memory"


def _stolen(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    (host,) = verdict.hosts
    evidence = [f"other guests of its machine take {_percent(figures['stolen'])} of the time of its processors (steal)"]
    return f"{host} does not get its processors", evidence, "another type of instance, or another host"


def _input(verdict: Verdict, figures: Figures, facts: Facts) -> Said:
    some = "the workers" if len(verdict.tasks) == int(_number(figures["of"])) else ", ".join(verdict.tasks[:6])
    evidence = [
        "in that time they neither compute, nor wait for processors, nor for data of other tasks",
        f"they read {_rate_of(figures['read'])} from disks and {_rate_of(figures['elsewhere'])} from other machines;"
        f" programs wait for disks {_percent(figures['disk'])} of the time",
    ]
    remedy = "read ahead: dataset.prefetch, interleave and map with num_parallel_calls, a local copy of the data"
    return f"{some} wait for their input {_percent(figures['idle'])} of the time", evidence, remedy


_SENTENCES: Mapping[Kind, Callable[[Verdict, Figures, Facts], Said]] = {
    "unbalanced": _unbalanced,
    "busy_server": _busy_server,
    "network": _network,
    "throttled": _throttled,
    "shared_cpu": _shared_cpu,
    "oversubscribed": _oversubscribed,
    "swapping": _swapping,
    "stolen": _stolen,
    "input": _input,
}


def _show_table(facts: Facts) -> None:
    tasks = [*facts.servers, *facts.workers]
    rates = [facts.uses[task]["rate"] for task in tasks]
    console.print_table(
        console.table(
            {
                "TASK": tasks,
                "HOST": [facts.places[task] for task in tasks],
                "RATE": ["-" if rate is None else f"{rate:.3g}/s" for rate in rates],
                "CPU": [f"{facts.cpu(task):.2f}" for task in tasks],
                "BUSIEST THREAD": [_percent(facts.thread(task)) for task in tasks],
                "NO CPU": [_percent(facts.waits(task)) for task in tasks],
                "SENDS": [_rate_of(_side(facts, task, 0)) for task in tasks],
                "RECEIVES": [_rate_of(_side(facts, task, 1)) for task in tasks],
            },
            dropped=("NO CPU", "RATE"),
        )
    )


def _side(facts: Facts, task: str, end: int) -> float:
    return sum(carried for pair, carried in facts.matrix.items() if pair[end] == task)


def _show_traffic(facts: Facts) -> None:
    refused = [host for host, sample in facts.hosts.items() if sample["traffic"] != "measured"]
    if refused:
        console.say("")
        console.say(
            f"the kernel does not report the connections on {', '.join(refused[:6])}: only their interfaces count"
        )
    tasks = sorted({task for pair in facts.matrix for task in pair if task in facts.uses}, key=[*facts.uses].index)
    tasks = [task for task in [*facts.servers, *facts.workers] if task in tasks]
    if not tasks:
        return
    console.say("")
    if len(tasks) <= MOST_MATRIX:
        console.say("bytes a second, from the task of the row to that of the column:")
        cells = {task: [_cell(facts.matrix.get((one, task))) for one in tasks] for task in tasks}
        console.print_table(console.table({"FROM": tasks, **cells}))
        return
    pairs = sorted(facts.matrix.items(), key=lambda one: -one[1])[:MOST_FLOWS]
    columns = {
        "FROM": [pair[0] for pair, _ in pairs],
        "TO": [pair[1] for pair, _ in pairs],
        "CARRIES": [_rate_of(carried) for _, carried in pairs],
    }
    console.print_table(console.table(columns))


def _cell(carried: float | None) -> str:
    return "-" if carried is None else size(carried)


def _named(tasks: Sequence[str]) -> str:
    """A few tasks by name."""
    named = [*tasks[:5], *([f"{len(tasks) - 5} others"] if len(tasks) > 5 else [])]
    return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _percent(value: object) -> str:
    return f"{100 * _number(value):.0f} %"


def _rate_of(value: object) -> str:
    return f"{size(_number(value))}/s"


def _bits(bits: float) -> str:
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.1f} Mbit/s"


def _range(least: float, most: float) -> str:
    return f"{least:.1f} to {most:.1f}" if f"{least:.1f}" != f"{most:.1f}" else f"{most:.1f}"


def _rate(facts: Facts) -> str:
    return "" if facts.rate is None else f" (now {facts.rate:.3g})"

"""The machine form of what was measured of a run, and of what it means."""

from __future__ import annotations

from typing import Any

from dtctl.render.machine.document import errors, picked, plain
from dtctl.rooms.speed.expected import holders
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.growth import Growth, More
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.verdict import Verdict
from dtctl.rooms.speed.verdict_screen import sentences


def speed(found: Speed) -> dict[str, Any]:
    facts = found.facts
    return {
        "run": found.run,
        "judgedMinutes": found.judged,
        "ageSeconds": found.age_s,
        "sinceSeconds": found.since_s,
        "verdicts": [_verdict(one, facts) for one in found.verdicts if facts is not None],
        "growth": _growth(found.growth) if found.growth is not None else None,
        "tasks": [_task(facts, task) for task in facts.uses] if facts is not None else [],
        "hosts": [_host(facts, host) for host in facts.hosts] if facts is not None else [],
        "traffic": _traffic(facts) if facts is not None else [],
        "parameters": _parameters(facts) if facts is not None else None,
        "errors": errors(found.errors),
    }


def _verdict(one: Verdict, facts: Facts) -> dict[str, Any]:
    head, evidence, remedy = sentences(one, facts)
    return {
        **picked(one, "kind tasks hosts costs minutes"),
        "verdict": head,
        "evidence": evidence,
        "change": remedy,
        "expected": plain(one.expected._asdict()) if one.expected is not None else None,
        "figures": plain(one.figures),
    }


def _growth(growth: Growth) -> dict[str, Any]:
    return {
        "workers": [_more(one) for one in growth.workers],
        "limit": plain(growth.limit._asdict()) if growth.limit is not None else None,
        "limitedBy": growth.limited_by,
        "servers": [_more(one) for one in growth.servers],
    }


def _more(one: More) -> dict[str, Any]:
    return {"tasks": one.tasks, **plain(one.gain._asdict())}


def _task(facts: Facts, task: str) -> dict[str, Any]:
    least, most = facts.computes(task)
    use = facts.uses[task]
    return {
        "task": task,
        "host": facts.places[task],
        **picked(use, "seconds step rate=stepsPerSecond"),
        "cpu": facts.cpu(task),
        "busiestThread": {"name": use["thread"], "share": facts.thread(task)},
        "threads": use["threads"],
        "withoutCpu": facts.waits(task),
        "throttled": None if use["throttled_s"] is None else facts.throttled(task),
        "gpu": facts.gpu(task),
        "computes": {"least": least, "most": most} if task in facts.workers else None,
        "onNetwork": facts.on_network(task) if task in facts.workers else None,
        "readBytesPerSecond": _each_second(use["read_bytes"], use["seconds"]),
        "writtenBytesPerSecond": _each_second(use["written_bytes"], use["seconds"]),
    }


def _host(facts: Facts, host: str) -> dict[str, Any]:
    sample = facts.hosts[host]
    return {
        "host": host,
        **picked(sample, "cpus traffic"),
        "busy": facts.busy(host),
        "others": facts.others(host),
        "stolen": facts.stolen(host),
        "swappedBytesPerSecond": facts.swapped(host),
        "waitedSeconds": plain(sample["waited_s"]),
        "interfaces": [
            {
                "name": name,
                "sentBytesPerSecond": _each_second(link["sent_bytes"], sample["seconds"]),
                "receivedBytesPerSecond": _each_second(link["received_bytes"], sample["seconds"]),
                "bitsPerSecond": link["bits_a_second"],
            }
            for name, link in sample["interfaces"].items()
        ],
    }


def _traffic(facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "from": pair[0],
            "to": pair[1],
            "bytesPerSecond": carried,
            "underWay": facts.under_way(*pair) if pair[0] in facts.places else None,
        }
        for pair, carried in facts.matrix.items()
    ]


def _parameters(facts: Facts) -> dict[str, Any] | None:
    if facts.parameters is None:
        return None
    held = holders(facts.parameters, facts.servers)
    tasks = [{"task": task, "sizeBytes": bytes_, "variables": number} for task, (bytes_, number) in held.items()]
    return {
        **picked(facts.parameters, "prefix step shards[size_bytes variables] largest[name size_bytes shard]"),
        "tasks": tasks,
    }


def _each_second(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0

"""Judges experiments again by what was measured in them.

`python -m tests.speed.judging DIR` prints all verdicts, and adds what was measured to recorded.jsonl, for unit tests.
Where processors decide, it leaves out what was measured on a busy machine; `--quiet`: only the experiments were busy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.speed.records import Parameters, Sample
from dtctl.rooms.speed.expected import Range
from dtctl.rooms.speed.facts import Facts, Minute, merged
from dtctl.rooms.speed.growth import expected_gain
from dtctl.rooms.speed.verdict import Verdict
from dtctl.rooms.speed.verdicts import judged
from tests.speed.cases import CASES, Case

RECORDED = Path(__file__).with_name("recorded.jsonl")

QUIET = 0.9
"""How busy the machine may be where its processors decide."""

NEAR = 0.25
"""How far the measured gain of a remedy may be from the expected one."""


def minute_of(found: Mapping[str, Any], strategy: str) -> Minute:
    """The newest minute of each host. What a host adds later to its records has its default here."""
    hosts = {host: checked(Sample, kept[0]) for host, kept in found["kept"].items() if kept}
    parameters = found["parameters"]
    if parameters is not None:
        parameters = checked(Parameters, {name: parameters[name] for name in ("prefix", "step")} | _plain(parameters))
    return Minute(hosts, parameters, (), strategy)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "shards": [{"size_bytes": one["sizeBytes"], "variables": one["variables"]} for one in parameters["shards"]],
        "largest": [
            {"name": one["name"], "size_bytes": one["sizeBytes"], "shard": one["shard"]}
            for one in parameters["largest"]
        ],
    }


def verdicts(found: Mapping[str, Any], case: Case) -> tuple[Verdict, ...]:
    return judged([minute_of(found, case.strategy)])


def is_right(first: Verdict | None, case: Case) -> bool:
    if first is None or not case.expected:
        return (first is None) == (not case.expected)
    return first.kind == case.expected and set(case.about) <= {*first.tasks, *first.hosts}


def gain(before: Mapping[str, Any], after: Mapping[str, Any], case: Case) -> tuple[Verdict | None, float]:
    """The verdict of the run before a remedy, and how many times the steps/s the run after it makes."""
    first = next(iter(verdicts(before, case)), None)
    return first, after["rate"] / before["rate"]


def wider(before: Mapping[str, Any], after: Mapping[str, Any], case: Case) -> tuple[Range | None, float]:
    """What the run with fewer workers expects of as many as there are in the other one, and what these do."""
    facts = merged([minute_of(before, case.strategy)])
    more = merged([minute_of(after, case.strategy)])
    assert facts is not None
    assert more is not None
    few, many = len(facts.trainers), len(more.trainers)
    return expected_gain(facts, many), after["rate"] * many / before["rate"] / few


def is_near(expected: tuple[float, float], measured: float) -> bool:
    """Whether what was measured is in the range that was expected, or within NEAR of it."""
    return expected[0] * (1 - NEAR) <= measured <= expected[1] * (1 + NEAR)


def recorded() -> dict[str, dict[str, Any]]:
    """What was measured in each experiment, by its name."""
    each = map(json.loads, RECORDED.read_text().splitlines()) if RECORDED.exists() else ()
    return {found["name"]: found for found in each}


def _record(results: Mapping[str, Mapping[str, Any]], *, quiet: bool) -> None:
    fields = ("name", "rate", "machine_busy", "machine_stolen", "parameters")
    kept = recorded()
    for name, found in results.items():
        if not quiet and CASES[name].quiet and found["machine_busy"] > QUIET:
            continue
        newest = {host: [_short(minutes[0])] for host, minutes in found["kept"].items() if minutes}
        kept[name] = {**{field: found[field] for field in fields}, "kept": newest}
    lines = [json.dumps(kept[name], separators=(",", ":")) for name in CASES if name in kept]
    RECORDED.write_text("\n".join(lines) + "\n")


def _short(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is nothing."""
    found = {name: value for name, value in sample.items() if value not in (None, 0, "", {}, [])}
    if "tasks" in sample:
        found |= {"seconds": sample["seconds"], "tasks": {task: _use(use) for task, use in sample["tasks"].items()}}
        found["flows"] = [_short(flow) for flow in sample["flows"]]
    return found


def _use(use: Mapping[str, Any]) -> dict[str, Any]:
    return {**_short(use), "seconds": use["seconds"]}


def main() -> None:
    results = {}
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        found = json.loads(file.read_text())
        results[found["name"]] = found
    _record(results, quiet="--quiet" in sys.argv[2:])
    right = 0
    for name, case in CASES.items():
        if name not in results:
            continue
        found = results[name]
        own = verdicts(found, case)
        first = own[0] if own else None
        right += is_right(first, case)
        said = [f"{one.kind} {','.join(one.tasks)} {','.join(one.hosts)} {one.costs:.2f}" for one in own]
        print(f"{'  ' if is_right(first, case) else '!!'} {name}: wanted {case.expected or '-'} {case.about}; {said}")
        print(f"      {found['rate'] or 0:.3g}/s  busy {found['machine_busy']}  {_summary(found, case)}")
        if case.remedy_of in results:
            verdict, measured = gain(results[case.remedy_of], found, CASES[case.remedy_of])
            expected = verdict.expected if verdict is not None else None
            near = expected is not None and is_near(expected, measured)
            print(f"      remedy of {case.remedy_of}: measured {measured:.2f}, expected {expected}: {near}")
        if case.wider_than in results:
            expected, measured = wider(results[case.wider_than], found, case)
            print(f"      wider than {case.wider_than}: measured {measured:.2f}, expected {expected}")
    print(f"{right} of {len(results)}")


def _summary(found: Mapping[str, Any], case: Case) -> str:
    facts: Facts | None = merged([minute_of(found, case.strategy)])
    if facts is None:
        return ""
    each = [
        f"{task}: works {facts.works(task):.2f} net {facts.on_network(task) or 0:.2f} save {facts.saving(task):.2f}"
        f" cpu {facts.cpu(task):.2f} waits {facts.waits(task):.2f}"
        for task in facts.workers
    ]
    return "; ".join(each)


if __name__ == "__main__":
    main()

"""Adds up time spans that follow each other: pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

    from .records import Flow, Interface, Resource, Sample, TaskUse

_LONGEST_S = 1e9
_MOST = 1e18


def added(samples: Sequence[Sample]) -> Optional[Sample]:
    """One time span of several, oldest first. None for none."""
    if not samples:
        return None
    last = samples[-1]
    return {
        "time": last["time"],
        "seconds": _sum_s([one["seconds"] for one in samples]) or 0.0,
        "cpus": last["cpus"],
        "busy_s": _sum_s([one["busy_s"] for one in samples]),
        "stolen_s": _sum_s([one["stolen_s"] for one in samples]),
        "swapped_bytes": _sum([one["swapped_bytes"] for one in samples]),
        "waited_s": _waits(samples),
        "interfaces": _interfaces(samples),
        "tasks": _tasks(samples),
        "flows": _flows(samples),
        "flows_omitted": max(one["flows_omitted"] for one in samples),
        "traffic": last["traffic"],
    }


def _waits(samples: Sequence[Sample]) -> Dict[Resource, float]:
    waited: Dict[Resource, float] = {}
    for one in samples:
        for what, seconds in one["waited_s"].items():
            waited[what] = _sum_s([waited.get(what), seconds]) or 0.0
    return waited


def _sum_s(values: Sequence[Optional[float]]) -> Optional[float]:
    """Unknown if all are."""
    known = [value for value in values if value is not None]
    return round(min(_LONGEST_S, sum(known)), 3) if known else None


def _sum(values: Sequence[float]) -> float:
    return min(_MOST, sum(values))


def _interfaces(samples: Sequence[Sample]) -> Dict[str, Interface]:
    found: Dict[str, Interface] = {}
    for one in samples:
        for name, link in one["interfaces"].items():
            before = found.get(name)
            found[name] = link if before is None else _interface(before, link)
    return found


def _interface(before: Interface, after: Interface) -> Interface:
    return {
        "sent_bytes": _sum([before["sent_bytes"], after["sent_bytes"]]),
        "received_bytes": _sum([before["received_bytes"], after["received_bytes"]]),
        "bits_a_second": after["bits_a_second"],
    }


def _tasks(samples: Sequence[Sample]) -> Dict[str, TaskUse]:
    found: Dict[str, TaskUse] = {}
    for one in samples:
        for task, use in one["tasks"].items():
            before = found.get(task)
            found[task] = use if before is None else _task(before, use)
    return found


def _task(before: TaskUse, after: TaskUse) -> TaskUse:
    busiest = before if (before["thread_s"] or 0.0) > (after["thread_s"] or 0.0) else after
    return {
        "seconds": _sum_s([before["seconds"], after["seconds"]]) or 0.0,
        "cpu_s": _sum_s([before["cpu_s"], after["cpu_s"]]) or 0.0,
        "thread_s": _sum_s([before["thread_s"], after["thread_s"]]),
        "thread": busiest["thread"],
        "threads": max(before["threads"], after["threads"]),
        "waits_s": _sum_s([before["waits_s"], after["waits_s"]]),
        "throttled_s": _sum_s([before["throttled_s"], after["throttled_s"]]),
        "read_bytes": _sum([before["read_bytes"], after["read_bytes"]]),
        "written_bytes": _sum([before["written_bytes"], after["written_bytes"]]),
        "faults": int(_sum([before["faults"], after["faults"]])) & ((1 << 53) - 1),
        "gpu_s": _sum_s([before["gpu_s"], after["gpu_s"]]),
        "step": after["step"] if after["step"] is not None else before["step"],
        "rate": after["rate"] if after["rate"] is not None else before["rate"],
    }


def _flows(samples: Sequence[Sample]) -> List[Flow]:
    from .records import MOST_FLOWS

    found: Dict[Tuple[str, Optional[str], Optional[str]], Flow] = {}
    for one in samples:
        for flow in one["flows"]:
            key = flow["task"], flow["peer"], flow["host"]
            before = found.get(key)
            found[key] = flow if before is None else _flow(before, flow)
    return largest(list(found.values()), MOST_FLOWS)


def largest(flows: List[Flow], most: int) -> List[Flow]:
    return sorted(flows, key=lambda flow: -flow["sent_bytes"] - flow["received_bytes"])[:most]


def _flow(before: Flow, after: Flow) -> Flow:
    return {
        "task": after["task"],
        "peer": after["peer"],
        "host": after["host"],
        "sent_bytes": _sum([before["sent_bytes"], after["sent_bytes"]]),
        "received_bytes": _sum([before["received_bytes"], after["received_bytes"]]),
        "resent": min(1 << 53, before["resent"] + after["resent"]),
        "busy_s": _sum_s([before["busy_s"], after["busy_s"]]),
        "rtt_us": max(before["rtt_us"], after["rtt_us"]),
        "connections": max(before["connections"], after["connections"]),
    }

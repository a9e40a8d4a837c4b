"""Adds up time spans that follow each other: pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

    from .records import Flow, Interface, Sample, TaskUse

    K = TypeVar("K")
    V = TypeVar("V")

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
        "waited_s": _by_name((one["waited_s"] for one in samples), _added_s),
        "interfaces": _by_name((one["interfaces"] for one in samples), _interface),
        "tasks": _by_name((one["tasks"] for one in samples), _task),
        "flows": _flows(samples),
        "flows_omitted": max(one["flows_omitted"] for one in samples),
        "traffic": last["traffic"],
    }


def _sum_s(values: Sequence[Optional[float]]) -> Optional[float]:
    """Unknown if all are."""
    known = [value for value in values if value is not None]
    return round(min(_LONGEST_S, sum(known)), 3) if known else None


def _added_s(before: float, after: float) -> float:
    return _sum_s([before, after]) or 0.0


def _sum(values: Sequence[float]) -> float:
    return min(_MOST, sum(values))


def _by_name(groups: Iterable[Mapping[K, V]], add: Callable[[V, V], V]) -> Dict[K, V]:
    """The sum of what has the same name."""
    found: Dict[K, V] = {}
    for group in groups:
        for name, value in group.items():
            found[name] = add(found[name], value) if name in found else value
    return found


def _interface(before: Interface, after: Interface) -> Interface:
    return {
        "sent_bytes": _sum([before["sent_bytes"], after["sent_bytes"]]),
        "received_bytes": _sum([before["received_bytes"], after["received_bytes"]]),
        "bits_a_second": after["bits_a_second"],
    }


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
        "saving_s": _sum_s([before["saving_s"], after["saving_s"]]),
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
